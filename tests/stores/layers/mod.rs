//! Tests the requests of store layers to the store below them, and the answers.

mod change_log;
mod consolidated;
mod disk_cache;
mod freshness;
mod lengths;
mod metadata_cache;
