//! A batch as a view over its bytes, and a run of batches read one after the other.

use std::iter::FusedIterator;

use bytes::Bytes;

use super::compression::{MAX_DECOMPRESSED_BYTES, MAX_STORED_DECOMPRESSED_BYTES};
use super::fault::RecordError;
use super::framing::batch_size;
use super::header::{BatchHeader, CRC_START, HEADER_BYTES};
use super::records::Records;

/// One batch whose framing and header are good. Cloning it copies no bytes.
///
/// INVARIANT: `bytes` is one whole batch: its length, magic and least size were checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordBatch {
    header: BatchHeader,
    bytes: Bytes,
}

impl RecordBatch {
    /// Takes bytes that are exactly one batch. The checksum is left to
    /// [`RecordBatch::verify_crc`], and the records to their iterator.
    ///
    /// # Errors
    /// [`RecordError`] for anything but one whole batch of version 2.
    pub fn parse(bytes: Bytes) -> Result<Self, RecordError> {
        let size_bytes =
            batch_size(&bytes)?.ok_or(RecordError::Incomplete { present_bytes: bytes.len() })?;
        if size_bytes < bytes.len() {
            return Err(RecordError::BytesBehindBatch { count_bytes: bytes.len() - size_bytes });
        }
        Ok(Self::of_whole(bytes))
    }

    /// Takes bytes whose framing was checked.
    fn of_whole(bytes: Bytes) -> Self {
        let head = bytes.first_chunk::<HEADER_BYTES>().expect("framing leaves room for the header");
        Self { header: BatchHeader::read(head), bytes }
    }

    /// The fields of the header.
    #[must_use]
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The whole batch.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The whole batch, given away.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }

    /// The bytes behind the header: the records, or the stream that holds them.
    #[must_use]
    pub fn payload(&self) -> Bytes {
        self.bytes.slice(HEADER_BYTES..)
    }

    /// Compares the checksum with the bytes.
    ///
    /// # Errors
    /// [`RecordError::Crc`] with both sums.
    pub fn verify_crc(&self) -> Result<(), RecordError> {
        let computed = crc32c::crc32c(&self.bytes[CRC_START..]);
        if computed != self.header.crc {
            return Err(RecordError::Crc { stored: self.header.crc, computed });
        }
        Ok(())
    }

    /// The records. Uncompressed, they are slices of the batch; compressed, slices of one buffer of
    /// [`MAX_DECOMPRESSED_BYTES`] at most. What is wrong comes as the last item.
    #[must_use]
    pub fn records(&self) -> Records {
        self.records_within(MAX_DECOMPRESSED_BYTES)
    }

    /// The records of a batch that comes out of a log, which was taken under a limit of its own:
    /// [`MAX_STORED_DECOMPRESSED_BYTES`] at most.
    #[must_use]
    pub fn stored_records(&self) -> Records {
        self.records_within(MAX_STORED_DECOMPRESSED_BYTES)
    }

    /// The records, with another cap on their decompressed size.
    #[must_use]
    pub fn records_within(&self, max_decompressed_bytes: usize) -> Records {
        Records::new(&self.header, self.payload(), max_decompressed_bytes)
    }
}

/// The batches in a run of bytes, their checksums compared. Part of a batch at the end ends the
/// reading; a fault is the last item.
#[derive(Debug, Clone)]
pub struct Batches {
    rest: Bytes,
    verify_crc: bool,
}

impl Batches {
    /// Reads the batches in `bytes`.
    #[must_use]
    pub fn new(bytes: Bytes) -> Self {
        Self { rest: bytes, verify_crc: true }
    }

    /// Leaves the checksums alone: for bytes whose sums were compared already.
    #[must_use]
    pub fn trusting_crc(mut self) -> Self {
        self.verify_crc = false;
        self
    }

    /// What was not read: part of a batch, once the reading has ended without a fault.
    #[must_use]
    pub fn rest(&self) -> &Bytes {
        &self.rest
    }

    fn read(&mut self) -> Result<Option<RecordBatch>, RecordError> {
        let Some(size_bytes) = batch_size(&self.rest)? else { return Ok(None) };
        let batch = RecordBatch::of_whole(self.rest.slice(..size_bytes));
        if self.verify_crc {
            batch.verify_crc()?;
        }
        self.rest = self.rest.slice(size_bytes..);
        Ok(Some(batch))
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.read().transpose();
        if matches!(read, Some(Err(_))) {
            self.rest = Bytes::new();
        }
        read
    }
}

impl FusedIterator for Batches {}
