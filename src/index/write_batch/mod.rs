//! The set of index changes that one commit makes, in the one encoding that log and store share.
//!
//! Operations stand in their order, because a later one overrules an earlier one: a range delete
//! and a put after it keep the put. Values are absolute, never deltas, so replay may start early.
//!
//! ```text
//! write batch  := version u8 (1) | operation*
//! operation    := put          0x01 | family u8 | key length | value length | key | value
//!               | delete       0x02 | family u8 | key length | key
//!               | delete range 0x03 | family u8 | begin length | end length | begin | end
//! length       := unsigned LEB128 of a u32, shortest form
//! ```
//!
//! INVARIANT: a `WriteBatch` holds only what [`WriteBatch::decode`] accepts: known families,
//! non-empty keys of at most [`MAX_KEY_BYTES`], values of at most [`MAX_VALUE_BYTES`], begin < end.

mod batch;
mod error;
mod family;
mod limits;
mod operation;

pub use batch::{ValueAt, WriteBatch};
#[cfg(any(test, feature = "test-util"))]
pub use error::WriteBatchError;
pub use family::Family;
pub use limits::MAX_KEY_BYTES;
#[cfg(any(test, feature = "test-util"))]
pub use limits::MAX_VALUE_BYTES;
pub use operation::Operation;
