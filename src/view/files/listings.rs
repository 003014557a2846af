//! Streams the listings of groups and chunk directories.
//!
//! Only the store's own listing and the last names of chunks are in memory.

use std::collections::VecDeque;
use std::sync::Arc;

use zarr_format::error::{Kind, Result};
use zarr_format::grid::join_indices;
use zarrfs_array::array::{OpenArray, StoredChunks};
use zarrfs_array::hierarchy::{Hierarchy, NodeEntry};
use zarrfs_export::formats::Format;
use zarrfs_store::listing::NameList;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{EntryKind, Listing, Name};

/// The listing of a group's directory: its children, then the files that the view adds. A node that cannot be read is
/// listed as a group with the children that are found.
pub(super) struct GroupListing {
    children: Box<dyn Listing>,
    hierarchy: Arc<Hierarchy>,
    entry: Arc<NodeEntry>,
    files: Vec<Vec<u8>>,
    /// 0 while children are listed, then 1 + the index of the next file in `files`.
    own: usize,
}

impl GroupListing {
    pub(super) fn new(
        context: &RequestContext,
        hierarchy: &Arc<Hierarchy>,
        entry: &Arc<NodeEntry>,
        files: Vec<Vec<u8>>,
    ) -> Result<GroupListing> {
        Ok(GroupListing {
            children: children_of(context, hierarchy, entry)?,
            hierarchy: hierarchy.clone(),
            entry: entry.clone(),
            files,
            own: 0,
        })
    }

    /// Returns the directory offset of a file in `files`. It is larger than any offset that a file system uses, except
    /// that of the end of a directory on ext4.
    fn cursor(&self, place: usize) -> u64 {
        let last = i64::MAX as u64 - 3;
        last - self.files.len().saturating_sub(place + 1) as u64
    }

    /// Whether a child of the group has the given name, so that the view's file of that name is not listed.
    fn is_taken(&self, context: &RequestContext, name: &[u8]) -> Result<bool> {
        Ok(self.hierarchy.child(context, &self.entry, name)?.is_some())
    }
}

impl Listing for GroupListing {
    fn next(&mut self, context: &RequestContext) -> Result<Option<Name>> {
        if self.own == 0 {
            match self.children.next(context)? {
                Some(name) => return Ok(Some(name)),
                None => self.own = 1,
            }
        }
        while let Some(name) = self.files.get(self.own - 1).cloned() {
            let cursor = self.cursor(self.own - 1);
            self.own += 1;
            if !self.is_taken(context, &name)? {
                return Ok(Some(Name {
                    name,
                    kind: EntryKind::File,
                    cursor,
                    meta: None,
                }));
            }
        }
        Ok(None)
    }

    fn seek(&mut self, context: &RequestContext, cursor: u64) -> Result<()> {
        match (0..self.files.len()).find(|&place| self.cursor(place) == cursor) {
            Some(number) => self.own = number + 2,
            None => {
                self.own = 0;
                self.children.seek(context, cursor)?;
            }
        }
        Ok(())
    }
}

/// Opens the listing of a group's children. For a node that cannot be read, the listing is empty if no children can be
/// found.
fn children_of(
    context: &RequestContext,
    hierarchy: &Arc<Hierarchy>,
    entry: &Arc<NodeEntry>,
) -> Result<Box<dyn Listing>> {
    match hierarchy.known_children(context, entry) {
        Err(error) if entry.broken.is_some() && means_no_children(error.kind()) => {
            Ok(Box::new(NameList::new([])))
        }
        answer => answer,
    }
}

/// Whether an error means that the node has no children that can be listed.
fn means_no_children(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::NotADirectory | Kind::NotFound | Kind::Unsupported
    )
}

/// The listing of an array's stored chunks as files in each listed format. The directory offset of a name is the number
/// of names before it. The last names stay in memory, since the kernel seeks back a little after each full reply.
pub(super) struct ChunkListing {
    array: Arc<OpenArray>,
    formats: Vec<&'static Format>,
    stored: StoredChunks,
    /// The file names of chunks that were read last, in order.
    recent: VecDeque<Name>,
    /// Number of file names in the listing before the one that is returned next.
    next: u64,
    /// Number of file names of chunks that were read from the store so far.
    end: u64,
}

impl ChunkListing {
    pub(super) fn new(
        array: Arc<OpenArray>,
        formats: Vec<&'static Format>,
    ) -> Result<ChunkListing> {
        Ok(ChunkListing {
            stored: array.stored_chunks()?,
            array,
            formats,
            recent: VecDeque::new(),
            next: 0,
            end: 0,
        })
    }

    /// Reads the file names of one more stored chunk. Returns false if all chunks were read.
    fn read(&mut self, context: &RequestContext) -> Result<bool> {
        let Some(chunk) = self.stored.next_chunk(context)? else {
            return Ok(false);
        };
        for format in &self.formats {
            self.end += 1;
            self.recent.push_back(Name {
                name: chunk_name(&chunk.indices, format.extension),
                kind: EntryKind::File,
                cursor: self.end,
                meta: None,
            });
        }
        // The kernel seeks back by less than one reply, which contains fewer than 2048 names.
        let surplus = self.recent.len().saturating_sub(2048);
        self.recent.drain(..surplus);
        Ok(true)
    }

    fn start(&self) -> u64 {
        self.end - self.recent.len() as u64
    }
}

fn chunk_name(indices: &[u64], extension: &str) -> Vec<u8> {
    format!("{}.{extension}", join_indices(indices)).into_bytes()
}

impl Listing for ChunkListing {
    fn next(&mut self, context: &RequestContext) -> Result<Option<Name>> {
        while self.next >= self.end {
            if !self.read(context)? {
                return Ok(None);
            }
        }
        let place = usize::try_from(self.next - self.start()).unwrap_or(usize::MAX);
        self.next += 1;
        Ok(self.recent.get(place).cloned())
    }

    fn seek(&mut self, _context: &RequestContext, cursor: u64) -> Result<()> {
        if cursor == 0 || cursor < self.start() {
            self.stored = self.array.stored_chunks()?;
            self.recent.clear();
            self.end = 0;
        }
        self.next = cursor;
        Ok(())
    }
}
