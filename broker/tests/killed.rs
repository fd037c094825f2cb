//! The broker is killed in the middle of a load, fifty times: every request is whole or absent in
//! all its partitions, every acknowledged one is there, offsets continue, and clients go on.
//! A program of its own: its load would slow the clocks of the tests beside it.
#![cfg(feature = "rocksdb")]
#![expect(clippy::unwrap_used, reason = "a test ends by it")]

mod common;

use std::collections::{HashMap, HashSet};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use bytes::Bytes;
use common::Client;
use common::client::{batch, name, produce};
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::{CreateTopicsRequest, FetchRequest, ProduceRequest};
use tidelog::record::Batches;

const KILLS: usize = 50;
const LOADERS: u64 = 3;
const PARTITIONS: usize = 3;
/// Requests that are acknowledged before the next kill.
const REQUESTS_BETWEEN: u64 = 60;

/// The record of every eighth request, in each partition.
const LARGE_BYTES: usize = 200_000;

/// What all clients share.
struct Load {
    address: SocketAddr,
    /// Of each acknowledged request its offset in each partition.
    acknowledged: Mutex<HashMap<u64, [i64; PARTITIONS]>>,
    next: AtomicU64,
    paused: AtomicBool,
    ended: AtomicBool,
    /// Loaders that are between two requests because of the pause.
    resting: AtomicU64,
}

struct Server {
    child: Child,
    address: SocketAddr,
    directory: PathBuf,
}

impl Server {
    fn start(address: SocketAddr, directory: &Path) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_tidelog-broker"))
            .arg("--data-dir")
            .arg(directory)
            .args(["--listen", &address.to_string(), "--log-level", "warn"])
            .stdout(Stdio::null())
            .spawn()
            .expect("the broker starts");
        Self { child, address, directory: directory.to_owned() }
    }

    /// A client, once the broker listens.
    fn client(&mut self) -> Client {
        loop {
            if let Ok(client) = Client::try_connect(self.address) {
                return client;
            }
            let ended = self.child.try_wait().expect("the process can be asked");
            assert!(ended.is_none(), "the broker did not start: {ended:?}");
            std::thread::yield_now();
        }
    }

    fn kill(mut self) -> (SocketAddr, PathBuf) {
        self.child.kill().expect("the process is ours");
        self.child.wait().expect("the process ends");
        (self.address, self.directory.clone())
    }
}

