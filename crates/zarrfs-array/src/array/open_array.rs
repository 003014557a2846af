//! Bundles the objects that read and write one array.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use crate::array::chunk_listing::{ChunkScan, ScanDetail, StoredChunks};
use crate::array::chunk_reader::ChunkReader;
use crate::array::chunk_versions::ChunkVersions;
use crate::array::chunk_writer::ChunkWriter;
use crate::array::decoder::Decoder;
use crate::array::file_lengths::{FileLengths, VersionOf};
use crate::array::prefetcher::Prefetcher;
use crate::array::shard_file::ShardFile;
use crate::array::sparsity::Sparsity;
use crate::array::stored_array::StoredArray;
use crate::array::stored_set::{StoredSet, StoredSets};
use crate::array::vlen_elements::{ReservedBuffer, VlenElements};
use crate::array::vlen_reader::VlenReader;
use crate::array::write_buffer::WriteBuffer;
use crate::array::writers::busy;
use zarr_format::codec::Pipeline;
use zarr_format::error::{Error, Kind, Result};
use zarr_format::grid::{ChunkIndex, Grid, Region};
use zarr_format::model::Array;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::budget::Reservation;
use zarrfs_store::{Key, LogPosition, Version};

/// The objects that read and write the chunks of an array that can be decoded.
struct Chunks {
    reader: Arc<ChunkReader>,
    writer: Arc<ChunkWriter>,
    prefetcher: Arc<Prefetcher>,
}

/// An open array, whose elements can be read and written.
pub struct OpenArray {
    pub(super) stored: Arc<StoredArray>,
    /// The objects that read and write chunks; `Err` if the array cannot be decoded.
    chunks: Result<Chunks>,
    pub(super) versions: Arc<ChunkVersions>,
    pub(super) buffer: Arc<WriteBuffer>,
    lengths: FileLengths,
    sparsity: Sparsity,
    stored_sets: StoredSets,
    /// The memory that is reserved for the open array until its last user drops it; `None` if the budget had no room.
    pub(super) room: Option<Reservation>,
}

/// A state of the content of an array, which is compared with a later state to detect changes.
pub struct ArrayState {
    position: LogPosition,
    content: u64,
}

impl OpenArray {
    /// Opens an array whose dirty chunks are in `buffer`, and whose memory is reserved by `room`.
    pub(super) fn new(
        stored: Arc<StoredArray>,
        buffer: Arc<WriteBuffer>,
        room: Option<Reservation>,
    ) -> OpenArray {
        let versions = ChunkVersions::new(stored.clone());
        let reader = ChunkReader::new(stored.clone(), versions.clone(), buffer.clone());
        let chunks = reader.map(|reader| Chunks {
            writer: ChunkWriter::new(reader.clone(), buffer.clone()),
            prefetcher: Prefetcher::new(reader.clone()),
            reader,
        });
        OpenArray {
            chunks,
            buffer,
            lengths: FileLengths::new(stored.clone()),
            sparsity: Sparsity::new(stored.clone()),
            stored_sets: StoredSets::new(stored.clone()),
            versions,
            room,
            stored,
        }
    }

    /// Returns the number of this open array. It is unique, and stays the same as long as the metadata describe the
    /// same files.
    pub fn id(&self) -> u64 {
        self.stored.id
    }

    /// Returns the metadata of the array, without attributes.
    pub fn array(&self) -> &Array {
        &self.stored.metadata
    }

    /// Returns the path of the array.
    pub fn path(&self) -> &Key {
        &self.stored.path
    }

    /// Returns the modification time that the array's metadata documents had when the array was opened.
    pub fn modified(&self) -> SystemTime {
        self.stored.modified
    }

    /// Returns the grid of stored chunks, which is known even if the chunks cannot be decoded.
    pub fn stored_grid(&self) -> Result<&Grid> {
        self.stored.grid()
    }

    /// Fails if the chunks of the array cannot be decoded.
    pub fn check_decodable(&self) -> Result<()> {
        self.decoder().map(drop)
    }

    /// Adds a hint to the error that a chunk is too large: the command-line option that raises the limit.
    pub fn with_option(&self, error: Error) -> Error {
        self.stored.with_option(error)
    }

    /// Reserves `bytes` bytes of the memory budget for data of this array.
    pub fn room(&self, bytes: u64) -> Result<Reservation> {
        self.stored.reserve(bytes)
    }

    pub(super) fn decoder(&self) -> Result<&Arc<Decoder>> {
        self.reader().map(|reader| &reader.decoder)
    }

    fn chunks(&self) -> Result<&Chunks> {
        self.chunks.as_ref().map_err(Error::clone)
    }

    pub(super) fn reader(&self) -> Result<&Arc<ChunkReader>> {
        self.chunks().map(|chunks| &chunks.reader)
    }

    pub(super) fn prefetcher(&self) -> Result<&Arc<Prefetcher>> {
        self.chunks().map(|chunks| &chunks.prefetcher)
    }

