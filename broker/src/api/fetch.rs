//! Fetch, versions 4 to 18: whole batches, with a long poll. The answer waits for `min_bytes`, but
//! never for more than `max_bytes`, until `max_wait_ms` is over; an offset out of range, an epoch
//! that does not fit and the end of a topic end the wait. The first partition with data gives at
//! least one batch, whatever the limits say. Sessions are declined: the answer to a first fetch has
//! session id 0, any other id is FETCH_SESSION_ID_NOT_FOUND. From 13 on topics have ids.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::fetch_response::{
    self as response, EpochEndOffset, FetchableTopicResponse, PartitionData,
};
use kafka_protocol::messages::{ApiKey, FetchRequest, FetchResponse, ProducerId};
use tidelog::types::{Isolation, Watermarks};
use tidelog::{AbortedTransaction, FetchError, FetchOptions, FirstBatch, Partition, StorageError};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::fetch_parts::{self, Slot, Wanted};
use super::request::{Answer, Api, Asked, Closing, Reply, encode};
use crate::context::{Context, off_the_loop};
use crate::fault::{Fault, sentence};
use crate::wire::budget::Held;
use crate::wire::fields::{
    I8, I32, I64, TEXT, TEXT_OR_NULL, UUID, field, list, plain, since, until, values,
};
use crate::wire::presence::Presence;
use crate::wire::shape::{Body, Struct, Tagged};

pub(super) struct Fetch;

impl Api for Fetch {
    type Request = FetchRequest;
    const KEY: ApiKey = ApiKey::Fetch;
    const VERSIONS: (i16, i16) = (4, 18);
    const SHAPE: &'static Body = &BODY;

    async fn reply(asked: Asked<'_>, request: FetchRequest) -> Result<Reply, Closing> {
        reply(asked, request).await
    }
}

const BODY: Body = Body {
    flexible_since: 12,
    body: Struct {
        fields: &[
            until(14, I32),
            field(I32),
            field(I32),
            field(I32),
            field(I8),
            since(7, I32),
            since(7, I32),
            field(list(&FETCH_TOPIC)),
            since(7, list(&FORGOTTEN_TOPIC)),
            since(11, TEXT),
        ],
        tagged: &[
            Tagged { tag: 0, since: 12, fields: &[field(TEXT_OR_NULL)], is_struct: false },
            Tagged { tag: 1, since: 15, fields: &[field(I32), field(I64)], is_struct: true },
        ],
    },
};
const FETCH_TOPIC: Struct =
    plain(&[until(12, TEXT), since(13, UUID), field(list(&FETCH_PARTITION))]);
const FETCH_PARTITION: Struct = Struct {
    fields: &[field(I32), since(9, I32), field(I64), since(12, I32), since(5, I64), field(I32)],
    tagged: &[
        Tagged { tag: 0, since: 17, fields: &[field(UUID)], is_struct: false },
        Tagged { tag: 1, since: 18, fields: &[field(I64)], is_struct: false },
    ],
};
const FORGOTTEN_TOPIC: Struct = plain(&[until(12, TEXT), since(13, UUID), field(values(&I32))]);

/// The first version whose answer has the log start.
const WITH_LOG_START: i16 = 5;
/// How long a fetch rests for each byte that it has read and that was not enough: it is never read
/// faster than 250 MB a second.
const REST_A_BYTE: Duration = Duration::from_nanos(4);
/// And how long for each partition: however many commits there are, a wait costs no more than a
/// part of a processor.
const REST_A_PARTITION: Duration = Duration::from_micros(4);
/// What a partition of a request costs in memory while its fetch waits, about.
const BYTES_A_PARTITION: usize = 256;
/// What is shorter is no rest: timers are not finer.
const LEAST_REST: Duration = Duration::from_millis(1);

/// What was read of one partition.
#[derive(Debug)]
pub(super) enum Read {
    /// Batches, perhaps none, the watermarks of the same instant, and the aborted transactions that
    /// a reader of committed data has to skip; whether there is more that may be read.
    Data { marks: Watermarks, bytes: Bytes, aborted: Vec<AbortedTransaction>, has_more: bool },
    /// The client's log parted from this one here.
    Diverging { epoch: i32, end_offset: i64, marks: Option<Watermarks> },
    /// It cannot be read.
    Refused(Fault),
}

