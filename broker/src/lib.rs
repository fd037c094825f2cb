//! The Kafka protocol over tidelog: a broker process that unmodified Kafka clients talk to.
//!
//! Layers, each importing only from those above it: `wire` (frames, heads, shapes of bodies),
//! `fault`; `security`, `profile`, `metrics`; `groups`, consumer groups; `context`, what every
//! handler borrows; `api`, one file an API; `server`, listeners and connections; `args`, the
//! command line.
#![forbid(unsafe_code)]

pub mod api;
pub mod args;
pub mod context;
pub mod fault;
pub mod groups;
pub mod metrics;
pub mod profile;
pub mod security;
pub mod server;
pub mod wire;
