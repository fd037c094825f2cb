//! Heartbeat, LeaveGroup, and the check of who commits offsets: all are answered at once.

use std::time::Duration;

use kafka_protocol::error::ResponseError;

use super::group::{Group, State};
use super::messages::Effects;
use super::settings::Settings;

/// A member that leaves, or that its operator takes out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaving {
    /// Its id; empty where only its instance id is known.
    pub member_id: String,
    /// The name that its operator gave it.
    pub instance: Option<String>,
}

impl Group {
    /// A member is alive.
    ///
    /// # Errors
    /// Who it is not, or that it must join again.
    pub fn heartbeat(
        &mut self,
        now: Duration,
        member_id: &str,
        instance: Option<&str>,
        generation: i32,
    ) -> Result<(), ResponseError> {
        self.check_member(member_id, instance)?;
        if generation != self.generation {
            return Err(ResponseError::IllegalGeneration);
        }
        match self.state {
            State::Empty => Err(ResponseError::UnknownMemberId),
            State::PreparingRebalance => {
                self.renew(member_id, now);
                Err(ResponseError::RebalanceInProgress)
            }
            State::CompletingRebalance | State::Stable => {
                self.renew(member_id, now);
                Ok(())
            }
        }
    }

    /// Members leave; each is answered by itself, in their order.
    pub fn leave(
        &mut self,
        now: Duration,
        leaving: &[Leaving],
        settings: &Settings,
        effects: &mut Effects,
    ) -> Vec<Result<(), ResponseError>> {
        let answers: Vec<_> = leaving.iter().map(|one| self.leave_one(one, effects)).collect();
        if self.state != State::Empty && answers.iter().any(Result::is_ok) {
            self.rebalance(now, settings, effects);
        }
        self.elapse(now, settings, effects);
        answers
    }

    fn leave_one(&mut self, leaving: &Leaving, effects: &mut Effects) -> Result<(), ResponseError> {
        let instance = leaving.instance.as_deref();
        if leaving.member_id.is_empty() {
            let id = instance.and_then(|instance| self.statics.get(instance)).cloned();
            self.remove(&id.ok_or(ResponseError::UnknownMemberId)?, effects);
            return Ok(());
        }
        if !self.pending.contains_key(&leaving.member_id) {
            self.check_member(&leaving.member_id, instance)?;
        }
        self.remove(&leaving.member_id, effects);
        Ok(())
    }

    /// Whether this member may commit offsets. A commit without a generation is one of a client
    /// that assigns partitions itself, and is taken while the group is empty; inside a producer
    /// transaction always, if it does not say who it is.
    ///
    /// # Errors
    /// Who it is not, or that a rebalance is under way.
    pub fn check_commit(
        &mut self,
        now: Duration,
        member_id: &str,
        instance: Option<&str>,
        generation: i32,
        in_transaction: bool,
    ) -> Result<(), ResponseError> {
        if generation < 0 && self.state == State::Empty {
            return Ok(());
        }
        if generation >= 0 || !member_id.is_empty() || instance.is_some() {
            self.check_member(member_id, instance)?;
            if generation != self.generation {
                return Err(ResponseError::IllegalGeneration);
            }
        } else if !in_transaction {
            return Err(ResponseError::UnknownMemberId);
        }
        if !in_transaction && self.state == State::CompletingRebalance {
            return Err(ResponseError::RebalanceInProgress);
        }
        if !in_transaction {
            self.renew(member_id, now);
        }
        Ok(())
    }
}
