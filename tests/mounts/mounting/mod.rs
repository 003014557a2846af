//! Tests kernel mounts: made, refused, used by other programs, and unmounted in every way.
//!
//! The tests need root and /dev/fuse (`common/needs.rs`). Output that only a person would see (exit statuses, one line
//! on stderr) is tested here as well.

mod callers;
mod command_lines;
mod completed;
mod daemon;
mod decoded_commit;
mod descriptors;
mod diagnostics;
mod ending;
mod error_texts;
mod file_sizes;
mod fixture;
mod forms;
mod inspected;
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
mod served;
mod servers;
mod silent;
mod small_numbers;
mod two_views;
mod unlisted;
mod until_eof;
mod unversioned;
mod uring;
