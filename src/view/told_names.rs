//! The names of a store that cannot list its keys, as far as metadata tell them.
//!
//! A folder is the folder of a node, or one on the way to chunks of an array. The folder of a node has the nodes that are
//! known or every chunk of the grid, since whether one is stored is known only when it is read, and then the documents:
//! what removes all names of a folder in their order has the metadata for as long as it needs the chunks' names.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::SystemTime;

use crate::error::{Error, Kind, Result};
use crate::hierarchy::{Hierarchy, NodeEntry};
use crate::known::Known;
use crate::model::document::{IN_NODE_FOLDER, is_in_node_folder};
use crate::store::listing::NameList;
use crate::store::{EntryKind, Key, Listing, LogPosition, Name, Store};
use crate::view::chunk_names::{Level, level};
use crate::view::met_keys::MetKeys;

/// A store without listings, and the nodes that are known of it.
#[derive(Clone)]
pub(super) struct ToldNames {
    store: Arc<dyn Store>,
    hierarchy: Arc<Hierarchy>,
    /// Of a store that may change: it is asked for the documents of a folder, since it may have others by now than those
    /// by which a node was found.
    met: Option<Arc<MetKeys>>,
}

/// A directory that follows from the metadata.
pub(super) enum KnownDir {
    Node(Arc<NodeEntry>),
    /// On the way to chunks of an array.
    Chunks(Level),
}

impl KnownDir {
    pub(super) fn modified(&self) -> SystemTime {
        match self {
            KnownDir::Node(found) => found.modified,
            KnownDir::Chunks(_) => SystemTime::UNIX_EPOCH,
        }
    }
}

impl ToldNames {
    /// Tells the names of a store by its nodes, and those of `met` if it may change.
    pub(super) fn new(
        store: Arc<dyn Store>,
        hierarchy: Arc<Hierarchy>,
        met: Option<Arc<MetKeys>>,
    ) -> ToldNames {
        ToldNames {
            store,
            hierarchy,
            met,
        }
    }

    /// Finds the directory at a path that follows from the metadata.
    pub(super) fn folder(&self, path: &Key) -> Result<Option<KnownDir>> {
        let Some(mut node) = self.hierarchy.root()? else {
            return Ok(None);
        };
        for name in path.names() {
            if let Some(array) = node.array() {
                return Ok(level(array, path)?.map(KnownDir::Chunks));
            }
            if is_in_node_folder(name) {
                return Ok(None);
            }
            match self.hierarchy.child(&node, name)? {
                Some(child) if !self.is_removed(&child)? => node = child,
                _ => return Ok(None),
            }
        }
        Ok(Some(KnownDir::Node(node)))
    }

    /// The same by the nodes that are known without waiting.
    pub(super) fn folder_now(&self, path: &Key) -> Known<KnownDir> {
        let mut key = Key::root();
        let mut found = self.hierarchy.node_now(&key);
        for name in path.names() {
            let Known::Is(node) = &found else { break };
            if let Some(array) = node.array() {
                let level = level(array, path).map(Known::from);
                return level.map_or(Known::Unknown, |level| level.map(KnownDir::Chunks));
            }
            let Ok(child) = key.child(name) else {
                return Known::Unknown;
            };
            key = child;
            found = self.hierarchy.node_now(&key);
        }
        found.map(KnownDir::Node)
    }

    /// Whether a node that consolidated metadata name was removed through the store: it has no document any more, and no
    /// node below it has one.
    fn is_removed(&self, found: &Arc<NodeEntry>) -> Result<bool> {
        let documents = found.documents_in_folder();
        let changes = &self.store.info().changes;
        let is_changed = |key: &Key| changes.changed_since(LogPosition::default(), key);
        if self.met.is_none() || !found.is_consolidated() || !documents.iter().any(is_changed) {
            return Ok(false);
        }
        for key in &documents {
            if self.store.head(key)?.is_some() {
                return Ok(false);
            }
        }
        Ok(found.array().is_some() || self.children(found)?.next()?.is_none())
    }