async fn reply(asked: Asked<'_>, request: FetchRequest) -> Result<Reply, Closing> {
    let Asked { context, peer, start, mut held, .. } = asked;
    let answer = |response: &FetchResponse, held| {
        let bytes = encode(start, response);
        Ok(Reply::Answer(Answer { bytes, then_close: false, held }))
    };
    let refused = |fault: &Fault| {
        answer(&FetchResponse::default().with_error_code(fault.code), Held::default())
    };
    if let Err(fault) = check_session(&request) {
        return refused(&fault);
    }
    let asked = fetch_parts::of(context, &peer.session, start.version, &request);
    let isolation = match isolation_of(request.isolation_level) {
        Ok(isolation) => isolation,
        Err(fault) => {
            let topics = respond(start.version, asked.refused(&fault).topics, Vec::new());
            let response = FetchResponse::default().with_error_code(fault.code);
            return answer(&response.with_responses(topics), held);
        }
    };
    let wanted: Arc<[Wanted]> = asked.wanted().cloned().collect();
    let bytes = |bytes: i32| usize::try_from(bytes).unwrap_or(0);
    let terms = Terms {
        isolation,
        min_bytes: bytes(request.min_bytes),
        max_bytes: bytes(request.max_bytes).min(context.limits.max_fetch_bytes),
        wait: u64::try_from(request.max_wait_ms).map_or(Duration::ZERO, Duration::from_millis),
    };
    // What was asked for twice is not kept while it waits, nor is the request itself.
    drop(request);
    held.shrink_to(asked.partition_count() * BYTES_A_PARTITION);
    let (reads, data) = wait_and_read(context, &peer.presence, wanted, terms).await;
    let topics = respond(start.version, asked.topics, reads);
    answer(&FetchResponse::default().with_responses(topics), data)
}

/// What holds for all partitions of a request.
#[derive(Debug, Clone, Copy)]
struct Terms {
    isolation: Isolation,
    min_bytes: usize,
    max_bytes: usize,
    wait: Duration,
}

/// Reads, and reads again whenever something new may be there, until it is enough or the time is
/// over.
async fn wait_and_read(
    context: &Arc<Context>,
    presence: &Presence,
    wanted: Arc<[Wanted]>,
    terms: Terms,
) -> (Vec<Read>, Held) {
    let found = read(context, &wanted, terms).await;
    if terms.wait.is_zero() || wanted.is_empty() || found.is_enough(terms) {
        return (found.reads, found.held);
    }
    drop(found);
    let wait = terms.wait.min(context.limits.max_fetch_wait);
    let news = Arc::new(Notify::new());
    let tell = Arc::clone(&news);
    let partitions: Vec<Partition> = wanted.iter().map(|one| one.partition.clone()).collect();
    let _listening = context.engine.listen(&partitions, move || tell.notify_one());
    let mut draining = context.draining.clone();
    context.metrics.waiting_fetches.up();
    let waited = timeout(wait, async {
        loop {
            // Read behind the start of listening, so that nothing falls between.
            let found = read(context, &wanted, terms).await;
            if found.is_enough(terms) {
                return Some(found);
            }
            // It is read again then: whoever waits holds no memory that others want, and for much
            // that is not enough there is a rest, lest each commit has it read anew.
            let counted = |count| u32::try_from(count).unwrap_or(u32::MAX);
            let rest = REST_A_BYTE * counted(bytes_of(&found.reads))
                + REST_A_PARTITION * counted(wanted.len());
            drop(found);
            let wake = async {
                if rest >= LEAST_REST {
                    let _ = timeout(rest, std::future::pending::<()>()).await;
                }
                news.notified().await;
            };
            tokio::select! {
                () = wake => {}
                () = presence.impatient() => return None,
                _ = draining.wait_for(|&draining| draining) => return None,
            }
        }
    });
    // That the time is over is no error: what there is then is the answer.
    let enough = waited.await.ok().flatten();
    context.metrics.waiting_fetches.down();
    let found = match enough {
        Some(found) => found,
        None => read(context, &wanted, terms).await,
    };
    (found.reads, found.held)
}

/// What was read of all partitions.
struct Found {
    reads: Vec<Read>,
    held: Held,
    /// The memory that there was for it.
    room_bytes: usize,
    /// As many bytes as Kafka would count: of a partition that has more than was read, all that it
    /// was allowed to give, for Kafka gives the beginning of a batch as well.
    available_bytes: usize,
}

