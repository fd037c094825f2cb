//! Many threads at once: offsets, order, whole transactions for every reader, and a quiet end.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use crate::common;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use common::{TestEngine, one_partition, records_of, values, values_of};
use tidelog::config::{ConfigChange, ConfigOperation};
use tidelog::{
    CommitError, Durability, Engine, FetchError, FetchOptions, NotWritten, Partition, Record,
    StorageError, Topic, TopicConfig,
};

fn four_partitions(engine: &Engine) -> Topic {
    engine.create_topic("t", TopicConfig::new(4)).unwrap()
}

fn commit(engine: &Engine, partitions: &[Partition], value: &str) -> Result<(), CommitError> {
    let mut append = engine.append_transaction();
    for partition in partitions {
        append.records(partition, [Record::keyless(value)]).expect("the record is good");
    }
    append.commit(Durability::Buffered).map(drop)
}

fn is_closed(error: &CommitError) -> bool {
    matches!(
        error,
        CommitError::NotWritten { reason: NotWritten::Storage(StorageError::Closed), .. }
    )
}

#[test]
fn each_of_many_writers_finds_its_record_at_the_offset_that_it_was_told() {
    let test = TestEngine::in_background();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let (writers, appends) = (16, 1000);
    let told: Vec<Vec<i64>> = thread::scope(|scope| {
        let writing: Vec<_> = (0..writers)
            .map(|writer| {
                let (engine, partition) = (&engine, &partition);
                scope.spawn(move || {
                    let append_one = |i: i32| {
                        let mut append = engine.append_transaction();
                        let record = Record::keyless(format!("{writer} {i}"));
                        append.records(partition, [record]).unwrap();
                        append.commit(Durability::Buffered).unwrap().batches[0].base_offset
                    };
                    (0..appends).map(append_one).collect()
                })
            })
            .collect();
        writing.into_iter().map(|writing| writing.join().unwrap()).collect()
    });
    let stored = values(&records_of(&engine, &partition));
    assert_eq!(stored.len(), 16_000);
    assert_eq!(engine.watermarks(&partition).unwrap().high_watermark, 16_000);
    for (writer, offsets) in told.iter().enumerate() {
        assert!(offsets.is_sorted());
        for (i, offset) in offsets.iter().enumerate() {
            assert_eq!(stored[*offset as usize], format!("{writer} {i}"));
        }
    }
    let all: HashSet<_> = told.iter().flatten().collect();
    assert_eq!(all.len(), 16_000);
}

#[test]
fn two_transactions_are_in_the_same_order_in_every_partition_and_never_interleave() {
    let test = TestEngine::in_background();
    let engine = test.open();
    let topic = four_partitions(&engine);
    thread::scope(|scope| {
        for writer in 0..8 {
            let (engine, topic) = (&engine, &topic);
            scope.spawn(move || {
                let mut partitions = topic.partitions();
                for i in 0..100 {
                    // Each writer adds its batches in another order, two for each partition.
                    partitions.rotate_left((writer + i) % 4);
                    let twice: Vec<_> =
                        partitions.iter().chain(partitions.iter().rev()).cloned().collect();
                    let durability =
                        if i % 25 == 0 { Durability::Sync } else { Durability::Buffered };
                    let mut append = engine.append_transaction();
                    for partition in &twice {
                        let record = Record::keyless(format!("{writer} {i}"));
                        append.records(partition, [record]).unwrap();
                    }
                    append.submit(durability).unwrap().wait().unwrap();
                }
            });
        }
    });
    let read: Vec<_> = topic.partitions().iter().map(|p| values_of(&engine, p)).collect();
    assert_eq!(read[0].len(), 1600);
    assert!(read[0].chunks(2).all(|pair| pair[0] == pair[1]));
    assert!(read.iter().all(|values| *values == read[0]));
}

