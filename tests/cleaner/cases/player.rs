//! Plays the actions of a case on an engine with a clock that the case sets.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use tidelog::config::{ConfigChange, ConfigOperation, TopicSettings};
use tidelog::internals;
use tidelog::record::{BatchBuilder, Batches, MarkerKind};
use tidelog::testing::ManualClock;
use tidelog::types::ProducerIdentity;
use tidelog::{
    CleanError, CleanerPass, Codec, CommitError, Durability, Engine, FetchOptions, FirstSequence,
    Isolation, OffsetQuery, Partition, Record, StorageError, TopicConfig, Visibility,
};

use super::render::{batches, field, state};
use crate::common::TestEngine;

/// Memory of the cleaner for one key.
const BYTES_PER_KEY: u64 = 40;

/// Bytes of a batch that are stored as its client sent them, and stamped when it is served.
const OUTSIDE_OF_SUM: usize = 16;

/// An engine on which a case is played.
pub struct Player {
    test: TestEngine,
    engine: Option<Engine>,
    settings: Vec<(String, String)>,
    is_made: bool,
    now: i64,
    /// Whether memory for keys is short: then only the last state is binding.
    pub is_limited: bool,
    /// Whether the topic names a codec, which counts for nothing.
    pub has_codec: bool,
    /// What is damaged, by offset and byte of the batch: the place.
    pub damaged: BTreeMap<(i64, i64), (PathBuf, usize)>,
    /// Whether the producers were learned from the log alone in Kafka, where that can tell less.
    pub is_rebuilt: bool,
    newest: BTreeMap<Bytes, (i64, bool)>,
    /// Of each open transaction, by producer: its keys.
    open: BTreeMap<i64, Vec<(Bytes, i64, bool)>>,
}

