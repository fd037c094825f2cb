//! Apache Kafka's verdict on 5,469 batches, what its readers make of them, and batches of clients.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use tidelog::record::{
    AppendRules, BatchRefusal, Batches, Record, RecordBatch, RecordError, TimestampType, stamp,
    validate_append,
};

/// How many cases and batches of clients are in our own copy.
const CASE_COUNT: usize = 5469;
const CLIENT_BATCH_COUNT: usize = 195;

const MAX_REPORTED: usize = 40;

/// The longest `stored` that a case spells out, and the longest key or value.
const LONGEST_STORED_BYTES: usize = 2048;
const LONGEST_FIELD_BYTES: usize = 256;

#[derive(Deserialize)]
struct Case {
    name: String,
    batch: String,
    #[serde(default)]
    settings: Settings,
    kafka: Value,
    decode: Value,
    #[serde(default)]
    tidelog: Decisions,
}

/// Where tidelog decides otherwise than Kafka.
#[derive(Deserialize, Default)]
struct Decisions {
    append: Option<Value>,
    decode: Option<Value>,
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    first_offset: i64,
    leader_epoch: i32,
    now: i64,
    compaction: bool,
    timestamp_type: String,
    before_max_ms: i64,
    after_max_ms: i64,
    max_message_bytes: u32,
    max_decompressed_message_bytes: Option<u32>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            first_offset: 1000,
            leader_epoch: 7,
            now: 1_700_000_001_000,
            compaction: false,
            timestamp_type: "CreateTime".to_owned(),
            before_max_ms: i64::MAX,
            after_max_ms: 3_600_000,
            max_message_bytes: 1_048_588,
            max_decompressed_message_bytes: None,
        }
    }
}

impl Settings {
    fn rules(&self) -> AppendRules {
        let mut rules = AppendRules::new(self.now);
        rules.max_message_bytes = self.max_message_bytes;
        rules.compacted = self.compaction;
        rules.timestamp_type = match self.timestamp_type.as_str() {
            "CreateTime" => TimestampType::CreateTime,
            "LogAppendTime" => TimestampType::LogAppendTime,
            other => panic!("timestamp_type={other}"),
        };
        rules.before_max_ms = self.before_max_ms;
        rules.after_max_ms = self.after_max_ms;
        rules.max_decompressed_record_bytes = self.max_decompressed_message_bytes;
        rules
    }
}

/// The folder of the recorded cases: our own copy, or the one that the environment names.
fn golden() -> (PathBuf, bool) {
    match std::env::var_os("TIDELOG_GOLDEN") {
        Some(folder) => (PathBuf::from(folder).join("records"), false),
        None => (PathBuf::from("tests/data/golden/records"), true),
    }
}

fn case_files() -> Vec<PathBuf> {
    let (folder, _) = golden();
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let paths = entries.map(|entry| entry.expect("an entry of the folder").path());
    let mut files: Vec<_> = paths.filter(|p| p.extension().is_some_and(|e| e == "jsonl")).collect();
    files.sort();
    files
}

/// Runs a check over every case and reports all that failed, and how many ran.
fn run_all(what: &str, check: impl Fn(&Case) -> Result<(), String>) {
    let (mut ran, mut failed, mut failures) = (0, 0, String::new());
    for file in case_files() {
        let text = fs::read_to_string(&file).expect("a file of cases is text");
        for line in text.lines() {
            let case: Case = serde_json::from_str(line).expect(line);
            ran += 1;
            if let Err(difference) = check(&case) {
                failed += 1;
                if failed <= MAX_REPORTED {
                    writeln!(failures, "{}: {}: {difference}", file.display(), case.name)
                        .expect("a string takes all");
                }
            }
        }
    }
    assert!(failed == 0, "{failed} of {ran} cases differ, the first of them:\n{failures}");
    report(&format!("{ran} recorded cases: {what}"));
    assert!(ran > 0);
    if golden().1 {
        assert_eq!(ran, CASE_COUNT);
    }
}

