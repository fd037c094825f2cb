//! What verify tells: what was read, and what is wrong with it.

use std::fmt;

use crate::base::error::Corruption;

/// Problems that a report lists; more are only counted.
const MAX_LISTED_PROBLEMS: usize = 100;

/// What was read, and what is wrong with it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Partitions that were read.
    pub partition_count: u64,
    /// Record batches that were read.
    pub batch_count: u64,
    /// Records in them.
    pub record_count: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Batches that were removed or replaced before they were read: they are in no other figure.
    pub skipped_batch_count: u64,
    /// What is wrong; the first of it, if it is much.
    pub problems: Vec<Corruption>,
    /// How much is wrong in all.
    pub problem_count: u64,
}

impl VerifyReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.problem_count == 0
    }

    pub(super) fn note(&mut self, problem: Corruption) {
        self.problem_count += 1;
        if self.problems.len() < MAX_LISTED_PROBLEMS {
            self.problems.push(problem);
        }
        assert!(self.problems.len() as u64 <= self.problem_count, "each is counted");
    }
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "partition_count={} batch_count={} record_count={} bytes={} skipped_batch_count={} \
             problem_count={}",
            self.partition_count,
            self.batch_count,
            self.record_count,
            self.bytes,
            self.skipped_batch_count,
            self.problem_count
        )?;
        self.problems.iter().try_for_each(|problem| write!(f, "\n{problem}"))
    }
}
