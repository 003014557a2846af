//! Lists the stored chunks of an array with their lengths, in batches.
//!
//! A store that lists all keys below a prefix is read page by page, other stores folder by folder. Lengths that a
//! listing does not have are requested concurrently. Only one batch is held at a time.

use std::sync::Arc;

use crate::array::stored_array::StoredArray;
use crate::array::stored_chunks::{FoundChunk, StoredChunks};
use zarr_format::error::Result;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::pool::parallel_map;
use zarrfs_store::{FlatListing, Key, Meta};

/// The number of chunks in a batch if the store is listed folder by folder.
const BATCH: usize = 4096;

/// The details wanted of each chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanDetail {
    /// Only that it is stored.
    Presence,
    /// Its encoded length too.
    Length,
}

/// The stored chunks of an array.
pub struct ChunkScan {
    array: Arc<StoredArray>,
    names: ScannedNames,
    detail: ScanDetail,
    threads: usize,
}

/// The source of chunk names.
enum ScannedNames {
    Flat(Box<dyn FlatListing>),
    Folders(StoredChunks),
}

impl ChunkScan {
    /// Begins to list the stored chunks with up to `threads` requests at a time; fails as `stored_chunks` does.
    pub(super) fn new(
        array: Arc<StoredArray>,
        context: &RequestContext,
        detail: ScanDetail,
        threads: usize,
    ) -> Result<ChunkScan> {
        let folders = StoredChunks::new(array.clone())?;
        let folder = Key::new(array.metadata.keys.folder())?;
        let flat = if array.metadata.shape.is_empty() {
            None
        } else {
            array.store().list_all(context, &folder, &folder)?
        };
        Ok(ChunkScan {
            array,
            names: flat.map_or(ScannedNames::Folders(folders), ScannedNames::Flat),
            detail,
            threads,
        })
    }

    /// Returns the next chunks, or `None` after the last one. A length may be unknown if it was not asked for.
    pub fn next_batch(&mut self, context: &RequestContext) -> Result<Option<Vec<FoundChunk>>> {
        let found = match &mut self.names {
            ScannedNames::Flat(listing) => match listing.next(context)? {
                None => return Ok(None),
                Some(page) => chunks_among(context, &self.array, page)?,
            },
            ScannedNames::Folders(chunks) => {
                let mut batch = Vec::new();
                while batch.len() < BATCH
                    && let Some(found) = chunks.next_found(context)?
                {
                    batch.push(found);
                }
                if batch.is_empty() {
                    return Ok(None);
                }
                batch
            }
        };
        match self.detail {
            ScanDetail::Presence => Ok(Some(found)),
            ScanDetail::Length => self.measured(context, found).map(Some),
        }
    }

    /// Requests the unknown lengths; leaves out chunks that were removed since.
    fn measured(
        &self,
        context: &RequestContext,
        found: Vec<FoundChunk>,
    ) -> Result<Vec<FoundChunk>> {
        if found.iter().all(|chunk| chunk.size.is_some()) {
            return Ok(found);
        }
        let store = self.array.store();
        let measure = |mut chunk: FoundChunk| {
            if chunk.size.is_none() {
                chunk.size = store.head(context, &chunk.key)?.map(|meta| meta.size);
            }
            Ok(chunk)
        };
        let measured = parallel_map(self.threads, found, &measure).into_iter();
        let measured = measured.filter(|chunk| !matches!(chunk, Ok(FoundChunk { size: None, .. })));
        measured.collect()
    }
}

/// Returns the chunks among the keys below an array.
fn chunks_among(
    context: &RequestContext,
    array: &StoredArray,
    page: Vec<(Key, Meta)>,
) -> Result<Vec<FoundChunk>> {
    let keys = &array.metadata.keys;
    let grid = array.grid()?;
    let mut found = Vec::new();
    for (key, meta) in page {
        let own = keys.indices_of(key.as_bytes(), keys.separator);
        let other = || {
            let other = keys.other_separator?;
            keys.indices_of(key.as_bytes(), other)
        };
        let inside = |indices: &Vec<u64>| grid.index(indices).is_some();
        let (indices, is_other) = match own.filter(inside) {
            Some(indices) => (indices, false),
            None => match other().filter(inside) {
                Some(indices) => (indices, true),
                None => continue,
            },
        };
        // A chunk that is stored under both keys is listed under its first one.
        if is_other && is_stored_first(array, context, &indices)? {
            continue;
        }
        found.push(FoundChunk {
            indices: indices.into(),
            key,
            size: Some(meta.size),
        });
    }
    Ok(found)
}

/// Whether a chunk is stored under its first key.
fn is_stored_first(array: &StoredArray, context: &RequestContext, indices: &[u64]) -> Result<bool> {
    match array.keys(indices)?.first() {
        Some(first) => Ok(array.store().version(context, first)?.is_some()),
        None => Ok(false),
    }
}
