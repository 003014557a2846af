//! Reads and writes the decoded elements of arrays, chunk by chunk.
//!
//! - `FlatFile` asks `ChunkReader` for the chunks under a range of bytes, through `FileReader` and `Assembler`.
//! - `ChunkReader` finds the versions of chunks (`ChunkVersions`), loads and decodes them (`ChunkLoader`,
//!   `ShardReader`, `Decoder`) and caches them.
//! - `ReadTracker` follows the reader of a file and tells `Prefetcher` through `ReadAhead` which range to prefetch.
//! - `ChunkWriter` collects written chunks in a `WriteBuffer` and flushes it.
//! - `Spill` keeps chunks on disk that were evicted before they were consumed.
//!
//! An `OpenArray` bundles these objects for one array; its path and metadata are a `StoredArray`. An array that cannot
//! be decoded is opened all the same; its reads return the error.

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
mod vlen_ahead;
mod vlen_reader;
mod write_budget;
mod write_buffer;
mod writer_list;
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
