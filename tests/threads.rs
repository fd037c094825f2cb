//! Threads that cannot be started: the engine is not opened, and nothing of it is left behind.
//!
//! A program of its own: its test bounds the memory of the process for moments, so none runs
//! beside.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{TestEngine, append, one_partition, values_of};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidelog::{Maintenance, OpenError, Record, StorageError};

/// Bytes of address space that the process has.
fn mapped_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn an_engine_that_cannot_start_its_threads_is_not_opened_and_can_be_opened_at_once() {
    let test = TestEngine::new();
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    append(&engine, &partition, [Record::keyless("v")]);
    drop((engine, partition));
    let unlimited = getrlimit(Resource::As);
    let mut failures = 0;
    // A thread takes its stack of 2 MiB, which may be left from another, and little more: each
    // time one more can be started.
    for _ in 0..3 {
        let config = test.config.clone().maintenance(Maintenance::Background);
        let builder = test.builder().config(config);
        let current = Some(mapped_bytes() + (3 << 20));
        setrlimit(Resource::As, Rlimit { current, maximum: unlimited.maximum }).unwrap();
        let opened = builder.open();
        setrlimit(Resource::As, unlimited).unwrap();
        match opened.map(drop) {
            Err(OpenError::Storage(StorageError::Io {
                operation: "start a thread for", ..
            })) => {
                failures += 1;
            }
            Err(error) => panic!("{error}"),
            Ok(()) => {}
        }
        let engine = test.open();
        let partition = engine.topic("t").unwrap().partition(0).unwrap();
        assert_eq!(values_of(&engine, &partition), ["v"]);
        assert!(engine.verify().unwrap().is_clean());
    }
    assert!(failures > 0, "every thread was started");
}
