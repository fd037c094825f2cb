//! `EngineConfig`: every limit of the engine, with its bounds, its default and the reason for it.

use serde::{Deserialize, Serialize};

use super::limits::{EngineConfigError, Limit, LimitProblem};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// When the engine's own work is done: checkpoints and whatever frees space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Maintenance {
    /// On a thread of the engine's, when it is due.
    #[default]
    Background,
    /// Only when it is asked for: for tests, and for those who run it at their own times.
    Manual,
}

/// Writes struct, setters and table from one list, so that none can lack a limit.
macro_rules! engine_config {
    (
        limits { $(
            $(#[doc = $doc:literal])+
            $name:ident: $kind:ty = $default:expr, from $least:expr, to $greatest:expr;
        )+ }
        derived { $(
            $(#[doc = $derived_doc:literal])+
            $derived:ident, from $derived_least:expr, to $derived_greatest:expr;
        )+ }
    ) => {
        /// How the engine is opened: its limits, and when it does its own work.
        ///
        /// Every field has a setter of its name. The defaults suit a machine of two cores and
        /// several GiB of memory.
        ///
        /// ```
        /// use tidelog::config::EngineConfig;
        ///
        /// let config = EngineConfig::default().segment_bytes(64 << 20);
        /// assert!(config.validate().is_ok());
        /// ```
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        #[non_exhaustive]
        pub struct EngineConfig {
            $( $(#[doc = $doc])+ pub $name: $kind, )+
            $( $(#[doc = $derived_doc])+ pub $derived: Option<u64>, )+
            /// When the engine's own work is done.
            pub maintenance: Maintenance,
        }

        impl Default for EngineConfig {
            fn default() -> Self {
                Self {
                    $( $name: $default, )+
                    $( $derived: None, )+
                    maintenance: Maintenance::Background,
                }
            }
        }

        impl EngineConfig {
            $(
                $(#[doc = $doc])+
                #[must_use]
                pub fn $name(mut self, $name: $kind) -> Self {
                    self.$name = $name;
                    self
                }
            )+
            $(
                $(#[doc = $derived_doc])+
                #[must_use]
                pub fn $derived(mut self, $derived: impl Into<Option<u64>>) -> Self {
                    self.$derived = $derived.into();
                    self
                }
            )+

            /// Every limit with the value that it has here; `None` where it follows from others.
            #[must_use]
            pub fn limits(&self) -> Vec<(Limit, Option<u64>)> {
                vec![
                    $( (
                        Limit {
                            name: stringify!($name),
                            default: Some(<$kind>::into($default)),
                            least: $least,
                            greatest: $greatest,
                            reason: concat!($($doc),+),
                        },
                        Some(self.$name.into()),
                    ), )+
                    $( (
                        Limit {
                            name: stringify!($derived),
                            default: None,
                            least: $derived_least,
                            greatest: $derived_greatest,
                            reason: concat!($($derived_doc),+),
                        },
                        self.$derived,
                    ), )+
                ]
            }
        }
    };
}

engine_config! {
    limits {
        /// The size at which the commit log goes on in a new file. Large enough that rolls and
        /// their syncs are rare, small enough that space comes back in useful pieces.
        segment_bytes: u64 = 256 * MIB, from 8 * KIB, to 64 * GIB;
        /// Written bytes after which the log is synced in the background. It keeps the syncs of
        /// commits and checkpoints short.
        background_sync_bytes: u64 = 16 * MIB, from 1, to 64 * GIB;
        /// Unsynced bytes above which the committer waits: what a power loss can take of buffered
        /// commits, and how long a sync can last.
        max_unsynced_bytes: u64 = 64 * MIB, from 1, to 64 * GIB;
        /// Memory of unflushed index entries at which a checkpoint starts: as much as is flushed
        /// in well under a second.
        checkpoint_index_bytes: u64 = 64 * MIB, from 4 * KIB, to 16 * GIB;
        /// Bytes of log at which a checkpoint starts: what recovery reads at most, a second or two
        /// of reading.
        checkpoint_log_bytes: u64 = GIB, from 4 * KIB, to 1024 * GIB;
        /// Range deletes at which a checkpoint starts. Unflushed ones slow down every seek: 0.2 ms
        /// at this many, and far more at ten times of it.
        checkpoint_range_deletes: u64 = 1000, from 1, to 1_000_000;
        /// Memory for blocks of the index that were read.
        block_cache_bytes: u64 = 64 * MIB, from MIB, to 1024 * GIB;
        /// Bytes of submitted transactions that wait for the committer. More memory would not make
        /// the disk faster.
        commit_queue_bytes: u64 = 64 * MIB, from 4 * KIB, to 16 * GIB;
        /// Bytes of transactions that are written as one group, unless a single one is larger: a
        /// group is what a waiting caller waits for.
        commit_group_bytes: u64 = 8 * MIB, from 1, to GIB;
        /// Bytes of record batches in one append transaction. It is held in memory until it is
        /// written, and it is written as one frame.
        max_transaction_bytes: u64 = 64 * MIB, from 1, to GIB;
        /// Record batches in one append transaction: its table and its index entries are built in
        /// memory while the others wait.
        max_batches_per_transaction: u32 = 16_384, from 1, to 1_048_576;
        /// Bytes that one compressed batch may unpack to. A batch of a megabyte can claim
        /// gigabytes.
        max_decompressed_bytes: u64 = 64 * MIB, from 1, to GIB;
        /// Bytes that one fetch gives, but for a first batch that is larger by itself.
        max_fetch_bytes: u64 = 64 * MIB, from 1, to GIB;
        /// Memory for the keys of a cleaner pass, some 40 bytes each. A partition with more
        /// new keys is cleaned in several passes, each of which reads all of it.
        cleaner_memory_bytes: u64 = 128 * MIB, from 64, to 64 * GIB;
        /// Topics. Each is held in memory with its name and settings.
        max_topics: u32 = 100_000, from 1, to 10_000_000;
        /// Partitions of all topics. Each is held in memory with its offsets and epochs.
        max_partitions: u32 = 200_000, from 1, to 10_000_000;
        /// Time between two rounds of maintenance, which look for what has expired and for space
        /// to free. Several of them fit in the minute within which space comes back.
        maintenance_interval_ms: u64 = 10_000, from 1, to 86_400_000;
        /// Time between two checks of retention, in the rounds of maintenance; with 0 every round
        /// checks it, so that a record goes soon after its time. Kafka's
        /// `log.retention.check.interval.ms`.
        retention_check_interval_ms: u64 = 0, from 0, to 86_400_000;
        /// Bytes that relocation moves in a second, at most: little beside what a disk takes, so
        /// that appends are left alone.
        relocation_bytes_per_second: u64 = 64 * MIB, from 1, to 1024 * GIB;
        /// Bytes that the cleaner reads and writes in a second on the engine's own thread, at most:
        /// a part of what it could do, so that appends and fetches keep most of the machine.
        cleaner_bytes_per_second: u64 = 256 * MIB, from 1, to 1024 * GIB;
        /// Dead bytes of the log, in percent of those that are alive, above which relocation gives
        /// space back; two segments may be dead beside that. Less space costs more copying.
        max_dead_percent: u32 = 28, from 1, to 10_000;
        /// Freed segments whose files are kept at most to become the next ones, while anything is
        /// appended and there is room on the disk: a write over what was written before is cheaper
        /// than one that makes a file longer. While they are more than twice as many as are begun
        /// between two rounds of maintenance, a round gives one back. 0 removes them all.
        max_free_segments: u32 = 8, from 0, to 1024;
        /// Time after which a snapshot holds back the removal of segments no longer, and reading it
        /// fails: one that was forgotten must not fill the disk.
        max_snapshot_age_ms: u64 = 3_600_000, from 1, to 2_592_000_000;
        /// Partitions of one topic: as many as Kafka makes in one request, and as one commit can
        /// write.
        max_partitions_per_topic: u32 = 10_000, from 1, to 100_000;
        /// Producers that partitions remember, each partition's counted: some 250 bytes of memory
        /// each. Above it new ones are refused until silent ones have expired.
        max_producers: u64 = 1_000_000, from 1, to 1_000_000_000;
        /// Milliseconds of silence after which a partition forgets a producer that has no open
        /// transaction: a batch that it retries later is stored twice. Kafka's
        /// `producer.id.expiration.ms`.
        producer_id_expiration_ms: u64 = 86_400_000, from 1, to 9_223_372_036_854_775_807;
        /// Milliseconds of silence after which a transactional id is forgotten. Kafka's
        /// `transactional.id.expiration.ms`.
        transactional_id_expiration_ms: u64 = 604_800_000, from 1, to 9_223_372_036_854_775_807;
        /// The longest timeout that a producer transaction may ask for. An open one holds back the
        /// last stable offset. Kafka's `transaction.max.timeout.ms`.
        transaction_max_timeout_ms: u32 = 900_000, from 1, to 2_147_483_647;
        /// Transactional ids. Each is held in memory.
        max_transactional_ids: u32 = 100_000, from 1, to 10_000_000;
    }
    derived {
        /// Memory of unflushed index entries above which the committer waits for a checkpoint.
        /// Four times `checkpoint_index_bytes` unless it is set.
        index_memory_limit_bytes, from 4 * KIB, to 64 * GIB;
        /// Free space below which appends are refused; retention, deletion and checkpoints may use
        /// it, since each frees space only after writing, and relocation half of it. Two segments
        /// and twice the memory of the index unless it is set.
        disk_reserve_bytes, from 0, to 1024 * GIB;
    }
}

impl EngineConfig {
    /// When the engine's own work is done.
    #[must_use]
    pub fn maintenance(mut self, maintenance: Maintenance) -> Self {
        self.maintenance = maintenance;
        self
    }

    /// `index_memory_limit_bytes`, or what it is when it is not set.
    #[must_use]
    pub fn effective_index_memory_limit_bytes(&self) -> u64 {
        let derived = self.checkpoint_index_bytes.saturating_mul(4);
        self.index_memory_limit_bytes.unwrap_or(derived)
    }

    /// `disk_reserve_bytes`, or what it is when it is not set.
    #[must_use]
    pub fn effective_disk_reserve_bytes(&self) -> u64 {
        let segments = self.segment_bytes.saturating_mul(2);
        let index = self.effective_index_memory_limit_bytes().saturating_mul(2);
        self.disk_reserve_bytes.unwrap_or(segments.saturating_add(index))
    }

    /// Whether the engine can be opened with these limits.
    ///
    /// # Errors
    /// [`EngineConfigError`] with everything that is wrong.
    pub fn validate(&self) -> Result<(), EngineConfigError> {
        let mut problems = Vec::new();
        for (limit, value) in self.limits() {
            if let Some(value) =
                value.filter(|value| !(limit.least..=limit.greatest).contains(value))
            {
                problems.push(LimitProblem::OutOfBounds { limit, value });
            }
        }
        let index_memory = self.effective_index_memory_limit_bytes();
        let ordered = [
            (
                "background_sync_bytes",
                self.background_sync_bytes,
                "max_unsynced_bytes",
                self.max_unsynced_bytes,
            ),
            (
                "checkpoint_index_bytes",
                self.checkpoint_index_bytes,
                "index_memory_limit_bytes",
                index_memory,
            ),
            (
                "max_transaction_bytes",
                self.max_transaction_bytes,
                "commit_queue_bytes",
                self.commit_queue_bytes,
            ),
            (
                "max_partitions_per_topic",
                self.max_partitions_per_topic.into(),
                "max_partitions",
                self.max_partitions.into(),
            ),
        ];
        for (name, value, bound, bound_value) in ordered {
            if value > bound_value {
                problems.push(LimitProblem::Above { name, value, bound, bound_value });
            }
        }
        EngineConfigError::check(problems)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_legal_and_derive_what_is_not_set() {
        let config = EngineConfig::default();
        assert_eq!(config.validate(), Ok(()));
        assert_eq!(config.effective_index_memory_limit_bytes(), 256 * MIB);
        assert_eq!(config.effective_disk_reserve_bytes(), 1024 * MIB);
        let config = config.index_memory_limit_bytes(100 * MIB).disk_reserve_bytes(0);
        assert_eq!(config.effective_index_memory_limit_bytes(), 100 * MIB);
        assert_eq!(config.effective_disk_reserve_bytes(), 0);
        let config = config.disk_reserve_bytes(None);
        assert_eq!(config.effective_disk_reserve_bytes(), 512 * MIB + 200 * MIB);
    }

    #[test]
    fn every_limit_has_a_name_with_its_unit_and_a_default_within_its_bounds() {
        for (limit, value) in EngineConfig::default().limits() {
            assert_eq!(value, limit.default);
            let (least, greatest) = (limit.least, limit.greatest);
            let default = limit.default.unwrap_or(least);
            assert!(least <= default && default <= greatest, "{}", limit.name);
            assert!(limit.reason.len() > 40, "{}", limit.name);
        }
    }

    #[test]
    fn each_bound_is_legal_and_the_values_beside_it_are_not() {
        let legal = |segment_bytes| EngineConfig::default().segment_bytes(segment_bytes).validate();
        assert!(legal(8 * KIB).is_ok());
        assert!(legal(64 * GIB).is_ok());
        for value in [8 * KIB - 1, 64 * GIB + 1] {
            let error = legal(value).unwrap_err();
            let [LimitProblem::OutOfBounds { limit, value: named }] = error.problems() else {
                panic!("{error}");
            };
            assert_eq!((limit.name, *named), ("segment_bytes", value));
        }
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once() {
        let config = EngineConfig::default()
            .segment_bytes(0)
            .max_unsynced_bytes(16 * MIB - 1)
            .index_memory_limit_bytes(64 * MIB - 1)
            .commit_queue_bytes(64 * MIB - 1)
            .max_partitions(9_999);
        let error = config.validate().unwrap_err();
        assert_eq!(error.problems().len(), 5, "{error}");
        assert!(error.to_string().contains("segment_bytes=0 least=8192"), "{error}");
        assert!(
            error
                .to_string()
                .contains("background_sync_bytes=16777216 max_unsynced_bytes=16777215"),
            "{error}"
        );
        let equal = EngineConfig::default()
            .max_unsynced_bytes(16 * MIB)
            .index_memory_limit_bytes(64 * MIB)
            .max_partitions(10_000);
        assert_eq!(equal.validate(), Ok(()));
    }

    #[test]
    fn it_is_read_from_json_where_what_is_left_out_has_its_default() {
        let config: EngineConfig =
            serde_json::from_str(r#"{"segment_bytes": 1048576, "maintenance": "manual"}"#).unwrap();
        let expected = EngineConfig::default().segment_bytes(MIB).maintenance(Maintenance::Manual);
        assert_eq!(config, expected);
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<EngineConfig>(&text).unwrap(), config);
        assert!(serde_json::from_str::<EngineConfig>(r#"{"segment_byte": 1}"#).is_err());
    }
}
