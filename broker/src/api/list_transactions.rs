//! ListTransactions, versions 0 to 2: transactional ids by state, by producer id, by how long their
//! transaction is open (from 1) and by a pattern of their names (from 2).

use std::collections::HashSet;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::list_transactions_response::TransactionState;
use kafka_protocol::messages::{
    ApiKey, ListTransactionsRequest, ListTransactionsResponse, ProducerId, TransactionalId,
};
use kafka_protocol::protocol::StrBytes;
use regex::{Regex, RegexBuilder};
use tidelog::ProducerTransactionDescription;

use super::memory::Growing;
use super::request::{Api, Asked, Closing, Reply, reply_with, text};
use crate::context::{Context, Session, off_the_loop};
use crate::fault::Fault;
use crate::wire::fields::{I64, TEXT, TEXT_OR_NULL, field, plain, since, values};
use crate::wire::shape::Body;

pub(super) struct ListTransactions;

impl Api for ListTransactions {
    type Request = ListTransactionsRequest;
    const KEY: ApiKey = ApiKey::ListTransactions;
    const VERSIONS: (i16, i16) = (0, 2);
    const SHAPE: &'static Body = &BODY;
    const KAFKA_ONLY: bool = true;
    const IS_LIST: bool = true;

    async fn reply(asked: Asked<'_>, request: ListTransactionsRequest) -> Result<Reply, Closing> {
        let start = asked.start;
        let (session, mut memory) =
            (asked.peer.session.clone(), Growing::new(asked.context, start));
        let work = move |context: &Context| {
            let answer = list(context, &session, &mut memory, start.version, &request)?;
            Ok(reply_with(start, &answer, memory.into_held()))
        };
        off_the_loop(asked.context, work).await
    }
}

const BODY: Body = Body {
    flexible_since: 0,
    body: plain(&[
        field(values(&TEXT)),
        field(values(&I64)),
        since(1, I64),
        since(2, TEXT_OR_NULL),
    ]),
};

/// The first version that asks for a duration.
const WITH_DURATION: i16 = 1;
/// The first version that asks for a pattern.
const WITH_PATTERN: i16 = 2;
/// What a compiled pattern may cost in memory.
const MAX_PATTERN_BYTES: usize = 1024 * 1024;
/// Kafka's states. Those of its two-phase end are known, and nothing is ever in one.
const STATES: [&str; 8] = [
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
];

fn list(
    context: &Context,
    session: &Session,
    memory: &mut Growing,
    version: i16,
    request: &ListTransactionsRequest,
) -> Result<ListTransactionsResponse, Closing> {
    let response = ListTransactionsResponse::default();
    let pattern = match pattern(version, request) {
        Ok(pattern) => pattern,
        Err(fault) => return Ok(response.with_error_code(fault.code)),
    };
    let now = context.clock.now_ms();
    // Transactional ids may be many, and so may what is asked for.
    let states: HashSet<&str> = request.state_filters.iter().map(StrBytes::as_str).collect();
    let producers: HashSet<ProducerId> = request.producer_id_filters.iter().copied().collect();
    let wanted = |held: &ProducerTransactionDescription| {
        let id = held.transactional_id.as_str();
        let is_young = version >= WITH_DURATION
            && request.duration_filter >= 0
            && now.saturating_sub(held.started_at) <= request.duration_filter;
        (states.is_empty() || states.contains(held.state.name()))
            && (producers.is_empty() || producers.contains(&ProducerId(held.producer.producer_id)))
            && !is_young
            && pattern.as_ref().is_none_or(|pattern| pattern.is_match(id))
            && session.access.allows_transactional_id(id)
    };
    let known = context.engine.producers().transactional_ids();
    let mut states = Vec::new();
    for held in known.into_iter().filter(wanted) {
        memory.add(STATE_BYTES + held.transactional_id.len())?;
        let state = TransactionState::default()
            .with_transactional_id(TransactionalId(text(held.transactional_id)))
            .with_producer_id(ProducerId(held.producer.producer_id))
            .with_transaction_state(text(held.state.name()));
        states.push(state);
    }
    let unknown = request.state_filters.iter().filter(|state| !STATES.contains(&state.as_str()));
    Ok(response
        .with_unknown_state_filters(unknown.cloned().collect())
        .with_transaction_states(states))
}

/// What a transactional id costs in memory beside its name, about.
const STATE_BYTES: usize = 200;

/// The pattern that whole names must match.
fn pattern(version: i16, request: &ListTransactionsRequest) -> Result<Option<Regex>, Fault> {
    let asked = request.transactional_id_pattern.as_deref().filter(|asked| !asked.is_empty());
    let Some(asked) = asked.filter(|_| version >= WITH_PATTERN) else { return Ok(None) };
    // By itself first, so that nothing in it can close the group around it.
    let alone = RegexBuilder::new(asked).size_limit(MAX_PATTERN_BYTES).build();
    let whole = format!("^(?:{asked})$");
    let whole = RegexBuilder::new(&whole).size_limit(MAX_PATTERN_BYTES).build();
    alone
        .and(whole)
        .map(Some)
        .map_err(|error| Fault::new(ResponseError::InvalidRegularExpression, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiled(asked: &'static str, version: i16) -> Result<Option<Regex>, i16> {
        let request =
            ListTransactionsRequest::default().with_transactional_id_pattern(Some(text(asked)));
        pattern(version, &request).map_err(|fault| fault.code)
    }

    #[test]
    fn a_pattern_is_for_whole_names_and_one_that_is_none_is_told_so() {
        let found = compiled("a|b.", 2).unwrap().unwrap();
        for (name, matches) in [("a", true), ("bc", true), ("ab", false), ("xa", false)] {
            assert_eq!(found.is_match(name), matches, "{name}");
        }
        assert!(compiled("", 2).unwrap().is_none() && compiled("(", 1).unwrap().is_none());
        for none in ["(", "a)|(b", "(?:", "x{99999}{99999}"] {
            assert_eq!(compiled(none, 2).unwrap_err(), 128, "{none}");
        }
    }
}
