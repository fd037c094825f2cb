//! An append transaction: whole or absent, each record and each error where it belongs.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use crate::common;

use bytes::Bytes;
use common::{TestEngine, append_to_all, batch_of, one_partition, records_of, values_of};
use tidelog::testing::PowerLoss;
use tidelog::{Durability, Engine, Record, TopicConfig, Visibility};

fn read_all(engine: &Engine) -> Vec<Vec<String>> {
    let topic = engine.topic("t").unwrap();
    topic.partitions().iter().map(|partition| values_of(engine, partition)).collect()
}

#[test]
fn each_batch_is_judged_by_itself_and_names_its_partition() {
    let test = TestEngine::new();
    let engine = test.open();
    let good = one_partition(&engine, "good", &[]);
    let gone = one_partition(&engine, "gone", &[]);
    let small = one_partition(&engine, "small", &[("max.message.bytes", "100")]);
    engine.delete_topic("gone").unwrap();
    let batch = batch_of(&[Record::keyless("x".repeat(100))]);
    let mut append = engine.append_transaction();
    let judged: Vec<_> = [&good, &gone, &small]
        .map(|partition| append.batch(partition, batch.clone()))
        .into_iter()
        .map(|judged| judged.map_err(|error| (error.code(), error.partition)))
        .collect();
    assert_eq!(judged, [Ok(()), Err((3, gone)), Err((10, small))]);
    // As one atomic request all of it is dropped; what was good can also be committed alone.
    drop(append);
    assert_eq!(engine.watermarks(&good).unwrap().log_end, 0);
    let mut append = engine.append_transaction();
    append.batch(&good, batch).unwrap();
    append.commit(Durability::Buffered).unwrap();
    assert_eq!(engine.watermarks(&good).unwrap().log_end, 1);
}

#[test]
fn topics_keys_and_headers_of_equal_length_are_not_mixed_up() {
    let test = TestEngine::new();
    let engine = test.open();
    let names = ["aaaa", "bbbb", "cccc", "dddd"];
    let partitions = names.map(|name| one_partition(&engine, name, &[]));
    let mut append = engine.append_transaction();
    for (name, partition) in names.iter().zip(&partitions) {
        let record = Record::new(format!("key-{name}"), *name).header(format!("h-{name}"), *name);
        append.records(partition, [record]).unwrap();
    }
    append.commit(Durability::Sync).unwrap();
    drop(engine);
    let engine = test.open();
    for name in names {
        let partition = engine.topic(name).unwrap().partition(0).unwrap();
        let [record] = &records_of(&engine, &partition)[..] else { panic!("one record each") };
        assert_eq!(record.key.as_deref(), Some(format!("key-{name}").as_bytes()));
        assert_eq!(record.value.as_deref(), Some(name.as_bytes()));
        let headers: Vec<_> = record.headers.iter().collect();
        assert_eq!(headers[0].name_str(), Ok(&format!("h-{name}")[..]));
    }
}

#[test]
fn what_was_put_into_a_record_comes_out_of_it_also_after_a_kill() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let null = None::<Bytes>;
    let sent = [
        // Null, empty and one byte; order and repeated names kept; an empty name.
        Record::new("k", "v").header("a", null.clone()).header("b", "").header("c", "x"),
        Record::new("", "").header("k", "1").header("j", "2").header("k", "3").header("", "4"),
        Record::new(null.clone(), null),
        Record::new("k", vec![0xff; 300]).header([0xfe, 0xff], vec![0; 128]),
    ];
    let mut append = engine.append_transaction();
    let timed = sent.iter().cloned().map(|record| record.timestamp(77));
    append.records(&partition, timed).unwrap();
    append.commit(Durability::Buffered).unwrap();
    test.kill();
    let engine = test.open();
    let partition = engine.topic("t").unwrap().partition(0).unwrap();
    for (offset, (read, sent)) in records_of(&engine, &partition).iter().zip(&sent).enumerate() {
        let mut expected = sent.clone().timestamp(77);
        expected.offset = offset as i64;
        assert_eq!(*read, expected);
    }
    assert_eq!(records_of(&engine, &partition).len(), sent.len());
}

#[test]
fn a_kill_takes_nothing_that_was_acknowledged_and_splits_nothing() {
    for checkpoint_behind in 0..5 {
        let test = TestEngine::new();
        let engine = test.open();
        let topic = engine.create_topic("t", TopicConfig::new(3)).unwrap();
        let mut expected = Vec::new();
        for i in 0..5 {
            append_to_all(&engine, &topic.partitions(), &format!("{i}"));
            expected.push(format!("{i}"));
            if i == checkpoint_behind {
                engine.maintenance().checkpoint().unwrap();
            }
        }
        test.kill();
        let engine = test.open();
        assert_eq!(engine.recovered().replayed_commits, 4 - checkpoint_behind);
        assert!(read_all(&engine).iter().all(|values| *values == expected));
        assert!(engine.verify().unwrap().is_clean());
    }
}

