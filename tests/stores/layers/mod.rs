//! Tests of layers over a store: their requests to it, and their answers.

mod change_log;
mod consolidated;
mod disk_cache;
mod freshness;
mod lengths;
mod metadata_cache;
