//! Tests of the simulated disk: each line of its fault model can be seen.

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use super::{EIO, ENOSPC, Fault, FileCall, PowerLoss, SimulatedDisk};
use crate::base::io::{File, Files, LockError};

const SECTOR: usize = super::inode::SECTOR_BYTES;

fn disk() -> SimulatedDisk {
    let disk = SimulatedDisk::new(1);
    disk.create_directory(Path::new("/d")).unwrap();
    disk
}

fn create(disk: &SimulatedDisk, name: &str) -> Arc<dyn File> {
    let file = disk.create(&Path::new("/d").join(name)).unwrap();
    disk.sync_directory(Path::new("/d")).unwrap();
    file
}

fn write(file: &Arc<dyn File>, position: usize, byte: u8, length: usize) -> std::io::Result<()> {
    file.write_at(position as u64, &[IoSlice::new(&vec![byte; length])])
}

fn contents(disk: &SimulatedDisk, name: &str) -> Option<Vec<u8>> {
    disk.contents(&Path::new("/d").join(name))
}

#[test]
fn a_killed_process_leaves_what_it_wrote_and_its_handles_are_dead() {
    let disk = disk();
    let process = disk.process();
    let file = create(&disk, "a");
    write(&file, 0, 1, 10).unwrap();
    disk.kill();
    assert_eq!(contents(&disk, "a"), Some(vec![1; 10]));
    assert!(write(&file, 0, 2, 1).is_err());
    assert!(file.sync_data().is_err());
    assert!(file.read_at(0, &mut [0]).is_err());
    assert!(process.list(Path::new("/d")).is_err());
    assert!(disk.list(Path::new("/d")).is_ok());
}

#[test]
fn a_power_loss_keeps_what_was_synced_and_any_subset_of_the_rest() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let disk = disk();
        let file = create(&disk, "a");
        write(&file, 0, 1, SECTOR).unwrap();
        file.sync_data().unwrap();
        write(&file, SECTOR, 2, 3 * SECTOR).unwrap();
        disk.power_loss(PowerLoss::Random(seed));
        let found = contents(&disk, "a").unwrap();
        assert_eq!(found[..SECTOR], vec![1; SECTOR]);
        let sectors: Vec<u8> = found.chunks(SECTOR).map(|sector| sector[0]).collect();
        for sector in found.chunks(SECTOR) {
            assert!(sector.iter().all(|byte| *byte == sector[0]), "sectors are whole");
        }
        seen.insert(sectors);
    }
    assert!(seen.len() >= 8, "{seen:?}");
    assert!(seen.contains(&vec![1, 0, 0, 2]), "{seen:?}");
}

#[test]
fn a_power_loss_can_keep_each_first_part_of_the_changes() {
    let expected: [Option<&[u8]>; 5] = [None, Some(b""), Some(b"aa"), Some(b"aab"), Some(b"a")];
    for (kept, expected) in expected.into_iter().enumerate() {
        let disk = disk();
        let file = disk.create(Path::new("/d/a")).unwrap();
        file.write_at(0, &[IoSlice::new(b"aa")]).unwrap();
        file.write_at(2, &[IoSlice::new(b"b")]).unwrap();
        file.set_length(1).unwrap();
        assert_eq!(disk.unsynced_changes(), 4);
        disk.power_loss(PowerLoss::First(kept));
        assert_eq!(contents(&disk, "a").as_deref(), expected, "{kept}");
    }
}

#[test]
fn names_reach_the_device_in_their_order_when_the_directory_is_synced() {
    let disk = disk();
    let file = disk.create(Path::new("/d/a")).unwrap();
    file.sync_data().unwrap();
    let unsynced = disk.fork();
    unsynced.power_loss(PowerLoss::Nothing);
    assert_eq!(contents(&unsynced, "a"), None, "a synced file without a name is gone");
    disk.sync_directory(Path::new("/d")).unwrap();
    disk.rename(Path::new("/d/a"), Path::new("/d/b")).unwrap();
    disk.remove(Path::new("/d/b")).unwrap();
    for (seed, names) in (0..50).map(|seed| (seed, disk.fork())) {
        names.power_loss(PowerLoss::Random(seed));
        let found = names.list(Path::new("/d")).unwrap();
        assert!([vec![], vec!["a"], vec!["b"]].iter().any(|legal| *legal == found), "{found:?}");
    }
    disk.power_loss(PowerLoss::Everything);
    assert!(disk.list(Path::new("/d")).unwrap().is_empty());
}

