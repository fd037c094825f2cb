//! What an operator is told at once: a halt, a disk below its reserve, refused appends, damage, a lost folder.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tidelog::Metrics;
use tokio::sync::watch;

use crate::context::{Context, off_the_loop};
use crate::fault::sentence;

/// How often the engine is asked.
const INTERVAL: Duration = Duration::from_secs(1);

/// Why the broker cannot go on as it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The engine has halted: it can be read, and not written.
    Halted,
    /// The folder of the data was removed or replaced: what is written is lost.
    FolderLost,
}

/// A file that must stay where it is and what it is for as long as the broker runs.
#[derive(Debug)]
pub(super) struct Landmark {
    path: PathBuf,
    id: (u64, u64),
}

/// Something that has begun, or is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Notice {
    BelowReserve,
    AboveReserve,
    Refusing,
    AppendsTaken,
    Damage(u64),
    MaintenanceFails,
    MaintenanceWorks,
}

/// What was there when the engine was asked last.
#[derive(Debug, Default)]
struct Seen {
    is_below_reserve: bool,
    is_refusing: bool,
    is_maintenance_failing: bool,
    commits: u64,
    unwritten_commits: u64,
    corruptions: u64,
    failed_maintenance: u64,
    maintenance_rounds: u64,
}

impl Landmark {
    /// The file as it is now.
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), id: id_of(path)? })
    }

    /// Whether it is gone, or another. Where that cannot be known, it is not.
    fn is_lost(&self) -> bool {
        match id_of(&self.path) {
            Ok(id) => id != self.id,
            Err(error) => {
                matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
            }
        }
    }
}

