//! Record batches: built, compressed, decoded, refused, and put into partitions, as Kafka and its clients do it.

mod building;
mod compression;
mod decoding;
mod golden;
mod partitioners;
mod raw_batches;
