//! Reads arrays through the views: grids, flat files, chunk keys, hostile stores, the corpus.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that panics has failed, and its numbers are small"
)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../stores/zip/writer.rs"]
#[allow(dead_code, reason = "the tests of archives use all of it")]
mod writer;

mod archives;
mod corpus;
mod flat;
mod formats;
mod grids;
mod headers;
mod hostile;
mod hostile_formats;
mod keys;
mod labels;
mod order;
mod ragged_fetches;
mod shard_reads;
mod slices;
mod sparse;
mod stored;
mod tables;
mod texts;
