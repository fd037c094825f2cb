//! Produce, versions 3 to 13; 0 to 2 are advertised only, since librdkafka 2.4.0 and 2.8.0 compress
//! nothing without a word where they are not. One request is one append transaction: a batch
//! refused refuses all, and every partition carries the code of the first culprit in the order of
//! the request, with a message that names it. With `--independent-partitions` each partition stands
//! or falls by itself, as in Kafka. From 12 on partitions come into a producer transaction by what
//! is sent to them; from 13 on topics have ids. Acknowledgements of 0 have no answer; a refused
//! request closes the connection then.

use std::collections::BTreeMap;
use std::sync::Arc;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::produce_response::{
    BatchIndexAndErrorMessage, PartitionProduceResponse, TopicProduceResponse,
};
use kafka_protocol::messages::{ApiKey, ProduceRequest, ProduceResponse};
use tidelog::types::{Durability, ProducerIdentity, TopicId};
use tidelog::{
    AppendError, AppendTransaction, CommitError, CommitRefusal, Committed, CommittedBatch,
    FirstSequence, NotWritten, Partition, Ticket, Topic,
};

use super::create_topics::INTERNAL_TOPICS;
use super::produce_parts::{self, AskedTopic, Parts};
use super::request::{Api, Asked, Closing, Reply, reply as encoded, text};
use super::transactions::{self, Knows};
use crate::context::{Context, Session, off_the_loop};
use crate::fault::{Fault, sentence};
use crate::profile::{Acks, batch_bits};
use crate::security::{Access, Action};
use crate::wire::fields::{
    ALWAYS, I16, I32, TEXT, TEXT_OR_NULL, UUID, field, list, plain, since, until,
};
use crate::wire::head::Start;
use crate::wire::shape::{Body, Shape, Struct};

pub(super) struct Produce;

impl Api for Produce {
    type Request = ProduceRequest;
    const KEY: ApiKey = ApiKey::Produce;
    const VERSIONS: (i16, i16) = (3, 13);
    const SHAPE: &'static Body = &BODY;
    const ADVERTISED: i16 = 0;

    async fn reply(asked: Asked<'_>, request: ProduceRequest) -> Result<Reply, Closing> {
        reply(asked.context, &asked.peer.session, asked.start, request).await
    }
}

const BODY: Body = Body {
    flexible_since: 9,
    body: plain(&[field(TEXT_OR_NULL), field(I16), field(I32), field(list(&PRODUCE_TOPIC))]),
};
const PRODUCE_TOPIC: Struct =
    plain(&[until(12, TEXT), since(13, UUID), field(list(&PRODUCE_PARTITION))]);
const PRODUCE_PARTITION: Struct = plain(&[field(I32), field(Shape::Blob(ALWAYS))]);

/// The first version whose clients know zstd.
const WITH_ZSTD: i16 = 7;
const ZSTD: u8 = 4;
/// The first version that knows TRANSACTION_ABORTABLE.
const WITH_ABORTABLE: i16 = 11;
/// The first version that adds partitions to a producer transaction.
const ADDS_PARTITIONS: i16 = 12;
/// The first version whose answer has the log start.
const WITH_LOG_START: i16 = 5;
/// The first version whose answer has messages and errors of records.
const WITH_MESSAGES: i16 = 8;
/// Requests with more bytes of records than this are checked where no other connection waits, as
/// are those with compressed batches.
const CHECKED_HERE_BYTES: usize = 64 * 1024;

/// What became of each partition of the request, in its order.
type Outcomes = Vec<Result<CommittedBatch, Fault>>;

async fn reply(
    context: &Arc<Context>,
    session: &Session,
    start: Start,
    request: ProduceRequest,
) -> Result<Reply, Closing> {
    let acks = Acks::try_from(request.acks);
    let silent = acks == Ok(Acks::None);
    let parts = produce_parts::of(start.version, request);
    let (parts, outcomes) = append(context, session, start.version, parts, acks).await;
    if outcomes.iter().any(Result::is_err) {
        context.metrics.refused_produces.up();
        if silent {
            return Err(Closing::RefusedWithoutAnswer);
        }
    }
    if silent {
        return Ok(Reply::Nothing);
    }
    Ok(encoded(start, &response(start.version, parts, outcomes)))
}

