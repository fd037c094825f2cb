//! The rules of durability that a test may break on purpose, to show that each of them matters.
//!
//! docs/design.md says where each name is explained. In a build without `test-util` nothing can be
//! broken: [`BrokenRules::breaks`] is `false` there, and the compiler drops the branch.

/// A rule that can be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Rule {
    /// An id is given twice: a new segment takes the id after the newest *readable* header.
    W1SegmentIdOnce,
    /// A frame is taken without comparing the segment id in it.
    W2SegmentInFrame,
    /// A frame is taken, and its header believed, without comparing its seal.
    W2Seal,
    /// A frame is taken without comparing its payloads with the table.
    W2PayloadTable,
    /// The directory of a new segment is not synced.
    W3DirectorySynced,
    /// The directory is not synced after a freed segment got the name of a new one.
    W3RenameSynced,
    /// Recovery appends to the newest segment instead of starting a new one.
    W3NewSegmentAtOpen,
    /// A read does not compare the batch's checksum with the index.
    W4ReadCompares,
    /// A sync covers the newest segment only.
    W5SyncCoversAll,
    /// `synced` is taken after the sync instead of before.
    W5SyncedBeforeBegin,
    /// A later success of a sync counts after a failure.
    W7FailureIsFinal,
    /// Two syncs run at once, each with a result of its own.
    W7OneSyncAtATime,
    /// The committer never waits for a sync.
    W8Bound,
    /// The log is not synced before the store is flushed.
    S4SyncFirst,
    /// The log is synced before the committer is held: commits that come between are flushed.
    S4CheckpointUnderLock,
    /// After a store error the engine goes on.
    S6HaltOnStoreError,
    /// The store is flushed when the engine is closed after a halt.
    S6CloseWithoutFlush,
    /// A bad segment header is always an unfinished creation.
    R3BadHeaderWithFrames,
    /// The header of a freed segment under the name of a new one is damage, and no unfinished
    /// creation.
    R3OldHeader,
    /// Recovery reads what only the page cache holds.
    R4SyncBeforeRead,
    /// The end that a successor's header tells is not heeded.
    R6SuccessorEnd,
    /// Every damage is a torn tail: what comes after is not read.
    R7LookBehind,
    /// The log may end before the applied commit.
    R8AppliedInLog,
    /// Recovery leaves the log without a new, synced header that tells its end.
    R10NewHeader,
    /// After a full disk the truncation is not synced.
    E1TruncationSynced,
    /// A full disk while syncing does not halt.
    E2SyncErrorHalts,
    /// A halted engine still takes commits.
    E3HaltRefuses,
    /// After an error the same file is written on.
    E4NewFileAfterError,
    /// A segment goes by what the index holds now, not by what a checkpoint made durable.
    F1IndexAtCheckpoint,
    /// A segment goes by the count of what is alive in it, and nothing is looked up.
    F1LookUp,
    /// Relocation moves a batch without comparing what the index says of it by then.
    F2CompareEntry,
    /// A segment goes although a reader's pin is older than the checkpoint.
    F3PinsHold,
    /// A freed segment is written over although a call on it has failed, or although an earlier
    /// open has written it.
    F5CleanFile,
    /// A freed segment is written over although its file has a second name.
    F5OneLink,
    /// Topic changes are not synced.
    D1TopicsSynced,
    /// Blocks of producer ids are not synced before an id of them is given.
    D1ProducerIdsSynced,
    /// The ends of producer transactions, and the epochs that fence, are not synced.
    D1ProducerTransactionsSynced,
    /// The leader epoch does not rise after a crash.
    D2EpochRises,
}

/// The set of rules that this run breaks; empty but in tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BrokenRules {
    #[cfg(any(test, feature = "test-util"))]
    bits: u64,
}

impl BrokenRules {
    /// No rule is broken.
    pub const NONE: Self = Self {
        #[cfg(any(test, feature = "test-util"))]
        bits: 0,
    };

    /// One rule is broken.
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub const fn only(rule: Rule) -> Self {
        Self { bits: 1 << rule as u8 }
    }

    /// Whether this rule is broken.
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub const fn breaks(&self, rule: Rule) -> bool {
        self.bits & (1 << rule as u8) != 0
    }

    /// Whether this rule is broken: never, in this build.
    #[cfg(not(any(test, feature = "test-util")))]
    #[must_use]
    #[inline(always)]
    pub const fn breaks(&self, _rule: Rule) -> bool {
        false
    }
}
