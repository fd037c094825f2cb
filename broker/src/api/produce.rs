//! Produce, versions 3 to 13; 0 to 2 are advertised only, since librdkafka 2.4.0 and 2.8.0 compress
//! nothing without a word where they are not. One request is one append transaction: a batch
//! refused refuses all, and every partition carries the code of the first culprit in the order of
//! the request, with a message that names it. With `--independent-partitions` each partition stands
//! or falls by itself, as in Kafka. From 13 on topics have ids. Acknowledgements of 0 have no
//! answer; a refused request closes the connection then.

use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::produce_response::{
    BatchIndexAndErrorMessage, PartitionProduceResponse, TopicProduceResponse,
};
use kafka_protocol::messages::{ProduceRequest, ProduceResponse};
use tidelog::types::{Durability, TopicId};
use tidelog::{
    AppendError, AppendTransaction, CommitError, CommittedBatch, NotWritten, Partition, Refusal,
    Topic,
};

use super::produce_parts::{self, AskedTopic, Parts};
use super::{Closing, INTERNAL_TOPICS, Reply, reply as encoded, text};
use crate::context::{Context, Session, off_the_loop};
use crate::fault::{Fault, sentence};
use crate::profile::{Acks, batch_bits};
use crate::security::Action;
use crate::wire::head::Start;

pub(super) const VERSIONS: (i16, i16) = (3, 13);
pub(super) const ADVERTISED: i16 = 0;
/// The first version whose clients know zstd.
const WITH_ZSTD: i16 = 7;
const ZSTD: u8 = 4;
/// The first version whose answer has the log start.
const WITH_LOG_START: i16 = 5;
/// The first version whose answer has messages and errors of records.
const WITH_MESSAGES: i16 = 8;
/// Requests with more bytes of records than this are checked where no other connection waits.
const CHECKED_HERE_BYTES: usize = 64 * 1024;

/// What became of each partition of the request, in its order.
type Outcomes = Vec<Result<CommittedBatch, Fault>>;

pub(super) async fn reply(
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
    let large = parts.record_bytes() > CHECKED_HERE_BYTES;
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
        if large { off_the_loop(context, work).await } else { work(context) };
    let Checked { transaction, mut outcomes } = checked;
    let Ok(acks) = acks else { return (parts, finish(outcomes, Vec::new())) };
    let appended = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    if appended == 0 {
        return (parts, finish(outcomes, Vec::new()));
    }
    let committed = match commit(context, transaction, context.rules.durability(acks)).await {
        Ok(committed) => committed,
        Err(fault) => {
            for outcome in outcomes.iter_mut().filter(|outcome| outcome.is_ok()) {
                *outcome = Err(fault.clone());
            }
            Vec::new()
        }
    };
    (parts, finish(outcomes, committed))
}

/// Gives each part that was appended its place, in order.
fn finish(checked: Vec<Result<(), Fault>>, committed: Vec<CommittedBatch>) -> Outcomes {
    let mut committed = committed.into_iter();
    checked
        .into_iter()
        .map(|outcome| {
            outcome.map(|()| committed.next().expect("a commit places every batch it was given"))
        })
        .collect()
}

async fn commit(
    context: &Arc<Context>,
    transaction: AppendTransaction,
    durability: Durability,
) -> Result<Vec<CommittedBatch>, Fault> {
    let committed = match transaction.submit(durability) {
        Ok(ticket) => ticket.await,
        // A full queue: to commit waits for room, where nobody else waits for it.
        Err(CommitError::NotWritten { reason: NotWritten::QueueFull { .. }, transaction }) => {
            off_the_loop(context, move |_| transaction.commit(durability)).await
        }
        Err(error) => Err(error),
    };
    committed.map(|committed| committed.batches).map_err(|error| commit_fault(&error))
}

fn commit_fault(error: &CommitError) -> Fault {
    match error {
        // Clients read this code as "possibly written", and try again.
        CommitError::OutcomeUnknown(_) => {
            Fault::new(ResponseError::RequestTimedOut, sentence(error))
        }
        CommitError::Refused { reason: Refusal::UnknownPartition { .. }, .. } => Fault::unknown(),
        _ => Fault::storage(error),
    }
}

/// A transaction with the batches that passed, and what became of each part.
struct Checked {
    transaction: AppendTransaction,
    outcomes: Vec<Result<(), Fault>>,
}

struct Checks<'a> {
    context: &'a Context,
    version: i16,
    acks: Result<&'a Acks, &'a Fault>,
    parts: &'a Parts,
}

impl Checks<'_> {
    /// One part refused refuses all.
    fn all_or_none(&self, access: &crate::security::Access) -> Checked {
        let mut transaction = self.context.engine.append_transaction();
        let count = self.parts.list.len();
        if let Err(fault) = self.acks {
            return Checked { transaction, outcomes: vec![Err(fault.clone()); count] };
        }
        let topics = self.topics(access);
        for at in 0..count {
            let Err(fault) = self.part(&topics, at, &mut transaction) else { continue };
            let culprit = self.parts.name(at);
            let others = Fault {
                code: fault.code,
                message: format!("refused with {culprit}, where {}", fault.message),
                records: Vec::new(),
            };
            let mut outcomes = vec![Err(others); count];
            outcomes[at] = Err(Fault { message: format!("{culprit}: {}", fault.message), ..fault });
            return Checked { transaction, outcomes };
        }
        Checked { transaction, outcomes: vec![Ok(()); count] }
    }

    /// Each part stands or falls by itself, but for a transactional one without a transactional id.
    fn each(&self, access: &crate::security::Access) -> Checked {
        let mut transaction = self.context.engine.append_transaction();
        let parts = &self.parts.list;
        let checked: Result<(), Fault> =
            parts.iter().try_for_each(|part| self.transactional(part.records.as_ref()));
        if let Err(fault) = checked {
            return Checked { transaction, outcomes: vec![Err(fault); parts.len()] };
        }
        let topics = self.topics(access);
        let outcomes = (0..parts.len())
            .map(|at| {
                self.part(&topics, at, &mut transaction).map_err(|fault| Fault {
                    message: format!("{}: {}", self.parts.name(at), fault.message),
                    ..fault
                })
            })
            .collect();
        Checked { transaction, outcomes }
    }

    fn topics(&self, access: &crate::security::Access) -> Vec<Result<Topic, Fault>> {
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
        transaction: &mut AppendTransaction,
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
        self.transactional(Some(records))?;
        transaction.batch(&partition, records.clone()).map_err(|error| append_fault(&error))
    }

    fn transactional(&self, records: Option<&Bytes>) -> Result<(), Fault> {
        let transactional = records.is_some_and(|records| {
            batch_bits::is_readable(records) && batch_bits::is_transactional(records)
        });
        if transactional && !self.parts.transactional {
            let message = "a batch of a producer transaction wants a transactional id";
            return Err(Fault::new(ResponseError::TransactionalIdAuthorizationFailed, message));
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
                let answer = answer
                    .with_base_offset(committed.base_offset)
                    .with_log_append_time_ms(committed.log_append_time.unwrap_or(-1));
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
