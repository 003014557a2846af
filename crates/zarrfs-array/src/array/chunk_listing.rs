//! Lists the stored chunks of an array, without a request for each grid chunk.
//!
//! A name is listed only if it is the key of a chunk in the grid. A store that lists all keys below a prefix is read
//! page by page, other stores folder by folder; the only state is the listings of the folders being read. Lengths that
//! a listing does not have are requested concurrently, for one batch at a time. Shards are listed, but not their inner
//! chunks, because listing these takes a request per shard for its index. If the store cannot list its keys, listing
//! fails.

use std::sync::Arc;

use crate::array::stored_array::StoredArray;
use zarr_format::error::{Error, Kind, Result};
use zarr_format::grid::Coordinates;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::pool::parallel_map;
use zarrfs_store::{EntryKind, FlatListing, Key, Listing, Meta, Name};

/// Iterates over the stored chunks of an array, in the order of the store's listing.
pub struct StoredChunks {
    array: Arc<StoredArray>,
    /// The key separators (`.` or `/`) that have not been tried yet.
    separators: std::vec::IntoIter<char>,
    separator: char,
    /// The folders whose listings are being read, each inside the one before it.
    folders: Vec<ChunkFolder>,
    /// Whether chunk keys with the first key separator were found.
    has_first: bool,
    found: u64,
    pub(super) entered: u64,
}

/// A stored chunk, as a listing returns it.
#[derive(Clone, Debug)]
pub struct ListedChunk {
    /// The indices of the chunk in the chunk grid.
    pub indices: Coordinates,
    /// The key of the chunk in the store.
    pub key: Key,
    /// The encoded length of the chunk in bytes, if known.
    pub size: Option<u64>,
}

struct ChunkFolder {
    path: Key,
    listing: Box<dyn Listing>,
}

impl StoredChunks {
    /// Begins to list the stored chunks; `Unsupported` if the store cannot list its keys.
    pub(super) fn new(array: Arc<StoredArray>) -> Result<StoredChunks> {
        if !array.info.lists {
            let why = "the server does not list names, so the stored chunks are unknown; each chunk \
                       opens by name";
            return Err(Error::unsupported(&array.path, why));
        }
        array.grid()?;
        let keys = &array.metadata.keys;
        if !keys.is_known() {
            let why = "unsupported chunk_key_encoding: the keys of chunks are unknown";
            return Err(Error::unsupported(&array.path, why));
        }
        let other = keys
            .other_separator
            .filter(|_| array.metadata.shape.len() > 1);
        let separators: Vec<char> = [keys.separator].into_iter().chain(other).collect();
        let separator = keys.separator;
        Ok(StoredChunks {
            array,
            separators: separators.into_iter(),
            separator,
            folders: Vec::new(),
            has_first: false,
            found: 0,
            entered: 0,
        })
    }

    /// Returns the next stored chunk, or `None` after the last one. The chunk has its length if the store's listing has
    /// it.
    pub fn next_chunk(&mut self, context: &RequestContext) -> Result<Option<ListedChunk>> {
        if self.array.metadata.shape.is_empty() {
            return self.next_scalar(context);
        }
        loop {
            let Some(folder) = self.folders.last_mut() else {
                if self.begin(context)? {
                    continue;
                }
                return Ok(None);
            };
            let Some(name) = folder.listing.next(context)? else {
                self.folders.pop();
                continue;
            };
            // A name that cannot be part of a key is not a chunk.
            let Ok(path) = folder.path.child(&name.name) else {
                continue;
            };
            if let Some(indices) = self.look_at(context, path.clone(), &name)? {
                self.found += 1;
                // The listing does not have the length of a symlink's target, so the length of the chunk stays unknown.
                let meta = name.meta.filter(|meta| meta.kind == EntryKind::File);
                return Ok(Some(ListedChunk {
                    indices,
                    key: path,
                    size: meta.map(|meta| meta.size),
                }));
            }
        }
    }

    /// Begins to list the keys with the next key separator; returns false if all separators were tried.
    fn begin(&mut self, context: &RequestContext) -> Result<bool> {
        let Some(separator) = self.separators.next() else {
            return Ok(false);
        };
        self.has_first = self.found > 0;
        self.separator = separator;
        self.enter(context, Key::new(self.array.metadata.keys.folder())?)?;
        Ok(true)
    }

    /// Returns the only chunk of an array without dimensions, if it is stored; later calls return `None`.
    fn next_scalar(&mut self, context: &RequestContext) -> Result<Option<ListedChunk>> {
        if self.separators.next().is_none() {
            return Ok(None);
        }
        for key in self.array.keys(&[])? {
            if self.is_object(context, &key)? {
                return Ok(Some(ListedChunk {
                    indices: Coordinates::new(),
                    key,
                    size: None,
                }));
            }
        }
        Ok(None)
    }

