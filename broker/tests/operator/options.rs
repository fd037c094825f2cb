//! Options: four sources, one order, bounds for each, and documents that list them.

use tidelog_broker::options::kind::Kind;
use tidelog_broker::options::{Problems, Source, Task, Values, command, read, settle, table};

use crate::process::{Folder, output, text};

fn values(options: &[&str]) -> Result<Values, Problems> {
    let words = ["tidelog-broker"].into_iter().chain(options.iter().copied());
    match read(&command().try_get_matches_from(words).unwrap())? {
        Task::Serve(values) | Task::Print(values) => Ok(values),
        Task::HashPassword => panic!("it was to serve"),
    }
}

fn refused(options: &[&str]) -> String {
    let outcome = values(options).and_then(|values| settle(&values).map(|_| ()));
    outcome.expect_err(&format!("{options:?}")).to_string()
}

#[test]
fn an_option_goes_before_the_environment_that_before_the_file_and_that_before_the_default() {
    let folder = Folder::new();
    let file = folder.write(
        "broker.toml",
        "max-connections = 11\ngroup-max-members = 12\nlog-level = \"warn\"\n",
    );
    let variables = [
        ("TIDELOG_MAX_CONNECTIONS", "21"),
        ("TIDELOG_GROUP_MAX_MEMBERS", "22"),
        ("TIDELOG_CONFIG", text(&file)),
        ("TIDELOG_INSECURE", "true"),
    ];
    let (code, printed) =
        output(&["--print-config", "--max-connections", "31", "--insecure=false"], &variables);
    assert_eq!(code, Some(0), "{printed}");
    for line in [
        "max-connections = 31 # option\n",
        "insecure = false # option\n",
        "group-max-members = 22 # environment TIDELOG_GROUP_MAX_MEMBERS\n",
        &format!("log-level = \"warn\" # file {}\n", file.display()),
        "max-request-bytes = 104857600 # default\n",
    ] {
        assert!(printed.contains(line), "{line} in {printed}");
    }
    let again = folder.write("again.toml", &printed);
    let (code, second) = output(&["--print-config", "--config", text(&again)], &[]);
    assert_eq!(code, Some(0), "{second}");
    let without_sources = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split(" # ").next().unwrap().to_owned()).collect()
    };
    assert_eq!(without_sources(&second), without_sources(&printed));
}

#[test]
fn a_senseless_value_of_any_option_is_refused_with_its_name_its_source_and_its_bounds() {
    for row in table() {
        let option = format!("--{}", row.name);
        let wrong: Vec<String> = match row.kind {
            Kind::Integer { least, greatest, .. } => {
                let below = i128::from(least) - 1;
                [below, i128::from(greatest) + 1, i128::from(u64::MAX)]
                    .map(|number| number.to_string())
                    .into_iter()
                    .chain(["abc".to_owned(), String::new(), "1.5".to_owned()])
                    .collect()
            }
            Kind::Flag => vec!["perhaps".to_owned()],
            Kind::Path => vec![String::new()],
            _ => vec![String::new(), "nonsense".to_owned(), ":9".to_owned()],
        };
        for value in wrong {
            let said = refused(&[&format!("{option}={value}")]);
            let expected = format!("(option): must be {}", row.kind.bounds());
            assert!(said.starts_with(&*row.name) && said.ends_with(&expected), "{said}");
        }
    }
}

#[test]
fn both_bounds_of_every_number_are_taken() {
    for row in table() {
        let Kind::Integer { least, greatest, .. } = row.kind else { continue };
        for bound in [least, greatest] {
            assert!(values(&[&format!("--{}={bound}", row.name)]).is_ok(), "{}", row.name);
        }
    }
}

#[test]
fn all_that_is_wrong_in_a_file_is_named_at_once() {
    let folder = Folder::new();
    let file = folder.write(
        "broker.toml",
        "max-conections = 1\nmax-connections = \"many\"\nlisten = 9092\n[group]\nmembers = 1\n",
    );
    let said = refused(&["--config", text(&file)]);
    for piece in [
        "there is no option \"max-conections\"",
        "there is no option \"group\"",
        "max-connections=\"many\" (file ",
        "listen=9092 (file ",
    ] {
        assert!(said.contains(piece), "{piece} in {said}");
    }
    let broken = folder.write("broken.toml", "max-connections = 1\nmax-connections = 2\n");
    assert!(refused(&["--config", text(&broken)]).contains("duplicate key"));
    assert!(refused(&["--config", text(&folder.path("none.toml"))]).contains("No such file"));
}

#[test]
fn options_that_contradict_one_another_are_refused() {
    for (options, expected) in [
        (&["--grants=g"][..], "grants=\"g\" (option) wants users, too"),
        (&["--tls-cert=c"], "tls-cert=\"c\" (option) wants tls-key, too"),
        (&["--tls-key=k"], "tls-key=\"k\" (option) wants tls-cert, too"),
        (
            &["--max-request-bytes=1073741824"],
            "max-request-bytes=1073741824 (option) must not be above max-memory-bytes=536870912 \
             (default)",
        ),
        (
            &["--group-min-session-timeout-ms=5000", "--group-max-session-timeout-ms=1000"],
            "group-min-session-timeout-ms=5000 (option) must not be above \
             group-max-session-timeout-ms=1000 (option)",
        ),
        (
            &["--background-sync-bytes=67108865"],
            "background-sync-bytes=67108865 (option) must not be above max-unsynced-bytes=67108864 \
             (default)",
        ),
        (
            &["--commit-queue-bytes=1048576"],
            "max-request-bytes=104857600 (default) must not be above commit-queue-bytes=1048576 \
             (option)",
        ),
    ] {
        assert_eq!(refused(options), expected);
    }
}

#[test]
fn limits_of_the_engine_reach_it_and_it_takes_as_large_transactions_as_there_are_requests() {
    let options =
        ["--segment-bytes=1048576", "--disk-reserve-bytes=0", "--max-request-bytes=90000"];
    let (serve, engine) = settle(&values(&options).unwrap()).unwrap();
    assert_eq!((engine.segment_bytes, engine.disk_reserve_bytes), (1 << 20, Some(0)));
    assert_eq!((engine.max_transaction_bytes, serve.max_request_bytes), (90_000, 90_000));
    let (_, engine) = settle(&values(&[]).unwrap()).unwrap();
    assert_eq!(engine.commit_queue_bytes, 100 << 20, "a request fits into the queue");
}

#[test]
fn the_defaults_are_a_kafka_on_loopback() {
    let values = values(&[]).unwrap();
    assert_eq!(values.source("listen"), Source::Default);
    let (serve, _) = settle(&values).unwrap();
    assert!(serve.listen.ip().is_loopback() && !serve.insecure);
    assert_eq!(serve.profile.to_string(), "kafka");
    assert_eq!(serve.limits(4096).max_connections_per_address, 2048);
}

#[test]
fn the_documents_list_every_option_with_its_default_and_its_bounds() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations.md");
    let page = std::fs::read_to_string(page).unwrap();
    let rows = table().into_iter().map(|row| {
        let bounds = row.kind.bounds();
        let begin = format!("| `--{}` | {} | {bounds} |", row.name, row.default_text());
        // What a limit of the engine is for stands in words of its own in the engine's table.
        if row.is_of_engine { begin } else { format!("{begin} {} |", row.help) }
    });
    let missing: Vec<String> =
        rows.filter(|row| !page.lines().any(|line| line.starts_with(row.as_str()))).collect();
    assert!(missing.is_empty(), "rows that docs/operations.md lacks:\n{}", missing.join("\n"));
}
