//! Shards as directories: the index of each as JSON, and its inner chunks as they are stored.
//!
//! A directory for each group and array, in an array one for each stored shard, named by its indices. Nothing is read
//! but what a path needs: a listing of shards reads no index. A shard whose index does not read lists `index.json`,
//! which says why; every other name in it is that error. An inner chunk that is a shard itself is such a directory.

use std::sync::Arc;
use std::time::Duration;

use crate::array::{Arrays, OpenArray, ShardFile, StoredChunks};
use crate::error::{Error, Kind, Result};
use crate::grid::{ChunkIndex, joined_indices};
use crate::hierarchy::{Hierarchy, NodeEntry};
use crate::inspect::entry_facts;
use crate::known::Known;
use crate::store::listing::NameList;
use crate::store::{EntryKind, Key, Listing, Name};
use crate::view::shard_index::index_text;
use crate::view::text_file::{TextFile, directory_attr, file_attr};
use crate::view::{Attr, File, OpenedFile, ReadAt, ReadBytes, View, ViewDir, fact_of};

/// The name of the index of a shard.
const INDEX: &[u8] = b"index.json";

/// How long the kernel may keep an answer.
const FRESH: Duration = Duration::ZERO;

/// The view of the shards of a store.
pub struct ShardsView {
    hierarchy: Arc<Hierarchy>,
    arrays: Arc<Arrays>,
}

/// What a path stands for.
enum ShardTarget {
    Group(Arc<NodeEntry>),
    Array(Arc<NodeEntry>, Arc<OpenArray>),
    Shard(ShardFile),
    Index(ShardFile),
    /// An inner chunk, by its number.
    Inner(ShardFile, u64),
}

impl ShardsView {
    /// Builds the view of a store.
    pub fn new(hierarchy: Arc<Hierarchy>, arrays: Arc<Arrays>) -> ShardsView {
        ShardsView { hierarchy, arrays }
    }

    /// Finds what a path stands for; nothing if there is no such path.
    fn target(&self, path: &Key) -> Result<Option<ShardTarget>> {
        let Some(mut entry) = self.hierarchy.root()? else {
            return Ok(None);
        };
        let mut names = path.names();
        while !entry.is_array() {
            let Some(name) = names.next() else {
                return Ok(Some(ShardTarget::Group(entry)));
            };
            match self.hierarchy.child(&entry, name)? {
                Some(child) => entry = child,
                None => return Ok(None),
            }
        }
        let array = self.arrays.open(&entry)?;
        let Some(shard) = names.next() else {
            return Ok(Some(ShardTarget::Array(entry, array)));
        };
        let rank = array.array().shape.len();
        let Some(indices) = indices_of(shard, rank) else {
            return Ok(None);
        };
        match array.shard_file(&indices)? {
            Some(shard) => within(shard, names, rank),
            None => Ok(None),
        }
    }
}

/// Finds what names below a shard stand for; nothing if there is no such path.
fn within<'a>(
    mut shard: ShardFile,
    mut names: impl Iterator<Item = &'a [u8]>,
    rank: usize,
) -> Result<Option<ShardTarget>> {
    while let Some(name) = names.next() {
        if name == INDEX {
            let is_last = names.next().is_none();
            return Ok(is_last.then_some(ShardTarget::Index(shard)));
        }
        let indices = indices_of(name, rank);
        let number = indices.and_then(|indices| shard.inner().index(&indices));
        let Some(ChunkIndex(number)) = number else {
            return Ok(None);
        };
        if !shard.holds_shards() {
            let is_found = shard.range(number)?.is_some() && names.next().is_none();
            return Ok(is_found.then_some(ShardTarget::Inner(shard, number)));
        }
        shard = match shard.shard_within(number)? {
            Some(inner) => inner,
            None => return Ok(None),
        };
    }
    Ok(Some(ShardTarget::Shard(shard)))
}

