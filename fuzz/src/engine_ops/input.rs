//! What a run does: the operations, as an input describes them.

use arbitrary::{Arbitrary, Result, Unstructured};
use tidelog::config::{ConfigChange, ConfigOperation, EngineConfig, Maintenance};
use tidelog::record::Codec;
use tidelog::testing::{EIO, ENOSPC, FileCall};

/// More would only make a run longer.
pub(super) const MAX_STEPS: usize = 60;

pub(super) const MAX_TOPICS: u32 = 3;
pub(super) const MAX_PARTITIONS: u32 = 9;
pub(super) const MAX_PARTITIONS_PER_TOPIC: u32 = 5;

#[derive(Debug, Arbitrary)]
pub(super) struct Input {
    pub(super) limits: Limits,
    /// What fails while the engine is made.
    pub(super) first: Option<Failure>,
    /// Whether two topics are made before the steps.
    pub(super) has_topics: bool,
    #[arbitrary(with = to_the_end)]
    pub(super) steps: Vec<Step>,
}

/// As many steps as there are bytes for.
fn to_the_end(u: &mut Unstructured<'_>) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    while !u.is_empty() && steps.len() < MAX_STEPS {
        steps.push(u.arbitrary()?);
    }
    Ok(steps)
}

/// No codec most of the time: a codec's memory costs more than all the rest of a run.
fn seldom_compressed(u: &mut Unstructured<'_>) -> Result<Codec> {
    let byte = usize::from(u8::arbitrary(u)?);
    Ok(if byte < 240 { Codec::None } else { Codec::ALL[byte % Codec::ALL.len()] })
}

/// Up to three, told by one byte.
fn few<'a, T: Arbitrary<'a>>(u: &mut Unstructured<'a>) -> Result<Vec<T>> {
    let count = u8::arbitrary(u)? % 4;
    (0..count).map(|_| u.arbitrary()).collect()
}

/// The engine's limits: small, so that each of them is met.
#[derive(Debug, Arbitrary)]
pub(super) struct Limits {
    segments_are_small: bool,
    unsynced_are_few: bool,
    cuts_are_frequent: bool,
    groups_are_single: bool,
    keeps_reserve: bool,
}

impl Limits {
    pub(super) fn config(&self) -> EngineConfig {
        let config = EngineConfig::default()
            .maintenance(Maintenance::Manual)
            .segment_bytes(if self.segments_are_small { 8 << 10 } else { 64 << 10 })
            .disk_reserve_bytes(if self.keeps_reserve { 10_000 } else { 0 })
            .commit_group_bytes(if self.groups_are_single { 1 } else { 8 << 20 })
            .commit_queue_bytes(16 << 10)
            .max_transaction_bytes(12 << 10)
            .max_batches_per_transaction(6)
            .max_decompressed_bytes(64 << 10)
            .max_topics(MAX_TOPICS)
            .max_partitions(MAX_PARTITIONS)
            .max_partitions_per_topic(MAX_PARTITIONS_PER_TOPIC);
        let config = match self.unsynced_are_few {
            true => config.background_sync_bytes(1).max_unsynced_bytes(2_000),
            false => config,
        };
        match self.cuts_are_frequent {
            true => config
                .checkpoint_index_bytes(4 << 10)
                .checkpoint_log_bytes(4 << 10)
                .checkpoint_range_deletes(1)
                .index_memory_limit_bytes(4 << 10),
            false => config,
        }
    }
}

/// One operation. Those of a kind are rarer, each by itself, than the appends.
#[derive(Debug, Arbitrary)]
pub(super) enum Step {
    /// What is held, and these parts, the same once or some times more.
    Append {
        #[arbitrary(with = few)]
        parts: Vec<Part>,
        #[arbitrary(with = seldom)]
        sync: bool,
        more: u8,
    },
    Submit {
        #[arbitrary(with = few)]
        parts: Vec<Part>,
        #[arbitrary(with = seldom)]
        sync: bool,
    },
    Transaction(TransactionStep),
    Topic(TopicStep),
    Read(ReadStep),
    Settle(SettleStep),
    End(EndStep),
    Fault(FaultStep),
}

/// A transaction that lives through other steps.
#[derive(Debug, Arbitrary)]
pub(super) enum TransactionStep {
    Add(Part),
    Commit { sync: bool },
    Abort,
}

#[derive(Debug, Arbitrary)]
pub(super) enum TopicStep {
    Create { name: Name, partitions: u8, setting: Option<Setting> },
    Delete { name: Name },
    AddPartitions { name: Name, total: u8 },
    Alter { name: Name, setting: Setting },
}

#[derive(Debug, Arbitrary)]
pub(super) enum ReadStep {
    Fetch { spot: Spot, offset: i8, max_bytes: u16, synced: bool },
    ListOffset { spot: Spot, query: Query },
    TakeSnapshot { name: Name },
    Scan { least: i8, most: i8 },
    Verify,
}

/// What makes commits durable, and time pass.
#[derive(Debug, Arbitrary)]
pub(super) enum SettleStep {
    Sync,
    Checkpoint { fails: Option<FailedCut> },
    Maintain,
    RunPending,
    Clock { by: i32 },
}

/// The ends of a life; the next one begins at once.
#[derive(Debug, Arbitrary)]
pub(super) enum EndStep {
    Crash(Crash),
    Close,
    Drop,
}