    /// Lists the children of a group but for those that were removed.
    fn children(&self, found: &Arc<NodeEntry>) -> Result<Box<dyn Listing>> {
        Ok(Box::new(PresentChildren {
            listed: self.hierarchy.known_children(found)?,
            names: self.clone(),
            found: found.clone(),
        }))
    }

    /// Has the node at a path known from now on.
    pub(super) fn meet_node(&self, path: &Key) {
        if matches!(self.hierarchy.node_now(path), Known::Unknown) {
            // What cannot be read now is met when it is asked for.
            let _ = self.hierarchy.node(path);
        }
    }

    /// Whether metadata name all that is known of a folder and of what is below it: those of an array its chunks, and
    /// consolidated metadata the nodes below a group.
    pub(super) fn are_all(&self, path: &Key) -> Result<bool> {
        Ok(match self.folder(path)? {
            Some(KnownDir::Node(found)) => {
                found.node.is_ok() && (found.array().is_some() || found.is_consolidated())
            }
            Some(KnownDir::Chunks(_)) => true,
            None => self.store.head(path)?.is_none(),
        })
    }

    /// Whether the metadata of an array name a key.
    pub(super) fn names_chunk(&self, key: &Key) -> Result<bool> {
        let Some(above) = key.parent() else {
            return Ok(false);
        };
        let level = match self.folder(&above)? {
            Some(KnownDir::Chunks(level)) => Some(level),
            Some(KnownDir::Node(found)) => match found.array() {
                Some(array) => level(array, &above)?,
                None => None,
            },
            None => None,
        };
        Ok(level.is_some_and(|level| level.has(key.name())))
    }

    /// Lists a directory.
    pub(super) fn list(&self, path: &Key) -> Result<Box<dyn Listing>> {
        let met = self.met.as_ref().map(|met| met.names(path));
        let met = met.unwrap_or_default();
        match self.folder(path)? {
            Some(KnownDir::Node(found)) => self.list_node(&found, met),
            Some(KnownDir::Chunks(level)) => Ok(with_last(level.listing(), met)),
            None if !met.is_empty() => Ok(Box::new(NameList::new(met))),
            None => Err(self.why_not(path)?),
        }
    }

    /// Returns why what metadata do not name cannot be listed.
    fn why_not(&self, path: &Key) -> Result<Error> {
        Ok(match self.store.head(path)?.map(|meta| meta.kind) {
            Some(EntryKind::Directory) => {
                let why = "the server does not list this directory, and no metadata describe it";
                Error::unsupported(path, why)
            }
            Some(_) => Error::new(Kind::NotADirectory, path, "is an object, not a directory"),
            None => Error::not_found(path),
        })
    }

    /// Lists the folder of a node, in which these names are known beside what metadata name.
    fn list_node(
        &self,
        found: &Arc<NodeEntry>,
        met: Vec<(Vec<u8>, EntryKind)>,
    ) -> Result<Box<dyn Listing>> {
        let documents = self.documents(found)?.into_iter();
        let documents = documents.map(|name| (name, EntryKind::File));
        let met = met.into_iter().filter(|(name, _)| !is_in_node_folder(name));
        let last = met.chain(documents).collect();
        let others: Box<dyn Listing> = match found.array() {
            Some(array) => match level(array, &found.path)? {
                Some(level) => level.listing(),
                None => Box::new(NameList::new([])),
            },
            // A node whose metadata cannot be read has its documents all the same.
            None if found.node.is_err() => Box::new(NameList::new([])),
            None => self.children(found)?,
        };
        Ok(with_last(others, last))
    }

    /// Returns the names of the documents in a node's folder.
    fn documents(&self, found: &NodeEntry) -> Result<Vec<Vec<u8>>> {
        if self.met.is_some() {
            return self.stored_documents(&found.path);
        }
        let read = found.documents_in_folder().into_iter();
        Ok(read.map(|key| key.name().to_vec()).collect())
    }

