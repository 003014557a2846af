//! An array opened: its metadata, how its chunks decode, and what of them is in memory.
//!
//! To read, `flat_file` puts chunks together into ranges of bytes, `chunk` and `shard` load one chunk, `decoder` says
//! where it is stored and how it decodes, and `versions` which content of a stored chunk is the current one.
//! `read_tracker` follows the reader of each file, to prefetch what it reads next and to evict what it has consumed.
//! To write, `write` puts ranges of bytes into chunks, and `dirty_chunks` holds these until `flush` has stored them. `content`
//! tells one content of an array from another. An array that cannot be decoded is opened all the same; its reads return
//! the error.

mod arrays;
mod assembler;
mod chunk;
mod chunk_loader;
mod chunk_reader;
mod chunk_rows;
mod chunk_scan;
mod chunk_slice;
mod chunk_versions;
mod chunk_writer;
mod decoded_chunks;
mod decoder;
mod dirty_chunk;
mod engine;
mod file_layout;
mod file_reader;
pub mod flat_file;
mod lengths;
mod open_array;
mod open_arrays;
mod open_chunk;
mod open_chunks;
mod page_version;
mod parallel_decode;
mod prefetcher;
pub mod ragged;
mod ragged_ahead;
mod read_ahead;
mod read_contents;
mod read_tracker;
mod reader_cache;
#[cfg(test)]
mod sample_array;
mod shard;
mod shard_file;
mod shard_groups;
mod shard_indexes;
mod shard_reader;
mod size_estimate;
mod sparsity;
mod spill;
mod spill_file;
mod stored_array;
mod stored_chunks;
pub mod strided_file;
mod version_table;
mod vlen_reader;
mod write_budget;
mod write_buffer;
mod writers;
mod written_keys;

pub use crate::array::arrays::Arrays;
pub use crate::array::chunk_scan::{ChunkScan, ScanDetail};
pub use crate::array::chunk_writer::WriteSource;
pub use crate::array::engine::{Engine, EngineDisk, Limits};
pub use crate::array::lengths::{RegionVersion, VersionOf};
pub use crate::array::open_array::{ArrayState, OpenArray};
pub use crate::array::shard_file::ShardFile;
pub use crate::array::spill_file::SpillConfig;
pub use crate::array::stored_chunks::{FoundChunk, StoredChunks};
pub use crate::array::written_keys::WrittenKey;
