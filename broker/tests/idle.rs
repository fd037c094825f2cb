//! Many idle connections and long polls cost a stated memory and no CPU; a slow or silent client
//! delays nobody. A program of its own: it measures the CPU and the memory of a broker that idles.
#![cfg(feature = "rocksdb")]
#![expect(clippy::unwrap_used, reason = "a test ends by it")]

mod common;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::client::{batch, batch_of, name, produce};
use common::{Client, TestBroker, config};
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::{ApiVersionsRequest, CreateTopicsRequest, FetchRequest};
use tidelog::Record;
use tidelog::clock::{Clock, SystemClock};

/// The most memory that an idle connection may cost, and one that waits for records.
const IDLE_BYTES: u64 = 16 * 1024;
const WAITING_BYTES: u64 = 32 * 1024;
/// The CPU that the broker may use in a second while nobody wants anything of it.
const CPU_MS_A_SECOND: u64 = 10;
/// The longest that a client with a small request may wait where nobody is in its way. One that is
/// held up until a long poll ends waits ten seconds; a busy machine alone takes less than this.
const SOON: Duration = Duration::from_secs(5);

/// The broker as a process, so that its memory and its time are its own.
struct Process {
    child: Child,
    address: SocketAddr,
    metrics: SocketAddr,
    directory: PathBuf,
}