/// Checks and commits.
async fn append(
    context: &Arc<Context>,
    session: &Session,
    version: i16,
    parts: Parts,
    acks: Result<Acks, Fault>,
) -> (Parts, Outcomes) {
    let access = session.access.clone();
    // A few bytes may be many MiB once they are decompressed.
    let turn = if parts.has_compressed() {
        Some(context.decompressions.acquire().await.expect("the semaphore is never closed"))
    } else {
        None
    };
    let elsewhere = turn.is_some() || parts.record_bytes() > CHECKED_HERE_BYTES;
    let work = move |context: &Context| {
        let checks = Checks { context, version, acks: acks.as_ref(), parts: &parts };
        let checked = if context.rules.independent_partitions {
            checks.each(&access)
        } else {
            checks.all_or_none(&access)
        };
        (parts, acks, checked)
    };
    let (parts, acks, checked) =
        if elsewhere { off_the_loop(context, work).await } else { work(context) };
    drop(turn);
    let Checked { appends, mut outcomes } = checked;
    let Ok(acks) = acks else { return (parts, finish(outcomes)) };
    let durability = context.rules.durability(acks);
    // All are under way, in their order, before the first is waited for.
    let mut under_way = Vec::with_capacity(appends.len());
    for Append { transaction, at, adds } in appends {
        match add_partitions(context, parts.transactional_id.as_deref(), adds).await {
            Ok(()) => under_way.push((submit(context, transaction, durability).await, at)),
            Err(fault) => {
                at.into_iter().for_each(|part| outcomes[part] = Some(Err(fault.clone())));
            }
        }
    }
    for (submitted, at) in under_way {
        let committed = match submitted {
            Submitted::UnderWay(ticket) => ticket.await,
            Submitted::Done(committed) => committed,
        };
        let committed = committed.map_err(|error| commit_fault(&error, version));
        for (place, part) in at.into_iter().enumerate() {
            outcomes[part] = match &committed {
                Ok(committed) => Some(Ok(committed.batches[place])),
                Err(fault) => Some(Err(fault.clone())),
            };
        }
    }
    (parts, finish(outcomes))
}

/// What became of each part, once all of them are settled.
fn finish(outcomes: Vec<Option<Result<CommittedBatch, Fault>>>) -> Outcomes {
    let settled = outcomes.into_iter();
    settled.map(|outcome| outcome.expect("what was not refused was appended")).collect()
}

/// Adds the partitions of transactional batches to the transaction of their producer.
async fn add_partitions(
    context: &Arc<Context>,
    transactional_id: Option<&str>,
    adds: Adds,
) -> Result<(), Fault> {
    let Some(id) = transactional_id.filter(|_| !adds.is_empty()) else { return Ok(()) };
    let id = id.to_owned();
    let work = move |context: &Context| {
        adds.into_iter().try_for_each(|((producer_id, producer_epoch), partitions)| {
            let producer = ProducerIdentity { producer_id, producer_epoch };
            context.engine.producers().add_partitions_of_append(&id, producer, &partitions)
        })
    };
    let added = off_the_loop(context, work).await;
    added.map_err(|error| transactions::fault(&error, Knows { fenced: false, abortable: true }))
}

/// A transaction that was handed to the engine.
enum Submitted {
    UnderWay(Ticket<Result<Committed, CommitError>>),
    Done(Result<Committed, CommitError>),
}

async fn submit(
    context: &Arc<Context>,
    transaction: AppendTransaction,
    durability: Durability,
) -> Submitted {
    match transaction.submit(durability) {
        Ok(ticket) => Submitted::UnderWay(ticket),
        // A full queue: to commit waits for room, where nobody else waits for it.
        Err(CommitError::NotWritten { reason: NotWritten::QueueFull { .. }, transaction }) => {
            let commit = move |_: &Context| transaction.commit(durability);
            Submitted::Done(off_the_loop(context, commit).await)
        }
        Err(error) => Submitted::Done(Err(error)),
    }
}

