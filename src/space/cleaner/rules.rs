//! The rules of cleaning as functions of values: what can be cleaned, when a pass is due, which record stays.

use crate::base::types::{Offset, TimestampMs};
use crate::config::EffectiveSettings;
use crate::index::keyspace::BatchEntry;
use crate::record::RecordView;

use super::dirty::Superseded;
use super::key_map::KeyMap;
use super::key_set::KeySet;
use crate::base::hash::Hash;

/// How old a batch is by its records; without timestamps, by when it was appended.
pub(super) fn time_of(entry: &BatchEntry) -> TimestampMs {
    if entry.max_timestamp >= 0 { entry.max_timestamp } else { entry.append_time }
}

/// Whether `min.compaction.lag.ms` keeps a batch from being cleaned yet. Equality is old enough.
pub(super) fn is_too_young(
    entry: &BatchEntry,
    settings: &EffectiveSettings,
    now: TimestampMs,
) -> bool {
    let lag_ms = settings.min_compaction_lag_ms;
    lag_ms > 0 && time_of(entry) > now.saturating_sub(lag_ms)
}

/// By how much cleaning is later than `max.compaction.lag.ms` allows. `oldest` is the least
/// maximum timestamp of the dirty batches that have one above 0.
pub(super) fn overdue_ms(
    oldest: Option<TimestampMs>,
    settings: &EffectiveSettings,
    now: TimestampMs,
) -> u64 {
    let age = i128::from(now) - oldest.map_or(i128::from(now), i128::from);
    let overdue = age - i128::from(settings.max_compaction_lag_ms);
    u64::try_from(overdue).unwrap_or(0)
}

/// The part of the bytes below the first uncleanable offset that is dirty.
pub(super) fn dirty_ratio(clean_bytes: u64, cleanable_bytes: u64) -> f64 {
    if cleanable_bytes == 0 {
        return 0.0;
    }
    let ratio = cleanable_bytes as f64 / (clean_bytes as f64 + cleanable_bytes as f64);
    debug_assert!((0.0..=1.0).contains(&ratio), "it is a part");
    ratio
}

/// Whether the first horizon is reached. There is none at the greatest time.
pub(super) fn is_reached(next_horizon: TimestampMs, now: TimestampMs) -> bool {
    next_horizon <= now && next_horizon < TimestampMs::MAX
}

/// What decides about the records of a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct CleaningRules {
    /// Records from this offset on are not cleaned in this pass.
    pub end: Offset,
    /// The clock of the pass.
    pub now: TimestampMs,
    /// When the tombstones may go that this pass reaches first; `None` while older records of
    /// their keys may be left, so that none gets a horizon yet.
    pub horizon: Option<TimestampMs>,
}

