//! Layers over a store: what each asks of the store below it, and that its answers are those of that store.

#[path = "../common/mod.rs"]
mod common;

mod change_log;
mod consolidated;
mod disk_cache;
mod freshness;
mod lengths;
mod metadata_cache;