fn commit_fault(error: &CommitError, version: i16) -> Fault {
    match error {
        CommitError::OutcomeUnknown(_) => Fault::unknown_outcome(error),
        CommitError::Refused { reason: CommitRefusal::UnknownPartition { .. }, .. } => {
            Fault::unknown()
        }
        CommitError::Refused {
            reason: CommitRefusal::ProducerTransaction { source, .. }, ..
        } => {
            let knows = Knows { fenced: false, abortable: version >= WITH_ABORTABLE };
            Fault::new(transactions::code(source, knows), sentence(source))
        }
        CommitError::Refused { reason, .. } => {
            Fault { code: reason.code(), message: sentence(reason), records: Vec::new() }
        }
        _ => Fault::storage(error),
    }
}

/// The batches that passed, and what was refused.
struct Checked {
    appends: Vec<Append>,
    /// The fault of each part that was refused.
    outcomes: Vec<Option<Result<CommittedBatch, Fault>>>,
}

/// Batches that are committed together, and the parts of the request that they are.
struct Append {
    transaction: AppendTransaction,
    at: Vec<usize>,
    adds: Adds,
}

/// The partitions that come into producer transactions, by producer id and epoch.
type Adds = BTreeMap<(i64, i16), Vec<Partition>>;

impl Checked {
    /// Every part is refused.
    fn none(faults: Vec<Fault>) -> Self {
        let outcomes = faults.into_iter().map(|fault| Some(Err(fault))).collect();
        Self { appends: Vec::new(), outcomes }
    }
}

struct Checks<'a> {
    context: &'a Context,
    version: i16,
    acks: Result<&'a Acks, &'a Fault>,
    parts: &'a Parts,
}

impl Checks<'_> {
    /// One part refused refuses all.
    fn all_or_none(&self, access: &Access) -> Checked {
        let count = self.parts.list.len();
        let common = self.acks.map_err(Clone::clone).and_then(|_| self.producer(access));
        if let Err(fault) = common {
            return Checked::none(vec![fault; count]);
        }
        let mut append = self.append();
        let topics = self.topics(access);
        for at in 0..count {
            let Err(fault) = self.part(&topics, at, &mut append) else { continue };
            let culprit = self.parts.name(at);
            let message = format!("refused with {culprit}, where {}", fault.message);
            let others = Fault { code: fault.code, message, records: Vec::new() };
            let mut faults = vec![others; count];
            let message = format!("{culprit}: {}", fault.message);
            faults[at] = Fault { message, ..fault };
            return Checked::none(faults);
        }
        let appends = if count == 0 { Vec::new() } else { vec![append] };
        Checked { appends, outcomes: vec![None; count] }
    }

    /// Each part stands or falls by itself, but for what the transactional id decides. What a
    /// producer may append is only known when it is committed, so that its batches are then
    /// committed one by one.
    fn each(&self, access: &Access) -> Checked {
        let count = self.parts.list.len();
        if let Err(fault) = self.producer(access) {
            return Checked::none(vec![fault; count]);
        }
        let one_by_one = self.parts.has_producers();
        let topics = self.topics(access);
        let mut checked = Checked { appends: Vec::new(), outcomes: vec![None; count] };
        let mut append = self.append();
        for at in 0..count {
            if let Err(fault) = self.part(&topics, at, &mut append) {
                let message = format!("{}: {}", self.parts.name(at), fault.message);
                checked.outcomes[at] = Some(Err(Fault { message, ..fault }));
                continue;
            }
            if one_by_one {
                checked.appends.push(std::mem::replace(&mut append, self.append()));
            }
        }
        if !append.at.is_empty() {
            checked.appends.push(append);
        }
        checked
    }

    /// An append of the request's producer.
    fn append(&self) -> Append {
        let mut transaction = self.context.engine.append_transaction();
        if let Some(id) = &self.parts.transactional_id {
            let first = match self.version {
                ADDS_PARTITIONS.. => FirstSequence::Zero,
                _ => FirstSequence::Any,
            };
            transaction.transactional_id(id, first);
        }
        Append { transaction, at: Vec::new(), adds: Adds::new() }
    }

    /// Whether the user may append batches of producer transactions, where there are any.
    fn producer(&self, access: &Access) -> Result<(), Fault> {
        if !self.parts.is_transactional() {
            return Ok(());
        }
        let allowed = |id: &String| access.allows_transactional_id(id);
        if self.parts.transactional_id.as_ref().is_some_and(allowed) {
            return Ok(());
        }
        let id = self.parts.transactional_id.as_deref().unwrap_or_default();
        access.note_refusal(Action::TransactionalIdWrite, id);
        let message = "a batch of a producer transaction wants a transactional id that is granted";
        Err(Fault::new(ResponseError::TransactionalIdAuthorizationFailed, message))
    }

    fn topics(&self, access: &Access) -> Vec<Result<Topic, Fault>> {
        let find = |topic: &AskedTopic| {
            if INTERNAL_TOPICS.contains(&topic.name.as_str()) {
                return Err(Fault::invalid_name("the topic is internal"));
            }
            if produce_parts::by_id(self.version) {
                let id = TopicId::from_bytes(topic.id.into_bytes());
                return self.context.topic_by_id(access, Action::KafkaWrite, id);
            }
            self.context.topic(access, Action::KafkaWrite, &topic.name)
        };
        self.parts.topics.iter().map(find).collect()
    }

    /// Checks one part in Kafka's order, and appends its batch.
    fn part(
        &self,
        topics: &[Result<Topic, Fault>],
        at: usize,
        append: &mut Append,
    ) -> Result<(), Fault> {
        let part = &self.parts.list[at];
        if part.repeated {
            return Err(Fault::invalid_request("the partition is there twice"));
        }
        let topic = topics[part.topic].as_ref().map_err(Clone::clone)?;
        let partition: Partition = topic.partition(part.index).map_err(|_| Fault::unknown())?;
        let records = part.records.as_ref().filter(|records| !records.is_empty());
        let records = records
            .ok_or_else(|| Fault::new(ResponseError::InvalidRecord, "there is no record batch"))?;
        let readable = batch_bits::is_readable(records);
        if readable && self.version < WITH_ZSTD && batch_bits::codec(records) == ZSTD {
            let message = format!("zstd wants version {WITH_ZSTD} of the request");
            return Err(Fault::new(ResponseError::UnsupportedCompressionType, message));
        }
        self.acks.map_err(Clone::clone)?;
        self.context.rules.check(records)?;
        let added = append.transaction.batch(&partition, records.clone());
        added.map_err(|error| append_fault(&error))?;
        append.at.push(at);
        if self.version >= ADDS_PARTITIONS && batch_bits::is_transactional(records) {
            let producer = (batch_bits::producer_id(records), batch_bits::producer_epoch(records));
            append.adds.entry(producer).or_default().push(partition);
        }
        Ok(())
    }
}

