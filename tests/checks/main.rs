//! Tests `zarrfs check`: it finds each kind of damage and accepts healthy stores.
//!
//! Also tests that `--fix` rebuilds consolidated metadata.

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
#[path = "../dialects/hierarchies.rs"]
#[allow(dead_code, unused_imports, reason = "a part of it is used here")]
mod hierarchies;
#[path = "../dialects/written.rs"]
mod written;
#[allow(dead_code, reason = "a part of it is used here")]
#[path = "../stores/zip/writer.rs"]
mod zip_writer;

mod archives;
mod catalogue;
mod command;
mod conventions;
mod corpus;
mod datasets;
mod fix;
mod fixture;
mod foreign;
mod hostile;
mod local;
mod long_copies;
mod passed_over;
mod pipeline;
mod requests;
mod sections;
mod stores;
mod tables;
mod tolerated;
mod wordings;
