//! Buffers of the caller's own kind: whatever runs when the engine frees them harms nobody.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use crate::common;

use bytes::Bytes;
use common::{TestEngine, append, batch_of, one_partition, values_of};
use tidelog::{AppendTransaction, Durability, Engine, OpenError, Partition, Record};

/// A record batch in memory that does something when it is freed.
struct Buffer {
    batch: Bytes,
    when_freed: Option<Box<dyn FnOnce() + Send>>,
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.batch
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(when_freed) = self.when_freed.take() {
            when_freed();
        }
    }
}

fn appending(
    engine: &Engine,
    partition: &Partition,
    when_freed: impl FnOnce() + Send + 'static,
) -> AppendTransaction {
    let batch = batch_of(&[Record::new("k", "v").timestamp(common::NOW_MS)]);
    let when_freed: Option<Box<dyn FnOnce() + Send>> = Some(Box::new(when_freed));
    let mut append = engine.append_transaction();
    append.batch(partition, Bytes::from_owner(Buffer { batch, when_freed })).unwrap();
    append
}

#[test]
fn a_buffer_that_panics_when_it_is_freed_harms_nobody_else() {
    for settings in [&[][..], &[("message.timestamp.type", "LogAppendTime")]] {
        let test = TestEngine::new();
        let engine = test.open();
        let partition = one_partition(&engine, "t", settings);
        let panicking = |durability| {
            let append = appending(&engine, &partition, || panic!("it panics, as this test wants"));
            append.submit(durability).unwrap()
        };
        let quiet = |durability| appending(&engine, &partition, || ()).submit(durability).unwrap();
        let durabilities = [Durability::Buffered, Durability::Sync];
        let tickets: Vec<_> = durabilities
            .into_iter()
            .flat_map(|durability| [panicking(durability), quiet(durability)])
            .collect();
        engine.maintenance().run_pending();
        for ticket in tickets {
            ticket.try_wait().unwrap().unwrap();
        }
        let last = appending(&engine, &partition, || panic!("it panics, as this test wants"));
        last.commit(Durability::Sync).unwrap();
        append(&engine, &partition, [Record::keyless("v")]);
        assert_eq!(values_of(&engine, &partition), ["v"; 6]);
        engine.close().unwrap();
    }
}

#[test]
fn the_last_engine_may_be_dropped_with_a_buffer() {
    for durability in [Durability::Buffered, Durability::Sync] {
        let test = TestEngine::in_background();
        let engine = test.open();
        let partition = one_partition(&engine, "t", &[]);
        let held = std::sync::Arc::new(parking_lot::Mutex::new(None));
        let freed = std::sync::Arc::clone(&held);
        let append = appending(&engine, &partition, move || drop(freed.lock().take()));
        *held.lock() = Some(engine);
        append.submit(durability).unwrap().wait().unwrap();
        let engine = loop {
            match test.builder().open() {
                Ok(engine) => break engine,
                Err(OpenError::Locked { .. }) => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        };
        assert_eq!(values_of(&engine, &engine.topic("t").unwrap().partition(0).unwrap()), ["v"]);
    }
}
