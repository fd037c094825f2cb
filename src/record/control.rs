//! Control batches: the markers that end a producer transaction, built and read.
//!
//! ```text
//! key   := version i16 | type i16        0 abort, 1 commit; others belong to Kafka's own log
//! value := version i16 | coordinator epoch i32
//! ```

use std::fmt;

use bytes::Bytes;

use crate::base::types::TimestampMs;

use super::builder::BatchBuilder;
use super::data::Record;

const ABORT: i16 = 0;
const COMMIT: i16 = 1;

/// How a producer transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MarkerKind {
    /// Its records are not to be read.
    Abort,
    /// Its records are to be read.
    Commit,
}

/// The marker that ends a producer transaction in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EndMarker {
    /// How it ended.
    pub kind: MarkerKind,
    /// The epoch of the coordinator that decided.
    pub coordinator_epoch: i32,
}

/// What a control record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ControlRecord {
    /// A producer transaction ended.
    End(EndMarker),
    /// A type that has no meaning in a topic's partition; readers skip it.
    Other {
        /// The type.
        kind: i16,
    },
}

/// Why a record is no control record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ControlError {
    /// The key is null or shorter than version and type.
    Key {
        /// Its length.
        length_bytes: usize,
    },
    /// The value of a marker is null or shorter than version and coordinator epoch.
    Value {
        /// Its length.
        length_bytes: usize,
    },
    /// A negative version of key or value.
    Version {
        /// The version.
        version: i16,
    },
}

impl EndMarker {
    /// The control batch with this marker: one record, of the producer whose transaction ends.
    #[must_use]
    pub fn batch(&self, producer_id: i64, producer_epoch: i16, timestamp: TimestampMs) -> Bytes {
        let kind = match self.kind {
            MarkerKind::Abort => ABORT,
            MarkerKind::Commit => COMMIT,
        };
        let mut key = [0; 4];
        key[2..].copy_from_slice(&kind.to_be_bytes());
        let mut value = [0; 6];
        value[2..].copy_from_slice(&self.coordinator_epoch.to_be_bytes());
        let mut builder = BatchBuilder::control(producer_id, producer_epoch);
        builder
            .push(&Record::new(&key, &value).timestamp(timestamp))
            .expect("a marker is far below the limit of a batch");
        builder.finish().expect("the batch has a record and no codec")
    }
}

impl ControlRecord {
    /// Reads the one record of a control batch. Later versions than 0 are read as far as known.
    ///
    /// # Errors
    /// [`ControlError`] where key or value are too short or have a negative version.
    pub fn parse(record: &Record) -> Result<Self, ControlError> {
        Self::read(record.key.as_deref(), record.value.as_deref())
    }

    /// The same from the record's key and value.
    ///
    /// # Errors
    /// As [`ControlRecord::parse`].
    pub fn read(key: Option<&[u8]>, value: Option<&[u8]>) -> Result<Self, ControlError> {
        let key = key.unwrap_or_default();
        let [v0, v1, k0, k1, ..] = *key else {
            return Err(ControlError::Key { length_bytes: key.len() });
        };
        check_version(i16::from_be_bytes([v0, v1]))?;
        let kind = match i16::from_be_bytes([k0, k1]) {
            ABORT => MarkerKind::Abort,
            COMMIT => MarkerKind::Commit,
            kind => return Ok(Self::Other { kind }),
        };
        let value = value.unwrap_or_default();
        let [v0, v1, e0, e1, e2, e3, ..] = *value else {
            return Err(ControlError::Value { length_bytes: value.len() });
        };
        check_version(i16::from_be_bytes([v0, v1]))?;
        let coordinator_epoch = i32::from_be_bytes([e0, e1, e2, e3]);
        Ok(Self::End(EndMarker { kind, coordinator_epoch }))
    }
}

fn check_version(version: i16) -> Result<(), ControlError> {
    if version < 0 { Err(ControlError::Version { version }) } else { Ok(()) }
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key { length_bytes } => {
                write!(
                    f,
                    "the key of a control record is too short: length_bytes={length_bytes} limit=4"
                )
            }
            Self::Value { length_bytes } => {
                write!(f, "the value of a marker is too short: length_bytes={length_bytes} limit=6")
            }
            Self::Version { version } => {
                write!(f, "a control record has a negative version: version={version}")
            }
        }
    }
}

impl std::error::Error for ControlError {}