#[test]
fn a_power_loss_leaves_whole_transactions_in_their_order_and_all_that_were_synced() {
    let mut lengths = Vec::new();
    for seed in 0..100 {
        let test = TestEngine::new();
        let engine = test.open();
        let topic = engine.create_topic("t", TopicConfig::new(3)).unwrap();
        for i in 0..4 {
            let durability = if i == 1 { Durability::Sync } else { Durability::Buffered };
            let mut append = engine.append_transaction();
            for partition in topic.partitions() {
                let value = format!("{i} {}", "x".repeat(400));
                append.records(&partition, [Record::keyless(value)]).unwrap();
            }
            append.commit(durability).unwrap();
        }
        test.lose_power(PowerLoss::Random(seed));
        let engine = test.open();
        let read = read_all(&engine);
        assert!(read.iter().all(|values| *values == read[0]));
        assert!((2..=4).contains(&read[0].len()));
        assert!(read[0].iter().enumerate().all(|(i, value)| value.starts_with(&format!("{i} "))));
        assert!(engine.verify().unwrap().is_clean());
        lengths.push(read[0].len());
    }
    assert!(lengths.contains(&2) && lengths.iter().any(|length| *length > 2), "{lengths:?}");
}

#[test]
fn offsets_that_a_power_loss_took_are_given_again_under_a_higher_leader_epoch() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    append_to_all(&engine, std::slice::from_ref(&partition), "kept");
    engine.sync().unwrap();
    append_to_all(&engine, std::slice::from_ref(&partition), "taken");
    test.lose_power(PowerLoss::Nothing);
    let engine = test.open();
    let partition = engine.topic("t").unwrap().partition(0).unwrap();
    assert_eq!(values_of(&engine, &partition), ["kept"]);
    append_to_all(&engine, std::slice::from_ref(&partition), "another");
    assert_eq!(values_of(&engine, &partition), ["kept", "another"]);
    // A client that read the lost record in epoch 0 finds out that the epoch ended before it.
    let end = engine.epoch_end(&partition, 0).unwrap();
    assert_eq!((end.leader_epoch, end.end_offset), (0, 1));
    let marks = engine.watermarks_of(&partition, Visibility::Synced).unwrap();
    assert_eq!((marks.high_watermark, marks.log_end), (1, 2));
}

#[test]
fn commits_are_numbered_densely_and_refused_ones_take_no_number() {
    let test = TestEngine::new();
    let engine = test.open();
    let kept = one_partition(&engine, "kept", &[]);
    let gone = one_partition(&engine, "gone", &[]);
    let commit = |partition| {
        let mut append = engine.append_transaction();
        append.records(partition, [Record::keyless("v")]).unwrap();
        append
    };
    let refused = commit(&gone);
    engine.delete_topic("gone").unwrap();
    let first = commit(&kept).commit(Durability::Buffered).unwrap().sequence.unwrap();
    refused.commit(Durability::Buffered).unwrap_err();
    let next = commit(&kept).commit(Durability::Sync).unwrap().sequence.unwrap();
    assert_eq!(next.0, first.0 + 1);
}

#[test]
fn one_transaction_reaches_hundreds_of_partitions_in_any_order() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = engine.create_topic("t", TopicConfig::new(300)).unwrap();
    let mut append = engine.append_transaction();
    for round in 0..3 {
        for i in 0..300 {
            let partition = topic.partition((i * 7 + round) % 300).unwrap();
            let value = format!("{round} {}", partition.index());
            append.records(&partition, [Record::keyless(value)]).unwrap();
        }
    }
    let committed = append.commit(Durability::Buffered).unwrap();
    assert_eq!(committed.batches.len(), 900);
    for (index, values) in read_all(&engine).iter().enumerate() {
        let expected = [0, 1, 2].map(|round| format!("{round} {index}"));
        assert_eq!(*values, expected);
    }
}

#[test]
fn records_that_cannot_be_taken_leave_no_partition_in_the_transaction() {
    let test = TestEngine::new();
    let engine = test.open();
    let topic = engine.create_topic("t", TopicConfig::new(20)).unwrap();
    let compacted = one_partition(&engine, "c", &[("cleanup.policy", "compact")]);
    let mut append = engine.append_transaction();
    for partition in topic.partitions() {
        append.records(&partition, [Record::keyless("v")]).unwrap();
        append.records(&compacted, [Record::new("k", "v"), Record::keyless("v")]).unwrap_err();
        append.records(&partition, []).unwrap();
    }
    engine.delete_topic("c").unwrap();
    let committed = append.commit(Durability::Buffered).unwrap();
    assert_eq!(committed.batches.len(), 20);
    assert!(read_all(&engine).iter().all(|values| *values == ["v"]));
}

// Base offset and leader epoch lie outside of the checksum.
#[test]
fn a_batch_with_a_flipped_bit_is_refused_and_what_the_log_stamps_may_be_anything() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    let good = batch_of(&[Record::new("key", "value")]);
    for bit in 17 * 8..good.len() * 8 {
        let mut bytes = good.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let mut append = engine.append_transaction();
        assert!(append.batch(&partition, bytes.into()).is_err(), "bit={bit}");
    }
    let mut bytes = good.to_vec();
    bytes[12..16].copy_from_slice(&77_i32.to_be_bytes());
    let mut append = engine.append_transaction();
    append.batch(&partition, bytes.into()).unwrap();
    append.commit(Durability::Buffered).unwrap();
    assert_eq!(values_of(&engine, &partition), ["value"]);
}
