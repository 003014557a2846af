//! Bundles the objects that read and write one array.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use crate::array::chunk_reader::ChunkReader;
use crate::array::chunk_scan::{ChunkScan, ScanDetail};
use crate::array::chunk_versions::ChunkVersions;
use crate::array::chunk_writer::ChunkWriter;
use crate::array::decoder::Decoder;
use crate::array::lengths::{FileLengths, RegionVersion, VersionOf};
use crate::array::prefetcher::Prefetcher;
use crate::array::ragged::{Growing, RaggedElements};
use crate::array::shard_file::ShardFile;
use crate::array::sparsity::Sparsity;
use crate::array::stored_array::StoredArray;
use crate::array::stored_chunks::StoredChunks;
use crate::array::vlen_reader::VlenReader;
use crate::array::write_buffer::WriteBuffer;
use crate::array::writers::busy;
use zarr_format::codec::Pipeline;
use zarr_format::error::{Error, Kind, Result};
use zarr_format::grid::{ChunkIndex, Grid, Region};
use zarr_format::model::Array;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::budget::Reservation;
use zarrfs_store::{Key, LogPosition};

/// What an inner chunk on a network counts for in the block size of files, in bytes.
const REMOTE_INNER_CHUNK: u64 = 128;

/// What reads and writes the chunks of an array that decodes.
struct Chunks {
    reader: Arc<ChunkReader>,
    writer: Arc<ChunkWriter>,
    prefetcher: Arc<Prefetcher>,
}

/// An array, ready to be read.
pub struct OpenArray {
    stored: Arc<StoredArray>,
    /// The error if the array cannot be decoded.
    chunks: Result<Chunks>,
    pub(super) versions: Arc<ChunkVersions>,
    /// What was written and is not stored yet.
    pub(super) buffer: Arc<WriteBuffer>,
    lengths: FileLengths,
    sparsity: Sparsity,
    /// The room of the array in the memory budget, until its last holder drops it; nothing if there was none left.
    pub(super) room: Option<Reservation>,
}

/// What the content of an array was at some time.
pub struct ArrayState {
    /// The position of the store's change log.
    position: LogPosition,
    /// The number of the content.
    content: u64,
}

impl Deref for OpenArray {
    type Target = StoredArray;

    fn deref(&self) -> &StoredArray {
        &self.stored
    }
}

