//! The audit log: who did what from where, refusals limited, no secret, and a file that is rotated.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::{
    CreateTopicsRequest, DeleteGroupsRequest, DeleteTopicsRequest, GroupId,
    SaslAuthenticateRequest, SaslHandshakeRequest,
};
use kafka_protocol::protocol::StrBytes;
use tidelog::clock::SystemClock;
use tidelog_broker::audit::Audit;
use tidelog_broker::security::users::hash_password;
use tidelog_broker::security::{Grants, Security, Users};
use tidelog_broker::server::Config;

use crate::common::client::{Client, batch, name, produce};
use crate::common::{TestBroker, config};
use crate::process::Folder;

fn log_in(client: &mut Client, user: &str, password: &str) -> i16 {
    let plain = SaslHandshakeRequest::default().with_mechanism(StrBytes::from_static_str("PLAIN"));
    assert_eq!(client.ask(1, &plain).error_code, 0);
    let token = format!("\0{user}\0{password}").into_bytes().into();
    client.ask(2, &SaslAuthenticateRequest::default().with_auth_bytes(token)).error_code
}

fn create(client: &mut Client, topic: &str) -> i16 {
    let topic = CreatableTopic::default().with_name(name(topic)).with_num_partitions(1);
    let topics = vec![topic.with_replication_factor(1)];
    client.ask(5, &CreateTopicsRequest::default().with_topics(topics)).topics[0].error_code
}

fn broker(audit: &Audit) -> TestBroker {
    let users = format!("ann:{}\n", hash_password(b"a-secret").unwrap());
    let grants = "ann Create t*\nann Delete t*\nann GroupDelete g\n";
    let security = Security {
        users: Some(Users::parse(&users).unwrap()),
        grants: Some(Arc::new(Grants::parse(grants).unwrap())),
        ..Security::default()
    };
    TestBroker::start(Config { security, audit: audit.clone(), ..config() })
}

fn lines(audit: &Audit, path: &Path) -> Vec<serde_json::Value> {
    audit.flush();
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The words of a line that are always there.
fn words(line: &serde_json::Value) -> String {
    let word = |key: &str| line[key].as_str().unwrap_or("-").to_owned();
    let keys = ["event", "user", "address", "action", "resource", "result"];
    format!("{} {}", keys.map(word).join(" "), line["code"])
}

#[test]
fn logins_refusals_and_changes_are_noted_and_no_secret_is() {
    let folder = Folder::new();
    let path = folder.path("audit.log");
    let audit = Audit::open(&path, Arc::new(SystemClock::new())).unwrap();
    let broker = broker(&audit);
    assert_eq!(log_in(&mut broker.client(), "ann", "a-wrong-one"), 58);
    // A password in the place of the name.
    assert_eq!(log_in(&mut broker.client(), "a-secret", "ann"), 58);
    let mut client = broker.client();
    assert_eq!(log_in(&mut client, "ann", "a-secret"), 0);
    assert_eq!([create(&mut client, "t"), create(&mut client, "t")], [0, 36]);
    assert_eq!(create(&mut client, "other"), 29);
    client.ask(9, &produce(1, &[("t", &[(0, batch("value"))])]));
    let topics = vec![DeleteTopicState::default().with_name(Some(name("t")))];
    client.ask(6, &DeleteTopicsRequest::default().with_topics(topics));
    let groups = vec![GroupId(StrBytes::from_static_str("g"))];
    client.ask(2, &DeleteGroupsRequest::default().with_groups_names(groups));

    let lines = lines(&audit, &path);
    let noted: Vec<String> = lines.iter().map(words).collect();
    let expected = [
        "login ann 127.0.0.1 SaslAuthenticate - failed 58",
        "login - 127.0.0.1 SaslAuthenticate - failed 58",
        "login ann 127.0.0.1 SaslAuthenticate - ok 0",
        "change ann 127.0.0.1 CreateTopic t ok 0",
        "change ann 127.0.0.1 CreateTopic t failed 36",
        "refusal ann 127.0.0.1 Create other failed 29",
        "refusal ann 127.0.0.1 KafkaWrite t failed 29",
        "change ann 127.0.0.1 DeleteTopic t ok 0",
        "change ann 127.0.0.1 DeleteGroup g failed 69",
    ];
    assert_eq!(noted, expected);
    assert!(lines.iter().all(|line| line["time_ms"].as_i64().unwrap() > 1_600_000_000_000));
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.contains("secret") && !text.contains("wrong-one"), "{text}");
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_flood_of_refusals_is_limited_and_changes_beside_it_are_not() {
    let folder = Folder::new();
    let path = folder.path("audit.log");
    let audit = Audit::open(&path, Arc::new(SystemClock::new())).unwrap();
    let broker = broker(&audit);
    let mut client = broker.client();
    assert_eq!(log_in(&mut client, "ann", "a-secret"), 0);
    for _ in 0..2000 {
        assert_eq!(create(&mut client, "other"), 29);
    }
    for number in 0..50 {
        assert_eq!(create(&mut client, &format!("t{number}")), 0);
    }
    let lines = lines(&audit, &path);
    let count = |event: &str| lines.iter().filter(|line| line["event"] == event).count();
    assert_eq!(count("change"), 50);
    assert!((20..1000).contains(&count("refusal")), "{}", count("refusal"));
    assert_eq!(audit.dropped(), 0);
}

#[test]
fn a_renamed_file_is_written_on_until_it_is_opened_again() {
    let folder = Folder::new();
    let (path, old) = (folder.path("audit.log"), folder.path("audit.log.1"));
    let audit = Audit::open(&path, Arc::new(SystemClock::new())).unwrap();
    let broker = broker(&audit);
    let mut client = broker.client();
    assert_eq!(log_in(&mut client, "ann", "a-secret"), 0);
    std::fs::rename(&path, &old).unwrap();
    assert_eq!(create(&mut client, "t1"), 0);
    assert_eq!(lines(&audit, &old).len(), 2);
    audit.reopen().unwrap();
    assert_eq!(create(&mut client, "t2"), 0);
    assert_eq!((lines(&audit, &path).len(), lines(&audit, &old).len()), (1, 2));

    // Where it cannot be opened again, the old one goes on.
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(audit.reopen().is_err());
    assert_eq!(create(&mut client, "t3"), 0);
    assert_eq!(audit.dropped(), 0);
}
