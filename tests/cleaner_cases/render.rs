//! A partition in the lines of a case, and the lines of a case as far as they are binding.

use bytes::Bytes;
use tidelog::record::{Batches, RecordBatch, TimestampType};
use tidelog::{Codec, Engine, FetchOptions, Partition};

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
        let fetched = engine.fetch(partition, offset, FetchOptions::new()).expect("it is readable");
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
    let plan = engine.cleaner_plan(partition).expect("the index is readable");
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
    if codec == Codec::None {
        line += &format!(" bytes={} crc={:08x}", header.size_bytes(), header.crc());
    }
    line
}

/// The state of a partition: its offsets, its batches and their records.
pub fn state(engine: &Engine, partition: &Partition) -> Vec<String> {
    let start = engine.watermarks(partition).expect("the partition exists").log_start;
    let mut lines = vec![log_line(engine, partition)];
    for batch in batches(engine, partition) {
        assert_eq!(batch.verify_crc(), Ok(()), "a batch is damaged");
        lines.push(batch_line(&batch));
        for record in batch.records() {
            let record = record.expect("it can be decoded");
            let offset = match record.offset {
                offset if offset < start => format!("({offset})"),
                offset => offset.to_string(),
            };
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
        // Producers are not there yet.
        Some("producer" | "committed") => None,
        _ => Some(line.to_owned()),
    }
}
