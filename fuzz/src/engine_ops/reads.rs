//! Reads of a live engine: each shows what the world of the model holds.

use tidelog::record::Batches;
use tidelog::types::NO_TIMESTAMP;
use tidelog::{
    FetchError, FetchOptions, Isolation, ListOffsetError, OffsetQuery, Partition, ScanError,
    Snapshot, Topic, Visibility, Watermarks,
};

use super::input::{Name, Query, Spot};
use super::life::{Runner, START_MS};
use super::world::{Kept, Log, decode, read_world};

/// A snapshot, and what it must show.
pub(super) struct Pinned {
    snapshot: Snapshot,
    topic: Topic,
    logs: Vec<Log>,
}

impl Runner {
    /// The log of a partition in the newest world; nothing while that one is not certain.
    fn log_of(&self, partition: &Partition) -> Option<&Log> {
        let topic = partition.topic();
        let world = self.history.last();
        let log = world.log(topic.name().as_str(), topic.id(), partition.index() as usize);
        self.history.is_certain().then(|| log.expect("a topic that is there is in the world"))
    }

    pub(super) fn fetch(&mut self, spot: &Spot, offset: i64, max_bytes: u64, synced: bool) {
        let Some(partition) = self.partition(spot) else { return };
        let visibility = if synced { Visibility::Synced } else { Visibility::Applied };
        let marks = self.engine().watermarks_of(&partition, visibility);
        let marks = marks.expect("the topic exists and the engine is open");
        if synced {
            self.note_synced(&partition, &marks);
        }
        let options = FetchOptions::new().max_bytes(max_bytes).visibility(visibility);
        let fetched = match self.engine().fetch(&partition, offset, options) {
            Ok(fetched) => fetched,
            Err(FetchError::OffsetOutOfRange { watermarks, .. }) => {
                assert_eq!(watermarks, marks);
                assert!(offset < marks.log_start || offset > marks.log_end);
                return;
            }
            Err(FetchError::Storage(error)) => return self.excuse(&error),
            Err(error) => panic!("a fetch fails in an unknown way: {error:?}"),
        };
        assert_eq!(fetched.watermarks, marks, "nothing moves them");
        assert!((marks.log_start..=marks.log_end).contains(&offset));
        assert_eq!(fetched.bytes.is_empty(), offset >= marks.high_watermark);
        let is_one = Batches::new(fetched.bytes.clone()).count() == 1;
        assert!(fetched.bytes.len() as u64 <= max_bytes || is_one, "it heeds max_bytes");
        let kept = decode(fetched.bytes.clone());
        let first = kept.first().map_or(offset, |kept| kept.record.offset);
        assert!(first <= offset, "the first batch holds the offset");
        assert!(fetched.next_offset <= marks.high_watermark.max(offset));
        assert_eq!(first + kept.len() as i64, fetched.next_offset, "whole batches");
        let records: Vec<_> = fetched.records().map(|record| record.expect("decoded")).collect();
        assert_eq!(records.len() as i64, fetched.next_offset - offset);
        if let Some(log) = self.log_of(&partition) {
            for (kept, wanted) in kept.iter().zip(&log[first as usize..]) {
                assert_eq!(kept.record, wanted.record);
                assert_eq!(kept.leader_epoch, wanted.leader_epoch);
            }
            let applied = self.engine().watermarks(&partition).expect("the topic exists");
            assert_eq!(applied.log_end, log.len() as i64);
        }
    }

    /// What a reader sees as synced stays, whatever happens.
    fn note_synced(&mut self, partition: &Partition, marks: &Watermarks) {
        if !self.history.is_certain() {
            return;
        }
        let (name, id) = (partition.topic().name().to_string(), partition.topic().id());
        let index = partition.index() as usize;
        let mut before = None;
        let mut synced = 0;
        for (place, world) in self.history.since_synced() {
            let length = world.log(&name, id, index).map_or(0, |log| log.len() as i64);
            match before {
                None => assert!(marks.high_watermark >= length, "what is synced is visible"),
                Some(before) if length > before && marks.high_watermark >= length => synced = place,
                Some(_) => {}
            }
            before = Some(length);
        }
        assert!(before.is_some_and(|length| marks.high_watermark <= length));
        self.history.sync_through(synced);
    }

