//! The operations that only look: fetch, scan, offsets by time, listeners, descriptions.

pub mod describe;
pub mod fetch;
pub mod listen;
pub mod offsets;
pub mod scan;
