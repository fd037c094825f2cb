//! EndTxn, versions 0 to 5: commits or aborts. When it answers, the transaction has ended in every
//! partition and for every group at once. From 5 on the epoch rises with it and is answered.

use std::sync::Arc;

use kafka_protocol::messages::{ApiKey, EndTxnRequest, EndTxnResponse, ProducerId};
use tidelog::producer::transaction::EndProtocol;
use tidelog::record::MarkerKind;
use tidelog::types::ProducerIdentity;

use super::request::{Api, Asked, Closing, Reply, reply};
use super::transactions::{Knows, allowed, fault, identity};
use crate::context::{Context, Session, off_the_loop};
use crate::fault::Fault;
use crate::wire::fields::{BOOL, I16, I64, TEXT, field, plain};
use crate::wire::shape::Body;

pub(super) struct EndTxn;

impl Api for EndTxn {
    type Request = EndTxnRequest;
    const KEY: ApiKey = ApiKey::EndTxn;
    const VERSIONS: (i16, i16) = (0, 5);
    const SHAPE: &'static Body = &BODY;
    const KAFKA_ONLY: bool = true;

    async fn reply(asked: Asked<'_>, request: EndTxnRequest) -> Result<Reply, Closing> {
        Ok(reply(
            asked.start,
            &answer(asked.context, &asked.peer.session, asked.start.version, request).await,
        ))
    }
}

const BODY: Body =
    Body { flexible_since: 3, body: plain(&[field(TEXT), field(I64), field(I16), field(BOOL)]) };

/// The first version of the second protocol.
const RAISES_EPOCH: i16 = 5;

async fn answer(
    context: &Arc<Context>,
    session: &Session,
    version: i16,
    request: EndTxnRequest,
) -> EndTxnResponse {
    let session = session.clone();
    let work = move |context: &Context| end(context, &session, version, &request);
    let (code, next) = match off_the_loop(context, work).await {
        Ok(next) => (0, next),
        Err(fault) => (fault.code, ProducerIdentity::NONE),
    };
    let response = EndTxnResponse::default().with_error_code(code);
    if version < RAISES_EPOCH {
        return response;
    }
    response.with_producer_id(ProducerId(next.producer_id)).with_producer_epoch(next.producer_epoch)
}

fn end(
    context: &Context,
    session: &Session,
    version: i16,
    request: &EndTxnRequest,
) -> Result<ProducerIdentity, Fault> {
    allowed(session, &request.transactional_id)?;
    let given = identity(request.producer_id, request.producer_epoch);
    let kind = if request.committed { MarkerKind::Commit } else { MarkerKind::Abort };
    let protocol = match version {
        RAISES_EPOCH.. => EndProtocol::RaisesEpoch,
        _ => EndProtocol::KeepsEpoch,
    };
    let ended = context.engine.producers().end(&request.transactional_id, given, kind, protocol);
    ended.map_err(|error| fault(&error, Knows::coordinator(version)))
}