    /// Returns the version of the array's content. It changes once a stored chunk that was read has changed, and no
    /// version is used twice. Asks the store about all chunks that were read, so it may block. Returns `None` if too
    /// many chunks were read, or if the array cannot be decoded.
    pub fn content(&self, context: &RequestContext) -> Result<Option<u64>> {
        if self.chunks.is_err() || !self.versions.refresh(context)? {
            return Ok(None);
        }
        Ok(Some(self.page_version()))
    }

    /// Returns the version of the array's content, as far as it is known without a request to the store.
    pub fn page_version(&self) -> u64 {
        self.versions.page_version.with(&self.buffer.page_version)
    }

    /// Returns the state of the array's content, for `may_have_changed`, without a request to the store.
    pub fn state(&self) -> ArrayState {
        ArrayState {
            position: self.stored.info.changes.position(),
            content: self.page_version(),
        }
    }

    /// Whether elements that were read may have changed since the state `since`: something was written to the array, or
    /// a chunk that was read was changed through the store. Sends no request.
    pub fn may_have_changed(&self, since: &ArrayState) -> bool {
        self.chunks.is_ok()
            && (self.page_version() != since.content
                || self.versions.may_have_changed(since.position))
    }

    pub(super) fn writer(&self) -> Result<&Arc<ChunkWriter>> {
        self.chunks().map(|chunks| &chunks.writer)
    }

    /// Fails if the array cannot be written: `ReadOnly` if the codecs are lossy and lossy writing is not allowed, or if
    /// elements have no fixed length; `TooLarge` if chunks are too large for the memory; or the error that prevents
    /// decoding.
    pub fn check_writable(&self) -> Result<()> {
        if self.stored.metadata.data_type.is_variable() {
            let why = "arrays of variable-length elements are read-only";
            return Err(Error::new(Kind::ReadOnly, &self.stored.path, why));
        }
        self.writer()?.check_writable()
    }

