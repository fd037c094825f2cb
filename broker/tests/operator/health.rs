//! What tells an operator that something is wrong: lines, figures, and whether the broker is ready.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::process::Signal;
use tidelog::TopicConfig;
use tidelog_broker::server::Config;

use crate::common::client::{batch, produce};
use crate::common::{TestBroker, config};
use crate::process::{Folder, Process};
use crate::starting::new_topic;

fn page(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_halted_broker_is_alive_and_not_ready_and_its_figures_say_so() {
    let metrics_listen = Some(([127, 0, 0, 1], 0).into());
    let broker = TestBroker::start(Config { metrics_listen, ..config() });
    let address = broker.metrics.unwrap();
    assert!(page(address, "/readyz").starts_with("HTTP/1.1 200 "));
    assert!(page(address, "/metrics").contains("tidelog_broker_appends_refused 0\n"));
    broker.break_index();
    assert!(broker.engine.create_topic("t", TopicConfig::new(1)).is_err());
    assert!(broker.notices_halt());
    let ready = page(address, "/readyz");
    assert!(ready.starts_with("HTTP/1.1 503 ") && ready.ends_with("the engine has halted\n"));
    assert!(page(address, "/livez").starts_with("HTTP/1.1 200 "));
    let figures = page(address, "/metrics");
    for line in ["tidelog_halted 1\n", "tidelog_broker_appends_refused 1\n"] {
        assert!(figures.contains(line), "{line} in {figures}");
    }
}

#[test]
fn a_disk_below_its_reserve_and_the_first_refused_append_are_a_line_and_a_figure_each() {
    let folder = Folder::new();
    let mut broker = Process::start(&folder, &[]);
    new_topic(&mut broker.client(), "t");
    broker.signal(Signal::TERM);
    assert!(broker.ended().success());

    let most = (1_u64 << 40).to_string();
    let mut broker = Process::start(&folder, &["--disk-reserve-bytes", &most]);
    let line = broker.line("the disk has less left than its reserve");
    assert!(line.contains("ERROR") && line.contains("reserve_bytes=1099511627776"), "{line}");
    let refused = broker.client().ask(9, &produce(1, &[("t", &[(0, batch("value"))])])).responses
        [0]
    .partition_responses[0]
        .error_code;
    assert_eq!(refused, 56);
    let line = broker.line("appends are refused: the disk is full");
    assert!(line.contains("ERROR"), "{line}");
    let address = broker.field("metrics");
    let address = address.trim_start_matches("Some(").trim_end_matches(')').parse().unwrap();
    let figures = page(address, "/metrics");
    for line in ["tidelog_broker_disk_below_reserve 1\n", "tidelog_broker_appends_refused 1\n"] {
        assert!(figures.contains(line), "{line} in {figures}");
    }
    assert!(page(address, "/readyz").starts_with("HTTP/1.1 200 "), "what is there can be read");
}

#[test]
fn an_engine_that_halts_is_one_line_with_its_cause_and_ends_the_process() {
    let folder = Folder::new();
    // No file may become longer than this: a failed write that is not for a full disk.
    let mut broker = Process::start_within(&folder, "trap '' XFSZ && ulimit -f 2048");
    let mut client = broker.client();
    new_topic(&mut client, "t");
    let value = "x".repeat(100_000);
    let produced = produce(-1, &[("t", &[(0, batch(&value))])]);
    let mut stored = 0;
    while client
        .try_ask(9, &produced)
        .is_ok_and(|answer| answer.responses[0].partition_responses[0].error_code == 0)
    {
        stored += 1;
        assert!(stored < 1000, "the limit holds");
    }
    let line = broker.line("the engine has halted");
    assert!(line.contains("ERROR") && line.contains("cause="), "{line}");
    assert_eq!(broker.ended().code(), Some(1));

    let broker = Process::start(&folder, &[]);
    let again = broker.client().ask(9, &produced);
    let offset = again.responses[0].partition_responses[0].base_offset;
    assert!((stored..=stored + 1).contains(&offset), "acknowledged={stored} offset={offset}");
}
