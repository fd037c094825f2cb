//! The table of topic settings: Kafka's names, defaults and domains, and how a value is read.

use std::fmt;

/// A setting that a topic has.
#[derive(Debug, PartialEq)]
#[non_exhaustive]
pub struct ConfigKey {
    /// Kafka's name of it.
    pub name: &'static str,
    /// Kafka's default, as text.
    pub default: &'static str,
    /// The values that it takes.
    pub domain: Domain,
    /// What follows it.
    pub effect: Effect,
    /// What it means, in a sentence.
    pub doc: &'static str,
}

/// The values that a setting takes. Integers are of Kafka's `int` and `long`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Domain {
    /// `true` or `false`, in any case.
    Boolean,
    /// One of these words.
    Word(&'static [&'static str]),
    /// An integer of 32 bits in these bounds.
    Int {
        /// The least value.
        least: i32,
        /// The greatest value.
        greatest: i32,
    },
    /// An integer of 64 bits that is not below `least`.
    Long {
        /// The least value.
        least: i64,
    },
    /// A number from 0 to 1.
    Ratio,
    /// A list of these words, with commas between them; it may be empty and repeat a word.
    Words(&'static [&'static str]),
    /// One value of a domain, the default: for what Kafka has and the engine has not.
    Only {
        /// The value.
        value: &'static str,
        /// The domain in Kafka.
        of: &'static Domain,
    },
}

/// What follows a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effect {
    /// Every append is held to it.
    Append,
    /// Retention or the cleaner follow it.
    Maintenance,
    /// Nothing: the engine has no such part. It is stored and shown, for tools that set it.
    None,
}

/// How a topic's old records go. Neither: only `delete_records` removes any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct CleanupPolicy {
    /// The newest record of each key is kept; every record must have a key.
    pub compact: bool,
    /// Retention by time and size.
    pub delete: bool,
}

/// A value of a setting, read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value {
    Boolean(bool),
    /// The index of the word in its domain.
    Word(usize),
    Integer(i64),
    Ratio(f64),
    /// A bit for each word of the domain.
    Words(u8),
}

const LONGEST: &str = "9223372036854775807";

/// The words of `message.timestamp.type`, in the order of its values.
const TIMESTAMP_TYPES: &[&str] = &["CreateTime", "LogAppendTime"];

/// The words of `cleanup.policy`, bit 0 and bit 1 of its value.
const CLEANUP_POLICIES: &[&str] = &["compact", "delete"];

/// The longest array of Kafka's Java.
const JAVA_ARRAY_LIMIT: i32 = 2_147_483_639;

/// The words of `compression.type`.
const CODECS: &[&str] = &["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"];

/// What is said of a setting that nothing follows because batches are stored as they are sent.
const NO_RECOMPRESSION: &str = "No effect: batches are stored as the producer sent them.";

/// What is said of the settings of tiered storage.
const NO_TIERS: &str = "Only its default is taken: there is no tiered storage.";

/// What is said of the settings of replication.
const NO_REPLICAS: &str = "Only its default is taken: there is no replication.";

/// A list that stays empty.
const NO_WORDS: Domain = Domain::Words(&[]);
/// Any integer of 64 bits.
const ANY_LONG: Domain = Domain::Long { least: i64::MIN };

const fn only(value: &'static str, of: &'static Domain) -> Domain {
    Domain::Only { value, of }
}

const fn int(least: i32) -> Domain {
    Domain::Int { least, greatest: i32::MAX }
}

const fn key(
    name: &'static str,
    default: &'static str,
    domain: Domain,
    effect: Effect,
    doc: &'static str,
) -> ConfigKey {
    ConfigKey { name, default, domain, effect, doc }
}

