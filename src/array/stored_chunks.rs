//! Which chunks of an array are stored, read off the store's own listing: an array of any number of chunks costs what is
//! stored of it.
//!
//! A name counts if it is the key of a chunk of the grid. Nothing is held but the listings of the folders that are being
//! read. A shard counts as a whole: which of its inner chunks are stored is in its index, which would be a request for
//! each shard. A store that cannot list its keys does not say which chunks it has, and that is an error.

use std::sync::Arc;

use crate::array::OpenArray;
use crate::error::{Error, Kind, Result};
use crate::grid::{ChunkIndex, Coordinates};
use crate::request_context::RequestContext;
use crate::store::{EntryKind, Key, Listing, Name, QueryStamp};

/// The stored chunks of an array, in the order of the store's listing.
pub struct StoredChunks {
    array: Arc<OpenArray>,
    /// The separators of keys that are still to be looked for.
    separators: std::vec::IntoIter<char>,
    /// The separator that is looked for now.
    separator: char,
    /// The folders on the way to the next name.
    folders: Vec<ChunkFolder>,
    /// Whether chunks were found under the first separator.
    has_first: bool,
    found: u64,
    /// How many folders were listed.
    entered: u64,
}

/// A chunk that is stored.
#[derive(Clone, Debug)]
pub struct FoundChunk {
    /// Its indices.
    pub indices: Coordinates,
    /// Its key.
    pub key: Key,
    /// Its length as it is stored, in bytes, if that is known.
    pub size: Option<u64>,
}

/// A folder that is being read.
struct ChunkFolder {
    path: Key,
    listing: Box<dyn Listing>,
}

impl StoredChunks {
    /// Returns the indices of the next chunk, or nothing after the last one.
    pub fn next_chunk(&mut self, context: &RequestContext) -> Result<Option<Coordinates>> {
        Ok(self.next_found(context)?.map(|found| found.indices))
    }

    /// Returns the next chunk, or nothing after the last one; its length if the listing has it.
    pub fn next_found(&mut self, context: &RequestContext) -> Result<Option<FoundChunk>> {
        if self.array.array().shape.is_empty() {
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
            // A name that cannot be part of a key is none.
            let Ok(path) = folder.path.child(&name.name) else {
                continue;
            };
            if let Some(indices) = self.look_at(context, path.clone(), &name)? {
                self.found += 1;
                // A link is as long as what it leads to, which the listing does not have.
                let meta = name.meta.filter(|meta| meta.kind == EntryKind::File);
                return Ok(Some(FoundChunk {
                    indices,
                    key: path,
                    size: meta.map(|meta| meta.size),
                }));
            }
        }
    }

    /// Begins to look for keys with the next separator; returns false if there is none.
    fn begin(&mut self, context: &RequestContext) -> Result<bool> {
        let Some(separator) = self.separators.next() else {
            return Ok(false);
        };
        self.has_first = self.found > 0;
        self.separator = separator;
        self.enter(context, Key::new(self.array.array().keys.folder())?)?;
        Ok(true)
    }

    /// Returns the only chunk of an array without dimensions, once, if it is stored.
    fn next_scalar(&mut self, context: &RequestContext) -> Result<Option<FoundChunk>> {
        if self.separators.next().is_none() {
            return Ok(None);
        }
        for key in self.array.keys(&[])? {
            if self.is_object(context, &key)? {
                return Ok(Some(FoundChunk {
                    indices: Coordinates::new(),
                    key,
                    size: None,
                }));
            }
        }
        Ok(None)
    }