#[test]
fn a_second_name_shows_the_same_bytes_and_is_counted() {
    let disk = disk();
    let file = create(&disk, "a");
    assert_eq!(file.link_count().unwrap(), 1);
    disk.link(Path::new("/d/a"), Path::new("/d/b"));
    assert_eq!(file.link_count().unwrap(), 2);
    write(&file, 0, 1, 10).unwrap();
    file.sync_data().unwrap();
    disk.power_loss(PowerLoss::Nothing);
    assert_eq!(contents(&disk, "b"), Some(vec![1; 10]));
    disk.remove(Path::new("/d/a")).unwrap();
    assert_eq!(disk.open(Path::new("/d/b")).unwrap().link_count().unwrap(), 1);
    disk.link(Path::new("/d/b"), Path::new("/d/a"));
    disk.vanish(Path::new("/d/b"));
    assert_eq!(contents(&disk, "a"), Some(vec![1; 10]));
}

#[test]
fn a_failed_sync_is_reported_once_and_what_it_lost_shows_when_the_cache_is_dropped() {
    let disk = disk();
    let file = create(&disk, "a");
    write(&file, 0, 1, 64 * SECTOR).unwrap();
    disk.plan(Fault::next(FileCall::Sync, EIO));
    assert_eq!(file.sync_data().unwrap_err().raw_os_error(), Some(EIO));
    file.sync_data().unwrap();
    assert_eq!(contents(&disk, "a"), Some(vec![1; 64 * SECTOR]), "the cache still shows it");
    // Writing the same again and syncing succeeds, and still does not reach the device.
    write(&file, 0, 1, 64 * SECTOR).unwrap();
    file.sync_data().unwrap();
    file.drop_cache().unwrap();
    let found = contents(&disk, "a").unwrap();
    let lost = found.chunks(SECTOR).filter(|sector| sector[0] == 0).count();
    assert!((10..54).contains(&lost), "about half is lost: {lost}");
    let before = disk.fork();
    disk.power_loss(PowerLoss::Everything);
    assert_eq!(contents(&disk, "a"), contents(&before, "a"));
}

#[test]
fn a_write_fails_in_the_middle_and_a_full_disk_is_full_to_the_byte() {
    let disk = disk();
    let file = create(&disk, "a");
    disk.plan(Fault::next(FileCall::Write, EIO).after_calls(1).after_bytes(3));
    write(&file, 0, 1, 2).unwrap();
    assert_eq!(write(&file, 2, 2, 9).unwrap_err().raw_os_error(), Some(EIO));
    assert_eq!(contents(&disk, "a"), Some(vec![1, 1, 2, 2, 2]));
    disk.set_capacity(Some(8));
    assert_eq!(disk.free_bytes(Path::new("/d")).unwrap(), 3);
    assert_eq!(write(&file, 4, 3, 9).unwrap_err().raw_os_error(), Some(ENOSPC));
    assert_eq!(contents(&disk, "a"), Some(vec![1, 1, 2, 2, 3, 3, 3, 3]));
    write(&file, 0, 4, 8).unwrap();
    file.set_length(4).unwrap();
    assert_eq!(disk.free_bytes(Path::new("/d")).unwrap(), 4);
    write(&create(&disk, "b"), 0, 5, 4).unwrap();
    disk.plan(Fault::next(FileCall::SetLength, EIO));
    assert!(file.set_length(0).is_err());
}

#[test]
fn a_truncation_that_was_not_synced_may_be_undone() {
    let disk = disk();
    let file = create(&disk, "a");
    write(&file, 0, 1, 2 * SECTOR).unwrap();
    file.sync_data().unwrap();
    file.set_length(100).unwrap();
    let undone = disk.fork();
    undone.power_loss(PowerLoss::Nothing);
    assert_eq!(contents(&undone, "a"), Some(vec![1; 2 * SECTOR]));
    file.sync_data().unwrap();
    disk.power_loss(PowerLoss::Nothing);
    assert_eq!(contents(&disk, "a"), Some(vec![1; 100]));
}

