//! What the requests of transactional producers have in common: who the producer says it is, whether
//! it may use the transactional id, and Kafka's codes for what the engine refuses.

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::ProducerId;
use tidelog::ProducerError;
use tidelog::producer::transaction::ProducerTransactionError as Refused;
use tidelog::types::ProducerIdentity;

use crate::context::Session;
use crate::fault::{Fault, sentence};
use crate::security::Action;

/// Which of two codes a version of an API knows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Knows {
    /// PRODUCER_FENCED; INVALID_PRODUCER_EPOCH before.
    pub(super) fenced: bool,
    /// TRANSACTION_ABORTABLE; INVALID_TXN_STATE before.
    pub(super) abortable: bool,
}

impl Knows {
    /// What a version of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn knows.
    pub(super) fn coordinator(version: i16) -> Self {
        Self { fenced: version >= 2, abortable: false }
    }
}

/// Who a request says it is.
pub(super) fn identity(producer_id: ProducerId, producer_epoch: i16) -> ProducerIdentity {
    ProducerIdentity { producer_id: producer_id.0, producer_epoch }
}

/// Checks the grant for a transactional id.
pub(super) fn allowed(session: &Session, id: &str) -> Result<(), Fault> {
    if session.access.allows_transactional_id(id) {
        return Ok(());
    }
    session.access.note_refusal(Action::TransactionalIdWrite, id);
    let message = "the user has no grant for this transactional id";
    Err(Fault::new(ResponseError::TransactionalIdAuthorizationFailed, message))
}

/// What a client is told of a refusal.
pub(super) fn fault(error: &ProducerError, knows: Knows) -> Fault {
    match error {
        ProducerError::Refused(refused) => Fault::new(code(refused, knows), sentence(refused)),
        ProducerError::UnknownPartition { .. } => Fault::unknown(),
        _ => {
            let reason = sentence(error);
            tracing::warn!(%reason, "a producer transaction could not be changed");
            Fault::new(ResponseError::CoordinatorNotAvailable, reason)
        }
    }
}

/// Kafka's code for a refusal.
pub(super) fn code(refused: &Refused, knows: Knows) -> ResponseError {
    match refused.as_kafka() {
        Refused::InvalidTransactionTimeout { .. } => ResponseError::InvalidTransactionTimeout,
        Refused::InvalidProducerIdMapping { .. } => ResponseError::InvalidProducerIdMapping,
        Refused::ProducerFenced { .. } if knows.fenced => ResponseError::ProducerFenced,
        Refused::ProducerFenced { .. } | Refused::InvalidProducerEpoch { .. } => {
            ResponseError::InvalidProducerEpoch
        }
        Refused::PartitionNotAdded { .. } | Refused::GroupNotAdded { .. } if knows.abortable => {
            ResponseError::TransactionAbortable
        }
        Refused::InvalidTxnState { .. }
        | Refused::PartitionNotAdded { .. }
        | Refused::GroupNotAdded { .. } => ResponseError::InvalidTxnState,
        Refused::ConcurrentTransactions => ResponseError::ConcurrentTransactions,
        _ => ResponseError::InvalidRequest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_versions_are_told_the_codes_that_they_know() {
        let (given, current) = (ProducerIdentity::NONE, ProducerIdentity::NONE);
        let fenced = Refused::ProducerFenced { given, current };
        let absent = Refused::GroupNotAdded { group: "g".to_owned() };
        let told = |refused: &Refused, fenced, abortable| {
            code(refused, Knows { fenced, abortable }).code()
        };
        assert_eq!((told(&fenced, false, true), told(&fenced, true, false)), (47, 90));
        assert_eq!((told(&absent, true, false), told(&absent, false, true)), (48, 120));
        let epoch = Refused::InvalidProducerEpoch { producer_epoch: 1, current };
        assert_eq!(told(&epoch, true, true), 47, "in every version");
        let late = Refused::TimedOut { timeout_ms: 1, refusal: Box::new(fenced.clone()) };
        assert_eq!((told(&late, false, true), told(&late, true, false)), (47, 90));
        assert_eq!(told(&Refused::EmptyTransactionalId, true, true), 42);
        assert_eq!(told(&Refused::ConcurrentTransactions, true, true), 51);
        assert!(!Knows::coordinator(1).fenced && Knows::coordinator(2).fenced);
    }
}
