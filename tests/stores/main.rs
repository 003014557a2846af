//! Tests of stores and of the layers over them: local, zip, object stores and web servers.

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

mod conformance;
mod layers;
