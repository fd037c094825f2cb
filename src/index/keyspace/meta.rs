//! Family `meta`: who the store is, how it was left, how far it is applied, and the next ids.
//!
//! ```text
//! key        kind u8
//! identity   version u8 (1) | format version u32 | engine id u64
//! session    version u8 (1) | opens u64 | leader epoch i32 | closed cleanly u8 (0, 1)
//! applied    version u8 (1) | sequence u64 | segment u64 | position u64 | frame CRC u32
//! counters   version u8 (1) | next u64
//! ```

use super::bytes::Fields;
use crate::base::error::Corruption;
use crate::base::types::{AppliedCommit, CommitSequence, EngineId, LeaderEpoch, SegmentId};
use crate::index::write_batch::Family;

const VERSION: u8 = 1;

/// A key of family `meta`. The numbers are on disk and never used for anything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum MetaKey {
    /// [`Identity`].
    Identity = 1,
    /// [`Session`].
    Session = 2,
    /// The commit applied last.
    Applied = 3,
    /// The partition id that is given next.
    NextPartitionId = 4,
    /// The producer id below which all may have been given; missing before the first block.
    NextProducerId = 5,
}

impl MetaKey {
    /// The key.
    #[must_use]
    pub const fn key(self) -> [u8; 1] {
        [self as u8]
    }
}

/// Which engine a store belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The version of the format that everything is stored in.
    pub format_version: u32,
    /// The number that the commit log carries too.
    pub engine: EngineId,
}

impl Identity {
    /// The value.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut value = vec![VERSION];
        value.extend_from_slice(&self.format_version.to_be_bytes());
        value.extend_from_slice(&self.engine.0.to_be_bytes());
        value
    }

    /// Reads the value.
    ///
    /// # Errors
    /// [`Corruption`] for anything that [`Identity::encode`] does not write.
    pub fn decode(value: &[u8]) -> Result<Self, Corruption> {
        let key = MetaKey::Identity.key();
        let mut fields = Fields::new(Family::Meta, &key, value, VERSION)?;
        let identity = Self { format_version: fields.u32()?, engine: EngineId(fields.u64()?) };
        fields.end()?;
        Ok(identity)
    }
}

/// One life of the engine, from open to close or crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Session {
    /// How often the engine was opened.
    pub open_count: u64,
    /// The leader epoch of what is appended.
    pub leader_epoch: LeaderEpoch,
    /// Whether the engine was closed and all that it had acknowledged is there.
    pub closed_cleanly: bool,
}

impl Session {
    /// The value.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.leader_epoch >= 0, "leader epochs are never negative");
        let mut value = vec![VERSION];
        value.extend_from_slice(&self.open_count.to_be_bytes());
        value.extend_from_slice(&self.leader_epoch.to_be_bytes());
        value.push(u8::from(self.closed_cleanly));
        value
    }

    /// Reads the value.
    ///
    /// # Errors
    /// [`Corruption`] for anything that [`Session::encode`] does not write.
    pub fn decode(value: &[u8]) -> Result<Self, Corruption> {
        let key = MetaKey::Session.key();
        let mut fields = Fields::new(Family::Meta, &key, value, VERSION)?;
        let (open_count, leader_epoch, closed) = (fields.u64()?, fields.i32()?, fields.u8()?);
        if closed > 1 || leader_epoch < 0 {
            return Err(fields.corruption("a field is out of its range"));
        }
        fields.end()?;
        Ok(Self { open_count, leader_epoch, closed_cleanly: closed == 1 })
    }
}

/// The value of [`MetaKey::Applied`].
#[must_use]
pub fn encode_applied(applied: &AppliedCommit) -> [u8; 29] {
    let mut value = [VERSION; 29];
    value[1..9].copy_from_slice(&applied.sequence.0.to_be_bytes());
    value[9..17].copy_from_slice(&applied.segment.0.to_be_bytes());
    value[17..25].copy_from_slice(&applied.position.to_be_bytes());
    value[25..].copy_from_slice(&applied.frame_crc.to_be_bytes());
    value
}

/// Reads the value of [`MetaKey::Applied`].
///
/// # Errors
/// [`Corruption`] for anything that [`encode_applied`] does not write.
pub fn decode_applied(value: &[u8]) -> Result<AppliedCommit, Corruption> {
    let key = MetaKey::Applied.key();
    let mut fields = Fields::new(Family::Meta, &key, value, VERSION)?;
    let applied = AppliedCommit {
        sequence: CommitSequence(fields.u64()?),
        segment: SegmentId(fields.u64()?),
        position: fields.u64()?,
        frame_crc: fields.u32()?,
    };
    fields.end()?;
    Ok(applied)
}

/// The value of a counter: the id that is given next.
#[must_use]
pub fn encode_counter(next: u64) -> [u8; 9] {
    let mut value = [VERSION; 9];
    value[1..].copy_from_slice(&next.to_be_bytes());
    value
}

/// Reads the value of a counter.
///
/// # Errors
/// [`Corruption`] for anything that [`encode_counter`] does not write.
pub fn decode_counter(key: MetaKey, value: &[u8]) -> Result<u64, Corruption> {
    let key = key.key();
    let mut fields = Fields::new(Family::Meta, &key, value, VERSION)?;
    let next = fields.u64()?;
    fields.end()?;
    Ok(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded_as_they_were_encoded_and_their_bytes_are_those_on_disk() {
        let identity = Identity { format_version: 1, engine: EngineId(0x0102_0304_0506_0708) };
        assert_eq!(Identity::decode(&identity.encode()), Ok(identity));
        assert_eq!(identity.encode(), b"\x01\0\0\0\x01\x01\x02\x03\x04\x05\x06\x07\x08");
        let session = Session { open_count: 3, leader_epoch: 2, closed_cleanly: true };
        assert_eq!(Session::decode(&session.encode()), Ok(session));
        assert_eq!(session.encode(), b"\x01\0\0\0\0\0\0\0\x03\0\0\0\x02\x01");
        let applied = AppliedCommit {
            sequence: CommitSequence(1),
            segment: SegmentId(2),
            position: 3,
            frame_crc: 4,
        };
        assert_eq!(decode_applied(&encode_applied(&applied)), Ok(applied));
        assert_eq!(decode_counter(MetaKey::NextPartitionId, &encode_counter(9)), Ok(9));
    }

    #[test]
    fn a_value_of_another_length_or_version_is_corruption() {
        let session = Session::default().encode();
        for length in 0..session.len() {
            assert!(Session::decode(&session[..length]).is_err());
        }
        for (at, byte) in [(0, 2), (13, 2), (9, 0xff)] {
            let mut changed = session.clone();
            changed[at] = byte;
            assert!(Session::decode(&changed).is_err(), "byte {at}");
        }
        assert!(decode_counter(MetaKey::NextPartitionId, &[1; 10]).is_err());
        assert!(Identity::decode(&[]).is_err());
        assert!(decode_applied(&[1; 28]).is_err());
    }
}
