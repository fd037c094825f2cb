//! AddOffsetsToTxn, versions 0 to 4: a transaction will carry offsets of a group.

use std::sync::Arc;

use kafka_protocol::messages::{AddOffsetsToTxnRequest, AddOffsetsToTxnResponse};

use super::transactions::{Knows, allowed, fault, identity};
use crate::context::{Context, Session, off_the_loop};
use crate::fault::Fault;

pub(super) const VERSIONS: (i16, i16) = (0, 4);

pub(super) async fn answer(
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
    let given = identity(request.producer_id, request.producer_epoch);
    let added =
        context.engine.producers().add_group(&request.transactional_id, given, &request.group_id);
    added.map_err(|error| fault(&error, Knows::coordinator(version)))?;
    Ok(())
}
