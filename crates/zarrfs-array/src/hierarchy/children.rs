//! Lists the children of a group as a stream, each node once.
//!
//! The only state is the store's listing, whose cursors are passed on. In a draft, `a.array.json`, `a.group.json` and
//! `a` may be the same child: it is returned for the first of them that exists, and only such possible duplicates cost
//! a request.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::hierarchy::node_cache::CachedNode;
use crate::hierarchy::scope::Rule;
use crate::hierarchy::{Hierarchy, NodeEntry};
use zarr_format::dialect::draft::EntryPoint;
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::listing::NameList;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{EntryKind, Key, LeftOut, Listing, Name};

impl Hierarchy {
    /// Lists all children of a group as directories, in the order of the store.
    ///
    /// Fails with `NotADirectory` for an array, broken or not, and with `Unsupported` if the store cannot list and
    /// there are no consolidated metadata: attributes may name some children, but not all. A broken node may be a
    /// group; its children are found by listing its folder.
    pub fn children(
        self: &Arc<Self>,
        context: &RequestContext,
        found: &Arc<NodeEntry>,
    ) -> Result<Box<dyn Listing>> {
        if found.is_array() {
            let why = "an array has no children";
            return Err(Error::new(Kind::NotADirectory, &found.path, why));
        }
        if found.scope.store.info().lists {
            return self.stored_children(context, found);
        }
        Err(unlisted(found))
    }

    /// Lists the children as `children` does. If no complete list is available, lists the children that attributes
    /// name, and `left_out` says that there may be others. Fails as `children` does if attributes name none.
    pub fn children_or_named(
        self: &Arc<Self>,
        context: &RequestContext,
        found: &Arc<NodeEntry>,
    ) -> Result<Box<dyn Listing>> {
        if found.scope.store.info().lists || found.is_array() {
            return self.children(context, found);
        }
        let named = self.named_children(context, found)?;
        if named.is_empty() {
            return Err(unlisted(found));
        }
        Ok(folders(named))
    }

    /// Lists the children of a group from the listing of its folder.
    fn stored_children(
        self: &Arc<Self>,
        context: &RequestContext,
        found: &Arc<NodeEntry>,
    ) -> Result<Box<dyn Listing>> {
        let scope = &found.scope;
        let folder = match &scope.rule {
            Rule::Plain(_) | Rule::Closed => found.path.clone(),
            Rule::Draft(entry) => entry.folder(&found.path)?,
        };
        let stored = match scope.store.list(context, &folder) {
            Ok(stored) => stored,
            // A group with a document needs no keys below it.
            Err(error) if error.kind() == Kind::NotFound && found.version != 0 => {
                Box::new(NameList::new([]))
            }
            Err(error) => return Err(error),
        };
        Ok(Box::new(Children {
            stored,
            folder,
            hierarchy: self.clone(),
            found: found.clone(),
        }))
    }

    /// Lists the known children of a group: those that `children` lists or, if no complete list is available, those
    /// that attributes name and those that were looked up before and are still cached. In a tree over such a store, the
    /// listing also has the children that were created there.
    pub fn known_children(
        self: &Arc<Self>,
        context: &RequestContext,
        found: &Arc<NodeEntry>,
    ) -> Result<Box<dyn Listing>> {
        if found.scope.store.info().lists || found.is_array() {
            return self.children(context, found);
        }
        let named = self.named_children(context, found)?;
        let is_folder = matches!(found.scope.rule, Rule::Plain(_));
        if self.is_tree && is_folder && named.is_empty() {
            return self.stored_children(context, found);
        }
        let mut names: BTreeSet<Vec<u8>> = named.into_iter().collect();
        if self.is_tree && is_folder {
            let mut made = self.stored_children(context, found)?;
            while let Some(name) = made.next(context)? {
                names.insert(name.name);
            }
        } else {
            names.extend(self.met_children(context, found)?);
        }
        Ok(folders(names))
    }

    /// Returns the names of children that were looked up before and are still cached. A child that was changed through
    /// the store since is looked up again.
    fn met_children(&self, context: &RequestContext, found: &NodeEntry) -> Result<Vec<Vec<u8>>> {
        let changes = &self.store.info().changes;
        let is_unchanged = |cached: &CachedNode| {
            !changes.any_changed_since(cached.stamp.position, &cached.depends)
        };
        let mut names = Vec::new();
        for (name, is_unchanged) in self.nodes.names_below(&found.path, is_unchanged) {
            if is_unchanged || self.child(context, found, &name)?.is_some() {
                names.push(name);
            }
        }
        Ok(names)
    }
}

