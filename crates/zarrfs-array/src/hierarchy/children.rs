//! Lists the children of a group as a stream, each node once.
//!
//! The only state is the store's listing, whose cursor is also the cursor of the children. In a draft of Zarr v3,
//! `a.array.json`, `a.group.json` and `a` may be the same child. The child is returned for the first of these names
//! that exists, and only such possible duplicates cost a request. For a store that cannot list, the children are those
//! that attributes name; a named child is listed only if its node exists.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::hierarchy::node_cache::CachedNode;
use crate::hierarchy::node_entry::Rule;
use crate::hierarchy::{Hierarchy, NodeEntry};
use zarr_format::dialect::draft::EntryPoint;
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::{Attributes, Node};
use zarrfs_store::listing::NameList;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{EntryKind, Key, LeftOut, Listing, Name};

pub(super) struct GroupChildren<'a> {
    pub(super) hierarchy: &'a Arc<Hierarchy>,
    pub(super) context: &'a RequestContext,
    pub(super) group: &'a Arc<NodeEntry>,
}

impl GroupChildren<'_> {
    /// Lists all children of the group, as documented at `Hierarchy::children`.
    pub(super) fn all(&self) -> Result<Box<dyn Listing>> {
        if self.group.is_array() {
            let why = "an array has no children";
            return Err(Error::new(Kind::NotADirectory, &self.group.path, why));
        }
        if self.group.child_context.store.info().lists {
            return self.stored();
        }
        Err(unlisted(self.group))
    }

    /// Lists all children of the group or, if the store cannot list, those that attributes name.
    pub(super) fn all_or_named(&self) -> Result<Box<dyn Listing>> {
        if self.group.child_context.store.info().lists || self.group.is_array() {
            return self.all();
        }
        let named = self.named()?;
        if named.is_empty() {
            return Err(unlisted(self.group));
        }
        Ok(folders(named))
    }

    /// Lists the children of the group from the store's listing of its folder.
    fn stored(&self) -> Result<Box<dyn Listing>> {
        let child_context = &self.group.child_context;
        let folder = match &child_context.rule {
            Rule::Plain(_) | Rule::Closed => self.group.path.clone(),
            Rule::Draft(entry) => entry.folder(&self.group.path)?,
        };
        let stored = match child_context.store.list(self.context, &folder) {
            Ok(stored) => stored,
            // A group with a metadata document exists even if no key is below it: it has no children.
            Err(error) if error.kind() == Kind::NotFound && self.group.version != 0 => {
                Box::new(NameList::new([]))
            }
            Err(error) => return Err(error),
        };
        Ok(Box::new(ChildListing {
            stored,
            folder,
            hierarchy: self.hierarchy.clone(),
            group: self.group.clone(),
        }))
    }

    /// Lists the known children of the group, as documented at `Hierarchy::known_children`.
    pub(super) fn known(&self) -> Result<Box<dyn Listing>> {
        if self.group.child_context.store.info().lists || self.group.is_array() {
            return self.all();
        }
        let named = self.named()?;
        let is_folder = matches!(self.group.child_context.rule, Rule::Plain(_));
        if self.hierarchy.is_tree && is_folder && named.is_empty() {
            return self.stored();
        }
        let mut names: BTreeSet<Vec<u8>> = named.into_iter().collect();
        if self.hierarchy.is_tree && is_folder {
            let mut created = self.stored()?;
            while let Some(name) = created.next(self.context)? {
                names.insert(name.name);
            }
        } else {
            names.extend(self.looked_up()?);
        }
        Ok(folders(names))
    }

    /// Returns the names of children that were looked up before and are still in the node cache. A child that was
    /// changed through the store since is looked up again.
    fn looked_up(&self) -> Result<Vec<Vec<u8>>> {
        let changes = &self.hierarchy.store.info().changes;
        let is_unchanged = |cached: &CachedNode| {
            !changes.any_changed_since(cached.stamp.position, &cached.depends)
        };
        let mut names = Vec::new();
        for (name, is_unchanged) in self
            .hierarchy
            .nodes
            .names_below(&self.group.path, is_unchanged)
        {
            if is_unchanged
                || self
                    .hierarchy
                    .child(self.context, self.group, &name)?
                    .is_some()
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Returns the names of a group's children from its attributes, or from the attributes of an ancestor: an OME-Zarr
    /// plate names its wells, which are children of its children.
    fn named(&self) -> Result<Vec<Vec<u8>>> {
        let mut names = self.names_in_attributes()?;
        let mut above = self.group.path.parent();
        while let Some(path) = above.filter(|_| names.is_empty()) {
            if let Some(group) = self.hierarchy.node(self.context, &path)? {
                let paths = ImageAttributes::of(&group).paths().into_iter();
                let below =
                    paths.filter_map(|named| joined(&path, &named)?.below(&self.group.path));
                names.extend(below.filter_map(|rest| Some(rest.names().next()?.to_vec())));
            }
            above = path.parent();
        }
        let names: Vec<Vec<u8>> = names.into_iter().take(MAX_NAMES).collect();
        self.prefetch(&names)?;
        let mut existing = Vec::new();
        for name in names {
            if self
                .hierarchy
                .child(self.context, self.group, &name)?
                .is_some()
            {
                existing.push(name);
            }
        }
        Ok(existing)
    }

    fn names_in_attributes(&self) -> Result<BTreeSet<Vec<u8>>> {
        let attributes = ImageAttributes::of(self.group);
        let first = |path: Key| Some(path.names().next()?.to_vec());
        let mut names: BTreeSet<Vec<u8>> =
            attributes.paths().into_iter().filter_map(first).collect();
        if attributes.is_image() {
            names.insert(b"labels".to_vec());
        }
        if attributes.has_series() {
            names.extend(self.series()?);
        }
        Ok(names)
    }

    /// Returns the names of the images that bioformats2raw has written into a group, and of their sibling `OME`. The
    /// group `OME` lists the images; without that list their names are the numbers from 0.
    fn series(&self) -> Result<Vec<Vec<u8>>> {
        let mut names = vec![b"OME".to_vec()];
        if let Some(group) = self.hierarchy.child(self.context, self.group, b"OME")? {
            names.extend(ImageAttributes::of(&group).series());
        }
        if names.len() == 1 {
            let numbers = (0..MAX_NAMES).map(|number| number.to_string().into_bytes());
            for name in numbers {
                // Some servers return a web page for any key, so a child whose metadata cannot be parsed ends the
                // series.
                let child = self.hierarchy.child(self.context, self.group, &name)?;
                if child.is_none_or(|child| child.node.is_err()) {
                    break;
                }
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Prefetches the metadata documents of children, so that the requests for them run concurrently.
    fn prefetch(&self, names: &[Vec<u8>]) -> Result<()> {
        let Rule::Plain([dialect, ..]) = &self.group.child_context.rule else {
            return Ok(());
        };
        let mut keys = Vec::new();
        for name in names {
            keys.extend((dialect.documents)(&self.group.path.child(name)?)?);
        }
        self.group.child_context.hints.prefetch(&keys);
        Ok(())
    }
}

/// Returns a listing of directories, which says that there may be other children.
fn folders(names: impl IntoIterator<Item = Vec<u8>>) -> Box<dyn Listing> {
    let names = names.into_iter();
    let list = NameList::new(names.map(|name| (name, EntryKind::Directory)));
    Box::new(list.leaving_out(LeftOut::Any))
}

fn unlisted(found: &NodeEntry) -> Error {
    let why = match (&found.node, &found.child_context.consolidated_error) {
        (Err(fault), _) => {
            format!("the store does not list names, and the metadata cannot be read: {fault}")
        }
        (Ok(_), Some(fault)) => {
            format!(
                "the store does not list names, and the consolidated metadata cannot be read: {fault}"
            )
        }
        (Ok(_), None) => {
            "the store does not list names and has no consolidated metadata: open children by name"
                .to_string()
        }
    };
    Error::unsupported(&found.path, why)
}

/// The listing of a group's children, made from the store's listing.
struct ChildListing {
    stored: Box<dyn Listing>,
    folder: Key,
    hierarchy: Arc<Hierarchy>,
    group: Arc<NodeEntry>,
}

impl ChildListing {
    /// Returns the child's name that a name in the store's listing stands for, or `None` if it is no child.
    fn child(&self, context: &RequestContext, name: &Name) -> Result<Option<Vec<u8>>> {
        match &self.group.child_context.rule {
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

    /// Returns the child's name that a name in the listing stands for, in a draft of Zarr v3, where documents and
    /// folders are siblings.
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
        for (_, document) in entry.documents(&self.group.path.child(child)?)? {
            if document == key && name.kind != EntryKind::Directory {
                break;
            }
            let meta = match self.group.child_context.store.head(context, &document) {
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
        Ok(self.hierarchy.child(context, &self.group, name)?.is_some())
    }
}

impl Listing for ChildListing {
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
        if self.group.child_context.store.info().lists {
            self.stored.left_out()
        } else {
            LeftOut::Any
        }
    }
}

fn joined(group: &Key, path: &Key) -> Option<Key> {
    let mut names = path.names();
    names.try_fold(group.clone(), |above, name| above.child(name).ok())
}

/// The maximum number of children of one group that are looked up by name.
const MAX_NAMES: usize = 1 << 16;

/// The OME-Zarr attributes of a group that name nodes below it; from OME-Zarr 0.5 on they are in the member `ome`.
///
/// OME-Zarr 0.1 to 0.5, "multiscales", "labels", "plate", "well" and "bioformats2raw.layout".
struct ImageAttributes<'a> {
    attributes: Option<&'a Attributes>,
    inner: Option<Value>,
}

impl ImageAttributes<'_> {
    fn of(found: &NodeEntry) -> ImageAttributes<'_> {
        let attributes = match &found.node {
            Ok(Node::Group(group)) => Some(&group.attributes),
            _ => None,
        };
        let inner = attributes.and_then(|attributes| attributes.get("ome"));
        ImageAttributes {
            attributes,
            inner: inner.filter(Value::is_object),
        }
    }

    fn get(&self, name: &str) -> Option<Value> {
        match &self.inner {
            Some(inner) => inner.get(name).cloned(),
            None => self.attributes?.get(name),
        }
    }

    /// Returns the paths of the nodes that the attributes name, relative to the group.
    fn paths(&self) -> Vec<Key> {
        let images = items(self.get("multiscales"));
        let levels = images.into_iter().map(|image| member(image, "datasets"));
        let listed = |name: &str, list: &str| items(self.get(name).and_then(|of| member(of, list)));
        let mut named: Vec<Value> = levels.flat_map(items).collect();
        named.extend(listed("plate", "wells"));
        named.extend(listed("well", "images"));
        let paths = named.into_iter().filter_map(|item| member(item, "path"));
        paths
            .chain(items(self.get("labels")))
            .filter_map(|path| Key::new(path.as_str()?).ok())
            .filter(|path| !path.is_root())
            .collect()
    }

    /// Whether the group is an image that may have labels.
    fn is_image(&self) -> bool {
        self.get("multiscales").is_some() && self.get("image-label").is_none()
    }

    /// Whether the attributes say that the group has the layout of bioformats2raw.
    fn has_series(&self) -> bool {
        self.get("bioformats2raw.layout").is_some()
    }

    /// Returns the image names that the group `OME` lists in its attributes.
    fn series(&self) -> Vec<Vec<u8>> {
        let list = items(self.get("series")).into_iter();
        let paths = list.filter_map(|path| Key::new(path.as_str()?).ok());
        let names = paths.filter_map(|path| Some(path.names().next()?.to_vec()));
        names.take(MAX_NAMES).collect()
    }
}

/// Takes a member out of a JSON object, or returns `None` if the object lacks it.
fn member(mut object: Value, name: &str) -> Option<Value> {
    Some(object.get_mut(name)?.take())
}

/// Returns the objects and strings in a JSON list; empty if the value is not a list.
fn items(value: Option<Value>) -> Vec<Value> {
    let Some(Value::Array(list)) = value else {
        return Vec::new();
    };
    let list = list.into_iter().take(MAX_NAMES);
    list.filter(|item| item.is_object() || item.is_string())
        .collect()
}
