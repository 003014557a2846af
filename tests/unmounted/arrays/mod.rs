//! Tests arrays in the views: grids, flat files, chunk keys, hostile stores, the corpus.

mod archives;
mod corpus;
mod flat;
mod formats;
mod grids;
mod headers;
mod hostile;
mod hostile_formats;
mod keys;
mod labels;
mod order;
mod plain;
mod ragged_fetches;
mod shard_reads;
mod slices;
mod sparse;
mod stored;
mod tables;
mod texts;
