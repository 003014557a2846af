//! Tests of writing: decoded files and attributes, over stores in memory and on disk.

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

mod array_spec;
mod arrays;
mod broken_attributes;
mod broken_nodes;
mod changed_keys;
mod conflicts;
mod consolidated;
mod contents;
mod derived_copies;
mod discards;
mod documents;
mod encodings;
mod files;
mod fixture;
#[path = "../dialects/hierarchies.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod hierarchies;
mod kept_documents;
mod seen_documents;
mod shared;
mod side_by_side;
mod slow;
#[path = "../dialects/written.rs"]
mod written;