impl Found {
    /// Whether nothing is to be waited for. More than there is room for is not, as in Kafka.
    fn is_enough(&self, terms: Terms) -> bool {
        if self.reads.iter().any(|read| !matches!(read, Read::Data { .. })) {
            return true;
        }
        // Where others hold all memory, one batch is.
        let room = self.room_bytes.max(usize::from(terms.max_bytes > 0));
        self.available_bytes >= terms.min_bytes.min(room)
    }
}

/// Reads every partition once, in order, within the limits and the memory that is free.
async fn read(context: &Arc<Context>, wanted: &Arc<[Wanted]>, terms: Terms) -> Found {
    let (mut held, room_bytes) = context.budget.take_up_to(terms.max_bytes);
    let mut left = room_bytes;
    let wanted = Arc::clone(wanted);
    let work = move |context: &Context| {
        let mut reads = Vec::with_capacity(wanted.len());
        let mut nothing_yet = true;
        let mut available = 0;
        for one in &*wanted {
            let allowed = one.max_bytes.min(left);
            let options = FetchOptions::new()
                .max_bytes(allowed as u64)
                .first_batch(if nothing_yet { FirstBatch::Always } else { FirstBatch::IfItFits })
                .visibility(context.rules.visibility());
            let read = read_one(context, one, terms.isolation, options);
            if let Read::Data { bytes, has_more, .. } = &read {
                left = left.saturating_sub(bytes.len());
                nothing_yet &= bytes.is_empty();
                available += if *has_more { allowed.max(bytes.len()) } else { bytes.len() };
            }
            reads.push(read);
        }
        (reads, available)
    };
    let (reads, available_bytes) = off_the_loop(context, work).await;
    // Held twice: as it was read, and in the answer.
    held.shrink_to(2 * bytes_of(&reads));
    Found { reads, held, room_bytes, available_bytes }
}

/// Bytes of all batches that were read.
fn bytes_of(reads: &[Read]) -> usize {
    let bytes = |read: &Read| if let Read::Data { bytes, .. } = read { bytes.len() } else { 0 };
    reads.iter().map(bytes).sum()
}

fn read_one(
    context: &Context,
    wanted: &Wanted,
    isolation: Isolation,
    options: FetchOptions,
) -> Read {
    if let Err(fault) = check_epoch(context, &wanted.partition, wanted.leader_epoch) {
        return Read::Refused(fault);
    }
    if let Some(read) = check_last_fetched(context, wanted) {
        return read;
    }
    let end = |marks: &Watermarks| match isolation {
        Isolation::Committed => marks.last_stable,
        Isolation::Uncommitted => marks.high_watermark,
    };
    let options = options.isolation(isolation);
    match context.engine.fetch(&wanted.partition, wanted.offset, options) {
        Ok(fetched) => Read::Data {
            has_more: fetched.next_offset < end(&fetched.watermarks),
            marks: fetched.watermarks,
            bytes: fetched.bytes,
            aborted: fetched.aborted,
        },
        Err(error) => Read::Refused(fetch_fault(&error)),
    }
}

/// Whether the client's last record is one of this log: an epoch that the log never had, or one
/// that ended before the offset, is not.
fn check_last_fetched(context: &Context, wanted: &Wanted) -> Option<Read> {
    if wanted.last_fetched_epoch < 0 {
        return None;
    }
    let Some(end) = context.engine.epoch_end(&wanted.partition, wanted.last_fetched_epoch) else {
        let message = format!("the log never had this epoch: epoch={}", wanted.last_fetched_epoch);
        return Some(Read::Refused(Fault::new(ResponseError::OffsetOutOfRange, message)));
    };
    (end.leader_epoch < wanted.last_fetched_epoch || end.end_offset < wanted.offset).then(|| {
        Read::Diverging {
            epoch: end.leader_epoch,
            end_offset: end.end_offset,
            marks: context.engine.watermarks_of(&wanted.partition, context.rules.visibility()).ok(),
        }
    })
}

