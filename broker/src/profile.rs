//! The two profiles, and the rules of producing and reading that they set.

use std::fmt;

use bytes::Bytes;
use kafka_protocol::error::ResponseError;
use tidelog::record::RecordBatch;
use tidelog::types::{Durability, Visibility};

use crate::fault::Fault;

/// Which broker this one is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Profile {
    /// Kafka: compression, and what its clients do without asking.
    #[default]
    Kafka,
    /// An event broker whose events are rows: no compression, no producer ids, keys and values of
    /// bounded size, and only what is synced can be read.
    EventBroker,
}

impl Profile {
    /// How often retention is checked where nothing is set: every five minutes in Kafka.
    #[must_use]
    pub fn retention_check_interval_ms(self) -> u64 {
        match self {
            Self::Kafka => 300_000,
            Self::EventBroker => 0,
        }
    }
}

/// What a producer that asks for one acknowledgement waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Acks1 {
    /// A sync commit.
    Sync,
    /// A buffered commit.
    Buffered,
}

/// The longest key or value of the event-broker profile: 126 KiB.
pub const MAX_KEY_OR_VALUE_BYTES: usize = 129_024;
/// The largest batch of the event-broker profile: a MiB and Kafka's twelve bytes in front.
pub const MAX_BATCH_BYTES: usize = 1_048_588;

/// The rules that hold for every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// The profile they come from.
    pub profile: Profile,
    /// Whether each partition of a Produce request stands or falls by itself.
    pub independent_partitions: bool,
    /// What an acknowledgement of 1 waits for.
    pub acks1: Durability,
}

/// The number of acknowledgements that a producer asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acks {
    /// No answer at all.
    None,
    /// The leader's.
    One,
    /// Every replica's, of which there is one.
    All,
}

impl Rules {
    /// The rules of a profile.
    #[must_use]
    pub fn new(profile: Profile, independent_partitions: bool, acks1: Option<Acks1>) -> Self {
        let acks1 = match (acks1, profile) {
            (Some(Acks1::Sync), _) | (None, Profile::EventBroker) => Durability::Sync,
            (Some(Acks1::Buffered), _) | (None, Profile::Kafka) => Durability::Buffered,
        };
        Self { profile, independent_partitions, acks1 }
    }

    /// From when on readers see a commit.
    #[must_use]
    pub fn visibility(&self) -> Visibility {
        match self.profile {
            Profile::Kafka => Visibility::Applied,
            Profile::EventBroker => Visibility::Synced,
        }
    }

    /// What a commit with these acknowledgements must survive.
    #[must_use]
    pub fn durability(&self, acks: Acks) -> Durability {
        match (acks, self.profile) {
            (Acks::All, _) | (Acks::None, Profile::EventBroker) => Durability::Sync,
            (Acks::None, Profile::Kafka) => Durability::Buffered,
            (Acks::One, _) => self.acks1,
        }
    }

    /// Checks a batch by the profile, before the engine looks at it. What is no batch passes: the
    /// engine knows better what is wrong with it.
    ///
    /// # Errors
    /// The fault that the profile finds.
    pub fn check(&self, batch: &Bytes) -> Result<(), Fault> {
        if self.profile == Profile::Kafka || !batch_bits::is_readable(batch) {
            return Ok(());
        }
        if batch_bits::codec(batch) != 0 {
            let message = "compressed batches are not taken by this broker";
            return Err(Fault::new(ResponseError::CorruptMessage, message));
        }
        if batch_bits::producer_id(batch) >= 0 {
            let message = "batches with a producer id are not taken by this broker";
            return Err(Fault::new(ResponseError::InvalidRecord, message));
        }
        if batch.len() > MAX_BATCH_BYTES {
            return Err(too_large("a batch", batch.len(), MAX_BATCH_BYTES));
        }
        check_keys_and_values(batch)
    }
}

/// Looks at every record, up to the first that cannot be read: the engine says what is wrong with
/// that.
fn check_keys_and_values(batch: &Bytes) -> Result<(), Fault> {
    let Ok(batch) = RecordBatch::parse(batch.clone()) else { return Ok(()) };
    for record in batch.records().map_while(Result::ok) {
        let fields = [("a key", &record.key), ("a value", &record.value)];
        for (what, field) in fields {
            let bytes = field.as_ref().map_or(0, Bytes::len);
            if bytes > MAX_KEY_OR_VALUE_BYTES {
                return Err(too_large(what, bytes, MAX_KEY_OR_VALUE_BYTES));
            }
        }
    }
    Ok(())
}

