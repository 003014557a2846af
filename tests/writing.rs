//! Writing: decoded files, attributes, documents and nodes, over stores in memory and on disk.

mod common;

#[path = "writing/epochs.rs"]
mod epochs;
#[path = "writing/slow.rs"]
mod slow;