/// Compares the leader epoch that a client knows (-1: none) with the partition's.
pub(super) fn check_epoch(
    context: &Context,
    partition: &Partition,
    known: i32,
) -> Result<(), Fault> {
    if partition.topic().is_deleted() {
        return Err(Fault::unknown());
    }
    let epoch = context.engine.leader_epoch();
    let message = format!("the leader epoch is another one: epoch={epoch} client={known}");
    match known {
        -1 => Ok(()),
        known if known > epoch => Err(Fault::new(ResponseError::UnknownLeaderEpoch, message)),
        known if known < epoch => Err(Fault::new(ResponseError::FencedLeaderEpoch, message)),
        _ => Ok(()),
    }
}

/// Kafka's isolation levels.
pub(super) fn isolation_of(level: i8) -> Result<Isolation, Fault> {
    match level {
        0 => Ok(Isolation::Uncommitted),
        1 => Ok(Isolation::Committed),
        _ => {
            let message = format!("there is no such isolation level: level={level}");
            Err(Fault::new(ResponseError::UnknownServerError, message))
        }
    }
}

fn check_session(request: &FetchRequest) -> Result<(), Fault> {
    let (id, epoch) = (request.session_id, request.session_epoch);
    if epoch == -1 || (id == 0 && epoch == 0) {
        return Ok(());
    }
    Err(Fault::new(ResponseError::FetchSessionIdNotFound, "sessions are not kept"))
}

fn fetch_fault(error: &FetchError) -> Fault {
    match error {
        FetchError::OffsetOutOfRange { .. } => {
            Fault::new(ResponseError::OffsetOutOfRange, error.to_string())
        }
        FetchError::UnknownPartition { .. } => Fault::unknown(),
        FetchError::Damaged { .. } => {
            let reason = sentence(error);
            tracing::error!(%reason, "a partition could not be read");
            Fault::new(ResponseError::CorruptMessage, reason)
        }
        FetchError::Storage(error) => storage_fault(error),
        _ => Fault::storage(error),
    }
}

/// The code for a partition that the storage cannot read.
pub(super) fn storage_fault(error: &StorageError) -> Fault {
    let reason = sentence(error);
    tracing::error!(%reason, "a partition could not be read");
    match error {
        StorageError::Corruption(_) => Fault::new(ResponseError::CorruptMessage, reason),
        _ => Fault::new(ResponseError::KafkaStorageError, reason),
    }
}

fn respond(
    version: i16,
    topics: Vec<fetch_parts::AskedTopic>,
    reads: Vec<Read>,
) -> Vec<FetchableTopicResponse> {
    let mut reads = reads.into_iter();
    let topics = topics.into_iter().map(|topic| {
        let partitions = topic.partitions.into_iter().map(|(index, slot)| {
            let answer = PartitionData::default()
                .with_partition_index(index)
                .with_high_watermark(-1)
                .with_records(Some(Bytes::new()));
            match slot {
                Slot::Refused(fault) => answer.with_error_code(fault.code),
                Slot::Wanted(_) => {
                    let read = reads.next().expect("every wanted partition was read");
                    partition_answer(version, answer, read)
                }
            }
        });
        FetchableTopicResponse::default()
            .with_topic(topic.name)
            .with_topic_id(topic.id)
            .with_partitions(partitions.collect())
    });
    topics.collect()
}

fn partition_answer(version: i16, answer: PartitionData, read: Read) -> PartitionData {
    match read {
        Read::Refused(fault) => answer.with_error_code(fault.code),
        Read::Diverging { epoch, end_offset, marks } => {
            let end = EpochEndOffset::default().with_epoch(epoch).with_end_offset(end_offset);
            let answer = answer.with_diverging_epoch(end);
            match marks {
                Some(marks) => with_marks(version, answer, &marks),
                None => answer,
            }
        }
        Read::Data { marks, bytes, aborted, .. } => {
            let aborted = aborted.into_iter().map(|aborted| {
                response::AbortedTransaction::default()
                    .with_producer_id(ProducerId(aborted.producer_id))
                    .with_first_offset(aborted.first_offset)
            });
            let answer =
                answer.with_aborted_transactions(Some(aborted.collect())).with_records(Some(bytes));
            with_marks(version, answer, &marks)
        }
    }
}

fn with_marks(version: i16, answer: PartitionData, marks: &Watermarks) -> PartitionData {
    let answer =
        answer.with_high_watermark(marks.high_watermark).with_last_stable_offset(marks.last_stable);
    if version >= WITH_LOG_START { answer.with_log_start_offset(marks.log_start) } else { answer }
}
