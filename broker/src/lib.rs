//! The Kafka protocol over tidelog: a broker process that unmodified Kafka clients talk to.
//!
//! # The order of the modules
//!
//! Imports fall down this list, and no two files import each other:
//!
//! 1. `main`, the process, [`options`], where its settings come from, and [`cluster_id`], which its
//!    folder keeps
//! 2. [`server`], listeners and connections
//! 3. [`api`], one file an API; in it [`api::SERVED`] is made of them all
//! 4. [`context`], what every handler borrows
//! 5. [`groups`], consumer groups: no connection, no engine but for offsets
//! 6. [`security`], [`profile`] and [`metrics`], which know nothing of each other
//! 7. [`fault`], what a client is told of a refusal, and [`audit`], what is noted of it
//! 8. [`wire`], frames, heads, shapes of bodies, the budget of memory
#![forbid(unsafe_code)]

pub mod api;
pub mod audit;
pub mod cluster_id;
pub mod context;
pub mod fault;
pub mod groups;
pub mod metrics;
pub mod options;
pub mod profile;
pub mod security;
pub mod server;
pub mod wire;
