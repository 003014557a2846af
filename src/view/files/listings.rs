//! Listings of the files view that are read name by name: groups, and the chunks of arrays.
//!
//! Only the store's own listing is held, or the number of the next chunk.

use std::sync::Arc;

use crate::error::Result;
use crate::export::Format;
use crate::grid::{ChunkIndex, Grid};
use crate::hierarchy::{Hierarchy, NodeEntry};
use crate::store::{EntryKind, Listing, Name};
use crate::view::files::{ATTRIBUTES, METADATA};

/// A group's children, then its own two documents.
pub(super) struct GroupListing {
    children: Box<dyn Listing>,
    hierarchy: Arc<Hierarchy>,
    found: Arc<NodeEntry>,
    /// Number of the next of its own documents; 0 while children are listed.
    own: usize,
}

/// A group's own documents and their cursors: larger than those of any file system but for the end of a directory,
/// which is the largest number on ext4, and smaller than those that `fuse` keeps for itself.
const OWN_FILES: [(&[u8], u64); 2] = [
    (METADATA, i64::MAX as u64 - 4),
    (ATTRIBUTES, i64::MAX as u64 - 3),
];

impl GroupListing {
    /// Opens the listing of a group.
    pub(super) fn new(hierarchy: &Arc<Hierarchy>, found: &Arc<NodeEntry>) -> Result<GroupListing> {
        Ok(GroupListing {
            children: hierarchy.known_children(found)?,
            hierarchy: hierarchy.clone(),
            found: found.clone(),
            own: 0,
        })
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
        while let Some(&(name, cursor)) = OWN_FILES.get(self.own - 1) {
            self.own += 1;
            if !self.is_taken(name)? {
                return Ok(Some(Name {
                    name: name.to_vec(),
                    kind: EntryKind::File,
                    cursor,
                    meta: None,
                }));
            }
        }
        Ok(None)
    }

    fn seek(&mut self, cursor: u64) -> Result<()> {
        match OWN_FILES.iter().position(|own| own.1 == cursor) {
            Some(number) => self.own = number + 2,
            None => {
                self.own = 0;
                self.children.seek(cursor)?;
            }
        }
        Ok(())
    }
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