/// Returns the indices that a name consists of, joined by dots; without dimensions it is `0`.
fn indices_of(name: &[u8], rank: usize) -> Option<Vec<u64>> {
    let name = str::from_utf8(name).ok()?;
    if rank == 0 {
        return (name == "0").then(Vec::new);
    }
    let index = |part: &str| {
        let number: u64 = part.parse().ok()?;
        (number.to_string() == part).then_some(number)
    };
    let indices: Option<Vec<u64>> = name.split('.').map(index).collect();
    indices.filter(|indices| indices.len() == rank)
}

impl View for ShardsView {
    fn lookup(&self, path: &Key) -> Result<Option<Attr>> {
        Ok(match self.target(path)? {
            None => None,
            Some(ShardTarget::Group(entry) | ShardTarget::Array(entry, _)) => {
                Some(directory_attr(entry.modified, FRESH))
            }
            Some(ShardTarget::Shard(shard)) => Some(directory_attr(shard.meta.modified, FRESH)),
            Some(ShardTarget::Index(shard)) => {
                let size = index_text(&shard)?.len() as u64;
                Some(file_attr(size, shard.meta.modified, FRESH))
            }
            Some(ShardTarget::Inner(shard, number)) => {
                let range = shard.range(number)?.unwrap_or_default();
                let size = range.end.saturating_sub(range.start);
                Some(file_attr(size, shard.meta.modified, FRESH))
            }
        })
    }

    fn attribute(&self, path: &Key, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let (Some(name), Some(target)) = (fact_of(name), self.target(path)?) else {
            return Ok(None);
        };
        let fact = match target {
            ShardTarget::Group(entry) | ShardTarget::Array(entry, _) => {
                entry_facts::of_node(&entry, name)
            }
            ShardTarget::Shard(shard) => {
                entry_facts::of_part(shard.array(), ("shard", shard.byte_length()), name)
            }
            ShardTarget::Index(_) => (name == "kind").then(|| "index".to_string()),
            ShardTarget::Inner(shard, number) => {
                let range = shard.range(number)?.unwrap_or_default();
                let length = range.end.saturating_sub(range.start);
                entry_facts::of_part(shard.array(), ("inner chunk", length), name)
            }
        };
        Ok(fact.map(String::into_bytes))
    }

    fn lookup_now(&self, _path: &Key) -> Known<Attr> {
        Known::Unknown
    }

    fn dir_now(&self, _path: &Key) -> Option<ViewDir> {
        None
    }

    fn list(&self, path: &Key) -> Result<Box<dyn Listing>> {
        match self.target(path)? {
            None => Err(Error::not_found(path)),
            Some(ShardTarget::Group(entry)) => self.hierarchy.known_children(&entry),
            Some(ShardTarget::Array(_, array)) => {
                if !array.has_shards()? {
                    return Ok(Box::new(NameList::new([])));
                }
                Ok(Box::new(ShardListing {
                    stored: array.stored_chunks()?,
                    array,
                    place: 0,
                }))
            }
            Some(ShardTarget::Shard(shard)) => Ok(Box::new(InnerListing { shard, place: 0 })),
            Some(ShardTarget::Index(_) | ShardTarget::Inner(..)) => {
                Err(Error::new(Kind::NotADirectory, path, "is not a directory"))
            }
        }
    }

    fn open(&self, path: &Key) -> Result<OpenedFile> {
        let file: Arc<dyn File> = match self.target(path)? {
            None => return Err(Error::not_found(path)),
            Some(ShardTarget::Index(shard)) => Arc::new(TextFile {
                bytes: index_text(&shard)?.into(),
                version: 0,
                modified: shard.meta.modified,
            }),
            Some(ShardTarget::Inner(shard, number)) => {
                let start_end = shard.range(number)?.unwrap_or_default();
                let (start, end) = (start_end.start, start_end.end);
                Arc::new(InnerFile { shard, start, end })
            }
            Some(_) => return Err(Error::new(Kind::IsADirectory, path, "is a directory")),
        };
        Ok(OpenedFile {
            file,
            content: None,
            version: None,
            direct: true,
            tree_file: None,
        })
    }

