//! Reads and writes the decoded elements of arrays, chunk by chunk.
//!
//! - `FlatFile` asks `ChunkReader` for the chunks of a byte range, through `FileReader` and `Assembler`.
//! - `ChunkReader` finds the versions of chunks (`ChunkVersions`), loads and decodes chunks (`ChunkLoader`,
//!   `ShardReader`, `Decoder`) and caches them.
//! - `ReadTracker` follows the reader of a file and tells `Prefetcher` through `ReadAhead` which range to prefetch.
//! - `ChunkWriter` collects written chunks in a `WriteBuffer` and flushes it.
//! - `Spill` stores chunks on disk that were evicted before their reader consumed them.
//!
//! An `OpenArray` bundles these objects for one array; its path and metadata are a `StoredArray`. An array that cannot
//! be decoded can still be opened; its reads return the error.

mod arrays;
mod assembler;
mod chunk;
mod chunk_listing;
mod chunk_loader;
mod chunk_reader;
mod chunk_versions;
mod chunk_writer;
mod decoder;
mod dirty_chunk;
mod engine;
mod file_layout;
mod file_lengths;
mod file_reader;
pub mod flat_file;
mod open_array;
mod open_chunk;
mod open_chunks;
mod prefetcher;
mod read_ahead;
mod read_tracker;
mod read_versions;
#[cfg(test)]
mod sample_array;
mod shard;
mod shard_file;
mod shard_groups;
mod shard_reader;
mod sparsity;
mod spill;
mod stored_array;
mod stored_set;
pub mod strided_file;
pub mod vlen_elements;
mod vlen_reader;
mod write_budget;
mod write_buffer;
mod writers;

pub use crate::array::arrays::Arrays;
pub use crate::array::chunk_listing::{ChunkScan, ListedChunk, ScanDetail, StoredChunks};
pub use crate::array::chunk_versions::combined_version;
pub use crate::array::chunk_writer::WriteSource;
pub use crate::array::engine::{Engine, EngineDisk, Limits};
pub use crate::array::file_lengths::VersionOf;
pub use crate::array::open_array::{ArrayState, OpenArray};
pub use crate::array::shard_file::ShardFile;
pub use crate::array::spill::SpillConfig;
pub use crate::array::stored_set::StoredSet;
pub use crate::array::writers::WrittenKey;