fn append_fault(error: &AppendError) -> Fault {
    let records = error.record_errors().iter().map(|refused| {
        (i32::try_from(refused.index).unwrap_or(i32::MAX), refused.reason.to_string())
    });
    Fault { code: error.code(), message: sentence(error), records: records.collect() }
}

fn response(version: i16, parts: Parts, outcomes: Outcomes) -> ProduceResponse {
    let mut topics: Vec<TopicProduceResponse> = parts
        .topics
        .into_iter()
        .map(|topic| TopicProduceResponse::default().with_name(topic.name).with_topic_id(topic.id))
        .collect();
    for (part, outcome) in parts.list.into_iter().zip(outcomes) {
        let answer = PartitionProduceResponse::default().with_index(part.index);
        topics[part.topic].partition_responses.push(match outcome {
            Ok(committed) => {
                // As Kafka: of a retried batch the time that it was stored with.
                let time = match committed.is_duplicate {
                    true => Some(committed.max_timestamp),
                    false => committed.log_append_time,
                };
                let answer = answer
                    .with_base_offset(committed.base_offset)
                    .with_log_append_time_ms(time.unwrap_or(-1));
                if version >= WITH_LOG_START {
                    answer.with_log_start_offset(committed.log_start)
                } else {
                    answer
                }
            }
            Err(fault) => refused(version, answer, fault),
        });
    }
    topics.retain(|topic| !topic.partition_responses.is_empty());
    ProduceResponse::default().with_responses(topics)
}

fn refused(
    version: i16,
    answer: PartitionProduceResponse,
    fault: Fault,
) -> PartitionProduceResponse {
    let answer = answer.with_error_code(fault.code).with_base_offset(-1);
    if version < WITH_MESSAGES {
        return answer;
    }
    let records = fault.records.into_iter().map(|(index, message)| {
        BatchIndexAndErrorMessage::default()
            .with_batch_index(index)
            .with_batch_index_error_message(Some(text(message)))
    });
    answer.with_record_errors(records.collect()).with_error_message(Some(text(fault.message)))
}
