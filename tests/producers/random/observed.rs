//! Reads everything that an engine shows of producers, and compares it with a state of the model.

use tidelog::record::{Batches, ControlRecord, MarkerKind};
use tidelog::types::ProducerIdentity;
use tidelog::{Engine, FetchOptions, Isolation, Partition};

use super::model::{Entry, State};

/// Everything that an engine shows, in words that can be compared.
pub fn observed(engine: &Engine) -> Vec<String> {
    let topic = engine.topic("t").expect("it was made");
    let mut lines = Vec::new();
    for partition in topic.partitions() {
        let index = partition.index();
        let marks = engine.watermarks(&partition).expect("it exists");
        lines.push(format!("{index} end={} stable={}", marks.log_end, marks.last_stable));
        lines.push(format!("{index} log={:?}", log_of(engine, &partition)));
        lines.push(format!("{index} committed={:?}", committed_of(engine, &partition)));
        for known in engine.producers().describe(&partition) {
            lines.push(format!(
                "{index} producer={} epoch={} last={} open={:?}",
                known.producer_id,
                known.producer_epoch,
                known.last_sequence,
                known.open_first_offset
            ));
        }
        for group in 0..super::world::GROUPS {
            let name = format!("g{group}");
            let found = engine.group(&name).offset(&partition).expect("readable");
            let staged = engine.group(&name).is_offset_staged(&partition);
            let offset = found.map(|found| found.offset);
            lines.push(format!("{index} {name} offset={offset:?} staged={staged}"));
        }
    }
    for id in engine.producers().transactional_ids() {
        let is_open = id.state.name() == "Ongoing";
        let mut partitions: Vec<i32> = id.partitions.iter().map(Partition::index).collect();
        partitions.sort_unstable();
        let staged = id.staged_offsets.iter();
        let staged: Vec<_> =
            staged.map(|s| (s.group.clone(), s.partition.index(), s.offset.offset)).collect();
        lines.push(format!(
            "id={} producer={} open={is_open} partitions={partitions:?} staged={staged:?}",
            id.transactional_id, id.producer
        ));
    }
    lines
}

/// What the engine must show in this state.
pub fn expected(state: &State) -> Vec<String> {
    let mut lines = Vec::new();
    for (index, partition) in state.partitions.iter().enumerate() {
        lines.push(format!("{index} end={} stable={}", partition.end(), partition.last_stable()));
        lines.push(format!("{index} log={:?}", partition.log));
        let stable = partition.committed(partition.last_stable());
        let all = partition.committed(partition.end());
        lines.push(format!("{index} committed={:?}", (stable, all)));
        for (id, known) in &partition.producers {
            let last = known.batches.last();
            let last = last.map_or(-1, |(first, count, _)| first + count - 1);
            let (epoch, open) = (known.epoch, known.open);
            lines.push(format!("{index} producer={id} epoch={epoch} last={last} open={open:?}"));
        }
        for group in 0..super::world::GROUPS {
            let offset = state.groups.get(&(group, index)).map(|(offset, _)| *offset);
            let mut ids = state.ids.values();
            let staged = ids.any(|id| id.staged.contains_key(&(group, index)));
            lines.push(format!("{index} g{group} offset={offset:?} staged={staged}"));
        }
    }
    for (id, held) in &state.ids {
        let (is_open, partitions) = (held.is_open, &held.partitions);
        let partitions: Vec<_> = partitions.iter().collect();
        let staged = held.staged.iter();
        let staged: Vec<_> = staged
            .map(|((group, index), (offset, _))| (format!("g{group}"), index, offset))
            .collect();
        lines.push(format!(
            "id=id{id} producer={} open={is_open} partitions={partitions:?} staged={staged:?}",
            held.producer
        ));
    }
    lines
}

fn log_of(engine: &Engine, partition: &Partition) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut offset = 0;
    loop {
        let options = FetchOptions::new().isolation(Isolation::Uncommitted).max_bytes(200);
        let fetched = engine.fetch(partition, offset, options).expect("readable");
        assert!(fetched.aborted.is_empty(), "it was not asked for");
        if fetched.bytes.is_empty() {
            return entries;
        }
        for batch in Batches::new(fetched.bytes) {
            let batch = batch.expect("a whole batch");
            let header = *batch.header();
            let producer = ProducerIdentity {
                producer_id: header.producer_id(),
                producer_epoch: header.producer_epoch(),
            };
            for record in batch.records() {
                let record = record.expect("it can be decoded");
                entries.push(if header.is_control() {
                    let Ok(ControlRecord::End(marker)) = ControlRecord::parse(&record) else {
                        panic!("a control record that is no marker")
                    };
                    let kind: MarkerKind = marker.kind;
                    Entry::Marker { kind, producer }
                } else {
                    let value = record.value.expect("it has a value");
                    Entry::Record {
                        value: String::from_utf8(value.to_vec()).expect("it is text"),
                        producer_id: producer.producer_id,
                        is_transactional: header.is_transactional(),
                    }
                });
            }
        }
        offset = fetched.next_offset;
    }
}

/// What readers of committed data see: by fetches of any size, which end at the last stable offset,
/// and by a scan, which leaves out what is open and goes on.
fn committed_of(engine: &Engine, partition: &Partition) -> (Vec<String>, Vec<String>) {
    let value_of = |value: Option<bytes::Bytes>| {
        let value = value.expect("it has a value");
        String::from_utf8(value.to_vec()).expect("it is text")
    };
    let mut seen = Vec::new();
    let mut offset = 0;
    loop {
        let options = FetchOptions::new().max_bytes(if offset % 2 == 0 { 1 } else { 300 });
        let fetched = engine.fetch(partition, offset, options).expect("readable");
        if fetched.bytes.is_empty() {
            break;
        }
        seen.extend(fetched.records().map(|record| value_of(record.expect("readable").value)));
        offset = fetched.next_offset;
    }
    let snapshot = engine.snapshot();
    let scan = snapshot.scan(partition.topic()).partitions(&[partition.index()]);
    let scanned: Vec<String> =
        scan.map(|scanned| value_of(scanned.expect("readable").record.value)).collect();
    assert!(scanned.starts_with(&seen), "a scan and fetches disagree");
    (seen, scanned)
}