/// Every setting that a topic has in Kafka 4.4, in the order of their names, with its default. No
/// other name is taken.
pub static TOPIC_CONFIG_KEYS: &[ConfigKey] = &[
    key(
        "cleanup.policy",
        "delete",
        Domain::Words(CLEANUP_POLICIES),
        Effect::Append,
        "How old records go: retention (delete), cleaning by key (compact), both or neither. \
         With compact every record must have a key.",
    ),
    key(
        "compression.gzip.level",
        "-1",
        Domain::Int { least: -1, greatest: 9 },
        Effect::None,
        NO_RECOMPRESSION,
    ),
    key(
        "compression.lz4.level",
        "9",
        Domain::Int { least: 1, greatest: 17 },
        Effect::None,
        NO_RECOMPRESSION,
    ),
    key(
        "compression.type",
        "producer",
        Domain::Word(CODECS),
        Effect::None,
        "No effect: batches are stored with the codec that the producer chose, whatever is set.",
    ),
    key(
        "compression.zstd.level",
        "3",
        Domain::Int { least: -131_072, greatest: 22 },
        Effect::None,
        NO_RECOMPRESSION,
    ),
    key(
        "delete.retention.ms",
        "86400000",
        Domain::Long { least: 0 },
        Effect::Maintenance,
        "How long the cleaner keeps a tombstone after the first pass that saw it.",
    ),
    key(
        "errors.deadletterqueue.group.enable",
        "false",
        only("false", &Domain::Boolean),
        Effect::None,
        "Only its default is taken: there are no share groups.",
    ),
    key(
        "file.delete.delay.ms",
        "60000",
        Domain::Long { least: 0 },
        Effect::None,
        "No effect: topics have no files of their own.",
    ),
    key(
        "flush.messages",
        LONGEST,
        Domain::Long { least: 1 },
        Effect::None,
        "No effect: a commit says how durable it is to be.",
    ),
    key(
        "flush.ms",
        LONGEST,
        Domain::Long { least: 0 },
        Effect::None,
        "No effect: a commit says how durable it is to be.",
    ),
    key(
        "follower.replication.throttled.replicas",
        "",
        only("", &NO_WORDS),
        Effect::None,
        NO_REPLICAS,
    ),
    key(
        "index.interval.bytes",
        "4096",
        int(0),
        Effect::None,
        "No effect: every batch is in the index.",
    ),
    key(
        "leader.replication.throttled.replicas",
        "",
        only("", &NO_WORDS),
        Effect::None,
        NO_REPLICAS,
    ),
    key("local.retention.bytes", "-2", only("-2", &ANY_LONG), Effect::None, NO_TIERS),
    key("local.retention.ms", "-2", only("-2", &ANY_LONG), Effect::None, NO_TIERS),
    key(
        "max.compaction.lag.ms",
        LONGEST,
        Domain::Long { least: 1 },
        Effect::Maintenance,
        "After how long a record must be cleaned, whatever the ratio; not below \
         min.compaction.lag.ms.",
    ),
    key(
        "max.decompressed.message.bytes",
        "2147483639",
        Domain::Int { least: 1, greatest: JAVA_ARRAY_LIMIT },
        Effect::Append,
        "The largest record in a compressed batch, as the length in front of it says.",
    ),
    key(
        "max.message.bytes",
        "1048588",
        int(0),
        Effect::Append,
        "The largest batch, compressed and with its 12 bytes of offset and length.",
    ),
    key(
        "message.timestamp.after.max.ms",
        "3600000",
        Domain::Long { least: 0 },
        Effect::Append,
        "How far a producer's timestamp may be ahead of the engine's clock (CreateTime only).",
    ),
    key(
        "message.timestamp.before.max.ms",
        LONGEST,
        Domain::Long { least: 0 },
        Effect::Append,
        "How far a producer's timestamp may be behind the engine's clock (CreateTime only).",
    ),
    key(
        "message.timestamp.type",
        "CreateTime",
        Domain::Word(TIMESTAMP_TYPES),
        Effect::Append,
        "Whether records carry the producer's time or the time of their append.",
    ),
    key(
        "min.cleanable.dirty.ratio",
        "0.5",
        Domain::Ratio,
        Effect::Maintenance,
        "The share of dirty bytes above which a partition is cleaned.",
    ),
    key(
        "min.compaction.lag.ms",
        "0",
        Domain::Long { least: 0 },
        Effect::Maintenance,
        "How long a record stays whatever follows it.",
    ),
    key("min.insync.replicas", "1", int(1), Effect::None, "No effect: there is no replication."),
    key(
        "preallocate",
        "false",
        Domain::Boolean,
        Effect::None,
        "No effect: topics have no files of their own.",
    ),
    key("remote.copy.lag.bytes", "-1", only("-1", &ANY_LONG), Effect::None, NO_TIERS),
    key("remote.copy.lag.ms", "0", only("0", &ANY_LONG), Effect::None, NO_TIERS),
    key(
        "remote.log.copy.disable",
        "false",
        only("false", &Domain::Boolean),
        Effect::None,
        NO_TIERS,
    ),
    key(
        "remote.log.delete.on.disable",
        "false",
        only("false", &Domain::Boolean),
        Effect::None,
        NO_TIERS,
    ),
    key("remote.storage.enable", "false", only("false", &Domain::Boolean), Effect::None, NO_TIERS),
    key(
        "retention.bytes",
        "-1",
        Domain::Long { least: i64::MIN },
        Effect::Maintenance,
        "The size above which a partition loses its oldest batches; negative for no limit.",
    ),
    key(
        "retention.ms",
        "604800000",
        Domain::Long { least: -1 },
        Effect::Maintenance,
        "The age above which a batch goes; -1 for no limit.",
    ),
    key(
        "segment.bytes",
        "1073741824",
        int(1_048_576),
        Effect::None,
        "No effect: the commit log's segments belong to no topic.",
    ),
    key(
        "segment.index.bytes",
        "10485760",
        int(4),
        Effect::None,
        "No effect: the commit log's segments belong to no topic.",
    ),
    key(
        "segment.jitter.ms",
        "0",
        Domain::Long { least: 0 },
        Effect::None,
        "No effect: the commit log's segments belong to no topic.",
    ),
    key(
        "segment.ms",
        "604800000",
        Domain::Long { least: 1 },
        Effect::None,
        "No effect: the commit log's segments belong to no topic.",
    ),
    key(
        "unclean.leader.election.enable",
        "false",
        Domain::Boolean,
        Effect::None,
        "No effect: there is no replication.",
    ),
];

