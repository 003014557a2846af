//! Streams the listings of an uncompressed store.

use std::sync::Arc;

use crate::view::plain::layout::{ChunkPlace, PlainLayout, StoredChunks};
use crate::view::plain::place::{PlainHierarchy, PlainKind};
use crate::view::plain::target::Target;
use zarr_format::error::{Error, Result};
use zarrfs_array::hierarchy::NodeEntry;
use zarrfs_store::listing::LeftOut;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{EntryKind, Listing, Name};

/// The directory offset of a node's first metadata document. It is larger than any offset of a child, except that of
/// the end of a directory on ext4.
const FIRST_DOCUMENT: u64 = i64::MAX as u64 - 16;

/// The metadata documents of a node, which are the last names of its listing.
pub(super) struct Documents {
    names: Vec<&'static str>,
    /// The index of the metadata document that is listed next.
    next: usize,
}

impl Documents {
    pub(super) fn new(names: Vec<&'static str>) -> Documents {
        Documents { names, next: 0 }
    }

    fn next(&mut self) -> Option<Name> {
        let name = self.names.get(self.next)?;
        self.next += 1;
        Some(Name {
            name: name.as_bytes().to_vec(),
            kind: EntryKind::File,
            cursor: FIRST_DOCUMENT + self.next as u64,
            meta: None,
        })
    }

    /// Continues the listing after a document. Returns false if no document has the directory offset `cursor`.
    fn seek(&mut self, cursor: u64) -> bool {
        let place = cursor.checked_sub(FIRST_DOCUMENT);
        let place = place.and_then(|place| usize::try_from(place).ok());
        let place = place.filter(|place| (1..=self.names.len()).contains(place));
        self.next = place.unwrap_or(0);
        place.is_some()
    }
}

/// The listing of a group in an uncompressed store: its children, then its metadata documents.
pub(super) struct GroupListing {
    pub(super) children: Box<dyn Listing>,
    pub(super) plain: Arc<PlainHierarchy>,
    pub(super) group: Arc<NodeEntry>,
    pub(super) documents: Documents,
    pub(super) has_children: bool,
}

impl Listing for GroupListing {
    fn next(&mut self, context: &RequestContext) -> Result<Option<Name>> {
        while self.has_children {
            let Some(name) = self.children.next(context)? else {
                self.has_children = false;
                break;
            };
            if self.plain.target.is_document(&name.name) {
                continue;
            }
            let child = self
                .plain
                .hierarchy
                .child(context, &self.group, &name.name)?;
            let node = child.map(|child| self.plain.node(child));
            if node.is_some_and(|node| !matches!(node.kind, PlainKind::LeftOut(_))) {
                return Ok(Some(Name {
                    kind: EntryKind::Directory,
                    meta: None,
                    ..name
                }));
            }
        }
        Ok(self.documents.next())
    }

    fn seek(&mut self, context: &RequestContext, cursor: u64) -> Result<()> {
        self.has_children = !self.documents.seek(cursor);
        if self.has_children {
            self.children.seek(context, cursor)?;
        }
        Ok(())
    }

    fn left_out(&self) -> LeftOut {
        self.children.left_out()
    }
}

/// The listing of an array's folder in an uncompressed store: its chunks, then its metadata documents.
pub(super) struct ArrayListing {
    layout: PlainLayout,
    target: &'static Target,
    /// The chunks that are stored, or `None` after the last chunk until a seek goes back to the chunks.
    stored: Option<StoredChunks>,
    place: ChunkPlace,
    /// The maximum number of uncompressed chunks in a stored chunk, for each of which a directory offset is reserved.
    per_stored: u64,
    documents: Documents,
}

impl ArrayListing {
    pub(super) fn new(
        context: &RequestContext,
        layout: PlainLayout,
        target: &'static Target,
    ) -> Result<ArrayListing> {
        let per_stored = layout.most_in_stored()?;
        let cursors = layout.array.stored_grid()?.len().checked_mul(per_stored);
        if cursors.is_none_or(|cursors| cursors >= FIRST_DOCUMENT) {
            let why = "too many chunks for one directory";
            return Err(Error::too_large(layout.array.path(), why));
        }
        Ok(ArrayListing {
            stored: Some(layout.stored(context)?),
            per_stored,
            documents: Documents::new(target.array_documents.to_vec()),
            place: ChunkPlace::default(),
            layout,
            target,
        })
    }
}

impl Listing for ArrayListing {
    fn next(&mut self, context: &RequestContext) -> Result<Option<Name>> {
        if let Some(stored) = &self.stored {
            if let Some((place, indices)) = self.layout.next_chunk(context, stored, self.place)? {
                self.place = ChunkPlace {
                    within: place.within + 1,
                    ..place
                };
                let number = place.stored * self.per_stored;
                return Ok(Some(Name {
                    name: self.target.chunk_name(&indices).as_bytes().to_vec(),
                    kind: EntryKind::File,
                    cursor: number + self.place.within,
                    meta: None,
                }));
            }
            self.stored = None;
        }
        Ok(self.documents.next())
    }

    fn seek(&mut self, context: &RequestContext, cursor: u64) -> Result<()> {
        if self.documents.seek(cursor) {
            self.stored = None;
            return Ok(());
        }
        if self.stored.is_none() {
            self.stored = Some(self.layout.stored(context)?);
        }
        // Offsets count from 1, so that a multiple of `per_stored` belongs to the last uncompressed chunk of a stored
        // chunk, not to the next stored chunk.
        let before = cursor.checked_sub(1);
        self.place = before.map_or(ChunkPlace::default(), |before| ChunkPlace {
            stored: before / self.per_stored,
            within: before % self.per_stored + 1,
        });
        Ok(())
    }
}

/// The listing of a folder for some leading indices of chunks, which contains chunks, or a folder for each index of the
/// next dimension.
pub(super) struct FolderListing {
    pub(super) layout: PlainLayout,
    pub(super) stored: StoredChunks,
    pub(super) prefix: Vec<u64>,
    /// The first chunk index that was not listed yet.
    pub(super) index: u64,
}

impl Listing for FolderListing {
    fn next(&mut self, context: &RequestContext) -> Result<Option<Name>> {
        let found = self
            .layout
            .next_index(context, &self.stored, &self.prefix, self.index)?;
        let Some(index) = found else {
            return Ok(None);
        };
        self.index = index + 1;
        let is_chunk = self.prefix.len() + 1 == self.layout.grid()?.counts().len();
        Ok(Some(Name {
            name: index.to_string().into_bytes(),
            kind: if is_chunk {
                EntryKind::File
            } else {
                EntryKind::Directory
            },
            cursor: self.index,
            meta: None,
        }))
    }

    fn seek(&mut self, _context: &RequestContext, cursor: u64) -> Result<()> {
        self.index = cursor;
        Ok(())
    }
}