#[test]
fn a_reader_who_sees_a_transaction_in_one_partition_sees_it_in_all() {
    let test = TestEngine::in_background();
    let engine = test.open();
    let topic = four_partitions(&engine);
    let partitions = topic.partitions();
    let (is_over, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let readers: Vec<_> = [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]]
            .into_iter()
            .map(|order: [usize; 4]| {
                let (engine, partitions) = (&engine, &partitions);
                let (is_over, rounds) = (&is_over, &rounds);
                scope.spawn(move || {
                    while !is_over.load(Ordering::SeqCst) {
                        let mut seen = 0;
                        for index in order {
                            let marks = engine.watermarks(&partitions[index]).unwrap();
                            assert!(marks.high_watermark >= seen, "{order:?}");
                            seen = marks.high_watermark;
                        }
                        let last = &partitions[order[3]];
                        if seen > 0 {
                            let fetched = engine.fetch(last, seen - 1, FetchOptions::new());
                            assert!(!fetched.unwrap().bytes.is_empty());
                        }
                        rounds.fetch_add(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        let writers: Vec<_> = (0..3)
            .map(|_| {
                let (engine, partitions, rounds) = (&engine, &partitions, &rounds);
                scope.spawn(move || {
                    for _ in 0..300 {
                        commit(engine, partitions, "v").unwrap();
                    }
                    // The readers must have had their turn.
                    while rounds.load(Ordering::SeqCst) < 100 {
                        commit(engine, partitions, "v").unwrap();
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        is_over.store(true, Ordering::SeqCst);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}

#[test]
fn a_snapshot_taken_among_writers_holds_the_same_transactions_in_all_partitions() {
    let test = TestEngine::in_background();
    let engine = test.open();
    let topic = four_partitions(&engine);
    let partitions = topic.partitions();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for writer in 0..3 {
            let (engine, partitions, is_over) = (&engine, &partitions, &is_over);
            scope.spawn(move || {
                for i in 0.. {
                    if is_over.load(Ordering::SeqCst) || i == 2000 {
                        return;
                    }
                    commit(engine, partitions, &format!("{writer} {i}")).unwrap();
                }
            });
        }
        for _ in 0..30 {
            let seen = engine.watermarks(&partitions[0]).unwrap().high_watermark;
            let snapshot = engine.snapshot();
            let mut read = vec![Vec::new(); 4];
            for scanned in snapshot.scan(&topic) {
                let scanned = scanned.unwrap();
                read[scanned.partition as usize].push(scanned.record.value.unwrap());
            }
            assert!(read[0].len() as i64 >= seen);
            assert!(read.iter().all(|values| *values == read[0]));
        }
        is_over.store(true, Ordering::SeqCst);
    });
}

#[test]
fn what_a_fetch_returns_lies_below_the_high_watermark_of_the_same_answer() {
    let test = TestEngine::in_background();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|_| {
                let (engine, partition) = (&engine, std::slice::from_ref(&partition));
                scope.spawn(move || (0..500).for_each(|_| commit(engine, partition, "v").unwrap()))
            })
            .collect();
        for _ in 0..2 {
            scope.spawn(|| {
                let mut from = 0;
                while !is_over.load(Ordering::SeqCst) {
                    let fetched = engine.fetch(&partition, from, FetchOptions::new()).unwrap();
                    assert!(fetched.next_offset <= fetched.watermarks.high_watermark);
                    if let Some(last) = fetched.records().last() {
                        assert_eq!(last.unwrap().offset + 1, fetched.next_offset);
                    }
                    from = fetched.next_offset.max(from) / 2;
                }
            });
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        is_over.store(true, Ordering::SeqCst);
    });
}

#[test]
fn a_reader_at_the_end_of_the_log_gets_nothing_or_the_next_record_and_never_an_error() {
    let test = TestEngine::in_background();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    thread::scope(|scope| {
        for _ in 0..4 {
            let (engine, partition) = (&engine, std::slice::from_ref(&partition));
            scope.spawn(move || (0..250).for_each(|_| commit(engine, partition, "v").unwrap()));
        }
        scope.spawn(|| {
            let mut read = 0;
            while read < 1000 {
                let fetched = engine.fetch(&partition, read, FetchOptions::new()).unwrap();
                for record in fetched.records() {
                    assert_eq!(record.unwrap().offset, read);
                    read += 1;
                }
                assert_eq!(fetched.next_offset, read);
            }
            let behind = engine.fetch(&partition, 1001, FetchOptions::new());
            assert!(matches!(behind, Err(FetchError::OffsetOutOfRange { .. })));
        });
    });
}

/// Appends to a topic and deletes most of it, until the engine is closed.
fn append_and_trim(engine: &Engine, partition: &Partition) {
    for end in 1.. {
        let value = "x".repeat(5000);
        if commit(engine, std::slice::from_ref(partition), &value).is_err() {
            return;
        }
        if end % 8 == 0 && engine.delete_records(partition, end - 2).is_err() {
            return;
        }
    }
}

/// Changes topics until the engine is closed.
fn churn(engine: &Engine, name: &str) {
    for i in 0.. {
        let Ok(topic) = engine.create_topic(name, TopicConfig::new(1)) else { return };
        let operation = ConfigOperation::Set("3000".to_owned());
        let change = ConfigChange { name: "max.message.bytes".to_owned(), operation };
        let altered = engine.topics().alter(name, &[change]).is_ok();
        let grown = engine.topics().add_partitions(name, 2).is_ok();
        // A closed engine refuses the append, the commit, or the next change.
        let mut append = engine.append_transaction();
        let added = append.records(&topic.partition(0).unwrap(), [Record::keyless("v")]).is_ok();
        let committed = append.commit(Durability::Buffered).is_ok();
        let deleted = engine.delete_topic(name).is_ok();
        if !(altered && grown && added && committed && deleted) || i == 1000 {
            return;
        }
    }
}

#[test]
fn appends_topics_settings_syncs_checkpoints_and_a_close_go_on_beside_each_other() {
    for round in 0..5 {
        let test = &TestEngine::in_background();
        let engine = test.open();
        let topic = four_partitions(&engine);
        let partitions = topic.partitions();
        let trimmed = one_partition(&engine, "trimmed", &[("retention.ms", "100000")]);
        let acknowledged: u64 = thread::scope(|scope| {
            let writers: Vec<_> = (0..3)
                .map(|writer| {
                    let (engine, partitions) = (engine.clone(), &partitions);
                    scope.spawn(move || {
                        let mut count = 0;
                        loop {
                            match commit(&engine, partitions, &format!("{writer} {count}")) {
                                Ok(()) => count += 1,
                                Err(error) => {
                                    assert!(is_closed(&error), "{error:?}");
                                    return count;
                                }
                            }
                        }
                    })
                })
                .collect();
            for name in ["a", "b"] {
                let engine = engine.clone();
                scope.spawn(move || churn(&engine, name));
            }
            let trimming = engine.clone();
            scope.spawn(move || append_and_trim(&trimming, &trimmed));
            let maintaining = engine.clone();
            scope.spawn(move || {
                while maintaining.maintenance().run().is_ok() {
                    test.clock.advance_ms(10_000);
                }
            });
            let syncing = engine.clone();
            scope.spawn(move || while syncing.sync().is_ok() {});
            let reading = engine.clone();
            let first = &partitions[0];
            scope.spawn(move || while reading.fetch(first, 0, FetchOptions::new()).is_ok() {});
            for _ in 0..(5 * round) {
                engine.maintenance().checkpoint().unwrap();
            }
            engine.close().unwrap();
            writers.into_iter().map(|writer| writer.join().unwrap()).sum()
        });
        let engine = test.open();
        assert!(engine.recovered().closed_cleanly);
        for partition in engine.topic("t").unwrap().partitions() {
            let distinct: HashSet<_> = values_of(&engine, &partition).into_iter().collect();
            assert_eq!(distinct.len() as u64, acknowledged);
        }
        assert!(engine.verify().unwrap().is_clean());
    }
}

#[test]
fn of_several_closes_one_closes_and_the_others_find_it_closed() {
    for _ in 0..20 {
        let test = TestEngine::in_background();
        let engine = test.open();
        let partition = one_partition(&engine, "t", &[]);
        commit(&engine, std::slice::from_ref(&partition), "v").unwrap();
        let closes: Vec<_> = thread::scope(|scope| {
            let closing: Vec<_> = (0..4)
                .map(|_| {
                    let engine = engine.clone();
                    scope.spawn(move || engine.close())
                })
                .collect();
            closing.into_iter().map(|closing| closing.join().unwrap()).collect()
        });
        assert_eq!(closes.iter().filter(|closed| closed.is_ok()).count(), 1);
        let others = closes.iter().filter_map(|closed| closed.as_ref().err());
        others.for_each(|error| assert!(matches!(error, StorageError::Closed), "{error}"));
        assert!(test.open().recovered().closed_cleanly);
    }
}

#[test]
fn a_checkpoint_beside_a_close_halts_nothing() {
    for _ in 0..20 {
        let test = TestEngine::in_background();
        let engine = test.open();
        let partition = one_partition(&engine, "t", &[]);
        commit(&engine, std::slice::from_ref(&partition), "v").unwrap();
        thread::scope(|scope| {
            let other = engine.clone();
            let checkpoint = scope.spawn(move || other.maintenance().checkpoint());
            engine.close().unwrap();
            if let Err(error) = checkpoint.join().unwrap() {
                assert!(matches!(error, StorageError::Closed), "{error}");
            }
        });
        assert!(test.open().recovered().closed_cleanly);
    }
}

#[test]
fn a_transaction_may_outlive_the_engine_and_is_then_committed_or_given_back() {
    for _ in 0..20 {
        let test = TestEngine::in_background();
        let engine = test.open();
        let partition = one_partition(&engine, "t", &[]);
        let transactions: Vec<_> = (0..50)
            .map(|_| {
                let mut append = engine.append_transaction();
                append.records(&partition, [Record::keyless("v")]).unwrap();
                append
            })
            .collect();
        let committed = thread::scope(|scope| {
            let committing = scope.spawn(|| {
                let commit = |append: tidelog::AppendTransaction| {
                    append
                        .commit(Durability::Buffered)
                        .inspect_err(|error| assert!(is_closed(error), "{error:?}"))
                        .is_ok()
                };
                transactions.into_iter().map(commit).filter(|is_committed| *is_committed).count()
            });
            drop(engine);
            committing.join().unwrap()
        });
        let engine = test.open();
        let partition = engine.topic("t").unwrap().partition(0).unwrap();
        assert_eq!(engine.watermarks(&partition).unwrap().log_end, committed as i64);
        assert!(engine.verify().unwrap().is_clean());
    }
}
