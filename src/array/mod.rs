//! An array opened: its metadata, how its chunks decode, and what of them is in memory.
//!
//! To read, `flat_file` puts pieces together into ranges of bytes, `chunk` and `shard` load one piece, `decoder` says
//! where it is stored and how it decodes, and `versions` which content of a stored chunk is the current one.
//! `read_tracker` follows the reader of each file, to prefetch what it reads next and to evict what it has consumed.
//! To write, `write` puts ranges of bytes into pieces, and `dirty_chunks` holds these until `flush` has stored them. `content`
//! tells one content of an array from another. An array that cannot be decoded is opened all the same; its reads return
//! the error.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};

use crate::array::decoder::Decoder;
use crate::array::dirty_chunks::DirtyChunks;
use crate::array::loading::DecodedPieces;
use crate::array::read_tracker::ReadTrackers;
use crate::array::seen_lengths::SeenLengths;
use crate::array::shard_group::ShardGroups;
use crate::array::versions::{ChunkVersions, LockedVersions, VersionState};
use crate::error::{Error, Kind, Result};
use crate::grid::{ChunkIndex, Grid};
use crate::hierarchy::{Hierarchy, NodeEntry};
use crate::model::Array;
use crate::request_context::RequestContext;
use crate::store::{EncodedBy, Key, QueryStamp, Store, Version};
use crate::sync::budget::Reservation;

mod arrays;
mod chunk;
mod chunk_rows;
mod chunk_scan;
mod conditions;
mod content;
mod content_number;
mod decoder;
mod dirty_chunk;
mod dirty_chunks;
mod engine;
pub mod flat_file;
mod flush;
mod gather;
mod lengths;
mod loading;
mod open_arrays;
mod parts;
mod piece;
mod piece_rows;
mod prefetch;
pub mod ragged;
mod ragged_ahead;
mod read_contents;
mod read_tracker;
mod readers;
#[cfg(test)]
mod sample_array;
mod seen_lengths;
mod shard;
mod shard_file;
mod shard_group;
mod spill;
mod spill_file;
mod stored_chunks;
pub mod strided_file;
mod versions;
mod write;
mod writers;
mod written_keys;

pub use crate::array::arrays::Arrays;
pub use crate::array::chunk_scan::{ChunkScan, ScanDetail};
pub use crate::array::content::ArrayState;
pub use crate::array::engine::{Engine, EngineDisk, Limits};
pub use crate::array::lengths::{RegionVersion, VersionOf};
pub use crate::array::shard_file::ShardFile;
pub use crate::array::spill_file::SpillConfig;
pub use crate::array::stored_chunks::{FoundChunk, StoredChunks};
pub use crate::array::write::WriteSource;
pub use crate::array::written_keys::WrittenKey;

fn array_of(entry: &NodeEntry) -> Result<&Array> {
    let array = entry.array();
    array.ok_or_else(|| Error::invalid(&entry.path, "is not an array"))
}

/// The length of a file that had to be read to know it, in bytes, or that it is too large to be read; and the version of
/// the chunks that it was made of.
#[derive(Clone)]
struct VersionedLength {
    version: Version,
    length: Result<u64>,
}

/// An array, ready to be read.
pub struct OpenArray {
    id: u64,
    path: Key,
    /// When its documents had last been changed when it was opened.
    modified: SystemTime,
    /// How often all of the store had been replaced when its documents were read.
    replacements: u64,
    /// The version of the node's documents that were last found to describe this array.
    same_version: AtomicU64,
    /// The metadata, without attributes, which are not needed to read data.
    array: Arc<Array>,
    /// Bytes of an element; 0 if that is unknown.
    element: usize,
    stored: Result<Grid>,
    decoder: Result<Decoder>,
    /// The readers of its open files; `None` if the array cannot be decoded.
    trackers: Option<Arc<ReadTrackers>>,
    /// Which pieces were decoded before.
    decoded: DecodedPieces,
    /// Whether a warning was logged that memory has no room for a row of chunks.
    has_warned: AtomicBool,
    versions: ChunkVersions,
    /// Inner chunks that are read together.
    groups: ShardGroups,
    /// How long pieces were whose length the metadata do not tell.
    seen_lengths: SeenLengths,
    /// What was written and is not stored yet.
    dirty: Arc<DirtyChunks>,
    /// The document and the folder of the chunks, for an array of a draft.
    draft_keys: Option<(Key, Key)>,
    /// By which metadata chunks are encoded, once that was asked.
    encoded_by: OnceLock<Option<EncodedBy>>,
    /// Lengths of files that had to be read to know them.
    lengths: Mutex<HashMap<String, VersionedLength>>,
    /// Whether next to nothing of it was stored, and how old the answer is.
    sparse: Mutex<Option<(bool, QueryStamp)>>,
    hierarchy: Arc<Hierarchy>,
    engine: Arc<Engine>,
    /// The room of the array in the memory budget, until its last holder drops it; nothing if there was none left.
    room: Option<Reservation>,
}

impl OpenArray {
    /// Returns a number that no other open array has: the same as long as the metadata mean the same files.
    pub fn id(&self) -> u64 {
        self.id
    }

