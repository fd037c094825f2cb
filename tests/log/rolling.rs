//! A segment that is left while a sync runs: what it got meanwhile is synced before anything later counts (W5, W6).

use crate::common;

use common::{TestEngine, append, offsets_of, one_partition};
use tidelog::testing::PowerLoss;
use tidelog::{Durability, Record};

#[test]
fn a_segment_that_is_written_and_left_while_a_sync_runs_is_synced_by_the_next() {
    let test = TestEngine::with(|config| {
        config.segment_bytes(8 << 10).max_unsynced_bytes(1 << 20).background_sync_bytes(1 << 20)
    });
    let engine = test.open();
    let partition = one_partition(&engine, "t", &[]);
    append(&engine, &partition, [Record::keyless("before")]);
    let (beside, place) = (engine.clone(), partition.clone());
    test.disk.during_next_sync(move || {
        append(&beside, &place, [Record::keyless("into the segment that is synced")]);
        append(&beside, &place, [Record::keyless(vec![1; 7000])]);
    });
    engine.sync().unwrap();
    let mut last = engine.append_transaction();
    last.records(&partition, [Record::keyless("acknowledged")]).unwrap();
    last.commit(Durability::Sync).unwrap();
    test.lose_power(PowerLoss::Nothing);
    drop(engine);
    let engine = test.open();
    let partition = engine.topic("t").unwrap().partition(0).unwrap();
    assert_eq!(engine.watermarks(&partition).unwrap().log_end, 4);
    assert_eq!(offsets_of(&engine, &partition).len(), 4);
}