/// Says how many ran even where the test runner keeps the output of tests that pass.
fn report(line: &str) {
    use std::io::Write;
    writeln!(std::io::stderr(), "{line}").expect("there is an error stream");
}

fn unhex(text: &str) -> Bytes {
    let digits = text.as_bytes();
    assert!(digits.len().is_multiple_of(2));
    let digit = |byte: u8| (byte as char).to_digit(16).expect("hex digits") as u8;
    digits.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        write!(out, "{byte:02x}").expect("a string takes all");
        out
    })
}

#[test]
fn the_validator_gives_the_verdict_the_indices_and_the_stored_bytes() {
    run_all("append", check_append);
}

fn check_append(case: &Case) -> Result<(), String> {
    let settings = &case.settings;
    let ours = case.tidelog.append.as_ref();
    let expected = ours.unwrap_or(&case.kafka);
    let got = match validate_append(unhex(&case.batch), &settings.rules()) {
        Err(refusal) => refused(&refusal),
        Ok(batch) => {
            let stored = batch.stored(settings.now);
            let mut bytes = stored.to_vec();
            stamp(&mut bytes, settings.first_offset, settings.leader_epoch);
            assert_eq!(stored.size_bytes(), bytes.len());
            assert_eq!(stored.crc, crc32c::crc32c(&bytes[21..]), "{}", case.name);
            let read = RecordBatch::parse(bytes.clone().into()).map_err(|e| e.to_string())?;
            assert_eq!(read.header().max_timestamp(), stored.max_timestamp);
            let mut got = json!({
                "code": 0,
                "base_offset": read.header().base_offset(),
                "last_offset": read.header().last_offset(),
                "max_timestamp": stored.max_timestamp,
            });
            if bytes.len() <= LONGEST_STORED_BYTES {
                got["stored"] = hex(&bytes).into();
            } else {
                got["stored_len"] = bytes.len().into();
                got["stored_crc32c"] = format!("{:08x}", crc32c::crc32c(&bytes)).into();
            }
            got
        }
    };
    let mut wanted = json!({ "code": expected["code"] });
    if expected["code"] == 0 {
        for field in ["base_offset", "last_offset", "max_timestamp"] {
            wanted[field] = case.kafka[field].clone();
        }
        for field in ["stored", "stored_len", "stored_crc32c"] {
            let value = &expected[field];
            let value = if value.is_null() { &case.kafka[field] } else { value };
            if !value.is_null() {
                wanted[field] = value.clone();
            }
        }
    } else if !expected["record_errors"].is_null() {
        wanted["record_errors"] = expected["record_errors"].clone();
    }
    if got == wanted { Ok(()) } else { Err(format!("expected {wanted}\n  got {got}")) }
}

fn refused(refusal: &BatchRefusal) -> Value {
    assert!(!refusal.to_string().is_empty());
    let mut got = json!({ "code": refusal.code().number() });
    if !refusal.record_errors().is_empty() {
        got["record_errors"] = refusal.record_errors().iter().map(|record| record.index).collect();
    }
    got
}

#[test]
fn readers_get_the_same_records_or_the_same_code() {
    run_all("decode", |case| {
        let wanted = case.tidelog.decode.as_ref().unwrap_or(&case.decode);
        let wanted = match wanted.get("code") {
            Some(code) => json!({ "code": code }),
            None => wanted.clone(),
        };
        let got = match decode(unhex(&case.batch)) {
            Ok(batches) => json!({ "batches": batches }),
            Err(error) => json!({ "code": error.code().number() }),
        };
        if got == wanted { Ok(()) } else { Err(format!("expected {wanted}\n  got {got}")) }
    });
}

fn decode(bytes: Bytes) -> Result<Vec<Value>, RecordError> {
    Batches::new(bytes).map(|batch| describe(&batch?)).collect()
}

