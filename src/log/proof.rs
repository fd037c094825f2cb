//! Proof of what is synced (rule R7): whether anything in the log tells of the last sync yet.
//!
//! Each frame and each segment header tells what was known to be synced when it was written. Damage
//! to what was synced last cannot be told from a torn write before a later one says so.

use super::CommitLog;
use crate::base::types::CommitSequence;

impl CommitLog {
    /// Whether a commit is synced of which nothing in the log tells that. A commit that is itself
    /// no more than such a proof needs none.
    #[must_use]
    pub fn lacks_proof(&self) -> bool {
        let synced = self.progress.synced();
        let writer = self.writer.lock();
        let is_proof_alone = synced == writer.proof && writer.told.next() == writer.proof;
        synced > writer.told && !is_proof_alone
    }

    /// Tells that this commit is in the log for the sake of what its frame tells alone.
    pub fn note_proof(&self, sequence: CommitSequence) {
        let mut writer = self.writer.lock();
        assert!(sequence <= writer.last_sequence, "what is noted was written");
        writer.proof = writer.proof.max(sequence);
    }
}
