//! Record bytes that look like frames of the log: whatever a client sends, it counts for nothing.

use std::path::Path;

use tidelog::internals::rules::{BrokenRules, Rule};
use tidelog::testing::PowerLoss;
use tidelog::{Durability, Engine, EngineBuilder, OpenError, Record};

use crate::common::{NOW_MS, TestEngine, append, one_partition, records_of};

const SEGMENT: &str = "/engine/log/00000000000000000001.log";
const MARK: &[u8] = b"here-it-comes-01";
const HEADER: usize = 76;
const VALUE_BYTES: usize = 60_000;
/// Bytes of frames that a value has room for.
const FORGED_BYTES: usize = 15_000;
const FAR_AHEAD: u64 = 1 << 40;

/// What a client may know who sees all of the directory.
struct Known {
    /// The segment as it is before the value is appended, and where the value will lie.
    before: Vec<u8>,
    at: usize,
    /// Bytes of the value before the first place there at which a frame may start.
    padding: usize,
}

type Forge = fn(&Known) -> Vec<u8>;

/// A header that is right in all that the format tells, and claims much; the seal is a guess.
fn header(position: usize, write_batch_bytes: u32, seal: u64) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[0..4].copy_from_slice(b"tlf\x02");
    header[8..16].copy_from_slice(&FAR_AHEAD.to_le_bytes());
    header[16..24].copy_from_slice(&FAR_AHEAD.to_le_bytes());
    header[24..32].copy_from_slice(&1u64.to_le_bytes());
    header[32..40].copy_from_slice(&(position as u64).to_le_bytes());
    header[60..64].copy_from_slice(&write_batch_bytes.to_le_bytes());
    header[68..].copy_from_slice(&seal.to_le_bytes());
    header
}

/// The same with its checksum, as a frame without changes.
fn summed(position: usize, seal: u64) -> Vec<u8> {
    let mut header = header(position, 0, seal);
    let crc = crc32c::crc32c(&header[8..68]);
    header[4..8].copy_from_slice(&crc.to_le_bytes());
    [&header[..], &[0; 4]].concat()
}

/// Headers back to back, each of which claims all that follows.
fn decoys(known: &Known) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < FORGED_BYTES - 2 * HEADER {
        let rest = (VALUE_BYTES - bytes.len() - 2 * HEADER) as u32;
        bytes.extend(header(known.at + bytes.len(), rest, 7));
        bytes.extend([0; 4]);
    }
    bytes
}

/// Frames whose checksums hold, with seals as somebody might guess them.
fn guessed(known: &Known) -> Vec<u8> {
    let mut bytes = Vec::new();
    let format = u64::from_le_bytes(*known.before[16..].first_chunk().expect("it is long enough"));
    let seen = known.before[4096..].windows(8).step_by(4);
    let seen = seen.map(|seal| u64::from_le_bytes(seal.try_into().expect("it has eight bytes")));
    for seal in [0, u64::MAX, format, !format].into_iter().chain(seen).take(150) {
        bytes.extend(summed(known.at + bytes.len(), seal));
    }
    bytes
}

/// The true frames of the log at another place, byte by byte.
fn copied(known: &Known) -> Vec<u8> {
    known.before[4096..].iter().copied().take(FORGED_BYTES).collect()
}

/// The true header of each frame, with its true seal, made to name the place where it is put and
/// to claim much, and summed again.
fn moved(known: &Known) -> Vec<u8> {
    let mut bytes = Vec::new();
    let true_headers = known.before[4096..].windows(HEADER).filter(|at| at.starts_with(b"tlf\x02"));
    for is_claiming in [false, true] {
        for true_header in true_headers.clone() {
            let mut header = true_header.to_vec();
            let position = (known.at + bytes.len()) as u64;
            header[32..40].copy_from_slice(&position.to_le_bytes());
            header[48..56].fill(0);
            header[60..68].fill(0);
            if is_claiming {
                header[16..24].copy_from_slice(&FAR_AHEAD.to_le_bytes());
            }
            let crc = crc32c::crc32c(&header[8..68]);
            header[4..8].copy_from_slice(&crc.to_le_bytes());
            bytes.extend(header);
            bytes.extend([0; 4]);
        }
    }
    bytes
}

