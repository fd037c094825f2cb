//! What can be wrong with the bytes of a record batch, and the code that each fault has.

use std::fmt;

use super::attributes::Codec;
use super::code::ErrorCode;
use super::header::HEADER_BYTES;
use super::varint::VarintFault;

/// Why bytes are no record batch that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordError {
    /// A batch is not there whole.
    Incomplete {
        /// The bytes that are there.
        present_bytes: usize,
    },
    /// A batch length below that of any batch.
    BatchLength {
        /// The length field.
        length: i32,
    },
    /// A batch length that no batch can have, with the 12 bytes before it.
    BatchLengthOverflow {
        /// The length field.
        length: i32,
    },
    /// A magic byte that no version has.
    UnknownMagic {
        /// The byte.
        magic: i8,
    },
    /// A message set of version 0 or 1.
    OldMagic {
        /// The byte.
        magic: i8,
    },
    /// A batch that ends inside its header.
    ShorterThanHeader {
        /// Its declared size.
        size_bytes: usize,
    },
    /// Bytes behind a batch that should stand alone.
    BytesBehindBatch {
        /// How many.
        count_bytes: usize,
    },
    /// The checksum does not match.
    Crc {
        /// The one in the header.
        stored: u32,
        /// The one of the bytes.
        computed: u32,
    },
    /// A number that no codec has.
    UnknownCodec {
        /// The number.
        id: u8,
    },
    /// A codec that this build was made without.
    CodecNotBuilt {
        /// The codec.
        codec: Codec,
    },
    /// The compressed stream is broken.
    Stream {
        /// Its codec.
        codec: Codec,
        /// What is wrong.
        fault: StreamFault,
    },
    /// A negative number of records.
    NegativeCount {
        /// The record count field.
        record_count: i32,
    },
    /// A record is broken.
    Record {
        /// Its index in the batch.
        index: u32,
        /// What is wrong.
        fault: RecordFault,
    },
    /// Bytes behind the last record.
    BytesBehindRecords {
        /// How many.
        count_bytes: usize,
    },
}

/// What is wrong with a compressed stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamFault {
    /// It ends early.
    EndsEarly,
    /// It does not decompress, or a checksum in it is wrong.
    Malformed,
    /// There are bytes behind it.
    BytesBehind,
    /// It decompresses to more than the limit.
    TooLarge {
        /// The limit.
        limit_bytes: usize,
    },
}

/// A part of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Field {
    /// The length of the record.
    RecordLength,
    /// The attributes.
    Attributes,
    /// The timestamp delta.
    TimestampDelta,
    /// The offset delta.
    OffsetDelta,
    /// The key, or its length.
    Key,
    /// The value, or its length.
    Value,
    /// The number of headers.
    HeaderCount,
    /// The name of a header, or its length.
    HeaderName,
    /// The value of a header, or its length.
    HeaderValue,
}

/// What is wrong with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordFault {
    /// A part goes past the end of the record, or the record past the end of the batch.
    PastEnd {
        /// The part.
        field: Field,
    },
    /// A varint goes on behind the most bytes that it may have.
    Unterminated {
        /// The part.
        field: Field,
    },
    /// A varint is longer than it needs to be, or has stray bits.
    NotShortest {
        /// The part.
        field: Field,
    },
    /// A length or count is negative where it must not be; -1 is null where null is possible.
    Negative {
        /// The part.
        field: Field,
        /// The length or count.
        value: i32,
    },
    /// The record does not end where its length says.
    LengthMismatch {
        /// Bytes that are left behind its last header.
        left_bytes: usize,
    },
    /// The record is longer than its topic takes once decompressed.
    TooLong {
        /// Its length.
        length_bytes: u32,
        /// The limit.
        limit_bytes: u32,
    },
    /// The offset delta is not the index of the record.
    OffsetDelta {
        /// The delta.
        offset_delta: i32,
    },
}

impl RecordError {
    /// The code of the protocol for it: CORRUPT_MESSAGE for faults of framing and of the stream,
    /// INVALID_RECORD for those in a record.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::BatchLength { .. }
            | Self::BatchLengthOverflow { .. }
            | Self::UnknownMagic { .. }
            | Self::ShorterThanHeader { .. }
            | Self::BytesBehindBatch { .. }
            | Self::Crc { .. }
            | Self::UnknownCodec { .. }
            | Self::Stream { .. } => ErrorCode::CorruptMessage,
            Self::CodecNotBuilt { .. } => ErrorCode::UnsupportedCompressionType,
            Self::Incomplete { .. }
            | Self::OldMagic { .. }
            | Self::NegativeCount { .. }
            | Self::Record { .. }
            | Self::BytesBehindRecords { .. } => ErrorCode::InvalidRecord,
        }
    }
}

