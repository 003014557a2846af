//! Tests of layers over a store: their requests to it, and their answers.

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

mod change_log;
mod consolidated;
mod disk_cache;
mod freshness;
mod lengths;
mod metadata_cache;
