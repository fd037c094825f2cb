//! The append transaction: record batches for any number of partitions, committed as one.
//!
//! A batch is validated on the caller's thread when it is added, against the topic's
//! configuration at that moment. The committer then only checks that the topics still exist and
//! that each producer may append its batch, assigns offsets and plans the frame; the payload is
//! neither read nor copied again.

mod change;
mod committed;
mod error;
mod producers;
mod transaction;

pub use committed::{Committed, CommittedBatch};
pub use error::{AppendError, AppendErrorKind, CommitError, CommitRefusal, NotWritten};
pub use transaction::{AppendTransaction, FirstSequence, Stamp};
