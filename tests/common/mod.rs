//! What the tests share: an engine on simulated files and the memory store, that can be opened again.
#![allow(dead_code, reason = "each test file uses its part of this")]

pub mod failing;
pub mod transactions;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use tidelog::config::{EngineConfig, Maintenance};
use tidelog::record::{BatchBuilder, Batches, ControlRecord, EndMarker, MarkerKind};
use tidelog::testing::{ManualClock, MemoryDisk, PowerLoss, SimulatedDisk};
use tidelog::{
    CommittedBatch, Durability, Engine, EngineBuilder, FetchOptions, Partition, Record,
    RecordBatch, TopicConfig, TopicSettings,
};

/// The time that the clock of a [`TestEngine`] shows at first.
pub const NOW_MS: i64 = 1_700_000_000_000;

/// Everything that outlives an engine: its disk, its store's disk, its clock.
pub struct TestEngine {
    pub disk: SimulatedDisk,
    pub store: MemoryDisk,
    pub clock: Arc<ManualClock>,
    pub config: EngineConfig,
}

impl TestEngine {
    pub fn new() -> Self {
        let config = EngineConfig::default()
            .maintenance(Maintenance::Manual)
            .segment_bytes(1 << 20)
            .disk_reserve_bytes(0);
        Self {
            disk: SimulatedDisk::new(1),
            store: MemoryDisk::new(),
            clock: Arc::new(ManualClock::new(NOW_MS)),
            config,
        }
    }

    pub fn builder(&self) -> EngineBuilder {
        Engine::builder("/engine")
            .config(self.config.clone())
            .clock(self.clock.clone())
            .files(self.disk.process())
            .store(Arc::new(self.store.clone()))
            .seed(7)
    }

    pub fn open(&self) -> Engine {
        self.builder().open().expect("the engine opens")
    }
}

/// All records of a partition.
pub fn records_of(engine: &Engine, partition: &Partition) -> Vec<Record> {
    let mut records = Vec::new();
    let mut offset = engine.watermarks(partition).expect("the partition exists").log_start;
    loop {
        let fetched = engine.fetch(partition, offset, FetchOptions::new()).expect("it is readable");
        if fetched.bytes.is_empty() {
            return records;
        }
        records.extend(fetched.records().map(|record| record.expect("it can be decoded")));
        offset = fetched.next_offset;
    }
}

/// Appends one batch of records with these timestamps, buffered; tells its base offset.
pub fn append_at(engine: &Engine, partition: &Partition, timestamps: &[i64]) -> i64 {
    append_with(engine, partition, timestamps, tidelog::Codec::None)
}

/// Appends one batch of records with these timestamps, compressed; tells its base offset.
pub fn append_with(
    engine: &Engine,
    partition: &Partition,
    timestamps: &[i64],
    codec: tidelog::Codec,
) -> i64 {
    let mut append = engine.append_transaction();
    append.set_codec(codec);
    let records = timestamps.iter().map(|&at| Record::new("k", "v").timestamp(at));
    append.records(partition, records).expect("the records are legal");
    let committed = append.commit(tidelog::Durability::Buffered).expect("it is committed");
    committed.batches[0].base_offset
}

/// The offsets of all records that a reader of the partition gets.
pub fn offsets_of(engine: &Engine, partition: &Partition) -> Vec<i64> {
    records_of(engine, partition).iter().map(|record| record.offset).collect()
}

/// Fails unless what must always hold does.
pub fn assert_verified(engine: &Engine) {
    let report = engine.verify().expect("the index can be read");
    assert!(report.is_clean(), "{report}");
}

impl TestEngine {
    /// Flips a bit of the newest place in the log that holds this text.
    pub fn flip(&self, text: &str) {
        let directory = Path::new("/engine/log");
        let mut names = self.disk.process().list(directory).expect("it is there");
        names.sort();
        for name in names.iter().rev() {
            let path = directory.join(name);
            let contents = self.disk.contents(&path).expect("it is there");
            let found = contents.windows(text.len()).rposition(|part| part == text.as_bytes());
            if let Some(at) = found {
                return self.disk.tamper(&path, |bytes| bytes[at] ^= 1);
            }
        }
        panic!("the log does not hold {text}");
    }

    /// The same with other limits.
    pub fn with(config: impl FnOnce(EngineConfig) -> EngineConfig) -> Self {
        let test = Self::new();
        Self { config: config(test.config.clone()), ..test }
    }

    /// The same with the engine's own threads.
    pub fn in_background() -> Self {
        Self::with(|config| config.maintenance(Maintenance::Background))
    }

    /// Ends the process that has the engine open: what it wrote is still there, and the store
    /// falls back to its last checkpoint.
    pub fn kill(&self) {
        self.disk.kill();
        self.store.crash(0);
    }

