//! An array as the source of files: its elements, metadata and group.
//!
//! The files are those of the files view; their names and headers also depend on the array's group.

use std::sync::Arc;

use super::store_args::StoreArgs;
use zarr_format::error::Result;
use zarrfs_array::array::OpenArray;
use zarrfs_array::hierarchy::NodeEntry;
use zarrfs_export::formats::axes::axes_of;
use zarrfs_export::formats::{Format, Subject, npy};
use zarrfs_export::inspect::coordinate_lines::CoordinateLines;
use zarrfs_export::inspect::locate::StorePath;
use zarrfs_export::inspect::map_nodes::MapSource;
use zarrfs_export::inspect::root_name::root_name;
use zarrfs_export::inspect::surrounding_nodes::SurroundingNodes;
use zarrfs_export::inspect::written_file::DescribedArray;
use zarrfs_store::request_context::UNLIMITED;

/// An array with its metadata and its group's metadata.
pub(super) struct SourceArray {
    /// The array.
    pub(super) open: Arc<OpenArray>,
    entry: Option<Arc<NodeEntry>>,
    around: SurroundingNodes,
    /// The base name of its files.
    name: Vec<u8>,
}

impl SourceArray {
    /// Finds the metadata that the file of an array in a format contains.
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
            let arrays = &located.opened.arrays;
            around = SurroundingNodes::of(&UNLIMITED, hierarchy, entry)?
                .with_numbers(&UNLIMITED, hierarchy, arrays)?;
            if format.is_map() {
                let source = MapSource {
                    hierarchy,
                    arrays,
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

    /// Returns the names of an array's dimensions that the metadata define.
    pub(super) fn dimension_names(
        located: &StorePath,
        open: &Arc<OpenArray>,
    ) -> Result<Vec<Option<String>>> {
        // The names do not depend on the format.
        let source = SourceArray::of(located, open.clone(), &npy::FORMAT)?;
        let described = source.described();
        let subject = Subject {
            name: described.name,
            around: described.around,
            ..Subject::alone(described.metadata, &described.metadata.shape)
        };
        let axes = axes_of(&subject).into_iter();
        Ok(axes.map(|axis| axis.name).collect())
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

/// Reopens an array that was opened as a store of its own through its group, if the group has a document: its files
/// contain group metadata, as in the files view.
pub(super) fn in_group(store: &StoreArgs, path: &str, located: StorePath) -> StorePath {
    above(store, path, &located).unwrap_or(located)
}

/// Like `in_group`; `None` if the array was not opened as a store of its own, or its group has no document.
pub(super) fn above(store: &StoreArgs, path: &str, located: &StorePath) -> Option<StorePath> {
    (located.path.is_root() && is_of_array(located))
        .then(|| within_group(store, path))
        .flatten()
}

/// Whether an array was opened as a store of its own.
pub(super) fn is_of_array(located: &StorePath) -> bool {
    let root = located.opened.hierarchy.root(&UNLIMITED);
    matches!(root, Ok(Some(root)) if root.is_array())
}

/// Opens the highest ancestor of an array as a store, such that it and all groups below have documents; `None` if there
/// is no such group. An OME-Zarr image may be described three groups above its labels.
pub(super) fn within_group(store: &StoreArgs, path: &str) -> Option<StorePath> {
    let mut found: Option<StorePath> = None;
    let mut folder = path.trim_end_matches('/');
    let mut names: Vec<&[u8]> = Vec::new();
    while names.len() < MAX_ABOVE {
        let (group, name) = folder.rsplit_once('/').unwrap_or((".", folder));
        names.push(name.as_bytes());
        let is_described = |opened: &StorePath| {
            let node = opened.opened.hierarchy.node(&UNLIMITED, &opened.path);
            let node = node.ok().flatten();
            node.is_some_and(|node| !node.described_by().is_empty())
        };
        let Some(mut opened) = store.open(group).ok().filter(is_described) else {
            break;
        };
        let is_whole = !opened.path.is_root();
        let mut below = names.iter().rev();
        let array = below.try_fold(opened.path.clone(), |path, name| path.child(name));
        let Ok(array) = array else { break };
        opened.path = array;
        let node = opened.opened.hierarchy.node(&UNLIMITED, &opened.path);
        if !matches!(node, Ok(Some(_))) {
            break;
        }
        found = Some(opened);
        if is_whole || group == "." {
            break;
        }
        folder = group;
    }
    found
}

/// Maximum number of groups above an array that are tried.
const MAX_ABOVE: usize = 5;

/// Opens the parent folder of a path as a store or part of one; `None` if the path is not a node in it.
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
