//! The commit log on the real file system: what is appended is read, and replayed after a reopen.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use tidelog::error::StorageError;
use tidelog::internals::hash::HashKey;
use tidelog::internals::log::{
    AppendFailure, CommitLog, LogIdentity, LogOptions, NewFrame, Payload, ReplayedPayload,
    SEGMENT_HEADER_BYTES, frame_layout,
};
use tidelog::testing::{Files, SystemFiles};
use tidelog::types::{AppliedCommit, CommitSequence, EngineId, PayloadLocation, SegmentId};

const LOG: LogIdentity = LogIdentity {
    engine: EngineId(0x7469_6465_6c6f_6721),
    secret: HashKey([0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210]),
};

/// A directory of its own, removed at the end of the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("tidelog-log-{}-{number}", std::process::id()));
        SystemFiles.create_directory(&path).expect("the temporary directory can be written");
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).expect("the directory is ours");
    }
}

fn options() -> LogOptions {
    LogOptions { segment_bytes: 64 * 1024, ..LogOptions::default() }
}

/// Bytes that look like a record batch as far as the log cares: its checksum stands in them.
fn batch(number: u64, length: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..length as u64).map(|at| (at * 31 + number * 7) as u8).collect();
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes
}

/// The batch as one buffer, or with its first 61 bytes apart, as a rewritten header is.
fn payload(batch: &[u8], head_bytes: usize) -> Payload {
    let (head, body) = batch.split_at(head_bytes);
    let crc = crc32c::crc32c(&batch[21..]);
    Payload { head: Bytes::copy_from_slice(head), body: Bytes::copy_from_slice(body), crc }
}

fn append(
    log: &CommitLog,
    write_batch: &[u8],
    payloads: &[Payload],
) -> Result<(AppliedCommit, Vec<PayloadLocation>), AppendFailure> {
    let payload_bytes = payloads.iter().map(|p| p.length_bytes() as u64).sum();
    let layout = frame_layout(write_batch.len(), payloads.len(), payload_bytes);
    let group = log.place_group(layout.frame_bytes, false)?;
    let sequence = log.written().next();
    let frame = NewFrame { sequence, append_time_ms: 1_000, write_batch, payloads };
    let place = log.append_group(&[frame])?[0];
    let mut position = group.position + layout.payloads_at;
    let mut locate = |payload: &Payload| {
        let length_bytes = payload.length_bytes() as u32;
        let location = PayloadLocation { segment: group.segment, position, length_bytes };
        position += u64::from(length_bytes);
        location
    };
    let locations = payloads.iter().map(&mut locate).collect();
    let (position, frame_crc) = (place.position, place.frame_crc);
    Ok((AppliedCommit { sequence, segment: group.segment, position, frame_crc }, locations))
}

#[test]
fn what_is_appended_is_read_back_and_replayed_after_the_applied_commit() {
    let scratch = Scratch::new();
    let directory = scratch.0.join("log");
    let files: Arc<dyn Files> = Arc::new(SystemFiles);
    let log = CommitLog::create(files.clone(), &directory, LOG, options()).unwrap();
    let first_place = log.first_place();
    let mut written = Vec::new();
    for number in 0..40u64 {
        let batches = [batch(number, 3000), batch(number + 100, 61), batch(number, 62)];
        let payloads =
            [payload(&batches[0], 61), payload(&batches[1], 61), payload(&batches[2], 0)];
        let write_batch = format!("changes of commit {number}");
        let (applied, locations) = append(&log, write_batch.as_bytes(), &payloads).unwrap();
        written.push((applied, write_batch, batches, locations));
    }
    assert_eq!(log.written(), CommitSequence(40));
    assert_eq!(log.synced(), CommitSequence::NONE);
    log.sync(CommitSequence(1)).unwrap();
    assert_eq!((log.synced(), log.unsynced_bytes()), (CommitSequence(40), 0));
    let segments = log.segments();
    assert_eq!(segments.len(), 3, "40 frames of 3 KiB fill two segments of 64 KiB");

    for applied in [first_place, written[0].0, written[19].0, written[39].0] {
        let mut replayed = Vec::new();
        let mut replay = |frame: tidelog::internals::log::ReplayedFrame<'_>| {
            let payloads: Vec<ReplayedPayload> = frame.payloads().collect();
            replayed.push((frame.applied, frame.write_batch.to_vec(), payloads));
            Ok(())
        };
        let (log, found) =
            CommitLog::open(files.clone(), &directory, LOG, options(), applied, &mut replay)
                .unwrap();
        assert_eq!(found.last, written[39].0);
        assert_eq!(found.replayed_count, 40 - applied.sequence.0);
        assert_eq!(found.torn_bytes, 0);
        let expected = &written[applied.sequence.0 as usize..];
        assert_eq!(replayed.len(), expected.len());
        for (found, (applied, write_batch, batches, locations)) in replayed.iter().zip(expected) {
            assert_eq!((found.0, &found.1[..]), (*applied, write_batch.as_bytes()));
            for (at, batch) in batches.iter().enumerate() {
                assert_eq!(found.2[at].location, locations[at]);
                assert_eq!(found.2[at].crc, crc32c::crc32c(&batch[21..]));
            }
        }
        for (_, _, batches, locations) in &written {
            for (batch, location) in batches.iter().zip(locations) {
                let mut buffer = vec![0; batch.len()];
                log.read(*location, &mut buffer).unwrap();
                assert_eq!(buffer, *batch);
            }
        }
        // Segments of opens that wrote nothing do not pile up.
        assert_eq!(log.segments().len(), 4);
    }
}

#[test]
fn a_read_outside_of_what_was_written_is_damage_and_not_silence() {
    let scratch = Scratch::new();
    let files: Arc<dyn Files> = Arc::new(SystemFiles);
    let log = CommitLog::create(files, &scratch.0, LOG, options()).unwrap();
    let (_, locations) = append(&log, b"w", &[payload(&batch(1, 100), 0)]).unwrap();
    let good = locations[0];
    let mut buffer = [0; 100];
    log.read(good, &mut buffer).unwrap();
    let segment_end = log.segments()[0].length_bytes;
    for bad in [
        PayloadLocation { segment: SegmentId(9), ..good },
        PayloadLocation { position: SEGMENT_HEADER_BYTES - 1, ..good },
        PayloadLocation { position: segment_end - 99, ..good },
        PayloadLocation { position: u64::MAX, ..good },
    ] {
        let error = log.read(bad, &mut buffer).unwrap_err();
        assert!(matches!(error, StorageError::Corruption(_)), "{bad:?} {error}");
    }
    log.read(PayloadLocation { position: segment_end - 100, ..good }, &mut buffer).unwrap();
}