    /// Goes on with the names in a folder, if there is one.
    fn enter(&mut self, context: &RequestContext, path: Key) -> Result<()> {
        self.entered += 1;
        match self.array.hierarchy.store().list(context, &path) {
            Ok(listing) => self.folders.push(ChunkFolder { path, listing }),
            Err(error) if matches!(error.kind(), Kind::NotFound | Kind::NotADirectory) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Returns the indices of the chunk that a name is; enters the folder that it may be on the way to chunks.
    fn look_at(
        &mut self,
        context: &RequestContext,
        path: Key,
        name: &Name,
    ) -> Result<Option<Coordinates>> {
        let array = self.array.clone();
        let keys = &array.array().keys;
        let Some(indices) = keys.indices_of(path.as_bytes(), self.separator) else {
            return Ok(None);
        };
        let grid = array.stored_grid()?;
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

    /// Whether a prefix of other keys is an object as well.
    fn is_object(&self, context: &RequestContext, path: &Key) -> Result<bool> {
        Ok(self
            .array
            .hierarchy
            .store()
            .version(context, path)?
            .is_some())
    }

    /// Whether a chunk that was found was not found before, under its other key.
    fn is_first(&self, context: &RequestContext, indices: &[u64]) -> Result<bool> {
        let first = self.array.keys(indices)?.into_iter().next();
        match first.filter(|_| self.has_first) {
            Some(first) => Ok(!self.is_object(context, &first)?),
            None => Ok(true),
        }
    }
}

/// An array of fewer bytes and chunks than these is never sparse: it is read as a whole within seconds.
const MIN_LARGE_BYTES: u64 = 4 << 30;
const MIN_LARGE_CHUNKS: u64 = 1 << 20;

/// An array is sparse if less than one of so many chunks is stored.
const SPARSE: u64 = 16;

/// How many chunks are looked for on a store of this machine, evenly spread over the grid.
const SAMPLES: u64 = 64;

/// The most chunks, and folders with chunks, that are counted on another store that lists folder by folder.
const MAX_FOUND: u64 = 1000;
const MAX_FOLDERS: u64 = 16;

/// The fraction of the golden ratio in units of 2^-64: its multiples are spread evenly over the unit interval.
const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;

impl OpenArray {
    /// Whether `stored_chunks` can tell which chunks are stored.
    pub fn tells_stored_chunks(&self) -> bool {
        self.metadata.keys.is_known() && self.hierarchy.store().info().lists
    }

    /// Begins to read which chunks are stored; `Unsupported` if the store cannot list its keys.
    pub fn stored_chunks(self: &Arc<OpenArray>) -> Result<StoredChunks> {
        if !self.hierarchy.store().info().lists {
            let why = "the server does not list names, so which chunks are stored is not known; each \
                       opens by its name";
            return Err(Error::unsupported(&self.path, why));
        }
        self.stored_grid()?;
        let keys = &self.metadata.keys;
        if !keys.is_known() {
            let why = "which keys are chunks is not known: the encoding of keys is not read";
            return Err(Error::unsupported(&self.path, why));
        }
        let other = keys
            .other_separator
            .filter(|_| self.metadata.shape.len() > 1);
        let separators: Vec<char> = [keys.separator].into_iter().chain(other).collect();
        Ok(StoredChunks {
            array: self.clone(),
            separators: separators.into_iter(),
            separator: keys.separator,
            folders: Vec::new(),
            has_first: false,
            found: 0,
            entered: 0,
        })
    }

    /// Whether the array is too large to be read for nothing, and next to nothing of it is stored. Where that is not
    /// known after a request or two, it is not.
    pub fn is_sparse(self: &Arc<OpenArray>, context: &RequestContext) -> Result<bool> {
        let grid = self.stored_grid()?;
        let is_large = grid.len() >= MIN_LARGE_CHUNKS
            || (self.metadata.byte_length()).is_ok_and(|bytes| bytes >= MIN_LARGE_BYTES);
        if !is_large || !self.hierarchy.store().info().lists {
            return Ok(false);
        }
        if let Some((is_sparse, stamp)) = *self.sparse.lock()
            && self.holds(stamp)
        {
            return Ok(is_sparse);
        }
        let look = |context: &RequestContext| match self.hierarchy.store().info().folder {
            Some(_) => self.samples_are_missing(context),
            None => self.few_are_listed(context),
        };
        let (is_sparse, stamp) = self.hierarchy.store().info().ask(context, look);
        let is_sparse = is_sparse?;
        *self.sparse.lock() = Some((is_sparse, stamp));
        Ok(is_sparse)
    }

    /// Whether what was asked of the array's folder still counts.
    fn holds(&self, stamp: QueryStamp) -> bool {
        let is_fresh = self.hierarchy.store().info().is_fresh(stamp.asked);
        is_fresh && !self.chunks_may_have_changed(stamp.position)
    }

    /// Whether nearly all chunks of a sample are missing.
    fn samples_are_missing(&self, context: &RequestContext) -> Result<bool> {
        let grid = self.stored_grid()?;
        let count = grid.len().min(SAMPLES);
        let mut stored = 0;
        for sample in 0..count {
            let number = if count < SAMPLES {
                sample
            } else {
                spread(sample, grid.len())
            };
            let mut keys = self.keys(&grid.indices(ChunkIndex(number)))?.into_iter();
            let is_stored = keys.try_fold(false, |is_stored, key| {
                Ok::<_, Error>(
                    is_stored || self.hierarchy.store().version(context, &key)?.is_some(),
                )
            });
            stored += u64::from(is_stored?);
        }
        Ok(stored <= count / SPARSE)
    }

    /// Whether the first page of the listing of all keys in the array's folder is the last one, and has few chunks.
    fn few_are_listed(self: &Arc<OpenArray>, context: &RequestContext) -> Result<bool> {
        let (keys, grid) = (&self.metadata.keys, self.stored_grid()?);
        let folder = Key::new(keys.folder())?;
        let Some(mut listing) = self.hierarchy.store().list_all(context, &folder, &folder)? else {
            return self.few_are_found(context);
        };
        let page = listing.next(context)?.unwrap_or_default();
        let separators = [Some(keys.separator), keys.other_separator];
        let is_chunk = |key: &Key| {
            let mut found = separators.iter().flatten();
            found.any(|&separator| {
                let indices = keys.indices_of(key.as_bytes(), separator);
                indices.is_some_and(|indices| grid.index(&indices).is_some())
            })
        };
        let stored = page.iter().filter(|(key, _)| is_chunk(key)).count() as u64;
        Ok(stored <= grid.len() / SPARSE
            && (listing.has_ended() || listing.next(context)?.is_none()))
    }

    /// The same of a store that is listed folder by folder.
    fn few_are_found(self: &Arc<OpenArray>, context: &RequestContext) -> Result<bool> {
        let most = (self.stored_grid()?.len() / SPARSE).min(MAX_FOUND);
        let mut stored = self.stored_chunks()?;
        for _ in 0..=most {
            if stored.next_chunk(context)?.is_none() {
                return Ok(true);
            }
            if stored.entered > MAX_FOLDERS {
                return Ok(false);
            }
        }
        Ok(false)
    }
}

/// Returns number `sample` of numbers that are spread evenly over those below `count`.
fn spread(sample: u64, count: u64) -> u64 {
    let share = u128::from(sample.wrapping_add(1).wrapping_mul(GOLDEN_RATIO));
    u64::try_from((share * u128::from(count)) >> 64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_spread_over_the_whole_grid() {
        for count in [64, 1_000_000_007, u64::MAX] {
            let mut samples: Vec<u64> = (0..SAMPLES).map(|sample| spread(sample, count)).collect();
            samples.sort_unstable();
            let least = count / SAMPLES / 4;
            assert!(samples.iter().all(|&sample| sample < count));
            assert!(
                samples
                    .windows(2)
                    .all(|pair| pair[1] - pair[0] >= least.min(1))
            );
            assert!(samples[0] < count / 16 && samples[63] > count - count / 16);
        }
    }
}
