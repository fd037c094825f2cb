//! Verify, the part about producers: what a partition remembers of them, and what it tells readers to skip.

use std::ops::ControlFlow;

use super::Check;
use super::report::VerifyReport;
use crate::base::error::StorageError;
use crate::base::types::Offset;
use crate::core::Located;
use crate::index::keyspace::{AbortedRow, ProducerRow, decode_aborted_key, partition_range};
use crate::index::store::Direction;
use crate::index::write_batch::Family;
use crate::record::Attributes;

impl Check<'_> {
    pub(super) fn check_producers(&self, report: &mut VerifyReport) -> Result<(), StorageError> {
        let (begin, end) = partition_range(self.partition);
        let mut oldest: Option<Offset> = None;
        let family = Family::Producers;
        self.store.scan(family, &begin, &end, Direction::Forward, &mut |key, value| {
            match ProducerRow::decode(key, value) {
                Ok(row) => {
                    let open = row.open_first_offset;
                    oldest = [oldest, open].into_iter().flatten().min();
                    let last = row.batches().last().map(|batch| batch.last_offset);
                    if open.max(last).is_some_and(|offset| offset >= self.row.log_end) {
                        let what = "a producer has written beyond the log's end";
                        report.note(self.problem(self.row.log_end, what));
                    }
                }
                Err(corruption) => report.note(corruption),
            }
            ControlFlow::Continue(())
        })?;
        if oldest != self.row.first_unstable {
            let what = "its first unstable offset is not that of its producers";
            report.note(self.problem(self.row.log_start, what));
        }
        Ok(())
    }

    /// Every aborted transaction that is listed has its marker: a reader would else skip what its
    /// producer commits later.
    pub(super) fn check_aborted(
        &self,
        located: &[Located],
        report: &mut VerifyReport,
    ) -> Result<(), StorageError> {
        let (begin, end) = partition_range(self.partition);
        let family = Family::Aborted;
        self.store.scan(family, &begin, &end, Direction::Forward, &mut |key, value| {
            let marker = AbortedRow::decode(key, value).and_then(|_| decode_aborted_key(key));
            match marker {
                Ok((_, marker)) => {
                    let found = located.binary_search_by_key(&marker, |batch| batch.last_offset);
                    let is_marker = |at: usize| {
                        let entry = &located[at].entry;
                        let is_control = Attributes::from_bits(entry.attributes).is_control();
                        is_control && entry.record_count == 1
                    };
                    if !found.is_ok_and(is_marker) {
                        let what = "an aborted transaction is listed, and has no marker";
                        report.note(self.problem(marker, what));
                    }
                }
                Err(corruption) => report.note(corruption),
            }
            ControlFlow::Continue(())
        })
    }
}
