//! tidelog is an embedded storage engine for transactional partition logs.
#![cfg_attr(feature = "rocksdb", doc = include_str!("../README.md"))]

mod append;
mod callback;
mod catalog;
mod checkpoint;
mod cleaner;
pub mod clock;
mod commit;
pub mod config;
mod describe;
mod engine;
pub mod error;
mod fetch;
mod freeing;
mod groups;
mod handles;
pub mod io;
pub mod keyspace;
mod listen;
pub mod log;
mod maintenance;
pub mod metrics;
mod offsets;
pub mod partition;
pub mod partitioner;
pub mod producer;
mod producer_transaction;
pub mod record;
mod recovery;
mod relocation;
mod retention;
pub mod rules;
mod scan;
mod shared;
pub mod store;
mod topics;
pub mod types;
mod verify;
pub mod write_batch;

pub use append::{
    AppendError, AppendErrorKind, AppendTransaction, CommitError, Committed, CommittedBatch,
    NotWritten, Refusal,
};
pub use catalog::{Partition, Topic, UnknownPartition};
pub use cleaner::{CleanError, CleanerPass, CleanerPause, CleanerPlan, CleanerRound};
pub use clock::Clock;
pub use commit::Ticket;
pub use config::{EngineConfig, Maintenance, TopicConfig, TopicSettings};
pub use describe::{LogSpace, PartitionDescription, TopicDescription};
pub use engine::{Engine, EngineBuilder};
pub use error::StorageError;
pub use fetch::{FetchError, FetchOptions, Fetched};
pub use groups::GroupError;
pub use handles::{IdempotentProducer, ProduceError, ProducerTransaction, TransactionalProducer};
pub use listen::Listening;
pub use maintenance::MaintenanceStep;
pub use metrics::Metrics;
pub use offsets::{FoundOffset, ListOffsetError, OffsetQuery};
pub use partition::EpochEnd;
pub use partitioner::Partitioner;
pub use producer::{AbortedTransaction, SequenceError};
pub use producer_transaction::{
    ExpireReport, InitProducer, ProducerDescription, ProducerError, ProducerTransactionDescription,
    StagedOffset,
};
pub use record::{Codec, Header, Record, RecordBatch};
pub use recovery::{OpenError, Recovered};
pub use retention::{DeleteRecordsError, OffsetTarget, RetentionReport};
pub use scan::{Scan, ScanError, ScannedRecord, Snapshot};
pub use shared::{
    CleanerLag, GroupOffset, NegativeOffset, ProducerIdError, TooLong, TooManyProducers,
};
pub use topics::{AddPartitionsError, AlterTopicError, CreateTopicError, DeleteTopicError};
pub use types::{
    Durability, Isolation, LeaderEpoch, Offset, TimestampMs, TopicId, TopicName, Visibility,
    Watermarks,
};
pub use verify::VerifyReport;
