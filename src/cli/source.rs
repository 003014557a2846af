//! Opens the node at a typed path, and shows that path in errors.
//!
//! The files of an array are those of the files view; their names and headers also depend on the metadata of the
//! array's group.

use std::sync::Arc;

use crate::cli::report;
use crate::cli::store_args::StoreArgs;
use zarr_format::error::{Error, Result};
use zarr_format::grid::Selection;
use zarr_format::model::document::is_document;
use zarrfs_array::array::OpenArray;
use zarrfs_array::hierarchy::{NodeEntry, OtherFormat};
use zarrfs_export::formats::axes::axes_of;
use zarrfs_export::formats::{Format, Subject, npy};
use zarrfs_export::inspect::coordinates::CoordinateLines;
use zarrfs_export::inspect::coordinates::{ArrayInGroup, names_dimensions};
use zarrfs_export::inspect::locate::StorePath;
use zarrfs_export::inspect::locate::root_name;
use zarrfs_export::inspect::opened_store::OpenedStore;
use zarrfs_export::inspect::selected_elements::DescribedArray;
use zarrfs_export::inspect::surrounding_nodes::MapSource;
use zarrfs_export::inspect::surrounding_nodes::SurroundingNodes;
use zarrfs_store::Key;
use zarrfs_store::request_context::UNLIMITED;

/// Warns if the root of a store has no Zarr metadata, but files of another format.
fn warn_of_other_format(located: &StorePath) {
    let hierarchy = &located.opened.hierarchy;
    let Ok(Some(root)) = hierarchy.root(&UNLIMITED) else {
        return;
    };
    if root.version != 0 || root.node.is_err() || !located.path.is_root() {
        return;
    }
    if let Some(other) = OtherFormat::of(&UNLIMITED, &**hierarchy.store()) {
        report::warn(format_args!("{}: {}", located.source, other.sentence()));
    }
}

/// A group or an array that the user named in a command.
pub(super) struct SourceNode<'a> {
    store: &'a StoreArgs,
    /// The path or URL as the user typed it.
    typed: &'a str,
    pub(super) located: StorePath,
}

