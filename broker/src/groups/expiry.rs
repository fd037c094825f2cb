//! Offsets that nobody needs any more: they go when their group has been empty for long enough.
//!
//! - A group that had members: counted from the moment it became empty.
//! - One whose clients assign partitions themselves: from the commit of each offset.
//! - A group of consumers with members: only what they do not read, from its commit.
//!
//! In no case does an offset go before it was committed for that long, nor before the broker ran
//! for that long: a group whose members come back after a restart was not empty.

use std::sync::Arc;
use std::time::Duration;

use tidelog::GroupError;
use tidelog::types::TopicId;

use super::coordinator::Coordinator;
use super::group::{Group, State};
use super::subscription::Subscribed;

impl Coordinator {
    /// Lets offsets expire from time to time, for ever.
    pub async fn run_expiry(self: Arc<Self>) {
        let mut interval = tokio::time::interval(self.settings.expiry_interval);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        interval.tick().await;
        loop {
            interval.tick().await;
            let coordinator = Arc::clone(&self);
            let done = tokio::task::spawn_blocking(move || coordinator.expire_offsets()).await;
            match done {
                Ok(Ok(0)) => {}
                Ok(Ok(count)) => tracing::info!(count, "offsets of groups have expired"),
                Ok(Err(error)) => {
                    let reason = crate::fault::sentence(&error);
                    tracing::warn!(%reason, "offsets of groups could not expire");
                }
                Err(error) => tracing::error!(%error, "the expiry of offsets failed"),
            }
        }
    }

    /// Lets offsets expire now; tells how many did. Groups without members and offsets are
    /// forgotten.
    ///
    /// # Errors
    /// What the engine says.
    pub fn expire_offsets(&self) -> Result<usize, GroupError> {
        let mut names = self.engine.groups()?;
        names.extend(self.look_at_all(|name, _| name.to_owned()));
        names.sort_unstable();
        names.dedup();
        let mut count = 0;
        for name in names {
            let _lock = self.lock_offsets_blocking(&name);
            let kept = self.look(&name, |group, since| self.kept(group, since));
            if let Some(except) = kept.unwrap_or_else(|| self.is_over(self.started, Vec::new())) {
                let until = self.clock.now_ms().saturating_sub(self.retention_ms());
                count += self.engine.group(&name).expire_offsets(until, except)?;
            }
            if self.look(&name, |group, _| group.is_forgettable()) == Some(true)
                && self.engine.group(&name).offsets()?.is_empty()
            {
                self.forget(&name, Group::is_forgettable);
            }
        }
        Ok(count)
    }

    /// The topics whose offsets a group keeps; `None` if it keeps all.
    fn kept(&self, group: &Group, empty_since: Duration) -> Option<Vec<TopicId>> {
        match (group.state(), group.protocol_type(), group.subscribed()) {
            (State::Empty, None, _) => self.is_over(self.started, Vec::new()),
            (State::Empty, Some(_), _) => self.is_over(empty_since, Vec::new()),
            (State::Stable, _, Subscribed::Topics(topics)) if group.is_of_consumers() => {
                let topics = topics.iter().filter_map(|name| self.engine.topic(name));
                self.is_over(self.started, topics.map(|topic| topic.id()).collect())
            }
            _ => None,
        }
    }

    fn is_over(&self, since: Duration, except: Vec<TopicId>) -> Option<Vec<TopicId>> {
        let passed = self.clock.monotonic().saturating_sub(since);
        (passed >= self.settings.offsets_retention).then_some(except)
    }

    fn retention_ms(&self) -> i64 {
        i64::try_from(self.settings.offsets_retention.as_millis()).unwrap_or(i64::MAX)
    }
}
