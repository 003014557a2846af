//! Listings of the files view that are read name by name: groups, and the chunks of arrays.
//!
//! Only the store's own listing is held, or the number of the next chunk.

use std::sync::Arc;

use crate::error::{Kind, Result};
use crate::export::Format;
use crate::grid::{ChunkIndex, Grid};
use crate::hierarchy::{Hierarchy, NodeEntry};
use crate::store::listing::NameList;
use crate::store::{EntryKind, Listing, Name};
use crate::view::files::broken::names_of;
use crate::view::files::{ATTRIBUTES, METADATA};

/// A group's children, then its own files. A broken node is listed as a group, with those that it has.
pub(super) struct GroupListing {
    children: Box<dyn Listing>,
    hierarchy: Arc<Hierarchy>,
    found: Arc<NodeEntry>,
    /// Its own files.
    files: Vec<Vec<u8>>,
    /// Number of the next of its own files; 0 while children are listed.
    own: usize,
}

/// The cursor of the last of a group's own files; those of the others come before it. They are larger than those of any
/// file system but for the end of a directory, which is the largest number on ext4, and smaller than those that `fuse`
/// keeps for itself.
const LAST_CURSOR: u64 = i64::MAX as u64 - 3;

impl GroupListing {
    /// Opens the listing of a group.
    pub(super) fn new(hierarchy: &Arc<Hierarchy>, found: &Arc<NodeEntry>) -> Result<GroupListing> {
        let files = match &found.node {
            Ok(_) => [METADATA, ATTRIBUTES].map(<[u8]>::to_vec).into(),
            Err(_) => names_of(found),
        };
        Ok(GroupListing {
            children: children_of(hierarchy, found)?,
            hierarchy: hierarchy.clone(),
            found: found.clone(),
            files,
            own: 0,
        })
    }

    /// Returns the cursor of one of its own files.
    fn cursor(&self, place: usize) -> u64 {
        LAST_CURSOR - self.files.len().saturating_sub(place + 1) as u64
    }

    /// Whether a child has the name of one of the group's own documents.
    fn is_taken(&self, name: &[u8]) -> Result<bool> {
        Ok(self.hierarchy.child(&self.found, name)?.is_some())
    }
}

impl Listing for GroupListing {
    fn next(&mut self) -> Result<Option<Name>> {
        if self.own == 0 {
            match self.children.next()? {
                Some(name) => return Ok(Some(name)),
                None => self.own = 1,
            }
        }
        while let Some(name) = self.files.get(self.own - 1).cloned() {
            let cursor = self.cursor(self.own - 1);
            self.own += 1;
            if !self.is_taken(&name)? {
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

    fn seek(&mut self, cursor: u64) -> Result<()> {
        match (0..self.files.len()).find(|&place| self.cursor(place) == cursor) {
            Some(number) => self.own = number + 2,
            None => {
                self.own = 0;
                self.children.seek(cursor)?;
            }
        }
        Ok(())
    }
}

/// Opens the listing of a group's children. A broken node has those that can be found.
fn children_of(hierarchy: &Arc<Hierarchy>, found: &Arc<NodeEntry>) -> Result<Box<dyn Listing>> {
    match hierarchy.known_children(found) {
        Err(error) if found.broken.is_some() && has_none(error.kind()) => {
            Ok(Box::new(NameList::new([])))
        }
        answer => answer,
    }
}

/// Whether an error says that there are no children to be found.
fn has_none(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::NotADirectory | Kind::NotFound | Kind::Unsupported
    )
}

/// The chunks of an array in each listed format; names are made from numbers.
pub(super) struct ChunkListing {
    grid: Grid,
    formats: Vec<&'static Format>,
    /// Number of the next file; its cursor is one more.
    next: u64,
}

impl ChunkListing {
    /// Begins with the first chunk of a grid.
    pub(super) fn new(grid: Grid, formats: Vec<&'static Format>) -> ChunkListing {
        ChunkListing {
            grid,
            formats,
            next: 0,
        }
    }
}

impl Listing for ChunkListing {
    fn next(&mut self) -> Result<Option<Name>> {
        let formats = self.formats.len() as u64;
        let Some(chunk) = self
            .next
            .checked_div(formats)
            .filter(|&chunk| chunk < self.grid.len())
        else {
            return Ok(None);
        };
        let format = usize::try_from(self.next % formats).map(|number| self.formats.get(number));
        let Ok(Some(format)) = format else {
            return Ok(None);
        };
        let indices: Vec<String> = self
            .grid
            .indices(ChunkIndex(chunk))
            .iter()
            .map(u64::to_string)
            .collect();
        let indices = if indices.is_empty() {
            "0".to_string()
        } else {
            indices.join(".")
        };
        self.next += 1;
        let name = format!("{indices}.{}", format.extension).into_bytes();
        Ok(Some(Name {
            name,
            kind: EntryKind::File,
            cursor: self.next,
            meta: None,
        }))
    }

    fn seek(&mut self, cursor: u64) -> Result<()> {
        self.next = cursor;
        Ok(())
    }
}
