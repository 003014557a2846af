//! Tests concurrent commits, writers, readers, other programs and kills by their recorded histories.
//!
//! `histories` and `live_commits` run actors for a chosen time (`scripts/stress`). `commit_faults`, `waiting`,
//! `full_disk` and `killed` each produce one interleaving with a store that holds a call. `second_daemon` has two
//! daemons over one store, `hanging` a server that does not answer, and `replaced_below` replaces the store below a
//! mount.

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
