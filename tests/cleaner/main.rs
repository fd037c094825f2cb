//! The cleaner: its rules one by one, its two ways, what stops it, and what Apache Kafka leaves.

#[path = "../common/mod.rs"]
mod common;

mod cases;
mod damage;
mod extremes;
mod golden;
mod model;
mod producers;
mod random;
mod rules;
mod secrets;
mod stops;
mod ways;
