//! An array opened: its metadata, how its chunks decode, and what of them is in memory.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use crate::array::chunk_reader::ChunkReader;
use crate::array::chunk_versions::ChunkVersions;
use crate::array::decoder::Decoder;
use crate::array::dirty_chunks::DirtyChunks;
use crate::array::lengths::VersionedLength;
use crate::array::read_tracker::ReadTrackers;
use crate::array::stored_array::StoredArray;
use crate::error::{Error, Result};
use crate::grid::Grid;
use crate::model::Array;
use crate::request_context::RequestContext;
use crate::store::{EncodedBy, Key, LogPosition, QueryStamp};
use crate::sync::budget::Reservation;

/// An array, ready to be read.
pub struct OpenArray {
    stored: Arc<StoredArray>,
    pub(super) reader: Result<Arc<ChunkReader>>,
    /// The readers of its open files; `None` if the array cannot be decoded.
    pub(super) trackers: Option<Arc<ReadTrackers>>,
    /// Whether a warning was logged that memory has no room for a row of chunks.
    pub(super) has_warned: AtomicBool,
    pub(super) versions: Arc<ChunkVersions>,
    /// What was written and is not stored yet.
    pub(super) dirty: Arc<DirtyChunks>,
    /// By which metadata chunks are encoded, once that was asked.
    pub(super) encoded_by: OnceLock<Option<EncodedBy>>,
    /// Lengths of files that had to be read to know them.
    pub(super) lengths: Mutex<HashMap<String, VersionedLength>>,
    /// Whether next to nothing of it was stored, and how old the answer is.
    pub(super) sparse: Mutex<Option<(bool, QueryStamp)>>,
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
    /// Opens an array whose pending writes are in `dirty`, and which counts in `room`.
    pub(super) fn new(
        stored: Arc<StoredArray>,
        dirty: Arc<DirtyChunks>,
        room: Option<Reservation>,
    ) -> OpenArray {
        let engine = &stored.engine;
        let versions = ChunkVersions::new(stored.clone());
        let reader = ChunkReader::new(stored.clone(), versions.clone(), dirty.clone());
        let decodable = reader.as_ref().ok().map(|reader| &reader.decoder);
        let trackers = decodable.map(|decoder| Arc::new(ReadTrackers::new(decoder.pieces.clone())));
        if let (Some(spill), Some(trackers)) = (&engine.spill, &trackers)
            && decodable.is_some_and(|decoder| decoder.is_encoded())
        {
            spill.add(stored.id, trackers);
        }
        OpenArray {
            trackers,
            has_warned: AtomicBool::new(false),
            reader,
            dirty,
            encoded_by: OnceLock::new(),
            lengths: Mutex::default(),
            sparse: Mutex::default(),
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

    /// Whether stored chunks are their own decoded form, in files of this machine, in rows of at least `run` bytes:
    /// then the kernel's cache of the files is all the cache they need.
    pub(super) fn reads_direct(&self, run: u64) -> bool {
        let Ok(decoder) = self.decoder() else {
            return false;
        };
        let row = decoder.stored.chunk_shape().last().copied().unwrap_or(1);
        !decoder.is_encoded()
            && self.store().info().folder.is_some()
            && row.saturating_mul(self.element as u64) >= run
    }

    pub(super) fn decoder(&self) -> Result<&Arc<Decoder>> {
        self.reader().map(|reader| &reader.decoder)
    }

    pub(super) fn reader(&self) -> Result<&Arc<ChunkReader>> {
        self.reader.as_ref().map_err(Error::clone)
    }

    /// Returns a number of the present content: another one once a stored chunk that was read has changed, and never one
    /// that another content had. Asks the store about all chunks that were read, so it may wait; nothing if these are too
    /// many.
    pub fn content(&self, context: &RequestContext) -> Result<Option<u64>> {
        if self.reader.is_err() || !self.versions.refresh(context)? {
            return Ok(None);
        }
        Ok(Some(self.content_now()))
    }

    /// Like `content`, by what is known without asking.
    pub fn content_now(&self) -> u64 {
        self.versions.content().with(self.dirty.content())
    }

    /// Returns the state of the content by what is known without asking.
    pub fn state(&self) -> ArrayState {
        ArrayState {
            position: self.store().info().changes.position(),
            content: self.content_now(),
        }
    }

    /// Whether what was read may have changed since a state, by what is known without asking: something was written to
    /// the array, or a chunk that was read was changed through the store.
    pub fn may_have_changed(&self, since: &ArrayState) -> bool {
        self.reader.is_ok()
            && (self.content_now() != since.content
                || self.versions.may_have_changed(since.position))
    }
}