/// A batch in the words of the recorded cases.
fn describe(batch: &RecordBatch) -> Result<Value, RecordError> {
    let header = batch.header();
    let records: Vec<Value> =
        batch.records().map(|record| Ok(describe_record(&record?))).collect::<Result<_, _>>()?;
    let mut got = json!({
        "base_offset": header.base_offset(),
        "last_offset": header.last_offset(),
        "max_timestamp": header.max_timestamp(),
        "count": header.record_count(),
        "codec": header.codec().expect("its records were read").name(),
        "records": records,
    });
    if header.producer_id() != -1 {
        got["producer_id"] = header.producer_id().into();
        got["producer_epoch"] = header.producer_epoch().into();
    }
    if header.base_sequence() != -1 {
        got["base_sequence"] = header.base_sequence().into();
        got["last_sequence"] = header.last_sequence().into();
    }
    let flags = [
        ("transactional", header.is_transactional()),
        ("control", header.is_control()),
        ("log_append_time", header.timestamp_type() == TimestampType::LogAppendTime),
    ];
    for (name, _) in flags.iter().filter(|(_, on)| *on) {
        got[*name] = true.into();
    }
    if let Some(horizon) = header.delete_horizon_ms() {
        got["delete_horizon_ms"] = horizon.into();
    }
    Ok(got)
}

fn describe_record(record: &Record) -> Value {
    let headers: Vec<Value> = record
        .headers
        .iter()
        .map(|header| {
            json!([describe_field(Some(&header.name)), describe_field(header.value.as_ref())])
        })
        .collect();
    json!([
        record.offset,
        record.timestamp,
        describe_field(record.key.as_ref()),
        describe_field(record.value.as_ref()),
        headers
    ])
}

fn describe_field(field: Option<&Bytes>) -> Value {
    match field {
        None => Value::Null,
        Some(bytes) if bytes.len() > LONGEST_FIELD_BYTES => {
            format!("@{}:{:08x}", bytes.len(), crc32c::crc32c(bytes)).into()
        }
        Some(bytes) => hex(bytes).into(),
    }
}

#[derive(Deserialize)]
struct ClientBatch {
    file: String,
    scenario: String,
    decode: Value,
}

fn client_batches() -> Vec<(ClientBatch, Bytes)> {
    let folder = golden().0.join("clients");
    let index = fs::read_to_string(folder.join("index.json")).expect("the index of the batches");
    let index: Vec<ClientBatch> = serde_json::from_str(&index).expect("the index is JSON");
    let read = |batch: ClientBatch| {
        let bytes = fs::read(folder.join(&batch.file)).expect("a batch of the index");
        (batch, bytes.into())
    };
    index.into_iter().map(read).collect()
}

#[test]
fn batches_of_four_client_libraries_read_as_kafka_reads_them() {
    let batches = client_batches();
    for (client, bytes) in &batches {
        let decoded = decode(bytes.clone()).unwrap_or_else(|e| panic!("{}: {e}", client.file));
        assert_eq!(decoded, std::slice::from_ref(&client.decode), "{}", client.file);
    }
    report(&format!("{} batches of clients", batches.len()));
    assert!(!batches.is_empty());
    if golden().1 {
        assert_eq!(batches.len(), CLIENT_BATCH_COUNT);
    }
}

#[test]
fn batches_of_four_client_libraries_pass_every_rule_but_markers_do_not() {
    for (client, bytes) in client_batches() {
        let mut sent = bytes.to_vec();
        stamp(&mut sent, 0, -1);
        let mut rules = AppendRules::new(1_800_000_000_000);
        rules.max_message_bytes = u32::MAX;
        let verdict = validate_append(sent.into(), &rules);
        let is_marker = client.file.ends_with("-1.bin")
            && matches!(client.scenario.as_str(), "commit" | "abort");
        if is_marker {
            assert_eq!(verdict.unwrap_err(), BatchRefusal::Control, "{}", client.file);
        } else {
            let stored = verdict.unwrap_or_else(|e| panic!("{}: {e}", client.file)).stored(0);
            assert_eq!(stored.head, None, "{}: stored as it was sent", client.file);
        }
    }
}