    /// Makes a folder the next one whose listing is read, if the folder exists.
    fn enter(&mut self, context: &RequestContext, path: Key) -> Result<()> {
        self.entered += 1;
        match self.array.store().list(context, &path) {
            Ok(listing) => self.folders.push(ChunkFolder { path, listing }),
            Err(error) if matches!(error.kind(), Kind::NotFound | Kind::NotADirectory) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Returns the chunk indices that a listed name stands for; a folder that may contain chunks is listed next.
    fn look_at(
        &mut self,
        context: &RequestContext,
        path: Key,
        name: &Name,
    ) -> Result<Option<Coordinates>> {
        let array = self.array.clone();
        let keys = &array.metadata.keys;
        let Some(indices) = keys.indices_of(path.as_bytes(), self.separator) else {
            return Ok(None);
        };
        let grid = array.grid()?;
        if grid.index(&indices).is_some() {
            let is_chunk = name.kind != EntryKind::Directory || self.is_object(context, &path)?;
            return Ok((is_chunk && self.is_first(context, &indices)?).then(|| indices.into()));
        }
        let mut counts = indices.iter().zip(grid.counts());
        let is_inside = indices.len() < grid.counts().len() && counts.all(|(i, n)| i < n);
        let may_be_folder = matches!(name.kind, EntryKind::Directory | EntryKind::Link);
        if is_inside && may_be_folder && self.separator == '/' {
            self.enter(context, path)?;
        }
        Ok(None)
    }

    /// Whether a key has an object; in an object store, the same key may also be a prefix of other keys.
    fn is_object(&self, context: &RequestContext, path: &Key) -> Result<bool> {
        Ok(self.array.store().version(context, path)?.is_some())
    }

    /// Returns false if a chunk was already listed under its key with the other separator.
    fn is_first(&self, context: &RequestContext, indices: &[u64]) -> Result<bool> {
        let first = self.array.keys(indices)?.into_iter().next();
        match first.filter(|_| self.has_first) {
            Some(first) => Ok(!self.is_object(context, &first)?),
            None => Ok(true),
        }
    }
}

/// What a scan finds out about each stored chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanDetail {
    /// Only that the chunk is stored.
    Presence,
    /// That the chunk is stored, and its encoded length.
    Length,
}

/// Iterates over the stored chunks of an array in batches, with their lengths if they are wanted.
pub struct ChunkScan {
    array: Arc<StoredArray>,
    names: ScannedNames,
    detail: ScanDetail,
    threads: usize,
}

/// How a scan gets chunk names: all keys below a prefix in pages, or folder by folder.
enum ScannedNames {
    Flat(Box<dyn FlatListing>),
    Folders(StoredChunks),
}

impl ChunkScan {
    /// Begins to list the stored chunks with up to `threads` requests at a time; `Unsupported` if the store cannot list
    /// its keys.
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

    /// Returns the next batch of stored chunks, or `None` after the last one. A length may be unknown if the scan finds
    /// out only which chunks are stored.
    pub fn next_batch(&mut self, context: &RequestContext) -> Result<Option<Vec<ListedChunk>>> {
        let found = match &mut self.names {
            ScannedNames::Flat(listing) => match listing.next(context)? {
                None => return Ok(None),
                Some(page) => chunks_among(context, &self.array, page)?,
            },
            ScannedNames::Folders(chunks) => {
                let mut batch = Vec::new();
                while batch.len() < 4096
                    && let Some(found) = chunks.next_chunk(context)?
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

    /// Requests the lengths that the listing does not have; leaves out chunks that were removed after they were listed.
    fn measured(
        &self,
        context: &RequestContext,
        found: Vec<ListedChunk>,
    ) -> Result<Vec<ListedChunk>> {
        if found.iter().all(|chunk| chunk.size.is_some()) {
            return Ok(found);
        }
        let store = self.array.store();
        let measure = |mut chunk: ListedChunk| {
            if chunk.size.is_none() {
                chunk.size = store.head(context, &chunk.key)?.map(|meta| meta.size);
            }
            Ok(chunk)
        };
        let measured = parallel_map(self.threads, found, &measure).into_iter();
        let measured =
            measured.filter(|chunk| !matches!(chunk, Ok(ListedChunk { size: None, .. })));
        measured.collect()
    }
}

/// Returns the chunks of an array whose keys are in one page of a store's listing.
fn chunks_among(
    context: &RequestContext,
    array: &StoredArray,
    page: Vec<(Key, Meta)>,
) -> Result<Vec<ListedChunk>> {
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
        // A chunk that is stored under two keys, one for each separator, is listed under the first key only.
        if is_other && is_stored_first(array, context, &indices)? {
            continue;
        }
        found.push(ListedChunk {
            indices: indices.into(),
            key,
            size: Some(meta.size),
        });
    }
    Ok(found)
}

/// Whether a chunk is stored under the first of its possible keys.
fn is_stored_first(array: &StoredArray, context: &RequestContext, indices: &[u64]) -> Result<bool> {
    match array.keys(indices)?.first() {
        Some(first) => Ok(array.store().version(context, first)?.is_some()),
        None => Ok(false),
    }
}