    /// Stores all dirty chunks of the array, no matter which open file wrote them. After an error the remaining chunks
    /// are still tried, and the first error is returned; `Changed` if new metadata give the stored chunks another
    /// meaning.
    pub fn flush(&self, context: &RequestContext) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.writer()?.flush(context)
    }

    /// Returns how many written chunks were dropped so far because of a conflict, and the last conflict's error.
    pub fn lost(&self) -> (u64, Option<Error>) {
        self.buffer.lost()
    }

    /// Registers an open file for writing; `file` is the path of the file in the mount. `Busy` if the array is open for
    /// writing through another file; waits a moment in case the other file is just being closed.
    pub fn begin_writing(&self, file: &str) -> Result<()> {
        let added = self.buffer.writers.add(file);
        added.map_err(|other| busy(file, &other))
    }

    /// Unregisters an open file that was registered for writing.
    pub fn end_writing(&self) {
        self.buffer.writers.remove();
    }

    /// Records that the kernel has dropped its pages of the file that is open for writing.
    pub fn mark_pages_dropped(&self) {
        self.buffer.writers.mark_pages_dropped();
    }

    /// Counts a write-back of pages from the kernel's page cache.
    pub fn record_page_write(&self) {
        let writes = &self.buffer.writers.page_writes;
        writes.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the number of write-backs of the kernel's pages so far.
    pub fn page_writes(&self) -> u64 {
        self.buffer.writers.page_writes.load(Ordering::Acquire)
    }

    /// Whether a file of the array is open for writing.
    pub fn is_open_for_writing(&self) -> bool {
        self.buffer.writers.is_open()
    }

    /// Returns the codec pipeline of a stored chunk; fails if the array cannot be decoded.
    pub fn pipeline_of(&self, chunk: ChunkIndex) -> Result<Arc<Pipeline>> {
        self.decoder()?.pipeline_of(chunk)
    }

    /// Returns the grid of the smallest chunks that can be decoded alone: chunks, or inner chunks of shards. Fails if
    /// the array cannot be decoded.
    pub fn decoded_grid(&self) -> Result<&Grid> {
        self.decoder().map(|decoder| &decoder.grid)
    }

    /// Returns how many shards are nested around each chunk of `decoded_grid`; 0 without sharding. Fails if the array
    /// cannot be decoded.
    pub fn shard_levels(&self) -> Result<usize> {
        self.decoder()
            .map(|decoder| decoder.pipeline.shards().len())
    }

    /// Returns the decoded size of a chunk in bytes, which determines the block size of files; 0 if the array cannot be
    /// decoded. For inner chunks of a store on a network the size is at most 128 bytes, so that files get a small block
    /// size: a program that fills one buffer to look at a header then fetches only the few inner chunks in its first
    /// 128 KiB.
    pub fn chunk_bytes(&self) -> u64 {
        let Ok(decoder) = self.decoder() else {
            return 0;
        };
        let bytes = |all: u64, &length: &u64| all.saturating_mul(length);
        let shape = decoder.grid.chunk_shape().iter();
        let bytes = shape.fold(self.stored.element as u64, bytes);
        match self.stored.engine.limits.fetches {
            0 => bytes,
            _ if decoder.reads_groups() => bytes.min(128),
            _ => bytes,
        }
    }

    /// Whether the stored chunks are shards. Fails if the array cannot be decoded.
    pub fn has_shards(&self) -> Result<bool> {
        Ok(!self.decoder()?.pipeline.shards().is_empty())
    }

    /// Returns the shard with these indices, or `None` if the shard is not stored or outside the grid.
    ///
    /// Fails if a request fails or the array cannot be decoded; an unreadable shard index is no error here.
    pub fn shard_file(
        &self,
        context: &RequestContext,
        indices: &[u64],
    ) -> Result<Option<ShardFile>> {
        ShardFile::find(self.reader()?, context, indices)
    }

    /// Whether the stored chunks of the array can be listed.
    pub fn can_list_chunks(&self) -> bool {
        self.stored.metadata.keys.is_known() && self.stored.info.lists
    }

    /// Begins to list the stored chunks; `Unsupported` if the store cannot list its keys.
    pub fn stored_chunks(&self) -> Result<StoredChunks> {
        StoredChunks::new(self.stored.clone())
    }

    /// Whether the array is large and almost no chunk of it is stored. Returns false if one or two requests cannot show
    /// that the array is sparse.
    pub fn is_sparse(&self, context: &RequestContext) -> Result<bool> {
        self.sparsity.is_sparse(context)
    }

    /// Returns the numbers of the stored chunks, in the order of the grid; stores dirty chunks first. `Unsupported` if
    /// the store cannot list its keys, `TooLarge` if the numbers need more than 1/4 of the memory.
    pub fn stored_set(&self, context: &RequestContext) -> Result<Arc<StoredSet>> {
        if !self.buffer.is_empty() {
            context.check_may_wait()?;
            // The error of the flush is not lost, because closing the written file returns it.
            let _ = self.flush(context);
        }
        self.stored_sets.get(context)
    }

    /// Whether a chunk of `decoded_grid` is stored or dirty. An inner chunk whose shard index cannot be read counts as
    /// stored, so that reads of the chunk return the error. Fails if the array cannot be decoded.
    pub fn has_chunk(&self, context: &RequestContext, chunk: ChunkIndex) -> Result<bool> {
        self.reader()?.is_stored(context, chunk)
    }

    /// Records that a program reads a chunk of `decoded_grid` as a file; prefetches the next chunks if the program
    /// reads one chunk after the other.
    pub fn record_chunk_read(&self, chunk: ChunkIndex) {
        if let Ok(prefetcher) = self.prefetcher() {
            prefetcher.record_chunk_read(chunk);
        }
    }

    /// Begins to list the stored chunks with up to `threads` requests at a time; `Unsupported` if the store cannot list
    /// its keys.
    pub fn scan_chunks(
        &self,
        context: &RequestContext,
        detail: ScanDetail,
        threads: usize,
    ) -> Result<ChunkScan> {
        ChunkScan::new(self.stored.clone(), context, detail, threads)
    }

    /// Returns a version for the content of the stored chunks that a box covers; asks the store for unknown versions.
    /// `TooLarge` if the box has too many elements without a fixed length, `Unavailable` if the store takes longer than
    /// a request may.
    pub fn region_version(&self, context: &RequestContext, region: &Region) -> Result<Version> {
        let decoder = self.decoder()?;
        if self.stored.metadata.data_type.is_variable() {
            self.growing().count(region)?;
        }
        self.versions.of_region(context, &decoder.stored, region)
    }

    /// Returns the length of file `name`: the cached length if the elements have the version that it was computed from,
    /// or else the result of `measure`. `version_of` returns the present version of the elements. Concurrent callers
    /// share one call of `measure`. If the call takes longer than they wait, it still runs to its end, and a later
    /// caller finds the length.
    pub fn length_of(
        &self,
        context: &RequestContext,
        name: &str,
        version_of: VersionOf<'_>,
        measure: impl FnOnce(&RequestContext) -> Result<u64>,
    ) -> Result<u64> {
        self.lengths.length_of(context, name, version_of, measure)
    }

    /// Records the length of file `name`, which was computed from elements of the version `version`, unless the
    /// elements have another version by now.
    pub fn record_length(
        &self,
        context: &RequestContext,
        name: &str,
        version_of: VersionOf<'_>,
        version: Version,
        length: u64,
    ) -> Result<()> {
        self.lengths
            .record(context, name, version_of, version, length)
    }

    /// Reads a box of variable-length elements; `TooLarge` if its elements and a row of its chunks need more than 1/2
    /// of the memory budget, `Corrupt` if a chunk has the wrong number of elements.
    pub fn records(&self, context: &RequestContext, region: &Region) -> Result<VlenElements> {
        VlenReader::new(self.prefetcher()?).read(context, region)
    }

    /// Creates a buffer that reserves memory as it grows, up to 1/2 of the memory budget.
    pub fn growing(&self) -> ReservedBuffer<'_> {
        ReservedBuffer::new(&self.stored)
    }
}