    fn new(
        entry: &NodeEntry,
        (array, dirty): (Arc<Array>, Arc<DirtyChunks>),
        hierarchy: Arc<Hierarchy>,
        (engine, room): (Arc<Engine>, Option<Reservation>),
    ) -> Result<OpenArray> {
        let stored = Grid::of(&array).map_err(|error| error.about(&entry.path));
        let decoder = stored.as_ref().map_err(Error::clone).and_then(|stored| {
            let decoder = Decoder::new(&array, stored, &engine.limits);
            decoder.map_err(|error| error.about(&entry.path))
        });
        let chunks = stored.as_ref().map_or(0, Grid::len);
        let id = engine.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let decodable = decoder.as_ref().ok();
        let trackers = decodable.map(|decoder| Arc::new(ReadTrackers::new(decoder.pieces.clone())));
        if let (Some(spill), Some(trackers)) = (&engine.spill, &trackers)
            && decodable.is_some_and(Decoder::is_encoded)
        {
            spill.add(id, trackers);
        }
        Ok(OpenArray {
            trackers,
            decoded: DecodedPieces::default(),
            has_warned: AtomicBool::new(false),
            id,
            element: array.element_size().unwrap_or(0),
            stored,
            decoder,
            dirty,
            draft_keys: hierarchy.draft_keys(entry),
            encoded_by: OnceLock::new(),
            groups: ShardGroups::default(),
            seen_lengths: SeenLengths::default(),
            lengths: Mutex::default(),
            sparse: Mutex::default(),
            versions: ChunkVersions::new(hierarchy.store().info(), chunks, &engine.metadata),
            same_version: AtomicU64::new(entry.version),
            path: entry.path.clone(),
            modified: entry.modified,
            replacements: entry.replacements,
            room,
            array,
            hierarchy,
            engine,
        })
    }

    /// Returns the metadata, without attributes.
    pub fn array(&self) -> &Array {
        &self.array
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
        self.stored.as_ref().map_err(Error::clone)
    }

    /// Fails if the array cannot be decoded.
    pub fn check_decodable(&self) -> Result<()> {
        self.decoder().map(drop)
    }

    /// Whether stored chunks are their own decoded form, in files of this machine, in rows of at least `run` bytes:
    /// then the kernel's cache of the files is all the cache they need.
    fn reads_direct(&self, run: u64) -> bool {
        let Ok(decoder) = self.decoder() else {
            return false;
        };
        let row = decoder.stored.chunk_shape().last().copied().unwrap_or(1);
        !decoder.is_encoded()
            && self.hierarchy.store().info().folder.is_some()
            && row.saturating_mul(self.element as u64) >= run
    }

    /// Returns the keys that a chunk may be stored under.
    fn keys(&self, indices: &[u64]) -> Result<Vec<Key>> {
        self.array
            .keys
            .candidates(indices)
            .into_iter()
            .map(Key::new)
            .collect()
    }

    /// Asks the store; returns its answer and how old that is.
    fn ask<T>(
        &self,
        context: &RequestContext,
        question: impl FnOnce(&RequestContext, &dyn Store) -> T,
    ) -> (T, QueryStamp) {
        let store = &**self.hierarchy.store();
        store
            .info()
            .ask(context, |context| question(context, store))
    }

    /// Returns what is known of the version of a stored chunk.
    fn version_state(&self, decoder: &Decoder, stored: u64) -> VersionState {
        self.version_in(&self.versions.lock(), decoder, stored, self.versions.now())
    }

    /// Like `version_state`, in the locked table.
    fn version_in(
        &self,
        versions: &LockedVersions<'_>,
        decoder: &Decoder,
        stored: u64,
        now: Instant,
    ) -> VersionState {
        versions.of(stored, now, || self.stored_keys(decoder, stored))
    }

    /// Returns the keys that a stored chunk may have.
    fn stored_keys(&self, decoder: &Decoder, stored: u64) -> Result<Vec<Key>> {
        self.keys(&decoder.stored.indices(ChunkIndex(stored)))
    }

    fn decoder(&self) -> Result<&Decoder> {
        self.decoder.as_ref().map_err(Error::clone)
    }

    /// Whether a node is this array with the same files: only attributes may have changed.
    fn is_same(&self, found: &NodeEntry) -> bool {
        if found.replacements != self.replacements {
            return false;
        }
        if found.version == self.same_version.load(Ordering::Relaxed) {
            return true;
        }
        let is_like =
            |array: &Array| array.shape == self.array.shape && array.is_stored_like(&self.array);
        let is_same = found.array().is_some_and(is_like);
        if is_same {
            self.same_version.store(found.version, Ordering::Relaxed);
        }
        is_same
    }

    /// Fails with `Changed` if the metadata are no longer those that the array was opened with.
    fn check_metadata(&self, context: &RequestContext) -> Result<()> {
        match self.hierarchy.node(context, &self.path)? {
            Some(found) if self.is_same(&found) => Ok(()),
            _ => Err(self.changed()),
        }
    }

    /// Fails with `Changed` if the metadata give stored chunks another meaning by now; the shape may be another.
    fn check_chunks_hold(&self, context: &RequestContext) -> Result<()> {
        let found = self.hierarchy.node(context, &self.path)?;
        let array = found.as_deref().and_then(NodeEntry::array);
        match array {
            Some(array) if array.is_stored_like(&self.array) => self.check_store(),
            _ => Err(self.changed()),
        }
    }

    /// Whether all of the store is as it was when the metadata were read: chunks of an archive and of another one that has
    /// taken its place are never mixed.
    fn store_holds(&self) -> bool {
        self.hierarchy.store().info().replacements.count() == self.replacements
    }

    /// Fails with `Changed` if it is not. What was read before the call is of the one content.
    fn check_store(&self) -> Result<()> {
        if self.store_holds() {
            return Ok(());
        }
        Err(self.changed())
    }

    fn changed(&self) -> Error {
        let why = if self.store_holds() {
            "the metadata changed while a file was open"
        } else {
            "the archive was replaced while a file was open"
        };
        Error::new(Kind::Changed, &self.path, why)
    }

    /// Whether the metadata are known to be those that the array was opened with, without asking.
    fn metadata_hold(&self, context: &RequestContext) -> bool {
        let known = self.hierarchy.node(&context.without_waiting(), &self.path);
        matches!(known, Ok(Some(found)) if self.is_same(&found))
    }
}
