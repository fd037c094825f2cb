//! tidelog is an embedded storage engine for transactional partition logs.
#![cfg_attr(feature = "rocksdb", doc = include_str!("../README.md"))]
#![doc = include_str!("../docs/crate.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod base;
mod commit;
pub mod config;
mod core;
mod engine;
mod index;
mod log;
mod open;
mod read;
pub mod record;
mod space;
mod state;
#[cfg(any(test, feature = "test-util"))]
pub mod testing;
mod write;

pub use base::{clock, error, metrics, types};
pub use record::partitioner;
pub use state::producer;

pub use crate::core::{
    CleanerLag, GroupOffset, NegativeOffset, ProducerIdError, TooLong, TooManyProducers,
};
pub use base::clock::Clock;
pub use base::error::{Corruption, Place, StorageError};
pub use base::figures::{Figure, FigureKind, FigureUnit, FigureValue};
pub use base::metrics::Metrics;
pub use base::types::{
    Durability, Isolation, LeaderEpoch, Offset, ParseTopicIdError, TimestampMs, TopicId, TopicName,
    TopicNameError, Visibility, Watermarks,
};
pub use commit::Ticket;
pub use config::{
    EngineConfig, EngineConfigError, Maintenance, TopicConfig, TopicConfigError, TopicSettings,
};
pub use engine::handles::{
    Consumer, ConsumerError, ConsumerRecord, IdempotentProducer, OffsetReset, ProduceError,
    ProducerTransaction, TransactionalProducer,
};
pub use engine::maintenance::MaintenanceStep;
pub use engine::{
    Cleaner, ConsumerGroup, Engine, EngineBuilder, ManualMaintenance, ProducerManager, Topics,
};
pub use open::recovery::{OpenError, Recovered};
pub use open::verify::VerifyReport;
pub use read::describe::{LogSpace, PartitionDescription, TopicDescription};
pub use read::fetch::{FetchError, FetchOptions, Fetched, FirstBatch};
pub use read::listen::{Listening, WaitFor};
pub use read::offsets::{FoundOffset, ListOffsetError, OffsetQuery};
pub use read::scan::{Scan, ScanError, ScannedRecord, Snapshot};
pub use record::partitioner::Partitioner;
pub use record::{
    BatchRefusal, BuildError, Codec, ControlError, ErrorCode, Header, Record, RecordBatch,
    RecordError, RecordRefusal, RefusedRecord, RefusedRecords, TooLarge,
};
pub use space::cleaner::{CleanError, CleanerPass, CleanerPause, CleanerPlan, CleanerRound};
pub use space::retention::{DeleteRecordsError, OffsetTarget, RetentionReport};
pub use state::catalog::{Partition, Topic, UnknownPartition};
pub use state::partition::{EpochEnd, OffsetsExhausted};
pub use state::producer::transaction::ProducerTransactionError;
pub use state::producer::{AbortedTransaction, SequenceError};
#[cfg(any(test, feature = "test-util"))]
#[doc(hidden)]
pub use testing::internals;
pub use write::append::{
    AppendError, AppendErrorKind, AppendTransaction, CommitError, CommitRefusal, Committed,
    CommittedBatch, FirstSequence, NotWritten,
};
pub use write::groups::GroupError;
pub use write::producer_transaction::{
    ExpireReport, GroupMembership, InitProducer, ProducerDescription, ProducerError,
    ProducerTransactionDescription, StagedOffset,
};
pub use write::topics::{AddPartitionsError, AlterTopicError, CreateTopicError, DeleteTopicError};
