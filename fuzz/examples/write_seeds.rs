//! Writes the seeds of `decode_frame`, `replay_segment`, `decode_store_value` and `topic_config`.
//!
//! Frames, segments and values are those of an engine on simulated files, which is given the
//! clients' batches of the corpus of `decode_record_batch`. Run it in the directory `fuzz`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidelog::config::{Maintenance, TOPIC_CONFIG_KEYS};
use tidelog::internals::fuzz::pack_segments;
use tidelog::internals::keyspace::{
    GroupRow, IndexEntry, MetaKey, batch_key, encode_applied, group_key,
};
use tidelog::internals::log::SEGMENT_HEADER_BYTES;
use tidelog::internals::write_batch::{Operation, WriteBatch};
use tidelog::testing::{ManualClock, MemoryDisk, SimulatedDisk};
use tidelog::types::{AppliedCommit, CommitSequence, PartitionId, SegmentId, TopicId};
use tidelog::{Durability, Engine, EngineConfig, GroupOffset, Record, Topic, TopicConfig};

const FRAME_HEADER_BYTES: usize = 76;
const NOW_MS: i64 = 1_700_000_000_000;

/// An engine that outlives its processes.
struct Machine {
    disk: SimulatedDisk,
    store: MemoryDisk,
    opens: u64,
}

impl Machine {
    fn open(&mut self) -> Engine {
        self.opens += 1;
        let config = EngineConfig::default()
            .maintenance(Maintenance::Manual)
            .segment_bytes(8 << 10)
            .disk_reserve_bytes(0);
        let opened = Engine::builder("/engine")
            .config(config)
            .clock(Arc::new(ManualClock::new(NOW_MS)))
            .files(self.disk.process())
            .store(Arc::new(self.store.clone()))
            .seed(self.opens)
            .open();
        opened.expect("the engine opens")
    }

    /// The files of all segments that there are, by id.
    fn segments(&self) -> Vec<Vec<u8>> {
        let path = |id: u64| PathBuf::from(format!("/engine/log/{id:020}.log"));
        (1..100).filter_map(|id| self.disk.contents(&path(id))).collect()
    }
}

fn client_batches() -> Vec<Bytes> {
    let folder = Path::new("corpus/decode_record_batch");
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .expect("run this in the directory of the fuzz targets")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    names.sort();
    let read = |path: &PathBuf| Bytes::from(std::fs::read(path).expect("a seed"));
    names.iter().map(read).filter(|batch| batch.len() < 600).collect()
}

/// Two lives of an engine: topics, batches of clients to two partitions each, a deletion.
fn live(machine: &mut Machine) {
    let engine = machine.open();
    let config = TopicConfig::new(3).set("message.timestamp.before.max.ms", "9223372036854775807");
    let config =
        config.expect("legal").set("message.timestamp.after.max.ms", "9223372036854775807");
    let orders = engine.create_topic("orders", config.expect("legal")).expect("it is made");
    let audit = TopicConfig::new(1).set("message.timestamp.type", "LogAppendTime").expect("legal");
    let audit = engine.create_topic("audit.log", audit).expect("it is made");
    let mut kept = 0;
    for (index, batch) in client_batches().into_iter().enumerate() {
        let mut append = engine.append_transaction();
        let partition = orders.partition(index as i32 % 3).expect("it has three");
        if append.batch(&partition, batch.clone()).is_err() {
            continue;
        }
        if kept % 2 == 1 {
            append.batch(&audit.partition(0).expect("it has one"), batch).expect("as before");
        }
        let durability = if kept % 5 == 4 { Durability::Sync } else { Durability::Buffered };
        // What does not follow the batches of its producer is refused.
        kept += u32::from(append.commit(durability).is_ok());
        if kept == 16 {
            break;
        }
    }
    assert!(kept > 6, "batches of clients are taken: {kept}");
    run_transactions(&engine, &orders);
    drop(engine);
    machine.disk.kill();
    let engine = machine.open();
    engine.delete_topic("audit.log").expect("it is deleted");
    engine.topics().add_partitions("orders", 5).expect("it grows");
    engine.close().expect("it closes");
}

/// Producer transactions of each end, and one that stays open with offsets of a group.
fn run_transactions(engine: &Engine, topic: &Topic) {
    let minute = Duration::from_secs(60);
    let record = || vec![Record::new("k", "v").timestamp(NOW_MS)];
    let [a, b] = [0, 1].map(|index| topic.partition(index).expect("it has three"));
    let mut producer = engine.producers().transactional("billing", minute).expect("it is given");
    for is_kept in [true, false] {
        let mut transaction = producer.begin();
        transaction.append([(&a, record()), (&b, record())]).expect("it is appended");
        if is_kept { transaction.commit() } else { transaction.abort() }.expect("it ends");
    }
    let mut transaction = producer.begin();
    transaction.append([(&a, record())]).expect("it is appended");
    let offset = GroupOffset::new(3).metadata("m");
    transaction.send_offsets("readers", vec![(b, offset)]).expect("they are staged");
    // The process ends in the middle of it.
    std::mem::forget(transaction);
}

