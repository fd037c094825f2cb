//! Runs the same random operations on two kinds of store and compares all that can be seen of them.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use crate::index::store::{Direction, OpenStore, Read, Store};
use crate::index::write_batch::{Family, WriteBatch};
use crate::testing::store::conformance::{LAST, flush, get, open, scan};
use crate::testing::store::memory::{below, mix};

/// A store of the differential test, with the snapshots that are held.
struct Side<'a> {
    kind: &'a dyn OpenStore,
    directory: &'a Path,
    store: Arc<dyn Store>,
    snapshots: VecDeque<Arc<dyn Read>>,
}

/// Runs random operations on two stores and compares every answer; the seed decides them.
///
/// # Panics
/// If the stores do not agree, or refuse what is legal.
pub fn two_stores_agree(left: (&dyn OpenStore, &Path), right: (&dyn OpenStore, &Path), seed: u64) {
    let side = |(kind, directory): (_, _)| {
        let store = open(kind, directory);
        Side { kind, directory, store, snapshots: VecDeque::new() }
    };
    let mut sides = [left, right].map(side);
    let mut draws = seed;
    let mut draw = |limit: usize| {
        draws = draws.wrapping_add(1);
        below(mix(draws ^ seed.rotate_left(32)), limit)
    };
    for step in 0..400 {
        match draw(32) {
            0 => sides.iter().for_each(|side| flush(&*side.store)),
            1 => sides.iter_mut().for_each(reopen),
            2 => sides.iter_mut().for_each(|side| {
                side.snapshots.push_back(side.store.snapshot());
                if side.snapshots.len() > 3 {
                    side.snapshots.pop_front();
                }
            }),
            3..=11 => compare(&sides, &mut draw, &format!("seed {seed} step {step}")),
            _ => {
                let batches: Vec<_> = (0..=draw(3)).map(|_| random_batch(&mut draw)).collect();
                let batches: Vec<_> = batches.iter().collect();
                for side in &sides {
                    side.store.write(&batches).expect("a legal batch is taken");
                }
            }
        }
    }
    compare(&sides, &mut draw, &format!("seed {seed} at the end"));
}

fn reopen(side: &mut Side<'_>) {
    side.snapshots.clear();
    side.store.close().expect("the store closes");
    side.store = open(side.kind, side.directory);
}

/// Few keys, so that operations meet, of several lengths, so that prefixes are among them.
fn random_key(draw: &mut impl FnMut(usize) -> usize) -> Vec<u8> {
    let length = 1 + draw(3);
    (0..length).map(|_| [0, 1, 0x7f, 0x80, 0xff][draw(5)]).collect()
}

fn random_family(draw: &mut impl FnMut(usize) -> usize) -> Family {
    [Family::Meta, Family::Batches, Family::Groups][draw(3)]
}

fn random_batch(draw: &mut impl FnMut(usize) -> usize) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for _ in 0..draw(6) {
        let (family, key) = (random_family(draw), random_key(draw));
        match draw(8) {
            0 => batch.delete_range(family, &key, &random_key(draw)),
            1..=2 => batch.delete(family, &key),
            _ => {
                batch.put(family, &key, &vec![draw(256) as u8; draw(40)]);
            }
        }
    }
    batch
}

fn compare(sides: &[Side<'_>; 2], draw: &mut impl FnMut(usize) -> usize, what: &str) {
    let held = sides[0].snapshots.len();
    assert_eq!(held, sides[1].snapshots.len());
    let chosen = draw(held + 1);
    let readers = sides.each_ref().map(|side| -> &dyn Read {
        side.snapshots.get(chosen).map_or(&*side.store, |snapshot| &**snapshot)
    });
    let (family, key) = (random_family(draw), random_key(draw));
    let [left, right] = readers.map(|read| get(read, family, &key));
    assert_eq!(left, right, "{what}: get {family:?} {key:?}");
    let (begin, end) = (random_key(draw), random_key(draw));
    for (begin, end) in [(&begin[..], &end[..]), (b"", LAST)] {
        for direction in [Direction::Forward, Direction::Backward] {
            let [left, right] = readers.map(|read| scan(read, family, begin, end, direction));
            assert_eq!(left, right, "{what}: {direction:?} {family:?} {begin:?}..{end:?}");
        }
    }
}