    fn read_link(&self, path: &Key) -> Result<Vec<u8>> {
        Err(Error::invalid(path, "not a symbolic link"))
    }
}

/// The bytes of an inner chunk as they are stored.
struct InnerFile {
    shard: ShardFile,
    start: u64,
    end: u64,
}

impl ReadAt for InnerFile {
    fn read_now(&self, _offset: u64, _len: usize) -> Option<ReadBytes> {
        None
    }

    fn read_at(&self, offset: u64, len: usize) -> Result<ReadBytes> {
        let start = self.start.saturating_add(offset).min(self.end);
        let end = start.saturating_add(len as u64).min(self.end);
        if start == end {
            return Ok(ReadBytes::default());
        }
        Ok(self.shard.read(start..end)?.into())
    }
}

impl File for InnerFile {
    fn version(&self) -> Option<u64> {
        None
    }

    fn attr(&self) -> Option<Attr> {
        let size = self.end.saturating_sub(self.start);
        Some(file_attr(size, self.shard.meta.modified, FRESH))
    }
}

/// The stored shards of an array. A cursor is the number of names before it.
struct ShardListing {
    array: Arc<OpenArray>,
    stored: StoredChunks,
    place: u64,
}

impl Listing for ShardListing {
    fn next(&mut self) -> Result<Option<Name>> {
        let Some(indices) = self.stored.next_chunk()? else {
            return Ok(None);
        };
        self.place += 1;
        Ok(Some(Name {
            name: joined_indices(&indices).into_bytes(),
            kind: EntryKind::Directory,
            cursor: self.place,
            meta: None,
        }))
    }

    fn seek(&mut self, cursor: u64) -> Result<()> {
        if cursor < self.place {
            self.stored = self.array.stored_chunks()?;
            self.place = 0;
        }
        while self.place < cursor && self.stored.next_chunk()?.is_some() {
            self.place += 1;
        }
        Ok(())
    }
}

/// `index.json`, and the stored inner chunks of a shard. A cursor is 1 and the number of the next inner chunk.
struct InnerListing {
    shard: ShardFile,
    place: u64,
}

impl Listing for InnerListing {
    fn next(&mut self) -> Result<Option<Name>> {
        if self.place == 0 {
            self.place = 1;
            return Ok(Some(Name {
                name: INDEX.to_vec(),
                kind: EntryKind::File,
                cursor: 1,
                meta: None,
            }));
        }
        if self.shard.fault().is_some() {
            return Ok(None);
        }
        while self.place <= self.shard.inner().len() {
            let number = self.place - 1;
            self.place += 1;
            // An entry that leaves the shard is a name whose reads fail.
            if !matches!(self.shard.range(number), Ok(None)) {
                let name = joined_indices(&self.shard.indices(number)).into_bytes();
                return Ok(Some(Name {
                    name,
                    kind: self.inner_kind(),
                    cursor: self.place,
                    meta: None,
                }));
            }
        }
        Ok(None)
    }

    fn seek(&mut self, cursor: u64) -> Result<()> {
        self.place = cursor;
        Ok(())
    }
}

impl InnerListing {
    fn inner_kind(&self) -> EntryKind {
        if self.shard.holds_shards() {
            EntryKind::Directory
        } else {
            EntryKind::File
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_indices_in_one_spelling() {
        assert_eq!(indices_of(b"0.12", 2), Some(vec![0, 12]));
        assert_eq!(indices_of(b"0", 0), Some(vec![]));
        for name in ["01", "+1", "1.2", "", "1.", "a", "-1"] {
            assert_eq!(indices_of(name.as_bytes(), 1), None, "{name}");
        }
    }
}
