//! Opens the node at a typed path, and shows that path in errors.
//!
//! The files of an array are those of the files view; their names and headers also depend on the array's group.

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
use zarrfs_export::inspect::access::OpenedStore;
use zarrfs_export::inspect::coordinates::CoordinateLines;
use zarrfs_export::inspect::coordinates::{ArrayInGroup, names_dimensions};
use zarrfs_export::inspect::locate::StorePath;
use zarrfs_export::inspect::locate::root_name;
use zarrfs_export::inspect::selected_elements::DescribedArray;
use zarrfs_export::inspect::surrounding_nodes::MapSource;
use zarrfs_export::inspect::surrounding_nodes::SurroundingNodes;
use zarrfs_store::Key;
use zarrfs_store::request_context::UNLIMITED;

/// Warns if a store is not a Zarr store but has the files of another format.
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

/// A node that a command names.
pub(super) struct SourceNode<'a> {
    store: &'a StoreArgs,
    /// The path or URL as typed.
    typed: &'a str,
    pub(super) located: StorePath,
}

impl<'a> SourceNode<'a> {
    /// Opens the store of `typed`, a path or URL of a store or of an entry in it.
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

    /// Returns the same node, opened through another store.
    pub(super) fn at(&self, located: StorePath) -> SourceNode<'a> {
        SourceNode { located, ..*self }
    }

    /// If the array was opened as a store of its own and its group has a document, reopens the array through the group:
    /// as in the files view, its files contain metadata of the group.
    pub(super) fn in_group(self) -> SourceNode<'a> {
        match self.above() {
            Some(located) => self.at(located),
            None => self,
        }
    }

    /// Like `in_group`; `None` if the array was not opened as a store of its own, or its group has no document.
    pub(super) fn above(&self) -> Option<StorePath> {
        (self.located.path.is_root() && self.is_array_store())
            .then(|| self.store.open_in_top_group(self.typed))
            .flatten()
    }

    /// Whether an array was opened as a store of its own.
    pub(super) fn is_array_store(&self) -> bool {
        let root = self.located.opened.hierarchy.root(&UNLIMITED);
        matches!(root, Ok(Some(root)) if root.is_array())
    }

    /// Opens the array at the path; `NotFound` if the path does not exist, `Invalid` if it is not an array.
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

    /// Parses a selection of the array. Labels are read from the array's group or an ancestor; if the array was opened
    /// as a store of its own, its group is opened for that.
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

    /// Prefixes the key of an error with the store as typed.
    ///
    /// Internally a key is relative to the store's root. The typed path is longer: its longest leading part with
    /// metadata is the store. A subject that is not a key (an option, a selection, another file) is unchanged.
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

    /// Warns if consolidated metadata were requested but cannot be read.
    pub(super) fn warn_unread_copies(&self) {
        for why in self.located.opened.hierarchy.consolidated_errors() {
            let store = &self.located.source;
            report::warn(format_args!(
                "{store}: the consolidated metadata cannot be read: {why}"
            ));
        }
    }

    /// Whether an error is about a key: the typed path, a path below it, or a stored key.
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
            // A key that cannot be queried counts as stored: the error may be about this failure.
            let is_stored = || !matches!(store.head(&UNLIMITED, &key), Ok(None));
            !key.is_root() && (is_document(key.name()) || is_stored())
        })
    }

    /// Returns the store as typed, that is, the typed path without the path of the node. Of a URL, which may contain
    /// secrets, returns the source as it is shown.
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

/// An array with its metadata and its group's metadata.
pub(super) struct SourceArray {
    /// The array.
    pub(super) open: Arc<OpenArray>,
    entry: Option<Arc<NodeEntry>>,
    around: SurroundingNodes,
    /// The base name of the array's files.
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

/// The note about nodes known only from attributes, in a store that cannot list.
pub(super) const NAMED_ONLY: &str = "named in attributes; other groups and arrays are unknown";

/// Appends a key to its store.
fn joined(base: &str, key: &str) -> String {
    let base = base.trim_end_matches('/');
    match (base, key) {
        (base, "/") => base.to_string(),
        ("", key) => key.to_string(),
        (base, key) => format!("{base}/{key}"),
    }
}

/// Returns the base name of the files of a node.
pub(super) fn base_name(located: &StorePath, node: &Key) -> Vec<u8> {
    if node.is_root() {
        root_name(&located.source).into_bytes()
    } else {
        node.name().to_vec()
    }
}
