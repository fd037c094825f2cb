//! The attributes of a batch: codec, kind of timestamps, and what else its bits say.

use std::fmt;

/// How the records of a batch are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Codec {
    /// Not at all.
    #[default]
    None,
    /// gzip, one member.
    Gzip,
    /// Snappy: snappy-java's blocks or one raw stream; written as blocks.
    Snappy,
    /// One LZ4 frame.
    Lz4,
    /// One Zstandard frame.
    Zstd,
}

/// Whose clock gave the timestamps of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TimestampType {
    /// The producer's: each record has its own.
    #[default]
    CreateTime,
    /// The log's: every record of a batch reads as the batch's maximum timestamp.
    LogAppendTime,
}

/// The sixteen attribute bits of a batch. Bits 7 to 15 have no meaning and are kept as they are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Attributes(u16);

impl Codec {
    /// All codecs, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// The codec with this number, if there is one.
    #[must_use]
    pub fn from_id(id: u8) -> Option<Self> {
        Self::ALL.get(usize::from(id)).copied()
    }

    /// The number in the attributes.
    #[must_use]
    pub const fn id(self) -> u8 {
        self as u8
    }

    /// The name that Kafka's configuration gives it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for TimestampType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CreateTime => "CreateTime",
            Self::LogAppendTime => "LogAppendTime",
        })
    }
}

impl Attributes {
    const CODEC_MASK: u16 = 0b111;
    const LOG_APPEND_TIME: u16 = 1 << 3;
    const TRANSACTIONAL: u16 = 1 << 4;
    const CONTROL: u16 = 1 << 5;
    const DELETE_HORIZON: u16 = 1 << 6;

    /// The attributes with these bits.
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// The bits, as they stand in the header.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// The number of the codec, which may be none that exists.
    #[must_use]
    pub const fn codec_id(self) -> u8 {
        (self.0 & Self::CODEC_MASK) as u8
    }

    /// The codec; nothing for the numbers 5 to 7.
    #[must_use]
    pub fn codec(self) -> Option<Codec> {
        Codec::from_id(self.codec_id())
    }

    /// Whose clock gave the timestamps.
    #[must_use]
    pub const fn timestamp_type(self) -> TimestampType {
        if self.0 & Self::LOG_APPEND_TIME == 0 {
            TimestampType::CreateTime
        } else {
            TimestampType::LogAppendTime
        }
    }

    /// Whether the batch belongs to a producer transaction.
    #[must_use]
    pub const fn is_transactional(self) -> bool {
        self.0 & Self::TRANSACTIONAL != 0
    }

    /// Whether the batch holds a control record, which no consumer is given.
    #[must_use]
    pub const fn is_control(self) -> bool {
        self.0 & Self::CONTROL != 0
    }

    /// Whether the base timestamp is a delete horizon.
    #[must_use]
    pub const fn has_delete_horizon(self) -> bool {
        self.0 & Self::DELETE_HORIZON != 0
    }

    /// The same with another codec.
    #[must_use]
    pub const fn with_codec(self, codec: Codec) -> Self {
        Self(self.0 & !Self::CODEC_MASK | codec.id() as u16)
    }

    /// The same with another kind of timestamps.
    #[must_use]
    pub const fn with_timestamp_type(self, timestamp_type: TimestampType) -> Self {
        self.with_bit(Self::LOG_APPEND_TIME, matches!(timestamp_type, TimestampType::LogAppendTime))
    }

    /// The same, transactional or not.
    #[must_use]
    pub const fn with_transactional(self, on: bool) -> Self {
        self.with_bit(Self::TRANSACTIONAL, on)
    }

    /// The same, of a control batch or not.
    #[must_use]
    pub const fn with_control(self, on: bool) -> Self {
        self.with_bit(Self::CONTROL, on)
    }

    /// The same, with the base timestamp read as a delete horizon or not.
    #[must_use]
    pub const fn with_delete_horizon(self, on: bool) -> Self {
        self.with_bit(Self::DELETE_HORIZON, on)
    }

    const fn with_bit(self, bit: u16, on: bool) -> Self {
        if on { Self(self.0 | bit) } else { Self(self.0 & !bit) }
    }
}

impl fmt::Debug for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Attributes({:#06x})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bit_is_set_and_cleared_alone() {
        let all = Attributes::from_bits(0xff83)
            .with_timestamp_type(TimestampType::LogAppendTime)
            .with_transactional(true)
            .with_control(true)
            .with_delete_horizon(true);
        assert_eq!(all.bits(), 0xfffb);
        assert_eq!(all.codec(), Some(Codec::Lz4));
        let none = all
            .with_codec(Codec::None)
            .with_timestamp_type(TimestampType::CreateTime)
            .with_transactional(false)
            .with_control(false)
            .with_delete_horizon(false);
        assert_eq!(none.bits(), 0xff80, "bits without a meaning are kept");
    }

    #[test]
    fn codec_numbers_5_to_7_are_no_codec() {
        for id in 0..8u16 {
            assert_eq!(Attributes::from_bits(id).codec().is_some(), id < 5, "{id}");
        }
    }
}
