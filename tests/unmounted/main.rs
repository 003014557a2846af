//! Tests that need no mount, no server and no root: arrays, dialects, writing, and the commands that read stores.

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

mod arrays;
mod checks;
mod dialects;
mod inspect;
mod writing;
