//! Defines where the documents of a node's children are found.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::hierarchy::consolidated::Consolidated;
use zarr_format::dialect::Dialect;
use zarr_format::dialect::draft::EntryPoint;
use zarrfs_store::{Dependencies, Hints, Store, Version};

/// The rule that locates the documents of nodes.
#[derive(Clone)]
pub(super) enum Rule {
    /// In the folder of each node, in the first of these dialects that has documents there.
    Plain(&'static [&'static Dialect]),
    /// At the keys that the entry point of the hierarchy defines.
    Draft(Arc<EntryPoint>),
    /// Nowhere, since the entry point above cannot be read.
    Closed,
}

/// The state that a node passes on to its children: how their documents are found, and in which store.
#[derive(Clone)]
pub(super) struct ChildContext {
    pub(super) rule: Rule,
    /// The store that documents are read from: the plain store, or consolidated metadata over it.
    pub(super) store: Arc<dyn Store>,
    /// The hints of that store.
    pub(super) hints: Arc<dyn Hints>,
    /// The keys that the rule and the consolidated metadata were read from.
    pub(super) depends: Dependencies,
    /// The consolidated metadata layer of `store`, if there is one.
    pub(super) consolidated: Option<Arc<Consolidated>>,
    /// The error of consolidated metadata that could not be read.
    pub(super) consolidated_error: Option<Arc<str>>,
    /// Differs between rules; 0 for the rule of the root.
    pub(super) version: u64,
}

impl ChildContext {
    /// Returns a value that differs between child contexts of one path.
    pub(super) fn identity(&self) -> (u64, Option<Version>) {
        (self.version, self.consolidated_version())
    }

    /// Returns the version of a group without documents.
    pub(super) fn implied_version(&self) -> u64 {
        match self.consolidated_version() {
            None => self.version,
            Some(consolidated) => hash_of((self.version, consolidated)),
        }
    }

    /// Returns the version of the consolidated metadata, if they are used.
    pub(super) fn consolidated_version(&self) -> Option<Version> {
        self.consolidated.as_ref().map(|used| used.version())
    }
}

/// Returns a number that differs between values.
pub(super) fn hash_of(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
