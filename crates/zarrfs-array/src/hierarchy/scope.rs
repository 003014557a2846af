//! What a node passes on to its children: where their documents are, and what has them.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::hierarchy::consolidated::Consolidated;
use zarr_format::dialect::Dialect;
use zarr_format::dialect::draft::EntryPoint;
use zarrfs_store::{Dependencies, Hints, Store, Version};

/// How the documents of nodes are found.
#[derive(Clone)]
pub(super) enum Rule {
    /// In the folder of each node, in the first of these dialects that has some.
    Plain(&'static [&'static Dialect]),
    /// Where the entry point of the hierarchy has them.
    Draft(Arc<EntryPoint>),
    /// Not at all, since the entry point above does not read.
    Closed,
}

/// What a node passes on to its children: how their documents are found, and in which store.
#[derive(Clone)]
pub(super) struct ChildScope {
    pub(super) rule: Rule,
    /// Where documents are read: the store, or consolidated metadata over it.
    pub(super) store: Arc<dyn Store>,
    /// The hints of that store.
    pub(super) hints: Arc<dyn Hints>,
    /// What the rule and the consolidated metadata were read from.
    pub(super) depends: Dependencies,
    /// The consolidated metadata that the store begins with, if it does.
    pub(super) consolidated: Option<Arc<Consolidated>>,
    /// Which consolidated metadata do not read, and why, if there are such.
    pub(super) unread_copies: Option<Arc<str>>,
    /// Differs between rules; 0 for the rule of the root.
    pub(super) version: u64,
}

impl ChildScope {
    /// Returns what tells one scope of a path from another.
    pub(super) fn identity(&self) -> (u64, Option<Version>) {
        (self.version, self.consolidated_version())
    }

    /// Returns the version of a group that no document describes.
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