    /// Cuts the power: of what was not synced, as much is left as `loss` says.
    pub fn lose_power(&self, loss: PowerLoss) {
        self.disk.power_loss(loss);
        self.store.crash(0);
    }
}

/// A topic of one partition with these settings; its partition.
pub fn one_partition(engine: &Engine, name: &str, settings: &[(&str, &str)]) -> Partition {
    let settings = TopicSettings::from_values(settings.iter().copied()).expect("legal settings");
    let topic = engine.create_topic(name, TopicConfig::with_settings(1, settings));
    topic.expect("the topic is new").partition(0).expect("it has a partition")
}

/// A ready batch of these records, each with the timestamp that it has.
pub fn batch_of(records: &[Record]) -> Bytes {
    let mut builder = BatchBuilder::new();
    records.iter().for_each(|record| builder.push(record).expect("the batch is small"));
    builder.finish().expect("there is a record")
}

/// Commits one ready batch, buffered.
pub fn append_batch(engine: &Engine, partition: &Partition, batch: Bytes) -> CommittedBatch {
    let mut append = engine.append_transaction();
    append.batch(partition, batch).expect("the batch is good");
    append.commit(Durability::Buffered).expect("it is committed").batches[0]
}

/// Commits records to one partition, buffered.
pub fn append(engine: &Engine, partition: &Partition, records: impl IntoIterator<Item = Record>) {
    let mut append = engine.append_transaction();
    append.records(partition, records).expect("the records are good");
    append.commit(Durability::Buffered).expect("it is committed");
}

/// Commits one record without a key to each of the partitions, buffered.
pub fn append_to_all(engine: &Engine, partitions: &[Partition], value: &str) {
    let mut append = engine.append_transaction();
    for partition in partitions {
        append.records(partition, [Record::keyless(value)]).expect("the record is good");
    }
    append.commit(Durability::Buffered).expect("it is committed");
}

/// The values of records as text.
pub fn values(records: &[Record]) -> Vec<String> {
    let text = |value: &Bytes| String::from_utf8_lossy(value).into_owned();
    records.iter().map(|record| record.value.as_ref().map_or("null".to_owned(), text)).collect()
}

/// What has to be read of a partition, as text.
pub fn values_of(engine: &Engine, partition: &Partition) -> Vec<String> {
    values(&records_of(engine, partition))
}

/// The batches of a partition, as they are served.
pub fn batches_of(engine: &Engine, partition: &Partition) -> Vec<RecordBatch> {
    let options = FetchOptions::new().max_bytes(u64::MAX);
    let start = engine.watermarks(partition).expect("the partition exists").log_start;
    let fetched = engine.fetch(partition, start, options).expect("it is readable");
    Batches::new(fetched.bytes).map(|batch| batch.expect("it is whole")).collect()
}

/// What there is to tell of a partition.
pub fn described(engine: &Engine, partition: &Partition) -> tidelog::PartitionDescription {
    let topic = engine.topics().describe(partition.topic().name()).expect("the topic exists");
    topic.partitions[partition.index() as usize]
}

/// The offsets of the records that a client with read_committed takes out of whole fetches, by the
/// list of aborted transactions and the markers, as Kafka's own consumer does.
pub fn as_a_client_reads(engine: &Engine, partition: &Partition) -> Vec<i64> {
    let mut offset = engine.watermarks(partition).expect("the partition exists").log_start;
    let (start, mut taken) = (offset, Vec::new());
    loop {
        let fetched = engine.fetch(partition, offset, FetchOptions::new()).expect("it is readable");
        if fetched.bytes.is_empty() {
            return taken;
        }
        let mut listed: Vec<_> =
            fetched.aborted.iter().map(|a| (a.first_offset, a.producer_id)).collect();
        listed.sort_unstable_by(|a, b| b.cmp(a));
        let mut skipped = BTreeSet::new();
        for batch in Batches::new(fetched.bytes) {
            let batch = batch.expect("it is whole");
            let header = batch.header();
            while let Some(&(_, id)) = listed.last().filter(|l| l.0 <= header.last_offset()) {
                skipped.insert(id);
                listed.pop();
            }
            if header.is_control() {
                let mut records = batch.records().map(|record| record.expect("decodable"));
                let marker = records.next().map(|record| ControlRecord::parse(&record));
                if let Some(Ok(ControlRecord::End(EndMarker { kind: MarkerKind::Abort, .. }))) =
                    marker
                {
                    skipped.remove(&header.producer_id());
                }
            } else if !header.is_transactional() || !skipped.contains(&header.producer_id()) {
                let records = batch.records().map(|record| record.expect("decodable").offset);
                taken.extend(records.filter(|record| *record >= start.max(offset)));
            }
        }
        offset = fetched.next_offset;
    }
}