impl<'a> SourceNode<'a> {
    /// Opens the store that contains the node at `typed`, a path or URL, and finds the node in it.
    pub(super) fn open(store: &'a StoreArgs, typed: &'a str) -> Result<SourceNode<'a>> {
        let located = store.open(typed)?;
        if let Some(warning) = store.remote.without_effect(typed) {
            report::warn(format_args!("{typed}: {warning}"));
        }
        warn_of_other_format(&located);
        Ok(SourceNode {
            store,
            typed,
            located,
        })
    }

    /// Returns the node as opened through another root, `located`.
    pub(super) fn at(&self, located: StorePath) -> SourceNode<'a> {
        SourceNode { located, ..*self }
    }

    /// If the typed path is an array that was opened as a store root, reopens the array through the group above it,
    /// whose metadata go into the array's files. Otherwise returns the node unchanged.
    pub(super) fn in_group(self) -> SourceNode<'a> {
        match self.above() {
            Some(located) => self.at(located),
            None => self,
        }
    }

    /// Opens an array through the group above it. Returns `None` if the array was not opened as a store root, or its
    /// group has no metadata document.
    pub(super) fn above(&self) -> Option<StorePath> {
        (self.located.path.is_root() && self.is_array_store())
            .then(|| self.store.open_in_top_group(self.typed))
            .flatten()
    }

    /// Whether the root of the opened store is an array.
    pub(super) fn is_array_store(&self) -> bool {
        let root = self.located.opened.hierarchy.root(&UNLIMITED);
        matches!(root, Ok(Some(root)) if root.is_array())
    }

    /// Opens the array at the typed path; fails with `NotFound` if the path does not exist, and with `Invalid` if it is
    /// no array.
    pub(super) fn open_array(&self) -> Result<Arc<OpenArray>> {
        let located = &self.located;
        let entry = located.opened.hierarchy.node(&UNLIMITED, &located.path)?;
        match entry {
            Some(entry) => {
                entry.node()?;
                located.opened.arrays.open(&entry)
            }
            None => Err(Error::not_found(&located.path)),
        }
    }

    /// Parses a selection of the array. Its labels are read from the groups above the array; if the array was opened as
    /// a store root, these groups are opened first.
    pub(super) fn select(&self, text: &str) -> Result<Selection> {
        let open = || {
            let above = self.store.open_in_top_group(self.typed);
            above.or_else(|| self.store.open_in_parent(self.typed))
        };
        let above = (self.located.path.is_root() && names_dimensions(text)).then(open);
        let above = above.flatten();
        let located = above.as_ref().unwrap_or(&self.located);
        let OpenedStore {
            hierarchy, arrays, ..
        } = &located.opened;
        let missing = || Error::not_found(&located.path);
        let entry = hierarchy
            .node(&UNLIMITED, &located.path)?
            .ok_or_else(missing)?;
        let array = ArrayInGroup {
            hierarchy,
            arrays,
            entry: &entry,
        };
        array.select(&UNLIMITED, text)
    }

    /// Replaces the key in an error by the path that the user knows: the store as typed, then the key.
    ///
    /// Errors have keys relative to the root of the store, which is the first part of the typed path. The subject of an
    /// error stays as it is if it is not a key, but an option, a selection or another file.
    pub(super) fn name_errors<T>(&self, outcome: Result<T>) -> Result<T> {
        outcome.map_err(|error| {
            if self.is_key(error.subject()) {
                let name = joined(&self.typed_store(), error.subject());
                Error::new(error.kind(), name, error.detail())
            } else {
                error
            }
        })
    }

    /// Warns if --consolidated was given but the consolidated metadata cannot be read.
    pub(super) fn warn_unread_copies(&self) {
        for why in self.located.opened.hierarchy.consolidated_errors() {
            let store = &self.located.source;
            report::warn(format_args!(
                "{store}: the consolidated metadata cannot be read: {why}"
            ));
        }
    }

    /// Whether the subject of an error is a key: the typed path, a path below it, or another stored key.
    fn is_key(&self, subject: &str) -> bool {
        let located = &self.located;
        let path = located.path.to_string();
        let is_below = subject
            .strip_prefix(&path)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        if subject == "/" || (is_below && !located.path.is_root()) {
            return true;
        }
        let store = &located.opened.stack.store;
        Key::new(subject).is_ok_and(|key| {
            // A key whose existence cannot be checked counts as stored, since the error may have the same cause as that
            // failure.
            let is_stored = || !matches!(store.head(&UNLIMITED, &key), Ok(None));
            !key.is_root() && (is_document(key.name()) || is_stored())
        })
    }

    /// Returns the typed path without the path of the node in the store. For a URL, which may contain secrets, returns
    /// the redacted name of the store.
    fn typed_store(&self) -> String {
        let located = &self.located;
        let typed = self.typed.trim_end_matches('/');
        if typed.is_empty() || typed.contains("://") {
            return located.source.clone();
        }
        if located.path.is_root() {
            return typed.to_string();
        }
        match typed.strip_suffix(&located.path.to_string()) {
            Some("") => String::new(),
            Some(base) if base.ends_with('/') => base.to_string(),
            _ => located.source.clone(),
        }
    }
}

/// An array with the metadata that go into its files.
pub(super) struct SourceArray {
    pub(super) open: Arc<OpenArray>,
    entry: Option<Arc<NodeEntry>>,
    around: SurroundingNodes,
    /// Name of the array's files, without extension.
    name: Vec<u8>,
}

impl SourceArray {
    /// Collects the metadata that go into the file of an array in the given format.
    pub(super) fn of(
        located: &StorePath,
        open: Arc<OpenArray>,
        format: &Format,
    ) -> Result<SourceArray> {
        let (hierarchy, path) = (&located.opened.hierarchy, open.path());
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
            name: base_name(located, open.path()),
            open,
        })
    }

    /// Returns the names of an array's dimensions, `None` for a dimension without a name.
    pub(super) fn dimension_names(
        located: &StorePath,
        open: &Arc<OpenArray>,
    ) -> Result<Vec<Option<String>>> {
        // Dimension names are the same for all formats.
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

    /// Returns the array with the metadata that its files contain.
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

/// Note for a store that cannot list its keys: only nodes that attributes name are found.
pub(super) const NAMED_ONLY: &str = "named in attributes; other groups and arrays are unknown";

/// Joins a key to the path of its store.
fn joined(base: &str, key: &str) -> String {
    let base = base.trim_end_matches('/');
    match (base, key) {
        (base, "/") => base.to_string(),
        ("", key) => key.to_string(),
        (base, key) => format!("{base}/{key}"),
    }
}

/// Returns the name of a node's files, without extension.
pub(super) fn base_name(located: &StorePath, node: &Key) -> Vec<u8> {
    if node.is_root() {
        root_name(&located.source).into_bytes()
    } else {
        node.name().to_vec()
    }
}
