//! Arrays read through the views: grids, flat files, keys of chunks, hostile stores, the corpus.

#[path = "../common/mod.rs"]
mod common;

mod corpus;
mod flat;
mod formats;
mod grids;
mod hostile;
mod hostile_formats;
mod keys;
mod order;
mod shard_reads;
mod slices;
mod sparse;
mod stored;
mod tables;
mod texts;
