//! InitProducerId, versions 0 to 5: an id for an idempotent producer, or id and epoch of a
//! transactional one. A transaction that the transactional id has open is aborted first, and the
//! client told to ask again (CONCURRENT_TRANSACTIONS).

use std::sync::Arc;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::{ApiKey, InitProducerIdRequest, InitProducerIdResponse, ProducerId};
use tidelog::InitProducer;
use tidelog::types::ProducerIdentity;

use super::request::{Api, Asked, Closing, Reply, reply};
use super::transactions::{Knows, allowed, fault, identity};
use crate::context::{Context, Session, off_the_loop};
use crate::fault::Fault;
use crate::security::Action;
use crate::wire::fields::{I16, I32, I64, TEXT_OR_NULL, field, plain, since};
use crate::wire::shape::Body;

pub(super) struct InitProducerId;

impl Api for InitProducerId {
    type Request = InitProducerIdRequest;
    const KEY: ApiKey = ApiKey::InitProducerId;
    const VERSIONS: (i16, i16) = (0, 5);
    const SHAPE: &'static Body = &BODY;
    const KAFKA_ONLY: bool = true;

    async fn reply(asked: Asked<'_>, request: InitProducerIdRequest) -> Result<Reply, Closing> {
        Ok(reply(
            asked.start,
            &answer(asked.context, &asked.peer.session, asked.start.version, request).await,
        ))
    }
}

const BODY: Body = Body {
    flexible_since: 2,
    body: plain(&[field(TEXT_OR_NULL), field(I32), since(3, I64), since(3, I16)]),
};

/// The first version that knows PRODUCER_FENCED.
const WITH_FENCED: i16 = 4;

async fn answer(
    context: &Arc<Context>,
    session: &Session,
    version: i16,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse {
    let session = session.clone();
    let work = move |context: &Context| init(context, &session, version, &request);
    let response = InitProducerIdResponse::default();
    match off_the_loop(context, work).await {
        Ok(given) => response
            .with_producer_id(ProducerId(given.producer_id))
            .with_producer_epoch(given.producer_epoch),
        Err(fault) => response
            .with_error_code(fault.code)
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1),
    }
}

fn init(
    context: &Context,
    session: &Session,
    version: i16,
    request: &InitProducerIdRequest,
) -> Result<ProducerIdentity, Fault> {
    let knows = Knows { fenced: version >= WITH_FENCED, abortable: false };
    let refused = |error| fault(&error, knows);
    let Some(id) = &request.transactional_id else {
        if !session.access.writes_any() {
            session.access.note_refusal(Action::KafkaWrite, "*");
            let message = "a user that may write no topic gets no producer id";
            return Err(Fault::new(ResponseError::ClusterAuthorizationFailed, message));
        }
        let given = context.engine.producers().new_id().map_err(refused)?;
        return Ok(ProducerIdentity { producer_id: given, producer_epoch: 0 });
    };
    allowed(session, id)?;
    let given = identity(request.producer_id, request.producer_epoch);
    let expected = match (given.producer_id, given.producer_epoch) {
        (-1, -1) => None,
        (-1, _) | (_, -1) => {
            let message = "producer id and epoch are given together or not at all";
            return Err(Fault::invalid_request(message));
        }
        _ => Some(given),
    };
    let timeout_ms = request.transaction_timeout_ms;
    context.engine.producers().init(id, InitProducer { timeout_ms, expected }).map_err(refused)
}