impl Process {
    fn start() -> Self {
        let directory = std::env::temp_dir().join(format!("tidelog-idle-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        let mut child = Command::new(env!("CARGO_BIN_EXE_tidelog-broker"))
            .arg("--data-dir")
            .arg(&directory)
            .args(["--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"])
            .stderr(Stdio::piped())
            .spawn()
            .expect("the broker starts");
        let log = BufReader::new(child.stderr.take().expect("its log is ours"));
        let line = log.lines().map(Result::unwrap).find(|line| line.contains(" serving "));
        let line = line.expect("the broker says where it serves");
        let address = |before: &str| {
            let rest = line.split(before).nth(1).expect("the line has every address");
            let end = rest.find([' ', ')']).unwrap_or(rest.len());
            rest[..end].parse().expect("an address")
        };
        let (address, metrics) = (address(" listen="), address("metrics=Some("));
        Self { child, address, metrics, directory }
    }

    /// A figure of `/metrics`.
    fn figure(&self, name: &str) -> u64 {
        let mut stream = TcpStream::connect(self.metrics).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("the figure");
        line.trim().parse().expect("a whole number")
    }

    fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    /// CPU time so far; the kernel counts in hundredths of a second.
    fn cpu_ms(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        let ticks = |at: usize| fields.split(' ').nth(at).unwrap().parse::<u64>().unwrap();
        (ticks(11) + ticks(12)) * 10
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A thousand, or as many as the files that this process may open leave room for.
fn crowd() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let files: usize = line.split_whitespace().nth(3).unwrap().parse().unwrap_or(usize::MAX);
    let crowd = (files.saturating_sub(200) / 2).min(1000);
    if crowd < 1000 {
        println!("only {crowd} of each: limit of open files={files}");
    }
    crowd
}

fn new_topic(client: &mut Client, topic: &str) {
    let topic = CreatableTopic::default().with_name(name(topic)).with_num_partitions(1);
    let topics = vec![topic.with_replication_factor(1)];
    let made = client.ask(5, &CreateTopicsRequest::default().with_topics(topics));
    assert_eq!(made.topics[0].error_code, 0);
}

fn fetch(topic: &str, offset: i64, max_bytes: i32, max_wait_ms: i32) -> FetchRequest {
    let partition =
        FetchPartition::default().with_fetch_offset(offset).with_partition_max_bytes(max_bytes);
    let topic = FetchTopic::default().with_topic(name(topic)).with_partitions(vec![partition]);
    FetchRequest::default()
        .with_min_bytes(1)
        .with_max_bytes(max_bytes)
        .with_max_wait_ms(max_wait_ms)
        .with_topics(vec![topic])
}

/// A client at work: each of its requests must be answered soon. Returns the longest wait.
fn work(address: SocketAddr, topic: &str, rounds: i64) -> Duration {
    let clock = SystemClock::new();
    let mut client = Client::connect(address);
    let mut longest = Duration::ZERO;
    for round in 0..rounds {
        let started = clock.monotonic();
        let stored = client.ask(9, &produce(1, &[(topic, &[(0, batch("value"))])]));
        assert_eq!(stored.responses[0].partition_responses[0].base_offset, round);
        let read = client.ask(12, &fetch(topic, round, 1 << 16, 10_000));
        assert!(!read.responses[0].partitions[0].records.as_ref().unwrap().is_empty());
        longest = longest.max(clock.monotonic() - started);
    }
    assert!(longest < SOON, "a client waited: longest={longest:?} limit={SOON:?}");
    longest
}

/// Lets time go by: nothing is sent to this connection.
fn wait_on_silence(address: SocketAddr, time: Duration) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(time)).unwrap();
    let error = stream.read(&mut [0; 1]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
}

#[test]
fn a_thousand_idle_connections_and_long_polls_cost_little_memory_and_no_cpu() {
    let (broker, crowd) = (Process::start(), crowd());
    let mut client = Client::connect(broker.address);
    for topic in ["polled", "worked"] {
        new_topic(&mut client, topic);
    }
    work(broker.address, "worked", 1);
    let begin = broker.resident_bytes();

    let mut idle: Vec<Client> = (0..crowd).map(|_| Client::connect(broker.address)).collect();
    for client in &mut idle {
        client.ask(3, &ApiVersionsRequest::default());
    }
    let with_idle = broker.resident_bytes();
    let mut polls: Vec<(Client, i32)> = (0..crowd)
        .map(|_| {
            let mut client = Client::connect(broker.address);
            let id = client.send(12, &fetch("polled", 0, 1 << 20, 120_000));
            (client, id)
        })
        .collect();
    while broker.figure("tidelog_broker_waiting_fetches ") < crowd as u64 {
        std::thread::yield_now();
    }
    let with_polls = broker.resident_bytes();
    let each = |from: u64, to: u64| to.saturating_sub(from) / crowd as u64;
    let (an_idle, a_poll) = (each(begin, with_idle), each(with_idle, with_polls));

    let (seconds, before) = (3, broker.cpu_ms());
    wait_on_silence(broker.address, Duration::from_secs(seconds));
    let cpu_ms = (broker.cpu_ms() - before) / seconds;

    new_topic(&mut client, "beside");
    let longest = work(broker.address, "beside", 100);
    let stored = client.ask(9, &produce(1, &[("polled", &[(0, batch("to all"))])]));
    assert_eq!(stored.responses[0].partition_responses[0].error_code, 0);
    for (client, id) in &mut polls {
        let answer = client.receive::<FetchRequest>(12, *id);
        let records = answer.responses[0].partitions[0].records.as_ref();
        assert!(!records.unwrap().is_empty(), "a long poll was answered without the record");
    }
    println!(
        "an idle connection costs {an_idle} bytes, a long poll {a_poll}, both together \
         {cpu_ms} ms of CPU a second; a client beside them waited {longest:?} at most"
    );
    assert!(an_idle <= IDLE_BYTES, "bytes={an_idle} limit={IDLE_BYTES}");
    assert!(a_poll <= WAITING_BYTES, "bytes={a_poll} limit={WAITING_BYTES}");
    assert!(cpu_ms <= CPU_MS_A_SECOND, "milliseconds={cpu_ms} limit={CPU_MS_A_SECOND}");
}

#[test]
fn a_slow_and_a_silent_client_delay_no_other() {
    let broker = TestBroker::start(config());
    for topic in ["large", "beside"] {
        broker.topic(topic, 1);
    }
    let mut client = broker.client();
    let large = batch_of(&[Record::new("key", vec![b'x'; 1_000_000])]);
    for _ in 0..48 {
        let stored = client.ask(9, &produce(1, &[("large", &[(0, large.clone())])]));
        assert_eq!(stored.responses[0].partition_responses[0].error_code, 0);
    }

    let mut slow: Vec<Client> = Vec::new();
    // One says nothing, one begins a length, one a request; two ask for much and read none of it.
    for begun in [&b""[..], &[0, 0], &[0, 0xff, 0xff, 0xff, 0, 0, 0, 9, 1]] {
        let mut client = broker.client();
        client.send_bytes(begun).unwrap();
        slow.push(client);
    }
    for _ in 0..2 {
        let mut client = broker.client();
        for _ in 0..3 {
            client.send(12, &fetch("large", 0, 50 << 20, 0));
        }
        slow.push(client);
    }
    // Their answers are on the way once more went out than the sockets of one of them can hold.
    while broker.context.metrics.bytes_out.get() < 60 << 20 {
        std::thread::yield_now();
    }
    let longest = work(broker.address, "beside", 200);
    println!("a client beside {} slow ones waited {longest:?} at most", slow.len());
    // Nobody was thrown out meanwhile.
    let connections = &broker.context.metrics.connections;
    while connections.get() > slow.len() as u64 + 1 {
        std::thread::yield_now();
    }
    assert_eq!(connections.get(), slow.len() as u64 + 1);
}
