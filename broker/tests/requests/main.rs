//! What raw requests are answered, in which order, and what one client can take of the time and memory of all.

#[path = "../common/mod.rs"]
mod common;

mod bounded_answers;
mod connections;
mod greedy_clients;
mod group_grants;
mod groups;
mod kafka_answers;
mod log_dirs;
mod long_texts;
mod produce;
mod request_bodies;
mod shares;
mod transactions;
