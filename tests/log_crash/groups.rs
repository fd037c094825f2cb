//! Groups of random commits, appended to the log and told to the model.

use tidelog::internals::log::{AppendFailure, CommitLog};

use crate::model::{Commit, Made, Random, Settings, Shared, append, batch, options};

/// Appends a group of random commits; `false` where the life is over.
pub(crate) fn append_some(
    log: &CommitLog,
    timeline: &Shared,
    random: &mut Random,
    settings: Settings,
) -> Result<bool, String> {
    let commits = invent(timeline, random, settings);
    let bytes: u64 = commits.iter().map(Commit::frame_bytes).sum();
    let is_written = append_these(log, timeline, commits)?;
    let bound = options(settings.broken).max_unsynced_bytes.max(bytes);
    if is_written && log.unsynced_bytes() > bound {
        return Err(format!("unsynced_bytes={} limit={bound}", log.unsynced_bytes()));
    }
    Ok(!log.is_halted())
}

/// The same in the middle of a sync, where the group must be small enough not to need another.
pub(crate) fn append_some_inside(
    log: &CommitLog,
    timeline: &Shared,
    random: &mut Random,
    settings: Settings,
) -> Result<(), String> {
    let mut commits = invent(timeline, random, settings);
    commits.truncate(1);
    if commits[0].frame_bytes() < 4000 {
        append_these(log, timeline, commits)?;
    }
    Ok(())
}

/// Appends a group and tells the model; `true` if it was written.
pub(crate) fn append_these(
    log: &CommitLog,
    timeline: &Shared,
    commits: Vec<Commit>,
) -> Result<bool, String> {
    let result = append(log, &commits);
    let is_written = result.is_ok();
    let mut timeline = timeline.lock();
    // The place may have had to sync.
    timeline.acked = timeline.acked.max(log.synced().0);
    match result {
        Ok(places) => {
            let placed = commits.into_iter().zip(places);
            timeline.made.extend(placed.map(|(commit, at)| Made { commit, place: Some(at) }));
            timeline.written = timeline.made.len() as u64;
        }
        Err(AppendFailure::Unknown(_)) => {
            timeline.made.extend(commits.into_iter().map(|commit| Made { commit, place: None }));
        }
        Err(AppendFailure::NotWritten(_)) => {}
    }
    if timeline.made.last().is_none_or(|last| last.place.is_some())
        && log.written().0 != timeline.made.len() as u64
    {
        return Err("the log counts other commits than were answered".into());
    }
    Ok(is_written)
}

fn invent(timeline: &Shared, random: &mut Random, settings: Settings) -> Vec<Commit> {
    let commit = |number| {
        if settings.equal_frames {
            let batches = (0..random.below(5).min(1)).map(|_| batch(0, 600));
            return Commit::new(number, batches.collect());
        }
        let sizes = [61, 64, 100, 300, 511, 512, 700, 1500];
        let count = random.pick(&[0, 1, 1, 1, 2, 3]);
        let size = if random.chance(2) { 6000 } else { random.pick(&sizes) };
        Commit::new(number, (0..count).map(|at| batch(number * 8 + at, size)).collect())
    };
    let mut timeline = timeline.lock();
    let first = timeline.next_content;
    timeline.next_content += 3;
    drop(timeline);
    let count = 1 + Random(first).below(3);
    (first..first + count).map(commit).collect()
}
