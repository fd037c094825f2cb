//! What moves the log start up: retention by time and size, and `delete_records`.
//!
//! The unit is the record batch, and none is held back as "active". The log start may lie inside
//! a batch: such a batch stays, and counts, as a whole.

mod change;
mod delete_records;
mod expire;
mod rule;

pub use delete_records::{DeleteRecordsError, OffsetTarget, delete_records};
pub use expire::{RetentionReport, run_retention};
