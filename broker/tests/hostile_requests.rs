//! Mutated and random requests: nothing panics, nothing grows, and valid clients beside them are
//! served.
//!
//! Some seconds by default; `TIDELOG_HOSTILE_SECONDS` makes it longer.
//! A program of its own: it counts the panics and the memory of the whole process.
#![expect(clippy::unwrap_used, reason = "a test ends by it")]

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use common::bodies::{Dice, written};
use common::client::{batch, batch_of, name, produce};
use common::{Client, TestBroker};
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;
use tidelog::Record;
use tidelog::clock::{Clock, SystemClock};
use tidelog_broker::api::SERVED;

/// How long an attacker listens for answers to what it sent.
const LISTENS: Duration = Duration::from_millis(500);

/// Legal requests, to be changed.
fn seeds() -> Vec<Bytes> {
    let mut client = Client::over(Box::new(std::io::Cursor::new(Vec::new())));
    let parts = [(0, batch("a")), (1, batch("b")), (2, batch("c"))];
    let mut seeds = Vec::new();
    for version in [3, 7, 9, 12] {
        seeds.push(client.frame(version, &produce(-1, &[("t", &parts)])).1);
        seeds.push(client.frame(version, &produce(0, &[("t", &parts[..1])])).1);
    }
    let partition = fetch_request::FetchPartition::default().with_partition_max_bytes(1 << 16);
    let topic = fetch_request::FetchTopic::default()
        .with_topic(name("t"))
        .with_partitions(vec![partition.clone(), partition.with_partition(1)]);
    for version in [4, 11, 12] {
        let request = FetchRequest::default()
            .with_max_bytes(1 << 16)
            .with_max_wait_ms(1)
            .with_topics(vec![topic.clone()]);
        seeds.push(client.frame(version, &request).1);
    }
    for version in [1, 9, 12] {
        seeds.push(client.frame(version, &MetadataRequest::default().with_topics(None)).1);
    }
    for version in [0, 3] {
        seeds.push(client.frame(version, &ApiVersionsRequest::default()).1);
    }
    let made = CreatableTopic::default().with_name(name("u")).with_num_partitions(1);
    let made = made.with_replication_factor(1);
    for version in [2, 5, 7] {
        let request =
            CreateTopicsRequest::default().with_topics(vec![made.clone()]).with_validate_only(true);
        seeds.push(client.frame(version, &request).1);
    }
    let group = GroupId(StrBytes::from_static_str("g"));
    seeds.push(client.frame(7, &OffsetFetchRequest::default().with_group_id(group.clone())).1);
    seeds.push(client.frame(8, &OffsetCommitRequest::default().with_group_id(group)).1);
    seeds.push(client.frame(1, &SaslHandshakeRequest::default()).1);
    seeds.push(client.frame(4, &DescribeConfigsRequest::default()).1);
    seeds
}

/// Changes a frame here and there; its length stays true, mostly.
fn mutate(seed: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=dice.roll(4) {
        let at = 4 + below(dice, bytes.len() - 4);
        match dice.roll(6) {
            0 => bytes[at] ^= 1 << dice.roll(8),
            1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][below(dice, 5)],
            2 => bytes.truncate(at.max(5)),
            3 => bytes.insert(at, dice.roll(256) as u8),
            4 => bytes.splice(at..at, [0x7f, 0xff, 0xff, 0xff]).for_each(drop),
            _ => bytes.extend((0..dice.roll(64)).map(|_| 0xee)),
        }
    }
    let wrong = if dice.roll(50) == 0 { dice.roll(1000) as usize } else { 0 };
    let length = u32::try_from(bytes.len() - 4 + wrong).unwrap();
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    bytes
}

fn below(dice: &mut Dice, sides: usize) -> usize {
    dice.roll(sides as u64) as usize
}

/// A legal head, and a body that is legal by its shape: of any request, in a version that may be
/// unknown.
fn random_request(dice: &mut Dice) -> Vec<u8> {
    let served = &SERVED[below(dice, SERVED.len())];
    let (api, body) = (served.key, served.shape);
    let range = api.valid_versions();
    let version = range.min + dice.roll(u64::from(range.max.abs_diff(range.min)) + 2) as i16;
    let mut frame = vec![0; 4];
    frame.extend((api as i16).to_be_bytes());
    frame.extend(version.to_be_bytes());
    frame.extend([0, 0, 0, 1, 0, 1, b'h']);
    if api.request_header_version(version) >= 2 {
        frame.push(0);
    }
    frame.extend(written(body, version, dice));
    let length = u32::try_from(frame.len() - 4).unwrap();
    frame[..4].copy_from_slice(&length.to_be_bytes());
    frame
}