impl OpenArray {
    /// Opens an array whose pending writes are in `buffer`, and which counts in `room`.
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
            versions,
            room,
            stored,
        }
    }

    /// Returns a number that no other open array has: the same as long as the metadata mean the same files.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the metadata, without attributes.
    pub fn array(&self) -> &Array {
        &self.metadata
    }

    /// Returns the path of the array.
    pub fn path(&self) -> &Key {
        &self.path
    }

    /// Returns when the documents of the array had last been changed when it was opened.
    pub fn modified(&self) -> SystemTime {
        self.modified
    }

    /// Returns the grid of chunks as stored; it exists whether or not they decode.
    pub fn stored_grid(&self) -> Result<&Grid> {
        self.stored.grid()
    }

    /// Fails if the array cannot be decoded.
    pub fn check_decodable(&self) -> Result<()> {
        self.decoder().map(drop)
    }

    /// Takes room in the budget for bytes of this array.
    pub fn room(&self, bytes: u64) -> Result<Reservation> {
        self.reserve(bytes)
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

    /// Returns a number of the present content: another one once a stored chunk that was read has changed, and never one
    /// that another content had. Asks the store about all chunks that were read, so it may wait; nothing if these are too
    /// many.
    pub fn content(&self, context: &RequestContext) -> Result<Option<u64>> {
        if self.chunks.is_err() || !self.versions.refresh(context)? {
            return Ok(None);
        }
        Ok(Some(self.content_number()))
    }

    /// Like `content`, by what is known without asking.
    pub fn content_number(&self) -> u64 {
        self.versions.content().with(self.buffer.content())
    }

    /// Returns the state of the content by what is known without asking.
    pub fn state(&self) -> ArrayState {
        ArrayState {
            position: self.store().info().changes.position(),
            content: self.content_number(),
        }
    }

    /// Whether what was read may have changed since a state, by what is known without asking: something was written to
    /// the array, or a chunk that was read was changed through the store.
    pub fn may_have_changed(&self, since: &ArrayState) -> bool {
        self.chunks.is_ok()
            && (self.content_number() != since.content
                || self.versions.may_have_changed(since.position))
    }

    pub(super) fn writer(&self) -> Result<&Arc<ChunkWriter>> {
        self.chunks().map(|chunks| &chunks.writer)
    }

    /// Fails if the array cannot be written: `ReadOnly` if encoding would lose something and that is not allowed, or
    /// if elements have no fixed length; `TooLarge` if chunks are too large for the memory; and with the error that
    /// stops them from being decoded.
    pub fn check_writable(&self) -> Result<()> {
        if self.metadata.data_type.is_variable() {
            let why = "elements without a fixed length are not written";
            return Err(Error::new(Kind::ReadOnly, &self.path, why));
        }
        self.writer()?.check_writable()
    }

    /// Stores all that was written to the array, through any handle. Returns the first error, after all chunks were
    /// tried; `Changed` if the metadata give the chunks another meaning by now.
    pub fn flush(&self, context: &RequestContext) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.writer()?.flush(context)
    }

    /// Returns how many written chunks were dropped so far because their keys had changed, and the error of the last.
    pub fn lost(&self) -> (u64, Option<Error>) {
        self.buffer.lost()
    }

    /// Notes that the array is opened for writing by the file at a path of the mount. `Busy` if another file of it is; one
    /// that was closed just now is waited for.
    pub fn begin_writing(&self, file: &str) -> Result<()> {
        let added = self.buffer.writers().add(file);
        added.map_err(|other| busy(file, &other))
    }

    /// Notes that a handle for writing was closed.
    pub fn end_writing(&self) {
        self.buffer.writers().remove();
    }

    /// Notes that the kernel has dropped its pages of the file that is open for writing.
    pub fn note_pages_dropped(&self) {
        self.buffer.writers().note_pages_dropped();
    }

    /// Notes that pages are written.
    pub fn note_page_write(&self) {
        let writes = &self.buffer.writers().page_writes;
        writes.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns how many times pages were written.
    pub fn page_writes(&self) -> u64 {
        self.buffer.writers().page_writes.load(Ordering::Acquire)
    }

    /// Whether the array is open for writing.
    pub fn is_open_for_writing(&self) -> bool {
        self.buffer.writers().are_some()
    }

    /// Returns how a stored chunk decodes; fails if the array cannot be decoded.
    pub fn pipeline_of(&self, chunk: ChunkIndex) -> Result<Arc<Pipeline>> {
        self.decoder()?.pipeline_of(chunk)
    }

    /// Returns the grid of the smallest chunks that decode alone: chunks, or inner chunks of shards. Fails if the array
    /// cannot be decoded.
    pub fn decoded_grid(&self) -> Result<&Grid> {
        self.decoder().map(|decoder| &decoder.grid)
    }

    /// Returns how many levels of shards lie around such a chunk. Fails if the array cannot be decoded.
    pub fn shard_levels(&self) -> Result<usize> {
        self.decoder()
            .map(|decoder| decoder.pipeline.shards().len())
    }

    /// Returns the bytes of a chunk as it is decoded, from which the block size of files follows; 0 if the array cannot be.
    /// Inner chunks on a network count as short ones: a program that fills a buffer to look at a header has the few inner
    /// chunks fetched that lie under 128 KiB.
    pub fn chunk_bytes(&self) -> u64 {
        let Ok(decoder) = self.decoder() else {
            return 0;
        };
        let bytes = |all: u64, &length: &u64| all.saturating_mul(length);
        let shape = decoder.grid.chunk_shape().iter();
        let bytes = shape.fold(self.element as u64, bytes);
        match self.engine.limits.fetches {
            0 => bytes,
            _ if decoder.reads_groups() => bytes.min(REMOTE_INNER_CHUNK),
            _ => bytes,
        }
    }

    /// Whether its stored chunks are shards. Fails if the array cannot be decoded.
    pub fn has_shards(&self) -> Result<bool> {
        Ok(!self.decoder()?.pipeline.shards().is_empty())
    }

    /// Returns the shard with these indices; nothing if it is not stored or there is no such one.
    ///
    /// Fails if the store does, or the array cannot be decoded; not for an index that does not read.
    pub fn shard_file(
        &self,
        context: &RequestContext,
        indices: &[u64],
    ) -> Result<Option<ShardFile>> {
        ShardFile::find(self.reader()?, context, indices)
    }

    /// Whether `stored_chunks` can tell which chunks are stored.
    pub fn tells_stored_chunks(&self) -> bool {
        self.metadata.keys.is_known() && self.hierarchy.store().info().lists
    }

    /// Begins to read which chunks are stored; `Unsupported` if the store cannot list its keys.
    pub fn stored_chunks(&self) -> Result<StoredChunks> {
        StoredChunks::new(self.stored.clone())
    }

    /// Whether the array is too large to be read for nothing, and next to nothing of it is stored. Where that is not
    /// known after a request or two, it is not.
    pub fn is_sparse(&self, context: &RequestContext) -> Result<bool> {
        self.sparsity.is_sparse(context)
    }

    /// Begins to read which chunks are stored, with `threads` requests at a time; fails as `stored_chunks` does.
    pub fn scan_chunks(
        &self,
        context: &RequestContext,
        detail: ScanDetail,
        threads: usize,
    ) -> Result<ChunkScan> {
        ChunkScan::new(self.stored.clone(), context, detail, threads)
    }

    /// Returns the length of file `name`, which is made of elements that have the version `version_of`: one that is
    /// known of the present content, or that `measure` finds. Concurrent callers measure once, to the end if it takes
    /// longer than they wait: a later one finds it.
    pub fn length_of(
        &self,
        context: &RequestContext,
        name: &str,
        version_of: VersionOf<'_>,
        measure: impl FnOnce(&RequestContext) -> Result<u64>,
    ) -> Result<u64> {
        self.lengths.length_of(context, name, version_of, measure)
    }

    /// Keeps the length of file `name`, which was made of elements that had a version before: unless they have another
    /// one by now.
    pub fn note_length(
        &self,
        context: &RequestContext,
        name: &str,
        version_of: VersionOf<'_>,
        version: RegionVersion,
        length: u64,
    ) -> Result<()> {
        self.lengths
            .note(context, name, version_of, version, length)
    }

    /// Reads a box; `TooLarge` if its elements and a row of its chunks need more than half of the budget,
    /// `Corrupt` if a chunk does not have as many elements as it should.
    pub fn records(&self, context: &RequestContext, region: &Region) -> Result<RaggedElements> {
        VlenReader::new(self.prefetcher()?).read(context, region)
    }

    /// Returns the number of elements of a box; `TooLarge` if even empty ones need more than half of the budget.
    pub(super) fn element_count(&self, region: &Region) -> Result<usize> {
        self.growing().count(region)
    }

    /// Begins to put bytes together, of at most half of the budget.
    pub fn growing(&self) -> Growing<'_> {
        Growing::new(&self.stored)
    }
}
