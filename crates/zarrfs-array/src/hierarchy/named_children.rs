//! Finds the children that OME-Zarr attributes name, for stores that cannot list.
//!
//! OME-Zarr 0.1 to 0.5, "multiscales", "labels", "plate", "well" and "bioformats2raw.layout". A name counts only if the
//! node exists.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::hierarchy::scope::Rule;
use crate::hierarchy::{Hierarchy, NodeEntry};
use zarr_format::error::Result;
use zarr_format::model::{Attributes, Node};
use zarrfs_store::Key;
use zarrfs_store::request_context::RequestContext;

/// The maximum number of names in one group that are looked up.
const MAX_NAMES: usize = 1 << 16;

/// The group next to the images that bioformats2raw writes: it lists their names in order.
const SERIES_GROUP: &[u8] = b"OME";

impl Hierarchy {
    /// Returns the names of a group's children from its attributes, or from the attributes of an ancestor: a plate
    /// names its wells, which are two levels below it.
    pub(super) fn named_children(
        &self,
        context: &RequestContext,
        found: &Arc<NodeEntry>,
    ) -> Result<Vec<Vec<u8>>> {
        let mut names = self.names_in_attributes(context, found)?;
        let mut above = found.path.parent();
        while let Some(path) = above.filter(|_| names.is_empty()) {
            if let Some(group) = self.node(context, &path)? {
                let paths = ImageAttributes::of(&group).paths().into_iter();
                let below = paths.filter_map(|named| joined(&path, &named)?.below(&found.path));
                names.extend(below.filter_map(|rest| Some(rest.names().next()?.to_vec())));
            }
            above = path.parent();
        }
        let names: Vec<Vec<u8>> = names.into_iter().take(MAX_NAMES).collect();
        self.prefetch_children(found, &names)?;
        let mut there = Vec::new();
        for name in names {
            if self.child(context, found, &name)?.is_some() {
                there.push(name);
            }
        }
        Ok(there)
    }

    /// Returns the names of children in a group's own attributes.
    fn names_in_attributes(
        &self,
        context: &RequestContext,
        found: &Arc<NodeEntry>,
    ) -> Result<BTreeSet<Vec<u8>>> {
        let attributes = ImageAttributes::of(found);
        let first = |path: Key| Some(path.names().next()?.to_vec());
        let mut names: BTreeSet<Vec<u8>> =
            attributes.paths().into_iter().filter_map(first).collect();
        if attributes.is_image() {
            names.insert(b"labels".to_vec());
        }
        if attributes.has_series() {
            names.extend(self.series(context, found)?);
        }
        Ok(names)
    }

    /// Returns the names of the images that bioformats2raw has written into a group: the list in its group `OME`, else
    /// numbers from 0.
    fn series(&self, context: &RequestContext, found: &NodeEntry) -> Result<Vec<Vec<u8>>> {
        let mut names = vec![SERIES_GROUP.to_vec()];
        if let Some(group) = self.child(context, found, SERIES_GROUP)? {
            names.extend(ImageAttributes::of(&group).series());
        }
        if names.len() == 1 {
            let numbers = (0..MAX_NAMES).map(|number| number.to_string().into_bytes());
            for name in numbers {
                // Some servers return a page for any key.
                let child = self.child(context, found, &name)?;
                if child.is_none_or(|child| child.node.is_err()) {
                    break;
                }
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Prefetches the documents of children, so that their requests run concurrently.
    fn prefetch_children(&self, found: &NodeEntry, names: &[Vec<u8>]) -> Result<()> {
        let Rule::Plain([dialect, ..]) = &found.scope.rule else {
            return Ok(());
        };
        let mut keys = Vec::new();
        for name in names {
            keys.extend((dialect.documents)(&found.path.child(name)?)?);
        }
        found.scope.hints.prefetch(&keys);
        Ok(())
    }
}

/// Joins a group's path and a path relative to it.
fn joined(group: &Key, path: &Key) -> Option<Key> {
    let mut names = path.names();
    names.try_fold(group.clone(), |above, name| above.child(name).ok())
}

/// The OME-Zarr attributes of a group about the nodes below it; from 0.5 on they are in the member `ome`.
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

    /// Returns the paths of nodes, relative to the group.
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

    /// Whether the group has the layout of bioformats2raw.
    fn has_series(&self) -> bool {
        self.get("bioformats2raw.layout").is_some()
    }

    /// Returns the image names that the group `OME` lists.
    fn series(&self) -> Vec<Vec<u8>> {
        let list = items(self.get("series")).into_iter();
        let paths = list.filter_map(|path| Key::new(path.as_str()?).ok());
        let names = paths.filter_map(|path| Some(path.names().next()?.to_vec()));
        names.take(MAX_NAMES).collect()
    }
}

/// Takes a member out of an object, or returns `None` if it has no such member.
fn member(mut object: Value, name: &str) -> Option<Value> {
    Some(object.get_mut(name)?.take())
}

/// Returns the objects and strings in a list; empty if the value is not a list.
fn items(value: Option<Value>) -> Vec<Value> {
    let Some(Value::Array(list)) = value else {
        return Vec::new();
    };
    let list = list.into_iter().take(MAX_NAMES);
    list.filter(|item| item.is_object() || item.is_string())
        .collect()
}
