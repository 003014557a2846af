//! What a node tells its children: by which rule they are found, and in which store.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::dialect::Dialect;
use crate::dialect::draft::EntryPoint;
use crate::store::{Store, Version};

/// How nodes are found.
#[derive(Clone)]
pub(super) enum Rule {
    /// Each by its own documents, in the first of these dialects that has some.
    Plain(&'static [&'static Dialect]),
    /// Where an entry point says.
    Draft(Arc<EntryPoint>),
    /// Not at all: the entry point above does not read.
    Closed,
}

/// The ground that the children of a node stand on.
#[derive(Clone)]
pub(super) struct ChildScope {
    pub(super) rule: Rule,
    /// Where documents are read: the store, or consolidated metadata over it.
    pub(super) store: Arc<dyn Store>,
    /// Which consolidated metadata those are.
    pub(super) consolidated: Option<Version>,
    /// Tells one rule from another; 0 for that of a store about which nothing is known.
    pub(super) version: u64,
}

impl ChildScope {
    /// Returns the version of a group that no document describes.
    pub(super) fn implied_version(&self) -> u64 {
        match self.consolidated {
            None => self.version,
            Some(consolidated) => {
                let mut hasher = DefaultHasher::new();
                (self.version, consolidated).hash(&mut hasher);
                hasher.finish()
            }
        }
    }
}
