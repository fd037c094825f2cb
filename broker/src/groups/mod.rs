//! Consumer groups of the classic protocol: who is a member, who leads, and what each is told.
//!
//! [`Group`] is pure: it takes requests with the time they came at, and gives out [`Effects`], the
//! answers that are due; [`Group::next_deadline`] says when [`Group::elapse`] is to be called.
//! [`Coordinator`] keeps all groups, wakes them, and carries answers to those who wait.
//!
//! Groups live in memory. After a restart a member is unknown, is told so, and joins again; what
//! its group has committed is in the engine.

mod admin;
mod consumers;
mod coordinator;
mod expiry;
mod group;
mod join;
mod member;
mod messages;
mod offsets;
mod rebalance;
mod registry;
mod requests;
mod settings;
mod subscription;
mod sync;
#[cfg(test)]
mod tests;
mod timer;

pub use coordinator::{Coordinator, Waiting};
pub use group::{Description, Group, State};
pub use member::MemberDescription;
pub use messages::{
    Answer, Committer, Effects, Join, Joined, JoinedMember, Protocol, Refused, Sync, Synced, Ticket,
};
pub use requests::Leaving;
pub use settings::Settings;
