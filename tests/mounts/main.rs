//! Tests of file operations, the overlay and concurrent programs, in process or mounted.
//!
//! Mounts need root and /dev/fuse (`common/needs.rs`).

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

mod concurrency;
mod mounting;
mod operations;
mod overlay;
