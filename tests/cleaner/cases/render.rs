//! A partition in the lines of a case, and the lines of a case as far as they are binding.

use bytes::Bytes;
use tidelog::record::{Batches, ControlRecord, MarkerKind, RecordBatch, TimestampType};
use tidelog::{Codec, Engine, FetchOptions, Isolation, Partition, Record};

/// A repeated letter is written as a count from this length on.
const SHORTEST_REPEATED: usize = 16;

fn text(bytes: Option<&Bytes>) -> String {
    match bytes {
        None => "null".to_owned(),
        Some(bytes) if bytes.is_empty() => "''".to_owned(),
        Some(bytes) if bytes.len() >= SHORTEST_REPEATED && bytes.iter().all(|b| *b == bytes[0]) => {
            format!("{}*{}", bytes.len(), char::from(bytes[0]))
        }
        Some(bytes) => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// The batches of a partition, as a reader from its log start gets them.
pub fn batches(engine: &Engine, partition: &Partition) -> Vec<RecordBatch> {
    let mut offset = engine.watermarks(partition).expect("the partition exists").log_start;
    let mut all = Vec::new();
    loop {
        let options = FetchOptions::new().isolation(Isolation::Uncommitted);
        let fetched = engine.fetch(partition, offset, options).expect("it is readable");
        if fetched.bytes.is_empty() {
            return all;
        }
        offset = fetched.next_offset;
        let batches = Batches::new(fetched.bytes).trusting_crc();
        all.extend(batches.map(|batch| batch.expect("it is whole")));
    }
}

/// The offsets of a partition.
pub fn log_line(engine: &Engine, partition: &Partition) -> String {
    let marks = engine.watermarks(partition).expect("the partition exists");
    let plan = engine.cleaner().plan(partition).expect("the index is readable");
    format!(
        "log start={} stable={} high={} end={} checkpoint={}",
        marks.log_start, marks.last_stable, marks.high_watermark, marks.log_end, plan.first_dirty
    )
}

fn batch_line(batch: &RecordBatch) -> String {
    let header = batch.header();
    let codec = header.codec().expect("its codec is known");
    let kind = match header.timestamp_type() {
        TimestampType::CreateTime => "create",
        TimestampType::LogAppendTime => "append",
    };
    let base = match header.delete_horizon_ms() {
        Some(horizon) => format!("horizon={horizon}"),
        None => format!("base={}", header.base_timestamp()),
    };
    let mut line = format!(
        "batch {}..{} count={} codec={codec} time={kind} {base} max={}",
        header.base_offset(),
        header.last_offset(),
        header.record_count(),
        header.max_timestamp()
    );
    if header.producer_id() >= 0 {
        let (id, epoch) = (header.producer_id(), header.producer_epoch());
        line += &format!(" pid={id} epoch={epoch} seq={}", header.base_sequence());
    }
    for (is_so, word) in [(header.is_transactional(), " txn"), (header.is_control(), " control")] {
        line += if is_so { word } else { "" };
    }
    if codec == Codec::None {
        line += &format!(" bytes={} crc={:08x}", header.size_bytes(), header.crc());
    }
    line
}

fn producer_lines(engine: &Engine, partition: &Partition) -> Vec<String> {
    let producers = engine.producers().describe(partition);
    let line = |producer: &tidelog::ProducerDescription| {
        let open = producer.open_first_offset.map_or("-".to_owned(), |offset| offset.to_string());
        format!(
            "producer {} epoch={} last_seq={} open_from={open}",
            producer.producer_id, producer.producer_epoch, producer.last_sequence
        )
    };
    producers.iter().map(line).collect()
}

/// The offsets that a reader of committed data is given.
fn committed_line(engine: &Engine, partition: &Partition) -> String {
    let mut line = "committed".to_owned();
    let mut offset = engine.watermarks(partition).expect("the partition exists").log_start;
    loop {
        let fetched = engine.fetch(partition, offset, FetchOptions::new()).expect("it is readable");
        for record in fetched.records() {
            line += &format!(" {}", record.expect("it can be decoded").offset);
        }
        if fetched.bytes.is_empty() {
            return if line == "committed" { line + " -" } else { line };
        }
        offset = fetched.next_offset;
    }
}

fn control_line(offset: &str, record: &Record) -> String {
    let kind = match ControlRecord::parse(record) {
        Ok(ControlRecord::End(marker)) if marker.kind == MarkerKind::Abort => "abort",
        Ok(ControlRecord::End(_)) => "commit",
        other => panic!("it is no marker: {other:?}"),
    };
    format!("{offset} {kind}@{}", record.timestamp)
}

/// The state of a partition: its offsets, its producers, its batches and their records, and which
/// of them are committed.
pub fn state(engine: &Engine, partition: &Partition) -> Vec<String> {
    let start = engine.watermarks(partition).expect("the partition exists").log_start;
    let mut lines = vec![log_line(engine, partition)];
    lines.extend(producer_lines(engine, partition));
    for batch in batches(engine, partition) {
        assert_eq!(batch.verify_crc(), Ok(()), "a batch is damaged");
        lines.push(batch_line(&batch));
        for record in batch.records() {
            let record = record.expect("it can be decoded");
            let offset = match record.offset {
                offset if offset < start => format!("({offset})"),
                offset => offset.to_string(),
            };
            if batch.header().is_control() {
                lines.push(control_line(&offset, &record));
                continue;
            }
            let headers: Vec<String> = record
                .headers
                .iter()
                .map(|header| {
                    let name = String::from_utf8_lossy(&header.name).into_owned();
                    format!("{name}={}", text(header.value.as_ref()))
                })
                .collect();
            let headers = if headers.is_empty() {
                String::new()
            } else {
                format!("{{{}}}", headers.join(","))
            };
            let (key, value) = (text(record.key.as_ref()), text(record.value.as_ref()));
            lines.push(format!("{offset} {key}={value}@{}{headers}", record.timestamp));
        }
    }
    lines.push(committed_line(engine, partition));
    lines
}

/// The value of `name=` in a line.
pub fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

/// What of a line is binding: see the page about the format.
pub fn binding(line: &str) -> Option<String> {
    match line.split(' ').next() {
        Some("pass") => Some(match (field(line, "from"), field(line, "cleaned_to")) {
            (Some(from), Some(to)) => format!("pass from={from} cleaned_to={to}"),
            _ => match line {
                "pass none" => line.to_owned(),
                _ => "pass".to_owned(),
            },
        }),
        Some("log") => {
            let is_clean = field(line, "checkpoint") == field(line, "end");
            let kept = line.split(' ').filter(|word| is_clean || !word.starts_with("checkpoint="));
            Some(kept.filter(|word| *word != "uncleanable").collect::<Vec<_>>().join(" "))
        }
        Some("plan") => field(line, "starts").map(|starts| format!("plan starts={starts}")),
        Some("refused") => Some("refused".to_owned()),
        _ => Some(line.to_owned()),
    }
}
