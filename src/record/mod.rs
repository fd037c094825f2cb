//! The record batch codec: Kafka's v2 batches read, checked, built and stamped, as pure bytes.
//!
//! A [`RecordBatch`] is a view over `Bytes` whose framing and header are good; its records are
//! slices of it. [`validate_append`] is the verdict on a batch that a client wants to append, and
//! gives its stored form. [`BatchBuilder`] makes batches, [`EndMarker`] control batches.
//!
//! ```text
//! byte  0  base offset i64          not under the checksum, stamped when served
//!       8  batch length i32         bytes behind this field
//!      12  leader epoch i32         not under the checksum, stamped when served
//!      16  magic i8 (2)
//!      17  CRC-32C u32              over byte 21 to the end
//!      21  attributes i16           codec (bits 0-2), append time (3), transactional (4),
//!                                   control (5), delete horizon (6)
//!      23  last offset delta i32
//!      27  base timestamp i64       or the delete horizon
//!      35  max timestamp i64
//!      43  producer id i64, 51 producer epoch i16, 53 base sequence i32
//!      57  record count i32
//!      61  records, compressed as one stream if the attributes name a codec
//!
//! record := length | attributes i8 | timestamp delta | offset delta
//!         | key length | key | value length | value | header count | header*
//! header := name length | name | value length | value
//! ```
//!
//! Everything in a record but its attributes is a zig-zag varint; a length of -1 is null.

#[cfg(feature = "arbitrary")]
mod arbitrary;
mod attributes;
mod batch;
mod builder;
mod code;
mod compression;
mod control;
mod crc;
mod data;
mod fault;
mod framing;
mod header;
mod headers;
mod keys;
pub mod partitioner;
mod raw;
mod rebuild;
mod records;
mod refusal;
mod stored;
mod too_large;
mod validate;
mod varint;
mod view;

pub use attributes::{Attributes, Codec, TimestampType};
pub use batch::{Batches, RecordBatch};
pub use builder::{BatchBuilder, BuildError, MAX_BATCH_BYTES};
pub use code::ErrorCode;
pub use compression::{MAX_DECOMPRESSED_BYTES, MAX_STORED_DECOMPRESSED_BYTES};
pub use control::{ControlError, ControlRecord, EndMarker, MarkerKind};
pub use crc::combine as combine_crc;
pub use data::{Header, IntoField, Record};
pub use fault::{Field, RecordError, RecordFault, StreamFault};
pub use header::{BatchHeader, HEADER_BYTES, NO_PRODUCER_ID, NO_SEQUENCE, stamp};
pub use headers::{Headers, HeadersIter};
pub use keys::{RecordKey, RecordKeys};
pub use rebuild::{emptied, rebuild};
pub use records::Records;
pub use refusal::{
    BatchRefusal, MAX_REPORTED_RECORDS, RecordRefusal, RefusedRecord, RefusedRecords,
};
pub use stored::{StoredBatch, ValidatedBatch};
pub use too_large::TooLarge;
pub use validate::{AppendRules, validate_append};
pub use view::{BatchView, RecordView, RecordViews, UnpackedBatch};
