//! What operators ask: which groups there are, how they are, and that they go.

use std::collections::BTreeMap;

use kafka_protocol::error::ResponseError;

use super::coordinator::Coordinator;
use super::group::{Description, Group, State};
use super::offsets::unavailable;

impl Coordinator {
    /// What others are told of a group; `None` if there is none. It may look into the engine.
    ///
    /// # Errors
    /// [`ResponseError::CoordinatorNotAvailable`] where the engine cannot be read.
    pub fn describe(&self, name: &str) -> Result<Option<Description>, ResponseError> {
        if let Some(known) = self.with(name, |group, _, _| group.describe()) {
            return Ok(Some(known));
        }
        Ok(self.has_offsets(name)?.then(|| Group::default().describe()))
    }

    /// What a group holds in memory, about.
    pub fn bytes_of(&self, name: &str) -> usize {
        self.look(name, |group, _| group.bytes()).unwrap_or(0)
    }

    /// Every group with its state and what its members are. It looks into the engine.
    ///
    /// # Errors
    /// [`ResponseError::CoordinatorNotAvailable`] where the engine cannot be read.
    pub fn list(&self) -> Result<Vec<(String, State, String)>, ResponseError> {
        let with_offsets = self.engine.groups().map_err(|error| unavailable(&error))?;
        let mut listed: BTreeMap<String, (State, String)> =
            with_offsets.into_iter().map(|name| (name, (State::Empty, String::new()))).collect();
        listed.extend(self.look_at_all(|name, group| {
            let protocol_type = group.protocol_type().unwrap_or_default();
            (name.to_owned(), (group.state(), protocol_type.to_owned()))
        }));
        Ok(listed.into_iter().map(|(name, (state, of))| (name, state, of)).collect())
    }

    /// Deletes a group that has no members, with its offsets; call it with their lock. It uses
    /// the engine.
    ///
    /// # Errors
    /// That there is none, that it has members, or that the engine failed.
    pub fn delete(&self, name: &str) -> Result<(), ResponseError> {
        let was_known = match self.with(name, |group, _, _| group.state()) {
            Some(State::Empty) => self.forget(name, |_| true),
            Some(_) => return Err(ResponseError::NonEmptyGroup),
            None => false,
        };
        let removed = self.engine.group(name).remove().map_err(|error| unavailable(&error))?;
        if was_known || removed > 0 { Ok(()) } else { Err(ResponseError::GroupIdNotFound) }
    }
}