fn number(bytes: &[u8], at: usize, length: usize) -> usize {
    bytes[at..at + length].iter().rev().fold(0, |number, &byte| number << 8 | usize::from(byte))
}

/// The frames of a segment, each with its padding.
fn frames(segment: &[u8]) -> Vec<&[u8]> {
    let mut rest = &segment[SEGMENT_HEADER_BYTES as usize..];
    let mut frames = Vec::new();
    while rest.len() >= FRAME_HEADER_BYTES {
        let bytes = FRAME_HEADER_BYTES
            + number(rest, 60, 4)
            + number(rest, 64, 4) * 8
            + number(rest, 48, 8);
        let (frame, behind) = rest.split_at(bytes.next_multiple_of(8));
        frames.push(frame);
        rest = behind;
    }
    frames
}

fn write(target: &str, name: &str, bytes: &[u8]) {
    let folder = Path::new("corpus").join(target);
    std::fs::create_dir_all(&folder).expect("the corpus can be made");
    std::fs::write(folder.join(name), bytes).expect("the seed can be written");
}

fn write_values(frames: &[&[u8]]) {
    let mut of_family: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, frame) in frames.iter().enumerate() {
        let encoded = &frame[FRAME_HEADER_BYTES..][..number(frame, 60, 4)];
        if index % 3 == 0 {
            write("decode_store_value", &format!("write-batch-{index}"), &[&[0], encoded].concat());
        }
        let batch = WriteBatch::decode(encoded).expect("the engine wrote it");
        for operation in batch.operations() {
            let Operation::Put { family, key, value } = operation else { continue };
            let count = of_family.entry(family.name()).or_default();
            *count += 1;
            if *count <= 5 {
                let name = format!("{}-{count}", family.name());
                write("decode_store_value", &name, &[&[key.len() as u8], key, value].concat());
            }
        }
    }
    let applied = AppliedCommit {
        sequence: CommitSequence(9),
        segment: SegmentId(2),
        position: SEGMENT_HEADER_BYTES,
        frame_crc: 7,
    };
    let (key, value) = (MetaKey::Applied.key(), encode_applied(&applied));
    write("decode_store_value", "applied", &[&[1], &key[..], &value[..]].concat());
    // The engine writes one only after 64 KiB.
    let index = IndexEntry { cumulative_bytes: 70_000, running_max_timestamp: NOW_MS };
    let (key, value) = (batch_key(PartitionId(3), 41), index.encode());
    write("decode_store_value", "index", &[&[12], &key[..], &value[..]].concat());
    let key = group_key("readers", TopicId::from_bytes([7; 16]), 3);
    let row = GroupRow {
        offset: 9,
        leader_epoch: 1,
        commit_time: NOW_MS,
        requested_by: CommitSequence(4),
        metadata: "where".to_owned(),
    };
    write("decode_store_value", "group", &[&[key.len() as u8], &key[..], &row.encode()].concat());
}

fn write_settings() {
    let all: Vec<String> =
        TOPIC_CONFIG_KEYS.iter().map(|key| format!("{}={}", key.name, key.default)).collect();
    write("topic_config", "all-defaults", all.join("\n").as_bytes());
    for (index, line) in all.iter().enumerate() {
        let name = line.split('=').next().expect("a line has a name");
        let words = format!("{line}\n{name}=-\n{name}=+=compact,delete\n{name}=-=delete");
        write("topic_config", &format!("key-{index}"), words.as_bytes());
    }
    write("topic_config", "lags", b"min.compaction.lag.ms=9\nmax.compaction.lag.ms=8");
}

fn main() {
    let mut machine = Machine { disk: SimulatedDisk::new(1), store: MemoryDisk::new(), opens: 0 };
    live(&mut machine);
    let segments = machine.segments();
    let all: Vec<&[u8]> = segments.iter().flat_map(|segment| frames(segment)).collect();
    for (index, frame) in all.iter().enumerate() {
        write("decode_frame", &format!("frame-{index}"), frame);
    }
    for applied in 0..3 {
        let files = segments.iter().map(|segment| &segment[..]);
        let packed = pack_segments(applied, files.take(3));
        write("replay_segment", &format!("log-{applied}"), &packed);
    }
    for (index, segment) in segments.iter().enumerate() {
        let packed = pack_segments(0, [&segment[..]]);
        write("replay_segment", &format!("segment-{index}"), &packed);
    }
    write_values(&all);
    write_settings();
}