/// A Produce request whose batch is changed behind its checksum, which is right all the same.
fn changed_batch(dice: &mut Dice) -> Vec<u8> {
    let records: Vec<Record> = (0..=dice.roll(4))
        .map(|at| Record::new("k", "v".repeat(1 << at)).header("h", "v"))
        .collect();
    let mut batch = batch_of(&records).to_vec();
    for _ in 0..=dice.roll(3) {
        let at = below(dice, batch.len() - 21) + 21;
        match dice.roll(3) {
            0 => batch[at] ^= 1 << dice.roll(8),
            1 => batch[at] = dice.roll(256) as u8,
            _ => batch.truncate(at.max(61)),
        }
    }
    let length = u32::try_from(batch.len() - 12).unwrap();
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    let mut client = Client::over(Box::new(std::io::Cursor::new(Vec::new())));
    client.frame(9, &produce(1, &[("t", &[(0, batch.into())])])).1.to_vec()
}

/// Sends hostile requests until it is told to stop; returns how many.
fn attack(address: std::net::SocketAddr, mut dice: Dice, stop: &AtomicBool) -> u64 {
    let seeds = seeds();
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) {
        let Ok(mut stream) = TcpStream::connect(address) else { continue };
        stream.set_read_timeout(Some(LISTENS)).unwrap();
        stream.set_write_timeout(Some(LISTENS)).unwrap();
        for _ in 0..=dice.roll(20) {
            let frame = match dice.roll(8) {
                0..=2 => mutate(&seeds[below(&mut dice, seeds.len())], &mut dice),
                3 | 4 => random_request(&mut dice),
                5 => mutate(&random_request(&mut dice), &mut dice),
                6 => changed_batch(&mut dice),
                _ => (0..=dice.roll(200)).map(|_| dice.roll(256) as u8).collect(),
            };
            if stream.write_all(&frame).is_err() {
                break;
            }
            sent += 1;
        }
        // Mostly it hears what is said to it, so that all it sent is looked at; or it goes at once.
        if dice.roll(8) > 0 {
            let _ = stream.shutdown(Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        }
    }
    sent
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or("VmRSS: 0 kB");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[test]
fn hostile_requests_hurt_nobody() {
    let seconds = std::env::var("TIDELOG_HOSTILE_SECONDS").ok().and_then(|text| text.parse().ok());
    let time = Duration::from_secs(seconds.unwrap_or(5));
    let panics = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&panics);
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        count.fetch_add(1, Ordering::Relaxed);
        tell(panic);
    }));
    let broker = TestBroker::new();
    broker.topic("t", 3);
    // Texts of random bodies are the letter x so many times: some of them shall name a topic.
    for length in 1..=20 {
        broker.topic(&"x".repeat(length), 1);
    }
    broker.topic("valid", 3);
    let stop = Arc::new(AtomicBool::new(false));
    let sent = Arc::new(AtomicU64::new(0));
    let attackers: Vec<_> = (1..=4)
        .map(|number| {
            let (address, stop, sent) = (broker.address, Arc::clone(&stop), Arc::clone(&sent));
            std::thread::spawn(move || {
                sent.fetch_add(attack(address, Dice(number), &stop), Ordering::Relaxed);
            })
        })
        .collect();
    let clock = SystemClock::new();
    let mut client = broker.client();
    let (mut served, mut settled) = (0, 0);
    while clock.monotonic() < time {
        let parts = [(0, batch("v")), (1, batch("v")), (2, batch("v"))];
        let answer = client.ask(9, &produce(1, &[("valid", &parts)]));
        for partition in &answer.responses[0].partition_responses {
            assert_eq!((partition.error_code, partition.base_offset), (0, served));
        }
        served += 1;
        if settled == 0 && clock.monotonic() > time / 2 {
            settled = resident_bytes();
        }
    }
    stop.store(true, Ordering::Relaxed);
    attackers.into_iter().for_each(|attacker| attacker.join().expect("an attacker only sends"));
    let grown = resident_bytes().saturating_sub(settled);
    println!(
        "{} hostile requests, {served} valid ones, {grown} bytes more",
        sent.load(Ordering::Relaxed)
    );
    assert_eq!(panics.load(Ordering::Relaxed), 0);
    assert!(grown < 64 << 20, "memory grew in the second half: bytes={grown}");
    while broker.context.metrics.connections.get() > 1 {
        std::thread::yield_now();
    }
    drop(client);
    assert_eq!(broker.ends("valid"), [served; 3]);
    let report = broker.engine.verify().unwrap();
    assert!(report.is_clean(), "{report:?}");
}