impl RecordFault {
    /// The fault of a varint in a part of a record.
    pub(super) const fn of_varint(field: Field, fault: VarintFault) -> Self {
        match fault {
            VarintFault::PastEnd => Self::PastEnd { field },
            VarintFault::Unterminated => Self::Unterminated { field },
            VarintFault::NotShortest => Self::NotShortest { field },
        }
    }
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Incomplete { present_bytes } => {
                write!(f, "no whole record batch is there: present_bytes={present_bytes}")
            }
            Self::BatchLength { length } => {
                write!(f, "a batch length is below that of any batch: length={length} limit=14")
            }
            Self::BatchLengthOverflow { length } => {
                write!(
                    f,
                    "a batch length is above that of any batch: length={length} limit=2147483635"
                )
            }
            Self::UnknownMagic { magic } => {
                write!(f, "a batch has an unknown version: magic={magic} known=2")
            }
            Self::OldMagic { magic } => {
                write!(f, "message sets before version 2 are not read: magic={magic} known=2")
            }
            Self::ShorterThanHeader { size_bytes } => write!(
                f,
                "a batch is shorter than its header: size_bytes={size_bytes} limit={HEADER_BYTES}"
            ),
            Self::BytesBehindBatch { count_bytes } => {
                write!(f, "there are bytes behind the batch: count_bytes={count_bytes}")
            }
            Self::Crc { stored, computed } => write!(
                f,
                "the checksum of a batch does not match: stored={stored:08x} \
                 computed={computed:08x}"
            ),
            Self::UnknownCodec { id } => {
                write!(f, "a batch names an unknown codec: codec_id={id} limit=4")
            }
            Self::CodecNotBuilt { codec } => {
                write!(f, "this build was made without a codec that a batch needs: codec={codec}")
            }
            Self::Stream { codec, fault } => {
                write!(f, "the compressed records of a batch {fault}: codec={codec}")?;
                match fault {
                    StreamFault::TooLarge { limit_bytes } => write!(f, " limit={limit_bytes}"),
                    _ => Ok(()),
                }
            }
            Self::NegativeCount { record_count } => {
                write!(f, "a batch has a negative number of records: record_count={record_count}")
            }
            Self::Record { index, fault } => write!(f, "{fault} record_index={index}"),
            Self::BytesBehindRecords { count_bytes } => {
                write!(f, "there are bytes behind the last record: count_bytes={count_bytes}")
            }
        }
    }
}

impl std::error::Error for RecordError {}

impl fmt::Display for StreamFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EndsEarly => "end early",
            Self::Malformed => "do not decompress",
            Self::BytesBehind => "have bytes behind their stream",
            Self::TooLarge { .. } => "decompress to more than the limit",
        })
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RecordLength => "record length",
            Self::Attributes => "attributes",
            Self::TimestampDelta => "timestamp delta",
            Self::OffsetDelta => "offset delta",
            Self::Key => "key",
            Self::Value => "value",
            Self::HeaderCount => "header count",
            Self::HeaderName => "header name",
            Self::HeaderValue => "header value",
        })
    }
}

impl fmt::Display for RecordFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PastEnd { field } => {
                write!(f, "a record goes past the end: field='{field}'")
            }
            Self::Unterminated { field } => {
                write!(f, "a varint of a record does not end: field='{field}'")
            }
            Self::NotShortest { field } => {
                write!(f, "a varint of a record is not in its shortest form: field='{field}'")
            }
            Self::Negative { field, value } => {
                write!(f, "a length of a record is negative: field='{field}' value={value}")
            }
            Self::LengthMismatch { left_bytes } => {
                write!(f, "a record ends before its length does: left_bytes={left_bytes}")
            }
            Self::TooLong { length_bytes, limit_bytes } => write!(
                f,
                "a record is longer than its topic takes: length_bytes={length_bytes} \
                 limit={limit_bytes}"
            ),
            Self::OffsetDelta { offset_delta } => write!(
                f,
                "the offset delta of a record is not its index: offset_delta={offset_delta}"
            ),
        }
    }
}