#[derive(Debug, Arbitrary)]
pub(super) enum FaultStep {
    StopAfter { calls: u8 },
    FailNext(Failure),
    FailStoreWrite { after: u8 },
    Room { bytes: Option<u16> },
    WriteBack { percent: u8 },
}

fn seldom(u: &mut Unstructured<'_>) -> Result<bool> {
    Ok(u8::arbitrary(u)? < 50)
}

/// A topic name: legal ones, two of which cannot exist beside each other, and one that is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name(pub(super) &'static str);

const NAMES: [&str; 5] = ["a", "b.c", "b_c", "d", ".."];

impl<'a> Arbitrary<'a> for Name {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Ok(Self(NAMES[usize::from(u8::arbitrary(u)?) % NAMES.len()]))
    }
}

#[derive(Debug, Arbitrary)]
pub(super) struct Spot {
    pub(super) name: Name,
    pub(super) partition: u8,
}

/// A change of a setting; not all of them are legal.
#[derive(Debug)]
pub(super) struct Setting(pub(super) ConfigChange);

const SETTINGS: [(&str, &str); 12] = [
    ("message.timestamp.type", "LogAppendTime"),
    ("message.timestamp.type", "CreateTime"),
    ("cleanup.policy", "compact"),
    ("cleanup.policy", "delete"),
    ("max.message.bytes", "300"),
    ("max.message.bytes", "1000000"),
    ("max.message.bytes", "-1"),
    ("message.timestamp.after.max.ms", "5000"),
    ("message.timestamp.before.max.ms", "5000"),
    ("message.timestamp.before.max.ms", "9223372036854775807"),
    ("delete.retention.ms", "1"),
    ("no.such.setting", "1"),
];

impl<'a> Arbitrary<'a> for Setting {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let byte = u8::arbitrary(u)?;
        let (name, value) = SETTINGS[usize::from(byte & 0x7f) % SETTINGS.len()];
        let operation = match byte & 0x80 {
            0 => ConfigOperation::Set(value.to_owned()),
            _ => ConfigOperation::Delete,
        };
        Ok(Self(ConfigChange { name: name.to_owned(), operation }))
    }
}

/// What is added to an append transaction by one call.
#[derive(Debug, Arbitrary)]
pub(super) struct Part {
    pub(super) spot: Spot,
    #[arbitrary(with = seldom_compressed)]
    pub(super) codec: Codec,
    #[arbitrary(with = few)]
    pub(super) records: Vec<RecordSpec>,
    /// A batch that was built before, perhaps damaged, in place of records.
    pub(super) batch: Option<BatchSpec>,
}

#[derive(Debug, Arbitrary)]
pub(super) struct RecordSpec {
    pub(super) key: Option<u8>,
    pub(super) value_bytes: Option<u16>,
    pub(super) headers: u8,
    /// Seconds from now; the least of them stands for "no timestamp".
    pub(super) time: i8,
}

#[derive(Debug, Arbitrary)]
pub(super) struct BatchSpec {
    pub(super) has_producer: bool,
    pub(super) claims_log_time: bool,
    pub(super) damage: Option<Damage>,
}

#[derive(Debug, Arbitrary)]
pub(super) struct Damage {
    pub(super) at: u16,
    pub(super) change: u8,
    pub(super) cut: bool,
    pub(super) repairs_checksum: bool,
}

#[derive(Debug, Arbitrary)]
pub(super) enum Query {
    Earliest,
    Latest,
    /// Seconds from the time at which the run began.
    Timestamp(i8),
    AnyTimestamp(i64),
    MaxTimestamp,
}

#[derive(Debug, Arbitrary)]
pub(super) struct Crash {
    pub(super) how: Stop,
    /// The seed of what the store's disk keeps.
    pub(super) store_seed: u8,
    /// Recovery stops too, after so many calls, and then this happens.
    pub(super) again: Option<(u8, Stop)>,
}

#[derive(Debug, Clone, Copy, Arbitrary)]
pub(super) enum Stop {
    Kill,
    LosesAll,
    LosesNothing,
    KeepsFirst(u8),
    KeepsSome { seed: u8, shows_stale_bytes: bool },
}

#[derive(Debug, Clone, Copy, Arbitrary)]
pub(super) enum FailedCut {
    KeepsOld,
    KeepsNew,
}

#[derive(Debug, Clone, Copy, Arbitrary)]
pub(super) struct Failure {
    operation: u8,
    is_full: bool,
    pub(super) after_calls: u8,
    after_bytes: u16,
}

const OPERATIONS: [FileCall; 15] = [
    FileCall::Write,
    FileCall::Sync,
    FileCall::Write,
    FileCall::Sync,
    FileCall::Write,
    FileCall::Sync,
    FileCall::SyncDirectory,
    FileCall::Create,
    FileCall::Open,
    FileCall::Read,
    FileCall::SetLength,
    FileCall::Remove,
    FileCall::DropCache,
    FileCall::Rename,
    FileCall::CreateDirectory,
];

impl Failure {
    pub(super) fn operation(self) -> FileCall {
        OPERATIONS[usize::from(self.operation) % OPERATIONS.len()]
    }

    /// Few half of the time, else more than most writes have.
    pub(super) fn after_bytes(self) -> u64 {
        u64::from(if self.after_bytes & 1 == 0 {
            self.after_bytes & 0xff
        } else {
            self.after_bytes
        })
    }

    pub(super) fn errno(self) -> i32 {
        if self.is_full { ENOSPC } else { EIO }
    }
}
