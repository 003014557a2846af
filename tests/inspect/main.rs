//! Commands that look at stores without mounting them: their whole output, on samples, on the corpus, and on stores
//! that are hostile or broken.
//!
//! `BLESS=1` writes the files in `golden/`, with which the output is compared.

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
