//! AddOffsetsToTxn, versions 0 to 4: a transaction will carry offsets of a group.

use std::sync::Arc;

use kafka_protocol::messages::{AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, ApiKey};

use super::group_parts::granted;
use super::request::{Api, Asked, Closing, Reply, reply};
use super::transactions::{Knows, allowed, fault, identity};
use crate::context::{Context, Session, off_the_loop};
use crate::fault::Fault;
use crate::security::Action;
use crate::wire::fields::{I16, I64, TEXT, field, plain};
use crate::wire::shape::Body;

pub(super) struct AddOffsetsToTxn;

impl Api for AddOffsetsToTxn {
    type Request = AddOffsetsToTxnRequest;
    const KEY: ApiKey = ApiKey::AddOffsetsToTxn;
    const VERSIONS: (i16, i16) = (0, 4);
    const SHAPE: &'static Body = &BODY;
    const KAFKA_ONLY: bool = true;

    async fn reply(asked: Asked<'_>, request: AddOffsetsToTxnRequest) -> Result<Reply, Closing> {
        Ok(reply(
            asked.start,
            &answer(asked.context, &asked.peer.session, asked.start.version, request).await,
        ))
    }
}

const BODY: Body =
    Body { flexible_since: 3, body: plain(&[field(TEXT), field(I64), field(I16), field(TEXT)]) };

async fn answer(
    context: &Arc<Context>,
    session: &Session,
    version: i16,
    request: AddOffsetsToTxnRequest,
) -> AddOffsetsToTxnResponse {
    let session = session.clone();
    let work = move |context: &Context| add(context, &session, version, &request);
    let added = off_the_loop(context, work).await;
    AddOffsetsToTxnResponse::default().with_error_code(added.err().map_or(0, |fault| fault.code))
}

fn add(
    context: &Context,
    session: &Session,
    version: i16,
    request: &AddOffsetsToTxnRequest,
) -> Result<(), Fault> {
    allowed(session, &request.transactional_id)?;
    granted(session, Action::GroupRead, &request.group_id)
        .map_err(|error| Fault::new(error, "the user has no grant for this group"))?;
    let given = identity(request.producer_id, request.producer_epoch);
    let added =
        context.engine.producers().add_group(&request.transactional_id, given, &request.group_id);
    added.map_err(|error| fault(&error, Knows::coordinator(version)))?;
    Ok(())
}
