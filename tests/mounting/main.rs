//! Real kernel mounts: made, refused, used by other programs, and unmounted in every way.
//!
//! Needs root and /dev/fuse (`common/needs.rs`). Output that only a person would see (exit statuses, one line on
//! stderr) is tested here as well.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that panics has failed, and its numbers are small"
)]

#[path = "../common/mapped.rs"]
mod mapped;
#[path = "../common/needs.rs"]
mod needs;
#[path = "../common/scripted.rs"]
mod scripted;
#[path = "../common/tmpfs.rs"]
mod tmpfs;

mod callers;
mod completed;
mod daemon;
mod decoded_commit;
mod descriptors;
mod ending;
mod file_sizes;
mod finding_out;
mod fixture;
mod forms;
mod killed;
mod listed;
mod mute;
mod output;
mod own_control;
mod passthrough;
mod places;
mod records;
mod refusals;
mod replicas;
mod said;
mod served;
mod servers;
mod silent;
mod small_numbers;
mod two_views;
mod typed;
mod unlisted;
mod until_eof;
mod unversioned;
mod uring;