fn id_of(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = std::fs::metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Watches the engine until it cannot go on, says so, and tells it.
pub(super) async fn watch(
    context: Arc<Context>,
    landmarks: Vec<Landmark>,
    end: watch::Sender<Option<End>>,
) {
    let landmarks = Arc::new(landmarks);
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut seen: Option<Seen> = None;
    loop {
        interval.tick().await;
        let marks = Arc::clone(&landmarks);
        let (metrics, lost) = off_the_loop(&context, move |context| {
            let lost = marks.iter().find(|mark| mark.is_lost()).map(|mark| mark.path.clone());
            (context.engine.metrics(), lost)
        })
        .await;
        let seen = seen.get_or_insert_with(|| Seen::at_the_start(&metrics));
        let notices = seen.observe(&metrics);
        // Whoever has read a line finds its figure.
        context.metrics.disk_below_reserve.set(seen.is_below_reserve.into());
        context.metrics.appends_refused.set((seen.is_refusing || metrics.halted).into());
        for notice in notices {
            note(notice, &metrics);
        }
        if let Some(path) = lost {
            tracing::error!(
                path = %path.display(),
                "the data folder was removed or replaced under the broker, and what is written \
                 now is lost: the process ends; bring the folder back, and start it again"
            );
            end.send_replace(Some(End::FolderLost));
            return;
        }
        if metrics.halted {
            // A halted engine answers every call with its cause.
            let sync = off_the_loop(&context, |context| context.engine.sync()).await;
            let cause = sync.err().map_or_else(|| "unknown".to_owned(), |error| sentence(&error));
            tracing::error!(
                %cause,
                "the engine has halted and writes nothing more: check the disk and the data \
                 folder, then start the broker again; what was acknowledged as synced is there"
            );
            end.send_replace(Some(End::Halted));
            return;
        }
    }
}

impl Seen {
    /// What was counted while the engine was opened is not new.
    fn at_the_start(metrics: &Metrics) -> Self {
        Self {
            commits: metrics.commits,
            unwritten_commits: metrics.unwritten_commits,
            failed_maintenance: metrics.failed_maintenance,
            maintenance_rounds: metrics.maintenance_rounds,
            ..Self::default()
        }
    }

    /// What is new since the last time.
    fn observe(&mut self, metrics: &Metrics) -> Vec<Notice> {
        let mut notices = Vec::new();
        if let Some(free_bytes) = metrics.disk_free_bytes {
            let is_below = free_bytes < metrics.disk_reserve_bytes;
            if is_below != self.is_below_reserve {
                notices.push(if is_below { Notice::BelowReserve } else { Notice::AboveReserve });
            }
            self.is_below_reserve = is_below;
        }
        let refused = metrics.unwritten_commits > self.unwritten_commits;
        let is_refusing = refused || (self.is_refusing && metrics.commits == self.commits);
        // That it has halted is said by itself, with the cause.
        if is_refusing != self.is_refusing && !metrics.halted {
            notices.push(if is_refusing { Notice::Refusing } else { Notice::AppendsTaken });
        }
        if metrics.corruptions > self.corruptions {
            notices.push(Notice::Damage(metrics.corruptions - self.corruptions));
        }
        let has_failed = metrics.failed_maintenance > self.failed_maintenance;
        let has_run = metrics.maintenance_rounds > self.maintenance_rounds;
        let is_failing = has_failed || (self.is_maintenance_failing && !has_run);
        if is_failing != self.is_maintenance_failing {
            let works = Notice::MaintenanceWorks;
            notices.push(if is_failing { Notice::MaintenanceFails } else { works });
        }
        *self = Self {
            is_refusing,
            is_maintenance_failing: is_failing,
            corruptions: metrics.corruptions,
            is_below_reserve: self.is_below_reserve,
            ..Self::at_the_start(metrics)
        };
        notices
    }
}

fn note(notice: Notice, metrics: &Metrics) {
    let (free_bytes, reserve_bytes) = (metrics.disk_free_bytes, metrics.disk_reserve_bytes);
    let unwritten_commits = metrics.unwritten_commits;
    match notice {
        Notice::BelowReserve => tracing::error!(
            free_bytes,
            reserve_bytes,
            "the disk has less left than its reserve, and appends will be refused: make room, \
             or lower the retention of topics"
        ),
        Notice::AboveReserve => {
            tracing::info!(free_bytes, reserve_bytes, "the disk has room again");
        }
        Notice::Refusing => tracing::error!(
            unwritten_commits,
            free_bytes,
            reserve_bytes,
            "appends are refused: the disk is full, or could not be written"
        ),
        Notice::AppendsTaken => tracing::info!("appends are taken again"),
        Notice::Damage(count) => tracing::error!(
            count,
            corruptions = metrics.corruptions,
            "damage was met in what is stored: whoever reads it is answered with an error; \
             restore it from a copy, and distrust the disk"
        ),
        Notice::MaintenanceFails => tracing::error!(
            failed_maintenance = metrics.failed_maintenance,
            "the engine's own work has failed, and is tried again: space may not come back"
        ),
        Notice::MaintenanceWorks => tracing::info!("the engine's own work goes on again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(seen: &mut Seen, change: impl FnOnce(&mut Metrics)) -> Vec<Notice> {
        let mut metrics = Metrics::default();
        change(&mut metrics);
        seen.observe(&metrics)
    }

    #[test]
    fn a_disk_below_its_reserve_is_noticed_once_and_that_it_has_room_again() {
        let mut seen = Seen::default();
        let mut with = |free| {
            changed(&mut seen, |metrics| {
                (metrics.disk_free_bytes, metrics.disk_reserve_bytes) = (Some(free), 100);
            })
        };
        let noticed: Vec<_> = [100, 99, 98, 100, 101, 0].into_iter().map(&mut with).collect();
        let (below, above) = (vec![Notice::BelowReserve], vec![Notice::AboveReserve]);
        assert_eq!(noticed, [vec![], below.clone(), vec![], above, vec![], below]);
    }

    #[test]
    fn refused_appends_are_noticed_once_and_end_with_the_next_that_is_taken() {
        let mut seen = Seen::default();
        let mut with = |(commits, unwritten)| {
            changed(&mut seen, |metrics| {
                (metrics.commits, metrics.unwritten_commits) = (commits, unwritten);
            })
        };
        let steps = [(5, 0), (5, 1), (6, 2), (6, 2), (7, 2), (8, 2)];
        let noticed: Vec<_> = steps.into_iter().map(&mut with).collect();
        let (refusing, taken) = (vec![Notice::Refusing], vec![Notice::AppendsTaken]);
        assert_eq!(noticed, [vec![], refusing, vec![], vec![], taken, vec![]]);
    }

    #[test]
    fn an_engine_that_has_halted_is_no_news_about_appends() {
        let noticed = changed(&mut Seen::default(), |metrics| {
            (metrics.unwritten_commits, metrics.halted) = (1, true);
        });
        assert_eq!(noticed, []);
    }

    #[test]
    fn every_damage_is_noticed_and_what_was_met_on_opening_too() {
        let mut seen = Seen::at_the_start(&Metrics::default());
        let mut with = |count| changed(&mut seen, |metrics| metrics.corruptions = count);
        let noticed: Vec<_> = [1, 1, 4].into_iter().map(&mut with).collect();
        assert_eq!(noticed, [vec![Notice::Damage(1)], vec![], vec![Notice::Damage(3)]]);
    }

    #[test]
    fn work_that_fails_is_noticed_once_and_ends_with_a_round_that_does_not() {
        let mut seen = Seen::default();
        let mut with = |(rounds, failed)| {
            changed(&mut seen, |metrics| {
                (metrics.maintenance_rounds, metrics.failed_maintenance) = (rounds, failed);
            })
        };
        let noticed: Vec<_> =
            [(1, 0), (2, 1), (3, 2), (3, 2), (4, 2)].into_iter().map(&mut with).collect();
        let (fails, works) = (vec![Notice::MaintenanceFails], vec![Notice::MaintenanceWorks]);
        assert_eq!(noticed, [vec![], fails, vec![], vec![], works]);
    }
}