/// Where it is known which records have a newer one of the same key.
#[derive(Debug, Clone, Copy)]
pub(super) enum Newer<'a> {
    /// In the newest offsets of the keys in the dirty part.
    Looked(&'a KeyMap),
    /// In what the first reading noted of the batch.
    Noted(Superseded),
    /// In the keys of the dirty part, of which every record is newer.
    Seen(&'a KeySet),
}

/// Keys that are looked up together.
const GROUP: usize = 32;

impl Newer<'_> {
    /// Of each of the records of one batch, whether there is a newer one of its key.
    pub(super) fn of(&self, records: &[RecordView<'_>]) -> Vec<bool> {
        let mut has_newer = Vec::with_capacity(records.len());
        match self {
            Self::Noted(superseded) => {
                has_newer.extend(records.iter().map(|record| superseded.has(record.offset)));
            }
            Self::Looked(keys) if keys.key_count() == 0 => has_newer.resize(records.len(), false),
            Self::Seen(keys) if keys.key_count() == 0 => has_newer.resize(records.len(), false),
            Self::Looked(keys) => {
                for group in records.chunks(GROUP) {
                    let hashes = hashes_of(group, |key| keys.hash(key));
                    keys.bring_near(&hashes);
                    let found = group.iter().zip(&hashes);
                    has_newer
                        .extend(found.map(|(record, hash)| keys.has_newer(*hash, record.offset)));
                }
            }
            Self::Seen(keys) => {
                for group in records.chunks(GROUP) {
                    let hashes = hashes_of(group, |key| keys.hash(key));
                    keys.bring_near(&hashes);
                    has_newer.extend(hashes.iter().map(|hash| keys.holds(*hash)));
                }
            }
        }
        assert_eq!(has_newer.len(), records.len(), "it is known of each record");
        has_newer
    }
}

/// The hashes of the records' keys. A record without a key is not kept, whatever is found of it.
fn hashes_of(records: &[RecordView<'_>], hash: impl Fn(&[u8]) -> Hash) -> Vec<Hash> {
    records.iter().map(|record| hash(record.key.unwrap_or_default())).collect()
}

/// Whether a record stays. `horizon` is that of its batch.
pub(super) fn stays(
    rules: &CleaningRules,
    record: &RecordView<'_>,
    has_newer: bool,
    horizon: Option<TimestampMs>,
) -> bool {
    if record.offset >= rules.end {
        return true;
    }
    let is_lasting = record.value.is_some() || horizon.is_none_or(|horizon| rules.now < horizon);
    record.key.is_some() && is_lasting && !has_newer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::hash::HashKey;
    use crate::base::types::{PayloadLocation, SegmentId};
    use crate::config::TopicConfig;
    use crate::record::{BatchBuilder, BatchView, Record};

    fn entry(max_timestamp: TimestampMs) -> BatchEntry {
        BatchEntry {
            base_offset: 0,
            record_count: 1,
            crc: 0,
            attributes: 0,
            max_timestamp,
            append_time: 700,
            leader_epoch: 0,
            location: PayloadLocation { segment: SegmentId(1), position: 0, length_bytes: 70 },
        }
    }

    fn settings(name: &str, value: &str) -> EffectiveSettings {
        let config = TopicConfig::new(1).set(name, value).unwrap();
        config.settings().effective().clone()
    }

    #[test]
    fn a_batch_is_old_enough_at_the_lag_and_not_a_millisecond_before() {
        let settings = settings("min.compaction.lag.ms", "100");
        let young = |max, now| is_too_young(&entry(max), &settings, now);
        assert_eq!((young(500, 599), young(500, 600)), (true, false));
        assert_eq!((young(-1, 799), young(-1, 800)), (true, false));
        assert!(young(i64::MAX, i64::MAX - 1));
        let without = EffectiveSettings::default();
        assert!(!is_too_young(&entry(i64::MAX), &without, 0));
    }

    #[test]
    fn cleaning_is_overdue_beyond_the_greatest_lag_and_not_at_it() {
        let settings = settings("max.compaction.lag.ms", "100");
        let overdue = |oldest, now| overdue_ms(oldest, &settings, now);
        assert_eq!((overdue(Some(500), 600), overdue(Some(500), 601)), (0, 1));
        assert_eq!(overdue(None, i64::MAX), 0);
        assert_eq!(overdue(Some(i64::MIN), i64::MAX), u64::MAX - 100);
        assert_eq!(overdue_ms(Some(1), &EffectiveSettings::default(), i64::MAX), 0);
    }

    #[test]
    fn a_record_stays_if_it_is_the_newest_of_its_key_and_its_horizon_is_not_reached() {
        let mut builder = BatchBuilder::new();
        for record in [
            Record::new("k", "v"),
            Record::new("k", "v"),
            Record::new("other", "v"),
            Record::keyless("v"),
            Record::tombstone("k"),
        ] {
            builder.push(&record).unwrap();
        }
        let bytes = builder.finish().unwrap();
        let batch = BatchView::parse(&bytes).unwrap().unpack().unwrap();
        let records: Vec<RecordView<'_>> = batch.records().map(Result::unwrap).collect();
        let mut keys = KeyMap::new(2, HashKey([0, 0]));
        keys.put(keys.hash(b"k"), 1);
        let has_newer = Newer::Looked(&keys).of(&records);
        assert_eq!(has_newer[..3], [true, false, false]);
        assert!(!has_newer[4]);
        let check = |index: usize, end, horizon| {
            let rules = CleaningRules { end, now: 1000, horizon: Some(0) };
            stays(&rules, &records[index], has_newer[index], horizon)
        };
        assert!(!check(0, 10, None));
        assert!(check(1, 10, Some(0)));
        assert!(check(2, 10, None));
        assert!(!check(3, 10, None), "it has no key");
        assert!(check(3, 3, None), "it lies after the pass");
        assert!(check(4, 10, None), "the first pass keeps a tombstone");
        assert!(check(4, 10, Some(1001)));
        assert!(!check(4, 10, Some(1000)));
        assert!(check(4, 4, Some(0)));
    }

    #[test]
    fn the_ratio_counts_what_can_be_cleaned_alone() {
        assert_eq!(dirty_ratio(70, 70), 0.5);
        assert_eq!((dirty_ratio(0, 70), dirty_ratio(70, 0), dirty_ratio(0, 0)), (1.0, 0.0, 0.0));
    }
}