    /// Returns the names of the documents that are stored in a folder.
    fn stored_documents(&self, path: &Key) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        for name in IN_NODE_FOLDER {
            let meta = self.store.head(&path.child(name.as_bytes())?)?;
            if meta.is_some_and(|meta| meta.kind == EntryKind::File) {
                names.push(name.as_bytes().to_vec());
            }
        }
        Ok(names)
    }
}

/// The children of a group that are there.
struct PresentChildren {
    listed: Box<dyn Listing>,
    names: ToldNames,
    found: Arc<NodeEntry>,
}

impl Listing for PresentChildren {
    fn next(&mut self) -> Result<Option<Name>> {
        while let Some(name) = self.listed.next()? {
            let is_removed = match &self.names.met {
                None => false,
                Some(_) => match self.names.hierarchy.child(&self.found, &name.name)? {
                    Some(child) => self.names.is_removed(&child)?,
                    None => true,
                },
            };
            if !is_removed {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    fn seek(&mut self, cursor: u64) -> Result<()> {
        self.listed.seek(cursor)
    }
}

/// A listing, then names that are held.
struct HeldLast {
    others: Box<dyn Listing>,
    held: Vec<(Vec<u8>, EntryKind)>,
    /// The names that are held.
    covered: HashSet<Vec<u8>>,
    /// The number of the next name that is held; nothing before the end of the others.
    next: Option<usize>,
}

/// Returns a listing after which these names come.
fn with_last(others: Box<dyn Listing>, held: Vec<(Vec<u8>, EntryKind)>) -> Box<dyn Listing> {
    if held.is_empty() {
        return others;
    }
    Box::new(HeldLast {
        covered: held.iter().map(|(name, _)| name.clone()).collect(),
        others,
        held,
        next: None,
    })
}

/// The cursor of the first name that is held: larger than those of the others, which are numbers of names.
const FIRST_HELD: u64 = 1 << 62;

impl Listing for HeldLast {
    fn next(&mut self) -> Result<Option<Name>> {
        while self.next.is_none()
            && let Some(name) = self.others.next()?
        {
            if !self.covered.contains(&name.name) {
                return Ok(Some(name));
            }
        }
        let place = self.next.unwrap_or(0);
        let found = self.held.get(place).cloned();
        self.next = Some(place + usize::from(found.is_some()));
        Ok(found.map(|(name, kind)| Name {
            name,
            kind,
            cursor: FIRST_HELD + place as u64,
            meta: None,
        }))
    }

    fn seek(&mut self, cursor: u64) -> Result<()> {
        let place = cursor.checked_sub(FIRST_HELD);
        let place = place.map(|place| usize::try_from(place).unwrap_or(usize::MAX));
        self.next = place.map(|place| place.saturating_add(1));
        match self.next {
            Some(_) => Ok(()),
            None => self.others.seek(cursor),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_goes_on_before_the_documents_and_behind_them() {
        let file = |name: &&str| (name.as_bytes().to_vec(), EntryKind::File);
        let chunks = ["0", "1", "extra", "2", "3"].iter().map(file);
        let held = ["extra", ".zarray", ".zattrs"].iter().map(file);
        let mut listing = with_last(Box::new(NameList::new(chunks)), held.collect());
        let mut all = Vec::new();
        while let Some(name) = listing.next().unwrap() {
            all.push(name);
        }
        assert_eq!(all.len(), 7, "a name that is in both comes once");
        assert_eq!(listing.next().unwrap(), None);
        for (place, name) in all.iter().enumerate() {
            listing.seek(name.cursor).unwrap();
            assert_eq!(listing.next().unwrap().as_ref(), all.get(place + 1));
        }
        listing.seek(0).unwrap();
        assert_eq!(listing.next().unwrap().as_ref(), all.first());
    }
}
