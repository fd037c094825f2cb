//! InitProducerId, versions 0 to 5: an id for an idempotent producer, or id and epoch of a
//! transactional one. A transaction that the transactional id has open is aborted first, and the
//! client told to ask again (CONCURRENT_TRANSACTIONS).

use std::sync::Arc;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::{InitProducerIdRequest, InitProducerIdResponse, ProducerId};
use tidelog::InitProducer;
use tidelog::types::ProducerIdentity;

use super::transactions::{Knows, allowed, fault, identity};
use crate::context::{Context, Session, off_the_loop};
use crate::fault::Fault;

pub(super) const VERSIONS: (i16, i16) = (0, 5);
/// The first version that knows PRODUCER_FENCED.
const WITH_FENCED: i16 = 4;

pub(super) async fn answer(
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