impl ConfigKey {
    /// The setting of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        let found = TOPIC_CONFIG_KEYS.binary_search_by(|key| key.name.cmp(name));
        found.ok().map(|index| &TOPIC_CONFIG_KEYS[index])
    }

    /// Whether a value is a list, to which single words can be added.
    #[must_use]
    pub fn is_list(&self) -> bool {
        matches!(self.domain, Domain::Words(_) | Domain::Only { of: Domain::Words(_), .. })
    }

    /// Reads a value as Kafka does, blanks around it dropped (but for single words); `None` if it
    /// is outside of the domain.
    pub(super) fn read(&self, text: &str) -> Option<Value> {
        self.domain.read(text)
    }
}

impl Domain {
    /// Reads a value; `None` if it is outside of the domain.
    fn read(self, text: &str) -> Option<Value> {
        let trimmed = trim(text);
        match self {
            Domain::Boolean => match trimmed {
                word if word.eq_ignore_ascii_case("true") => Some(Value::Boolean(true)),
                word if word.eq_ignore_ascii_case("false") => Some(Value::Boolean(false)),
                _ => None,
            },
            Domain::Word(words) => words.iter().position(|&word| word == text).map(Value::Word),
            Domain::Int { least, greatest } => {
                let value = trimmed.parse::<i32>().ok();
                let value = value.filter(|value| (least..=greatest).contains(value));
                value.map(|value| Value::Integer(value.into()))
            }
            Domain::Long { least } => {
                let value = trimmed.parse::<i64>().ok().filter(|&value| value >= least);
                value.map(Value::Integer)
            }
            Domain::Ratio => {
                let value = java_double(trimmed).filter(|value| (0.0..=1.0).contains(value));
                value.map(Value::Ratio)
            }
            Domain::Only { value, of } => {
                let only = of.read(value);
                of.read(text).filter(|read| Some(*read) == only)
            }
            Domain::Words(words) => {
                let mut bits = 0;
                for item in list_items(text) {
                    bits |= 1 << words.iter().position(|&word| word == item)?;
                }
                Some(Value::Words(bits))
            }
        }
    }
}

/// A number as Java writes and reads it: an `f` or `d` may stand behind it.
fn java_double(text: &str) -> Option<f64> {
    let digits = text.strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(text);
    let is_number = digits.bytes().all(|byte| b"0123456789+-.eE".contains(&byte));
    digits.parse().ok().filter(|_| is_number)
}

/// The items of a list, blanks around them dropped; none in an empty text.
pub(super) fn list_items(text: &str) -> impl Iterator<Item = &str> {
    let trimmed = trim(text);
    let items = (!trimmed.is_empty()).then(|| trimmed.split(',').map(trim));
    items.into_iter().flatten()
}

fn trim(text: &str) -> &str {
    text.trim_matches(|character| character <= ' ')
}

impl CleanupPolicy {
    pub(super) fn from_bits(bits: u8) -> Self {
        Self { compact: bits & 1 != 0, delete: bits & 2 != 0 }
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean => f.write_str("true or false"),
            Self::Word([word]) => f.write_str(word),
            Self::Word(words) => write!(f, "one of {}", words.join(", ")),
            Self::Int { least, greatest } => write!(f, "an integer from {least} to {greatest}"),
            Self::Long { least } => write!(f, "an integer from {least} to {}", i64::MAX),
            Self::Ratio => f.write_str("a number from 0 to 1"),
            Self::Words(words) => write!(f, "a list of {}", words.join(", ")),
            Self::Only { value: "", .. } => f.write_str("only its default, which is empty"),
            Self::Only { value, .. } => write!(f, "only its default, {value}"),
        }
    }
}
