//! Tests the commands that read stores without a mount, by their whole output.
//!
//! The stores are samples, the corpus, and hostile or broken ones. The output is compared with the files in `golden/`,
//! which `BLESS=1` rewrites.

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
#[path = "../common/scripted.rs"]
mod scripted;

mod corpus;
mod differences;
mod elements;
mod hostile;
mod long_trees;
mod maps;
mod places;
mod profiles;
mod program;
mod proxies;
mod remote;
mod samples;
