//! An array that a command makes files of, with what these say of it beside its elements.
//!
//! The files are those of the files view, whose names and headers come from the array's group as well.

use std::sync::Arc;

use super::store_args::StoreArgs;
use crate::array::OpenArray;
use crate::error::Result;
use crate::export::Format;
use crate::hierarchy::NodeEntry;
use crate::inspect::coordinate_lines::CoordinateLines;
use crate::inspect::locate::StorePath;
use crate::inspect::map_nodes::MapSource;
use crate::inspect::root_name::root_name;
use crate::inspect::surrounding_nodes::SurroundingNodes;
use crate::inspect::written_file::DescribedArray;
use crate::request_context::UNLIMITED;

/// An array with its metadata and those of its group.
pub(super) struct SourceArray {
    /// The array.
    pub(super) open: Arc<OpenArray>,
    entry: Option<Arc<NodeEntry>>,
    around: SurroundingNodes,
    /// What its files are named after.
    name: Vec<u8>,
}

impl SourceArray {
    /// Finds what the file of an array in a format says of it.
    pub(super) fn of(
        located: &StorePath,
        open: Arc<OpenArray>,
        format: &Format,
    ) -> Result<SourceArray> {
        let (hierarchy, path) = (&located.opened.hierarchy, open.path());
        let name = if path.is_root() {
            root_name(&located.source).into_bytes()
        } else {
            path.name().to_vec()
        };
        let entry = hierarchy.node(&UNLIMITED, path)?;
        let mut around = SurroundingNodes::default();
        if let Some(entry) = &entry {
            around = SurroundingNodes::of(&UNLIMITED, hierarchy, entry)?;
            if format.is_map() {
                let source = MapSource {
                    hierarchy,
                    arrays: &located.opened.arrays,
                    lines: &CoordinateLines::default(),
                };
                around = source.add_to(&UNLIMITED, around, entry)?;
            }
        }
        Ok(SourceArray {
            around,
            entry,
            name,
            open,
        })
    }

    /// Returns the array as its files describe it.
    pub(super) fn described(&self) -> DescribedArray<'_> {
        let metadata = self.entry.as_ref().and_then(|entry| entry.array());
        DescribedArray {
            metadata: metadata.unwrap_or(self.open.array()),
            name: &self.name,
            around: self.around.attributes(),
            ..DescribedArray::alone(&self.open)
        }
    }
}

/// Returns an array that was opened as a store of its own as one of its group, if that is described: what the group says of
/// its arrays is in their files, as in the files view.
pub(super) fn in_group(store: &StoreArgs, path: &str, located: StorePath) -> StorePath {
    above(store, path, &located).unwrap_or(located)
}

/// Returns the same; nothing where the array was not opened as a store of its own, or its group is not described.
pub(super) fn above(store: &StoreArgs, path: &str, located: &StorePath) -> Option<StorePath> {
    let root = located.opened.hierarchy.root(&UNLIMITED).ok()??;
    if !located.path.is_root() || !root.is_array() {
        return None;
    }
    within(store, path).filter(|above| {
        let group = above.path.parent();
        let group = group.and_then(|group| above.opened.hierarchy.node(&UNLIMITED, &group).ok()?);
        group.is_some_and(|group| !group.described_by().is_empty())
    })
}

/// Opens the folder that a path lies in as a store, or as something in one; nothing if there is no node in it at the path.
pub(super) fn within(store: &StoreArgs, path: &str) -> Option<StorePath> {
    let (folder, name) = match path.trim_end_matches('/').rsplit_once('/') {
        Some((folder, name)) => (folder, name),
        None => (".", path),
    };
    let mut above = store.open(folder).ok()?;
    above.path = above.path.child(name.as_bytes()).ok()?;
    let found = above.opened.hierarchy.node(&UNLIMITED, &above.path).ok()?;
    found.map(|_| above)
}