fn too_large(what: &str, bytes: usize, limit: usize) -> Fault {
    let message = format!("{what} is too large: length_bytes={bytes} limit={limit}");
    Fault::new(ResponseError::MessageTooLarge, message)
}

impl TryFrom<i16> for Acks {
    type Error = Fault;

    fn try_from(acks: i16) -> Result<Self, Fault> {
        match acks {
            0 => Ok(Self::None),
            1 => Ok(Self::One),
            -1 => Ok(Self::All),
            _ => Err(Fault::new(
                ResponseError::InvalidRequiredAcks,
                format!("the acknowledgements must be 0, 1 or all (-1): acks={acks}"),
            )),
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kafka => "kafka",
            Self::EventBroker => "event-broker",
        })
    }
}

/// Fields of a batch header at their fixed places.
pub mod batch_bits {
    use bytes::Bytes;

    const HEADER_BYTES: usize = 61;

    /// Whether the bytes have a whole header of magic 2.
    #[must_use]
    pub fn is_readable(batch: &Bytes) -> bool {
        batch.len() >= HEADER_BYTES && batch[16] == 2
    }

    /// The codec's bits. The batch must be readable.
    #[must_use]
    pub fn codec(batch: &Bytes) -> u8 {
        batch[22] & 7
    }

    /// Whether the batch belongs to a producer transaction. It must be readable.
    #[must_use]
    pub fn is_transactional(batch: &Bytes) -> bool {
        batch[22] & 0x10 != 0
    }

    /// The producer's epoch, or -1. The batch must be readable.
    #[must_use]
    pub fn producer_epoch(batch: &Bytes) -> i16 {
        i16::from_be_bytes(batch[51..53].try_into().expect("a slice of two bytes"))
    }

    /// The producer id, or -1. The batch must be readable.
    #[must_use]
    pub fn producer_id(batch: &Bytes) -> i64 {
        i64::from_be_bytes(batch[43..51].try_into().expect("a slice of eight bytes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgements_wait_for_what_the_table_says() {
        let kafka = Rules::new(Profile::Kafka, false, None);
        let events = Rules::new(Profile::EventBroker, false, None);
        let table = [
            (0, Durability::Buffered, Durability::Sync),
            (1, Durability::Buffered, Durability::Sync),
            (-1, Durability::Sync, Durability::Sync),
        ];
        for (acks, in_kafka, in_events) in table {
            let acks = Acks::try_from(acks).unwrap();
            assert_eq!(kafka.durability(acks), in_kafka, "{acks:?}");
            assert_eq!(events.durability(acks), in_events, "{acks:?}");
        }
        for acks in [2, -2, i16::MAX, i16::MIN] {
            assert_eq!(Acks::try_from(acks).unwrap_err().code, 21);
        }
    }

    #[test]
    fn acks1_overrides_the_second_row_only() {
        let synced = Rules::new(Profile::Kafka, false, Some(Acks1::Sync));
        assert_eq!(synced.durability(Acks::One), Durability::Sync);
        assert_eq!(synced.durability(Acks::None), Durability::Buffered);
        let buffered = Rules::new(Profile::EventBroker, false, Some(Acks1::Buffered));
        assert_eq!(buffered.durability(Acks::One), Durability::Buffered);
        assert_eq!(buffered.durability(Acks::None), Durability::Sync);
        assert_eq!(buffered.durability(Acks::All), Durability::Sync);
    }

    #[test]
    fn the_event_broker_refuses_compression_producer_ids_and_large_batches() {
        let batch = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = vec![0; 61];
            bytes[16] = 2;
            bytes[43..51].copy_from_slice(&(-1i64).to_be_bytes());
            change(&mut bytes);
            Bytes::from(bytes)
        };
        let code = |batch: Bytes| {
            assert_eq!(Rules::new(Profile::Kafka, false, None).check(&batch), Ok(()));
            let events = Rules::new(Profile::EventBroker, false, None);
            events.check(&batch).err().map(|fault| fault.code)
        };
        assert_eq!(code(batch(&|_| {})), None);
        for codec in 1..8 {
            assert_eq!(code(batch(&|bytes| bytes[22] = codec)), Some(2));
        }
        assert_eq!(code(batch(&|bytes| bytes[43..51].fill(0))), Some(87));
        assert_eq!(code(batch(&|bytes| bytes.resize(MAX_BATCH_BYTES, 0))), None);
        assert_eq!(code(batch(&|bytes| bytes.resize(MAX_BATCH_BYTES + 1, 0))), Some(10));
        assert_eq!(code(batch(&|bytes| bytes.truncate(60))), None);
        assert_eq!(code(batch(&|bytes| (bytes[16], bytes[22]) = (1, 1))), None);
    }
}
