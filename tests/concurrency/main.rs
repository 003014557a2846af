//! Concurrent commits, writers, readers, other programs and kills, checked as histories.
//!
//! `histories` and `live_commits` run actors for a chosen time (`scripts/stress`). `commit_faults`, `waiting`,
//! `full_disk` and `killed` each produce one interleaving with a store that holds a call. `second_daemon` has two
//! daemons over one store, `hanging` a server that does not answer, and `replaced_below` replaces the store below a
//! mount.

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
#[path = "../stores/zip/writer.rs"]
#[allow(dead_code, reason = "the tests of archives use all of it")]
mod zip_writer;

mod actors;
mod calls;
mod children;
mod commit_faults;
mod fixture;
mod flaky;
mod full_disk;
mod gate;
mod hanging;
mod histories;
mod history;
mod in_process;
mod judge;
mod killed;
mod live_commits;
mod mounted;
mod objects;
mod plan;
mod proxy;
mod register;
mod replaced_below;
mod run;
mod run_fixture;
mod second_daemon;
mod value;
mod waiting;
mod world;
