//! Everything at once: commits, writers, readers, other programs and kills, checked as histories.
//!
//! `histories` and `live_commits` have actors that go on for as long as is asked for (`scripts/stress`);
//! `commit_faults`, `waiting`, `full_disk` and `killed` make one moment each, by a store that holds a call.

#[path = "../common/mod.rs"]
mod common;

mod actors;
mod calls;
mod children;
mod commit_faults;
mod fixture;
mod flaky;
mod full_disk;
mod gate;
mod histories;
mod history;
mod in_process;
mod judge;
mod killed;
mod live_commits;
mod mounted;
mod plan;
mod proxy;
mod register;
mod run;
mod run_fixture;
mod value;
mod waiting;
mod world;
