//! All groups of the broker: their events one at a time, their deadlines, and who waits for what.
//!
//! Locks: the groups' own, held for one event and never across an await; and one for the offsets
//! of a group, held while offsets are checked and stored, so that what a member was allowed to
//! commit is seen by whoever reads the group's offsets later.

use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::error::ResponseError;
use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use tidelog::Engine;
use tidelog::clock::Clock;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;
use uuid::Builder;

use super::group::Group;
use super::member::PROTOCOL_BYTES;
use super::messages::{Answer, Committer, Effects, Join, Sync, Ticket};
use super::registry::Registry;
use super::requests::Leaving;
use super::settings::Settings;
use crate::wire::text::{MAX_TEXT_BYTES, cut};

/// Locks of offsets; groups share them by their names.
pub(super) const OFFSET_LOCKS: u64 = 256;

/// An answer that comes when the group is ready.
pub type Waiting = oneshot::Receiver<Answer>;

/// Every group that has or had members since the broker began.
#[derive(Debug)]
pub struct Coordinator {
    pub(super) engine: Engine,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) settings: Settings,
    /// When the broker began.
    pub(super) started: Duration,
    registry: Mutex<Registry>,
    wake: Notify,
    pub(super) offset_locks: Vec<Arc<tokio::sync::Mutex<()>>>,
    random: SystemRandom,
}

impl Coordinator {
    /// A coordinator without groups; offsets are those of the engine.
    #[must_use]
    pub fn new(engine: Engine, clock: Arc<dyn Clock>, settings: Settings) -> Self {
        let started = clock.monotonic();
        let offset_locks = (0..OFFSET_LOCKS).map(|_| Arc::default()).collect();
        Self {
            engine,
            clock,
            settings,
            started,
            registry: Mutex::default(),
            wake: Notify::new(),
            offset_locks,
            random: SystemRandom::new(),
        }
    }

    /// The limits and times.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Lets what is due happen, for ever.
    pub async fn run(&self) {
        loop {
            let next = self.registry.lock().first_deadline();
            let woken = self.wake.notified();
            match next {
                None => woken.await,
                Some(at) => {
                    let wait = at.saturating_sub(self.clock.monotonic());
                    // That the time is over is what is waited for.
                    let _ = timeout(wait, woken).await;
                }
            }
            self.elapse();
        }
    }

    fn elapse(&self) {
        let now = self.clock.monotonic();
        let due = self.registry.lock().due(now);
        for name in due {
            self.with(&name, |group, now, effects| group.elapse(now, &self.settings, effects));
        }
    }

    /// A new member id for whoever calls itself so; of a very long name the end is left out.
    #[must_use]
    pub fn new_member_id(&self, name: &str) -> String {
        let mut bytes = [0; 16];
        self.random.fill(&mut bytes).expect("the system gives random bytes");
        let id = format!("-{}", Builder::from_custom_bytes(bytes).into_uuid());
        cut(name.to_owned(), MAX_TEXT_BYTES - id.len()) + &id
    }

    /// Somebody wants to join a group, which is made if it is not there.
    pub fn join(&self, name: &str, join: &Join) -> Waiting {
        let id = &join.member_id;
        let said = join.bytes();
        let (ticket, waiting) = self.new_ticket();
        let refuse = |error| {
            let mut effects = Effects::default();
            effects.refuse_join(ticket, error, id);
            self.answer(effects);
        };
        if said > self.settings.max_metadata_bytes {
            refuse(ResponseError::InvalidRequest);
            return waiting;
        }
        if !self.has_memory_for(said + PROTOCOL_BYTES * join.protocols.len()) {
            refuse(ResponseError::CoordinatorNotAvailable);
            return waiting;
        }
        if id.is_empty() {
            self.touch(name);
        }
        let joined = self.with(name, |group, now, effects| {
            group.join(now, ticket, join, &self.settings, effects);
        });
        if joined.is_none() {
            refuse(ResponseError::UnknownMemberId);
        }
        waiting
    }

    /// A member asks for its assignment.
    pub fn sync(&self, name: &str, sync: Sync) -> Waiting {
        let (ticket, waiting) = self.new_ticket();
        let said = sync.assignments.iter().map(|(_, assignment)| assignment.len()).sum();
        let refused = if self.has_memory_for(said) {
            let synced = self.with(name, |group, now, effects| {
                group.sync(now, ticket, sync, &self.settings, effects);
            });
            synced.is_none().then_some(ResponseError::UnknownMemberId)
        } else {
            Some(ResponseError::CoordinatorNotAvailable)
        };
        if let Some(error) = refused {
            let mut effects = Effects::default();
            effects.refuse_sync(ticket, error);
            self.answer(effects);
        }
        waiting
    }

    /// A member is alive.
    ///
    /// # Errors
    /// Who it is not, or that it must join again.
    pub fn heartbeat(&self, name: &str, member: Committer<'_>) -> Result<(), ResponseError> {
        let Committer { member_id, instance, generation } = member;
        self.with(name, |group, now, _| group.heartbeat(now, member_id, instance, generation))
            .unwrap_or(Err(ResponseError::UnknownMemberId))
    }

    /// Members leave; each is answered by itself, in their order.
    pub fn leave(&self, name: &str, leaving: &[Leaving]) -> Vec<Result<(), ResponseError>> {
        let left = self
            .with(name, |group, now, effects| group.leave(now, leaving, &self.settings, effects));
        left.unwrap_or_else(|| vec![Err(ResponseError::UnknownMemberId); leaving.len()])
    }

    /// Makes a group if it is not there.
    pub fn touch(&self, name: &str) {
        self.registry.lock().touch(name, self.clock.monotonic());
    }

    /// Looks at a group, and since when it has been empty.
    pub(super) fn look<T>(
        &self,
        name: &str,
        look: impl FnOnce(&Group, Duration) -> T,
    ) -> Option<T> {
        let registry = self.registry.lock();
        registry.by_name.get(name).map(|known| look(&known.group, known.empty_since))
    }

    /// Looks at every group.
    pub(super) fn look_at_all<T>(&self, mut look: impl FnMut(&str, &Group) -> T) -> Vec<T> {
        let registry = self.registry.lock();
        registry.by_name.iter().map(|(name, known)| look(name, &known.group)).collect()
    }

    /// Forgets a group without members, if `also` agrees.
    pub(super) fn forget(&self, name: &str, also: impl FnOnce(&Group) -> bool) -> bool {
        self.registry.lock().forget(name, also)
    }

    /// The figures for `/metrics`.
    #[must_use]
    pub fn text(&self) -> String {
        self.registry.lock().text()
    }

    fn has_memory_for(&self, bytes: usize) -> bool {
        self.registry.lock().bytes.saturating_add(bytes) <= self.settings.max_total_bytes
    }

    fn new_ticket(&self) -> (Ticket, Waiting) {
        let (answer, waiting) = oneshot::channel();
        (self.registry.lock().new_ticket(answer), waiting)
    }

    /// An event of one group, and what follows from it.
    pub(super) fn with<T>(
        &self,
        name: &str,
        event: impl FnOnce(&mut Group, Duration, &mut Effects) -> T,
    ) -> Option<T> {
        let now = self.clock.monotonic();
        let mut effects = Effects::default();
        let mut registry = self.registry.lock();
        let done = registry.with(name, now, &mut effects, event);
        let is_next = done.is_some() && registry.queue(name, now);
        registry.answer(effects);
        drop(registry);
        if is_next {
            self.wake.notify_one();
        }
        done
    }

    fn answer(&self, effects: Effects) {
        self.registry.lock().answer(effects);
    }
}