fn words(text: &str) -> Vec<(String, String)> {
    let pairs = text.split_whitespace().filter_map(|word| word.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn bytes(text: &str) -> Option<Bytes> {
    match text {
        "null" => None,
        "''" => Some(Bytes::new()),
        _ => match text.split_once('*') {
            Some((count, letter)) => {
                let count = count.parse().expect("a count before the star");
                Some(letter.repeat(count).into())
            }
            None => Some(text.to_owned().into()),
        },
    }
}

fn record(text: &str, now: i64) -> Record {
    let (text, headers) = match text.split_once('{') {
        Some((text, headers)) => (text, headers.trim_end_matches('}')),
        None => (text, ""),
    };
    let (text, timestamp) = match text.rsplit_once('@') {
        Some((text, timestamp)) => (text, timestamp.parse().expect("a timestamp")),
        None => (text, now),
    };
    let (key, value) = text.split_once('=').expect("a key and a value");
    let mut record = Record::new(bytes(key), bytes(value)).timestamp(timestamp);
    for header in headers.split(',').filter(|header| !header.is_empty()) {
        let (name, value) = header.split_once('=').expect("a name and a value");
        record = record.header(name, bytes(value));
    }
    record
}

/// The producer that an action names, and the sequence of its batch.
fn producer(options: &str) -> (Option<ProducerIdentity>, i32) {
    let number = |name| field(options, name).map(|text| text.parse::<i64>().expect("a number"));
    let narrow = |name| number(name).unwrap_or(0);
    let producer = number("pid").map(|producer_id| ProducerIdentity {
        producer_id,
        producer_epoch: narrow("epoch").try_into().expect("an epoch"),
    });
    (producer, narrow("seq").try_into().expect("a sequence"))
}

impl Player {
    pub fn new(defaults: &str) -> Self {
        let mut test = TestEngine::new();
        test.clock = Arc::new(ManualClock::new(1000));
        let engine = Some(test.open());
        Self {
            test,
            engine,
            settings: words(defaults),
            is_made: false,
            now: 1000,
            is_limited: false,
            has_codec: false,
            damaged: BTreeMap::new(),
            is_rebuilt: false,
            newest: BTreeMap::new(),
            open: BTreeMap::new(),
        }
    }

    pub fn engine(&self) -> &Engine {
        self.engine.as_ref().expect("the engine is open")
    }

    pub fn partition(&self) -> Partition {
        let topic = self.engine().topic("t").expect("the topic was made");
        topic.partition(0).expect("it has a partition")
    }

    fn make(&mut self) {
        if !self.is_made {
            let pairs = self.settings.iter().map(|(name, value)| (&name[..], &value[..]));
            let settings = TopicSettings::from_values(pairs).expect("the settings are legal");
            let config = TopicConfig::with_settings(1, settings);
            self.engine().create_topic("t", config).expect("it is made");
            self.is_made = true;
        }
    }

    fn reopen(&mut self) {
        let engine = self.engine.take().expect("the engine is open");
        engine.close().expect("it can be closed");
        self.engine = Some(self.test.open());
    }

    /// Plays one action; tells what is there behind it, in the lines of a case.
    pub fn play(&mut self, action: &str) -> Vec<String> {
        let (word, rest) = action.split_once(' ').unwrap_or((action, ""));
        self.has_codec |= word == "config" && rest.contains("compression.type=");
        if word == "config" && !self.is_made {
            self.settings.retain(|(name, _)| !words(rest).iter().any(|(new, _)| new == name));
            let known = words(rest).into_iter().filter(|(name, _)| name != "compression.type");
            self.settings.extend(known);
            return Vec::new();
        }
        self.make();
        match word {
            "config" => self.configure(rest),
            "at" => {
                self.now = rest.parse().expect("a time");
                self.test.clock.set_ms(self.now);
            }
            "append" => return self.append(rest),
            "commit" => self.end(rest, MarkerKind::Commit),
            "abort" => self.end(rest, MarkerKind::Abort),
            "expire_producers" => {
                self.engine().producers().expire().expect("the disk is good");
            }
            "producer_expiry_ms" => {
                let ms = rest.parse().expect("a time");
                self.test.config = self.test.config.clone().producer_id_expiration_ms(ms);
                self.reopen();
            }
            "clean" => return self.clean(),
            "retain" => return self.retain(),
            "maintain" => return self.maintain(),
            "plan" => {
                let plan = self.engine().cleaner().plan(&self.partition());
                let is_due = plan.expect("the index is readable").is_due;
                return vec![format!("plan starts={}", if is_due { "yes" } else { "no" })];
            }
            "delete_records" => return self.delete_records(rest.parse().expect("an offset")),
            "fetch" => return vec![self.fetch(rest.parse().expect("an offset"))],
            "lookup" => return vec![self.look_up(rest.parse().expect("a time"))],
            "forget_checkpoint" => {
                internals::forget_cleaned(self.engine(), &self.partition())
                    .expect("it is committed");
            }
            "reopen" => {
                self.is_rebuilt |= rest == "rebuild";
                self.reopen();
            }
            "look" if !self.damaged.is_empty() => {}
            "look" => return state(self.engine(), &self.partition()),
            "damage" => self.damage(rest),
            "cleaner" => self.limit(rest),
            // The layout of Kafka's segments.
            "segments" | "roll" => {}
            other => panic!("no action: {other}"),
        }
        Vec::new()
    }

    fn configure(&mut self, rest: &str) {
        let changes = words(rest).into_iter().filter(|(name, _)| name != "compression.type");
        let changes: Vec<ConfigChange> = changes
            .map(|(name, value)| ConfigChange { name, operation: ConfigOperation::Set(value) })
            .collect();
        self.engine().topics().alter("t", &changes).expect("the settings are legal");
    }

    fn limit(&mut self, rest: &str) {
        if let Some(keys) = field(rest, "keys") {
            let keys: u64 = keys.parse().expect("a count");
            self.is_limited = true;
            self.test.config = self.test.config.clone().cleaner_memory_bytes(keys * BYTES_PER_KEY);
            self.reopen();
        }
    }

    fn append(&mut self, rest: &str) -> Vec<String> {
        let (options, records) = rest.split_once(':').expect("a colon before the records");
        let mut builder = BatchBuilder::new();
        let (producer, sequence) = producer(options);
        let is_transactional = options.split_whitespace().any(|word| word == "txn");
        if let Some(ProducerIdentity { producer_id, producer_epoch }) = producer {
            builder = builder.producer(producer_id, producer_epoch, sequence);
        }
        if is_transactional {
            builder = builder.transactional();
        }
        for (name, value) in words(options) {
            match name.as_str() {
                "pid" | "epoch" | "seq" => {}
                "codec" => {
                    let codec = Codec::ALL.into_iter().find(|codec| codec.name() == value);
                    builder = builder.codec(codec.expect("a codec"));
                }
                "offset" => {
                    let offset = value.parse().expect("an offset");
                    let skipped = internals::skip_offsets(self.engine(), &self.partition(), offset);
                    skipped.expect("it is committed");
                }
                other => panic!("no option of append: {other}"),
            }
        }
        let records: Vec<_> =
            records.split_whitespace().map(|text| record(text, self.now)).collect();
        records.iter().for_each(|record| builder.push(record).expect("the batch is small"));
        let mut append = self.engine().append_transaction();
        if let Some(producer) = producer.filter(|_| is_transactional) {
            internals::pretend_open_transaction(self.engine(), "p", producer, &self.partition());
            append.transactional_id("p", FirstSequence::Any);
        }
        let batch = builder.finish().expect("there are records");
        if append.batch(&self.partition(), batch).is_err() {
            return vec!["refused".to_owned()];
        }
        let committed = match append.commit(Durability::Buffered) {
            Ok(committed) => committed.batches[0],
            Err(CommitError::Refused { .. }) => return vec!["refused".to_owned()],
            Err(error) => panic!("{error}"),
        };
        if committed.is_duplicate {
            return vec!["duplicate".to_owned()];
        }
        let keyed = (committed.base_offset..)
            .zip(records)
            .filter_map(|(offset, record)| Some((record.key?, offset, record.value.is_some())));
        let keyed: Vec<_> = keyed.collect();
        match producer.filter(|_| is_transactional) {
            Some(producer) => self.open.entry(producer.producer_id).or_default().extend(keyed),
            None => self.note_newest(keyed),
        }
        Vec::new()
    }

    fn note_newest(&mut self, keyed: Vec<(Bytes, i64, bool)>) {
        for (key, offset, has_value) in keyed {
            let newest = self.newest.entry(key).or_insert((offset, has_value));
            *newest = (*newest).max((offset, has_value));
        }
    }

    fn end(&mut self, rest: &str, kind: MarkerKind) {
        let producer = producer(rest).0.expect("a producer");
        let ended = internals::write_marker(self.engine(), producer, &self.partition(), kind);
        ended.expect("the disk is good");
        let keyed = self.open.remove(&producer.producer_id).unwrap_or_default();
        if kind == MarkerKind::Commit {
            self.note_newest(keyed);
        }
    }

    /// One pass, if one is due; nothing if it cannot be made because of damage.
    pub fn try_clean(&self) -> Option<Option<CleanerPass>> {
        match self.engine().cleaner().clean_partition(&self.partition()) {
            Ok(pass) => Some(pass),
            Err(CleanError::Storage(StorageError::Corruption(_))) => None,
            Err(error) => panic!("{error}"),
        }
    }

    fn clean(&mut self) -> Vec<String> {
        let pass = self.try_clean().expect("nothing is damaged");
        let mut lines = vec![match pass {
            Some(pass) => format!("pass from={} cleaned_to={}", pass.from, pass.cleaned_to),
            None => "pass none".to_owned(),
        }];
        self.no_newest_is_missing();
        lines.extend(state(self.engine(), &self.partition()));
        lines
    }

    fn retain(&mut self) -> Vec<String> {
        self.engine().maintenance().run_retention().expect("nothing is damaged");
        self.newest.clear();
        state(self.engine(), &self.partition())
    }

    fn maintain(&mut self) -> Vec<String> {
        let pass = match self.try_clean() {
            Some(Some(_)) => "pass",
            Some(None) => "pass none",
            None => "pass failed",
        };
        let mut lines = vec![pass.to_owned()];
        self.engine().maintenance().run_retention().expect("the index is whole");
        self.newest.clear();
        let start = self.engine().watermarks(&self.partition()).expect("it exists").log_start;
        self.damaged.retain(|(offset, _), _| *offset >= start);
        if self.damaged.is_empty() {
            lines.extend(state(self.engine(), &self.partition()));
        }
        lines
    }

    /// Whatever the cleaner did, each key's newest record is there unless it deletes the key.
    fn no_newest_is_missing(&self) {
        let start = self.engine().watermarks(&self.partition()).expect("it exists").log_start;
        let all = batches(self.engine(), &self.partition());
        let records = all.iter().flat_map(|batch| batch.records());
        let offsets: Vec<i64> =
            records.map(|record| record.expect("it can be decoded").offset).collect();
        for (key, (offset, has_value)) in &self.newest {
            let is_missing = *offset >= start && *has_value && !offsets.contains(offset);
            assert!(!is_missing, "the newest record of {key:?} at {offset} is missing");
        }
    }

    fn delete_records(&mut self, offset: i64) -> Vec<String> {
        let before = self.engine().watermarks(&self.partition()).expect("it exists").log_start;
        match self.engine().delete_records(&self.partition(), offset) {
            Ok(start) => {
                let moved = if start > before { "yes" } else { "no" };
                vec![format!("start={start} moved={moved}")]
            }
            Err(_) => vec!["refused".to_owned()],
        }
    }

    fn fetch(&self, offset: i64) -> String {
        let options = FetchOptions::new().max_bytes(1).isolation(Isolation::Uncommitted);
        let Ok(fetched) = self.engine().fetch(&self.partition(), offset, options) else {
            return "fetch refused OffsetOutOfRangeException".to_owned();
        };
        let Some(batch) = Batches::new(fetched.bytes.clone()).next() else {
            return "fetch nothing".to_owned();
        };
        let header = *batch.expect("it is whole").header();
        let first = fetched.records().next().map(|record| record.expect("it is good").offset);
        let first = first.map_or("none".to_owned(), |offset| offset.to_string());
        format!("fetch batch={}..{} record={first}", header.base_offset(), header.last_offset())
    }

    fn look_up(&self, timestamp: i64) -> String {
        let query = match timestamp {
            -1 => OffsetQuery::Latest,
            -2 => OffsetQuery::Earliest,
            -3 => OffsetQuery::MaxTimestamp,
            timestamp => OffsetQuery::Timestamp(timestamp),
        };
        let (isolation, visibility) = (Isolation::Uncommitted, Visibility::Applied);
        let found = self.engine().list_offset(&self.partition(), query, isolation, visibility);
        match found.expect("it is readable") {
            Some(found) => format!("lookup offset={} timestamp={}", found.offset, found.timestamp),
            None => "lookup none".to_owned(),
        }
    }

    /// Flips bits of a stored batch, in the newest place where the log holds its bytes.
    fn damage(&mut self, rest: &str) {
        let number = |name| field(rest, name).expect("a field").parse::<i64>().expect("a number");
        let flip = field(rest, "flip").and_then(|flip| flip.strip_prefix("0x"));
        let flip = u8::from_str_radix(flip.expect("a mask"), 16).expect("a byte");
        let (offset, byte) = (number("offset"), number("byte"));
        // The same flip once more is the repair.
        let (at, is_repaired) = match self.damaged.remove(&(offset, byte)) {
            Some(at) => (at, true),
            None => (self.place_of(offset, byte), false),
        };
        self.test.disk.tamper(&at.0, |bytes| bytes[at.1] ^= flip);
        if !is_repaired {
            self.damaged.insert((offset, byte), at);
        }
    }

    /// The file and the byte in it where a byte of a stored batch lies.
    fn place_of(&self, offset: i64, byte: i64) -> (PathBuf, usize) {
        let options = FetchOptions::new().isolation(Isolation::Uncommitted);
        let fetched = self.engine().fetch(&self.partition(), offset, options);
        let batch = Batches::new(fetched.expect("it is whole").bytes).next();
        let bytes = batch.expect("there is one").expect("it is whole").into_bytes();
        let stored = &bytes[OUTSIDE_OF_SUM..];
        let directory = Path::new("/engine/log");
        let mut names = self.test.disk.process().list(directory).expect("it is there");
        names.sort();
        for name in names.iter().rev() {
            let path = directory.join(name);
            let contents = self.test.disk.contents(&path).expect("it is there");
            if let Some(at) = contents.windows(stored.len()).rposition(|part| part == stored) {
                let begin = at - OUTSIDE_OF_SUM;
                let byte = usize::try_from(byte).unwrap_or_else(|_| {
                    bytes.len() - usize::try_from(-byte).expect("it was negative")
                });
                return (path, begin + byte);
            }
        }
        panic!("the log does not hold the batch at offset {offset}")
    }
}