#[test]
fn from_the_crash_on_every_call_fails_until_the_process_is_buried() {
    for calls in 0..4 {
        let disk = disk();
        let file = create(&disk, "a");
        disk.crash_after_calls(calls);
        let results: Vec<bool> = (0..4).map(|at| write(&file, at * 8, 1, 8).is_ok()).collect();
        assert_eq!(results.iter().filter(|ok| **ok).count(), calls as usize);
        assert!(disk.has_crashed());
        assert!(disk.list(Path::new("/d")).is_err());
        disk.kill();
        let found = contents(&disk, "a").unwrap().len() as u64;
        assert!((calls * 8..=calls * 8 + 8).contains(&found), "{found}");
        assert!(disk.list(Path::new("/d")).is_ok());
    }
}

#[test]
fn a_sync_makes_durable_what_was_written_before_it_began() {
    let disk = disk();
    let file = create(&disk, "a");
    write(&file, 0, 1, 10).unwrap();
    let late = file.clone();
    disk.during_next_sync(move || write(&late, 0, 2, 20).unwrap());
    file.sync_data().unwrap();
    let early = disk.fork();
    early.power_loss(PowerLoss::Nothing);
    assert_eq!(contents(&early, "a"), Some(vec![1; 10]));
    file.sync_data().unwrap();
    disk.power_loss(PowerLoss::Nothing);
    assert_eq!(contents(&disk, "a"), Some(vec![2; 20]));
}

#[test]
fn held_syncs_wait_until_they_are_released_and_fail_when_the_process_dies() {
    for dies in [false, true] {
        let disk = disk();
        let file = create(&disk, "a");
        disk.hold_syncs();
        let syncing = std::thread::spawn(move || file.sync_data().is_ok());
        while disk.held_syncs() == 0 {
            std::thread::yield_now();
        }
        if dies {
            disk.kill();
        } else {
            disk.release_syncs();
        }
        assert_eq!(syncing.join().unwrap(), !dies);
        assert_eq!(disk.held_syncs(), 0);
    }
}

#[test]
fn lost_sectors_can_show_what_a_removed_file_held() {
    let disk = disk();
    disk.set_stale_bytes(true);
    let old = create(&disk, "old");
    write(&old, 0, 7, 4 * SECTOR).unwrap();
    old.sync_data().unwrap();
    disk.remove(Path::new("/d/old")).unwrap();
    let file = create(&disk, "new");
    write(&file, 0, 1, 4 * SECTOR).unwrap();
    let shows_stale = |seed| {
        let disk = disk.fork();
        disk.power_loss(PowerLoss::Random(seed));
        contents(&disk, "new").unwrap().contains(&7)
    };
    assert!((0..50).any(shows_stale));
}

#[test]
fn a_lock_is_free_again_when_it_is_dropped_or_its_holder_dies() {
    let disk = disk();
    let path = Path::new("/d/LOCK");
    let guard = disk.lock(path).unwrap();
    assert!(matches!(disk.lock(path), Err(LockError::Held { .. })));
    drop(guard);
    let guard = disk.lock(path).unwrap();
    disk.kill();
    let second = disk.lock(path).unwrap();
    drop(guard);
    assert!(disk.lock(path).is_err(), "a dead holder's guard frees nothing");
    drop(second);
}

#[test]
fn a_name_that_was_made_and_removed_may_be_there_after_a_kill_and_a_power_loss() {
    let disk = disk();
    disk.create(Path::new("/d/a")).unwrap();
    disk.remove(Path::new("/d/a")).unwrap();
    disk.kill();
    let is_there = |count| {
        let disk = disk.fork();
        disk.power_loss(PowerLoss::First(count));
        contents(&disk, "a").is_some()
    };
    assert_eq!([0, 1, 2].map(is_there), [false, true, false]);
}