/// Lists folders that are some of the children of a group.
fn folders(names: impl IntoIterator<Item = Vec<u8>>) -> Box<dyn Listing> {
    let names = names.into_iter();
    let list = NameList::new(names.map(|name| (name, EntryKind::Directory)));
    Box::new(list.leaving_out(LeftOut::Any))
}

/// Returns the error for a group whose children are unknown because the store cannot list.
fn unlisted(found: &NodeEntry) -> Error {
    let why = match (&found.node, &found.scope.unread_copies) {
        (Err(fault), _) => format!("the store cannot list, and the metadata do not read: {fault}"),
        (Ok(_), Some(fault)) => {
            format!("the store cannot list, and the consolidated metadata do not read: {fault}")
        }
        (Ok(_), None) => {
            "the store cannot list, and there are no consolidated metadata".to_string()
        }
    };
    Error::unsupported(&found.path, why)
}

impl NodeEntry {
    /// Returns the entry point of the draft that the node is in, or `None` if its documents are in its own folder.
    pub fn entry_point(&self) -> Option<&Arc<EntryPoint>> {
        match &self.scope.rule {
            Rule::Draft(entry) => Some(entry),
            Rule::Plain(_) | Rule::Closed => None,
        }
    }
}

/// The listing of a group's children.
struct Children {
    stored: Box<dyn Listing>,
    folder: Key,
    hierarchy: Arc<Hierarchy>,
    found: Arc<NodeEntry>,
}

impl Children {
    /// Returns the name of the child that a name in the store belongs to, if there is one.
    fn child(&self, context: &RequestContext, name: &Name) -> Result<Option<Vec<u8>>> {
        match &self.found.scope.rule {
            Rule::Plain(_) => {
                let is_node = match name.kind {
                    EntryKind::Directory => true,
                    EntryKind::Link => self.is_node(context, &name.name)?,
                    EntryKind::File => false,
                };
                Ok(is_node.then(|| name.name.clone()))
            }
            Rule::Draft(entry) => self.child_in_draft(context, entry, name),
            Rule::Closed => Ok(None),
        }
    }

    /// Like `child`, in a draft, where documents and folders are siblings.
    fn child_in_draft(
        &self,
        context: &RequestContext,
        entry: &EntryPoint,
        name: &Name,
    ) -> Result<Option<Vec<u8>>> {
        let child = match name.kind {
            EntryKind::Directory => Some(name.name.as_slice()),
            EntryKind::File | EntryKind::Link => entry.child(&name.name),
        };
        let Some(child) = child else { return Ok(None) };
        let key = self.folder.child(&name.name)?;
        for (_, document) in entry.documents(&self.found.path.child(child)?)? {
            if document == key && name.kind != EntryKind::Directory {
                break;
            }
            let meta = match self.found.scope.store.head(context, &document) {
                Err(error) if error.kind() == Kind::NameTooLong => None,
                answer => answer?,
            };
            if meta.is_some_and(|meta| meta.kind != EntryKind::Directory) {
                return Ok(None);
            }
        }
        let is_node = name.kind != EntryKind::Link || self.is_node(context, child)?;
        Ok(is_node.then(|| child.to_vec()))
    }

    fn is_node(&self, context: &RequestContext, name: &[u8]) -> Result<bool> {
        Ok(self.hierarchy.child(context, &self.found, name)?.is_some())
    }
}

impl Listing for Children {
    fn next(&mut self, context: &RequestContext) -> Result<Option<Name>> {
        while let Some(stored) = self.stored.next(context)? {
            if let Some(name) = self.child(context, &stored)? {
                return Ok(Some(Name {
                    name,
                    kind: EntryKind::Directory,
                    cursor: stored.cursor,
                    meta: None,
                }));
            }
        }
        Ok(None)
    }

    fn seek(&mut self, context: &RequestContext, cursor: u64) -> Result<()> {
        self.stored.seek(context, cursor)
    }

    fn left_out(&self) -> LeftOut {
        if self.found.scope.store.info().lists {
            self.stored.left_out()
        } else {
            LeftOut::Any
        }
    }
}