/// A synced commit, somebody's buffered one, and after it the client's own with this payload.
fn life(builder: EngineBuilder, test: &TestEngine, payload: &[u8]) -> Known {
    let engine: Engine = builder.open().expect("the engine opens");
    let partition = one_partition(&engine, "first", &[]);
    let mut honest = engine.append_transaction();
    honest
        .records(&partition, [Record::keyless("honest").timestamp(NOW_MS)])
        .expect("the record is good");
    honest.commit(Durability::Sync).expect("it is committed");
    append(&engine, &partition, [Record::keyless(vec![1; 3000]).timestamp(NOW_MS)]);
    let before = test.disk.contents(Path::new(SEGMENT)).expect("it is there");
    let value = [MARK, payload, &vec![7; VALUE_BYTES - payload.len()]].concat();
    append(&engine, &partition, [Record::keyless(value).timestamp(NOW_MS)]);
    let after = test.disk.contents(Path::new(SEGMENT)).expect("it is there");
    let mark =
        after.windows(MARK.len()).position(|bytes| bytes == MARK).expect("the value is there");
    let mark_end = mark + MARK.len();
    let at = mark_end.next_multiple_of(8);
    Known { before, at, padding: at - mark_end }
}

/// An engine that has taken what was forged, and where the value lies.
fn forged(forge: Forge, broken: BrokenRules) -> (TestEngine, Known) {
    let test = TestEngine::new();
    let known = life(test.builder(), &test, &[]);
    let payload = forge(&known);
    assert!(payload.len() <= FORGED_BYTES && payload.len() > HEADER);
    let test = TestEngine::new();
    let builder = test.builder().broken(broken);
    let again = life(builder, &test, &[vec![0; known.padding], payload].concat());
    assert_eq!(known.at, again.at, "the value lies where it was foretold");
    (test, again)
}

/// Loses power so often, and tells which opens fail.
fn refused(forge: Forge, broken: BrokenRules) -> Vec<OpenError> {
    let mut refused = Vec::new();
    for loss in 0..20 {
        let (test, _) = forged(forge, broken);
        test.lose_power(PowerLoss::Random(loss));
        match test.builder().broken(broken).open() {
            Ok(engine) => {
                let topic = engine.topic("first").expect("it exists");
                let records = records_of(&engine, &topic.partition(0).expect("it has one"));
                assert_eq!(records[0].value.as_deref(), Some(&b"honest"[..]), "what was synced");
                assert!(records.len() <= 3);
            }
            Err(error) => refused.push(error),
        }
    }
    refused
}

const KINDS: [(&str, Forge); 4] =
    [("decoys", decoys), ("guessed", guessed), ("copied", copied), ("moved", moved)];

#[test]
fn no_bytes_of_a_client_keep_the_log_from_opening_after_a_power_loss() {
    for (name, forge) in KINDS {
        let refused = refused(forge, BrokenRules::NONE);
        assert!(refused.is_empty(), "{name}: {} of 20 refused: {:?}", refused.len(), refused[0]);
    }
}

#[test]
fn without_the_seal_they_do() {
    let broken = BrokenRules::only(Rule::W2Seal);
    assert!(!refused(moved, broken).is_empty());
    assert!(!refused(guessed, broken).is_empty());
}

#[test]
fn after_damage_before_them_they_prove_nothing_and_the_commit_around_them_is_counted() {
    for (name, forge) in KINDS {
        let (test, known) = forged(forge, BrokenRules::NONE);
        // In somebody's buffered commit, which nothing tells to be synced.
        test.disk.flip_bit(Path::new(SEGMENT), known.before.len() as u64 * 8 - 1000 * 8);
        test.kill();
        let recovered = test.open().recovered();
        assert_eq!(recovered.dropped_commits, 1, "{name}");
        assert!(recovered.dropped_bytes > VALUE_BYTES as u64, "{name}");
        assert!(recovered.dropped_bytes < recovered.torn_bytes, "{name}");
    }
}
