//! The start: its first lines, the folder of the data, open files; and the end where the folder is lost.

use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;

use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::{ApiVersionsRequest, CreateTopicsRequest};
use rustix::process::Signal;

use crate::common::client::{Client, batch, name, produce};
use crate::process::{Folder, Process, output};

pub(crate) fn new_topic(client: &mut Client, topic: &str) {
    let topic = CreatableTopic::default().with_name(name(topic)).with_num_partitions(1);
    let topics = vec![topic.with_replication_factor(1)];
    let made = client.ask(5, &CreateTopicsRequest::default().with_topics(topics));
    assert_eq!(made.topics[0].error_code, 0);
}

#[test]
fn the_first_lines_say_what_runs_and_the_folder_is_its_owners_alone() {
    let folder = Folder::new();
    let mut broker = Process::start(&folder, &[]);
    let first = &broker.before[0];
    assert!(first.contains("starting") && first.contains("data_dir="), "{first}");
    assert_eq!(broker.field("version"), concat!("\"", env!("CARGO_PKG_VERSION"), "\""));
    assert_eq!((broker.field("is_new"), broker.field("topics")), ("true", "0"));
    assert_eq!(broker.field("max_request_bytes"), "104857600");
    let mode = std::fs::metadata(folder.path("data")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    new_topic(&mut broker.client(), "t");
    broker.signal(Signal::TERM);
    assert!(broker.ended().success());

    let broker = Process::start(&folder, &[]);
    assert_eq!((broker.field("closed_cleanly"), broker.field("topics")), ("true", "1"));
}

#[test]
fn connections_are_refused_before_the_engine_lacks_a_file() {
    let folder = Folder::new();
    let mut broker = Process::start_within(&folder, "ulimit -n 256");
    let most: usize = broker.field("max_connections").parse().unwrap();
    assert!((1..256).contains(&most), "{}", broker.serving);
    assert!(broker.before.iter().any(|line| line.contains("fewer connections than by default")));
    let mut client = broker.client();
    new_topic(&mut client, "t");
    let crowd: Vec<TcpStream> =
        (0..400).map_while(|_| TcpStream::connect(broker.address()).ok()).collect();
    assert!(crowd.len() > most);
    for round in 0..20 {
        let stored = client.ask(9, &produce(-1, &[("t", &[(0, batch("value"))])]));
        assert_eq!(stored.responses[0].partition_responses[0].error_code, 0, "{round}");
    }
    drop(crowd);
    broker.signal(Signal::TERM);
    assert!(broker.ended().success(), "it closes with a checkpoint");
}

#[test]
fn more_connections_than_there_are_files_for_are_refused_at_the_start() {
    let folder = Folder::new();
    let data = folder.path("data");
    let most = "1000000";
    let (code, said) = output(
        &[
            "--listen",
            "127.0.0.1:0",
            "--data-dir",
            data.to_str().unwrap(),
            "--max-connections",
            most,
        ],
        &[],
    );
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    if limit.is_some_and(|limit| limit < 1_000_000) {
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("the limit of open files is too low for max-connections"), "{said}");
        assert!(!data.exists(), "nothing was made");
    } else {
        println!("the limit of open files has room for all: limit={limit:?}");
    }
}

#[test]
fn a_removed_folder_ends_the_process_with_a_line_even_where_it_is_to_stay_when_halted() {
    for options in [&[][..], &["--stay-when-halted"]] {
        let folder = Folder::new();
        let mut broker = Process::start(&folder, options);
        broker.client().ask(3, &ApiVersionsRequest::default());
        // At once, where its files would be removed one by one and made again meanwhile.
        std::fs::rename(folder.path("data"), folder.path("elsewhere")).unwrap();
        let line = broker.line("the data folder was removed or replaced");
        assert!(line.contains("ERROR"), "{line}");
        assert_eq!(broker.ended().code(), Some(1));
    }
}