    pub(super) fn list_offset(&mut self, spot: &Spot, query: &Query) {
        let Some(partition) = self.partition(spot) else { return };
        let query = match query {
            Query::Earliest => OffsetQuery::Earliest,
            Query::Latest => OffsetQuery::Latest,
            Query::Timestamp(seconds) => {
                OffsetQuery::Timestamp(START_MS + i64::from(*seconds) * 1000)
            }
            Query::AnyTimestamp(timestamp) => OffsetQuery::Timestamp(*timestamp),
            Query::MaxTimestamp => OffsetQuery::MaxTimestamp,
        };
        let (isolation, visibility) = (Isolation::Committed, Visibility::Applied);
        let found = match self.engine().list_offset(&partition, query, isolation, visibility) {
            Ok(found) => found.map(|found| (found.offset, found.timestamp, found.leader_epoch)),
            Err(ListOffsetError::Storage(error)) => return self.excuse(&error),
            Err(error) => panic!("a lookup fails in an unknown way: {error:?}"),
        };
        let is_by_place = matches!(query, OffsetQuery::Earliest | OffsetQuery::Latest);
        if self.has_claims && !is_by_place {
            return;
        }
        let Some(log) = self.log_of(&partition) else { return };
        let of = |kept: &Kept| (kept.record.offset, kept.record.timestamp, kept.leader_epoch);
        let epoch_at = |index: usize| {
            let kept = log.get(index).or(log.last());
            kept.map_or(self.epoch(), |kept| kept.leader_epoch)
        };
        let wanted = match query {
            OffsetQuery::Earliest => Some((0, NO_TIMESTAMP, epoch_at(0))),
            OffsetQuery::Latest => Some((log.len() as i64, NO_TIMESTAMP, epoch_at(log.len()))),
            OffsetQuery::Timestamp(least) => {
                log.iter().find(|kept| kept.record.timestamp >= least).map(of)
            }
            _ => {
                let greatest = log.iter().map(|kept| kept.record.timestamp).max();
                log.iter().find(|kept| Some(kept.record.timestamp) == greatest).map(of)
            }
        };
        assert_eq!(found, wanted, "{query:?} in {log:#?}");
    }

    pub(super) fn take_snapshot(&mut self, name: &Name) {
        let Some(topic) = self.engine().topic(name.0) else { return };
        let partitions = topic.partitions();
        let logs: Option<Vec<Log>> =
            partitions.iter().map(|partition| self.log_of(partition).cloned()).collect();
        let snapshot = self.engine().snapshot();
        self.pinned = logs.map(|logs| Pinned { snapshot, topic, logs });
    }

    /// Scans the snapshot that was taken before: it shows what was there then.
    pub(super) fn scan(&mut self, least: i64, most: i64) {
        let Some(pinned) = &self.pinned else { return };
        let indices: Vec<i32> = (0..pinned.logs.len() as i32).collect();
        let scan = pinned.snapshot.scan(&pinned.topic).partitions(&indices).offsets(least..=most);
        let mut found = Vec::new();
        for scanned in scan {
            match scanned {
                Ok(scanned) => found.push((scanned.partition, scanned.record, scanned.append_time)),
                Err(ScanError::Storage(error)) => return self.excuse(&error),
                Err(error) => panic!("a scan fails in an unknown way: {error:?}"),
            }
        }
        let in_range = |kept: &&Kept| (least..=most).contains(&kept.record.offset);
        let wanted = pinned.logs.iter().zip(&indices).flat_map(|(log, index)| {
            let kept = log.iter().filter(in_range);
            kept.map(|kept| (*index, kept.record.clone(), kept.append_time))
        });
        assert_eq!(found, wanted.collect::<Vec<_>>(), "a snapshot shows what was there");
    }

    /// The engine is content with itself, and shows a world that may be.
    pub(super) fn verify(&mut self) {
        // Reads may fail now, and what fails to be read is no problem that verify reports.
        if self.faults.planned {
            return;
        }
        self.check_content();
        let world = read_world(self.engine());
        self.history.check_live(&world);
    }

    pub(super) fn check_content(&self) {
        let report = self.engine().verify().expect("the index can be read");
        assert!(report.is_clean(), "{report}");
    }
}
