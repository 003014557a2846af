//! Tests dialects: equal arrays, the specifications' examples, layouts, consolidated metadata, hostile hierarchies.

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
mod consolidated;
mod everywhere;
mod examples;
mod hierarchies;
mod hostile;
mod layouts;
mod named_children;
mod written;
