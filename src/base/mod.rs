//! What everything stands on: words of one meaning, files, time, errors, counters.

pub mod callback;
pub mod clock;
pub mod error;
pub mod figures;
pub mod hash;
pub mod io;
pub mod metrics;
pub mod random;
pub mod rules;
pub mod types;