/// One client that is never restarted: it sends, and connects again when the broker was killed.
fn load(load: &Load) {
    let mut client = None;
    while !load.ended.load(Ordering::SeqCst) {
        if load.paused.load(Ordering::SeqCst) {
            load.resting.fetch_add(1, Ordering::SeqCst);
            while load.paused.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            load.resting.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let Some(open) = client.as_mut() else {
            client = Client::try_connect(load.address).ok();
            continue;
        };
        let id = load.next.fetch_add(1, Ordering::SeqCst);
        // Some are large, so that a kill also falls into the writing of a frame.
        let padding = if id.is_multiple_of(8) { LARGE_BYTES } else { 0 };
        let records = batch(&format!("{}{id}", " ".repeat(padding)));
        let parts: Vec<(i32, Bytes)> = (0..3).map(|at| (at, records.clone())).collect();
        let acks = if id.is_multiple_of(2) { 1 } else { -1 };
        match Client::try_ask::<ProduceRequest>(open, 9, &produce(acks, &[("load", &parts)])) {
            Err(_) => client = None,
            Ok(answer) => {
                let partitions = &answer.responses[0].partition_responses;
                assert!(partitions.iter().all(|partition| partition.error_code == 0), "{answer:?}");
                let offsets = std::array::from_fn(|at| partitions[at].base_offset);
                load.acknowledged.lock().unwrap().insert(id, offsets);
            }
        }
    }
}

/// The request ids in a partition, from an offset on, in order.
fn ids(client: &mut Client, partition: usize, from: i64) -> Vec<u64> {
    let mut ids = Vec::new();
    loop {
        let next = from + ids.len() as i64;
        let wanted = FetchPartition::default()
            .with_partition(partition as i32)
            .with_fetch_offset(next)
            .with_partition_max_bytes(1 << 20);
        let topic = FetchTopic::default().with_topic(name("load")).with_partitions(vec![wanted]);
        let request = FetchRequest::default().with_max_bytes(1 << 20).with_topics(vec![topic]);
        let answer = client.ask(12, &request);
        let found = &answer.responses[0].partitions[0];
        assert_eq!(found.error_code, 0, "partition={partition} offset={next}");
        let bytes = found.records.clone().unwrap_or_default();
        if bytes.is_empty() {
            assert_eq!(found.high_watermark, next);
            return ids;
        }
        for batch in Batches::new(bytes) {
            for record in batch.unwrap().records() {
                let record = record.unwrap();
                assert_eq!(record.offset, from + ids.len() as i64, "offsets are dense");
                let value = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
                ids.push(value.trim_start().parse().unwrap());
            }
        }
    }
}

/// Checks what came since the last check; `ends` is moved to the ends that are there now.
fn check(
    client: &mut Client,
    load: &Load,
    ends: &mut [i64; PARTITIONS],
    checked: &mut HashSet<u64>,
) {
    let found: [Vec<u64>; PARTITIONS] = std::array::from_fn(|at| ids(client, at, ends[at]));
    let sets: Vec<HashSet<u64>> = found.iter().map(|ids| ids.iter().copied().collect()).collect();
    for (ids, set) in found.iter().zip(&sets) {
        assert_eq!(ids.len(), set.len(), "no request is there twice");
    }
    assert_eq!(sets[0], sets[1], "a request is whole or absent");
    assert_eq!(sets[0], sets[2], "a request is whole or absent");
    let mut acknowledged = load.acknowledged.lock().unwrap();
    for (id, offsets) in acknowledged.drain() {
        for partition in 0..PARTITIONS {
            let place = usize::try_from(offsets[partition] - ends[partition]).unwrap();
            let there = found[partition].get(place);
            assert_eq!(there, Some(&id), "an acknowledged request is where its answer said");
        }
        checked.insert(id);
    }
    for (end, ids) in ends.iter_mut().zip(&found) {
        *end += ids.len() as i64;
    }
}

/// Waits until something holds; a loader that has ended will not bring it about.
fn wait(loaders: &[JoinHandle<()>], holds: impl Fn() -> bool) {
    while !holds() {
        assert!(!loaders.iter().any(JoinHandle::is_finished), "a loader has failed");
        std::thread::yield_now();
    }
}

#[test]
fn fifty_kills_split_no_request_and_lose_no_acknowledged_one() {
    let directory = std::env::temp_dir().join(format!("tidelog-killed-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut server = Server::start(free, &directory);
    let topic = CreatableTopic::default().with_name(name("load")).with_num_partitions(3);
    let topics = vec![topic.with_replication_factor(1)];
    let made = server.client().ask(5, &CreateTopicsRequest::default().with_topics(topics));
    assert_eq!(made.topics[0].error_code, 0);
    let shared = Arc::new(Load {
        address: free,
        acknowledged: Mutex::new(HashMap::new()),
        next: AtomicU64::new(0),
        paused: AtomicBool::new(false),
        ended: AtomicBool::new(false),
        resting: AtomicU64::new(0),
    });
    let loaders: Vec<_> = (0..LOADERS)
        .map(|_| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || load(&shared))
        })
        .collect();
    let (mut ends, mut checked) = ([0; PARTITIONS], HashSet::new());
    for kill in 0..KILLS {
        let enough = REQUESTS_BETWEEN + kill as u64 % 7;
        wait(&loaders, || shared.acknowledged.lock().unwrap().len() as u64 >= enough);
        let (address, directory) = server.kill();
        shared.paused.store(true, Ordering::SeqCst);
        wait(&loaders, || shared.resting.load(Ordering::SeqCst) == LOADERS);
        server = Server::start(address, &directory);
        check(&mut server.client(), &shared, &mut ends, &mut checked);
        shared.paused.store(false, Ordering::SeqCst);
    }
    shared.ended.store(true, Ordering::SeqCst);
    loaders.into_iter().for_each(|loader| loader.join().expect("a loader goes on to the end"));
    check(&mut server.client(), &shared, &mut ends, &mut checked);
    server.kill();
    println!("{KILLS} kills, {} requests stored, {} acknowledged", ends[0], checked.len());
    assert!(checked.len() as u64 >= KILLS as u64 * REQUESTS_BETWEEN);
    std::fs::remove_dir_all(&directory).unwrap();
}
