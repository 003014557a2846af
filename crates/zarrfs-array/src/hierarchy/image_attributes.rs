//! Reads the names of nodes in OME-Zarr attributes.
//!
//! OME-Zarr 0.1 to 0.5, "multiscales", "labels", "plate", "well" and "bioformats2raw.layout".

use serde_json::Value;

use crate::hierarchy::NodeEntry;
use zarr_format::model::{Attributes, Node};
use zarrfs_store::Key;

/// The maximum number of names in one group that are looked up.
pub(super) const MAX_NAMES: usize = 1 << 16;

/// The OME-Zarr attributes of a group about the nodes below it; from 0.5 on they are in the member `ome`.
pub(super) struct ImageAttributes<'a> {
    attributes: Option<&'a Attributes>,
    inner: Option<Value>,
}

impl ImageAttributes<'_> {
    pub(super) fn of(found: &NodeEntry) -> ImageAttributes<'_> {
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
    pub(super) fn paths(&self) -> Vec<Key> {
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
    pub(super) fn is_image(&self) -> bool {
        self.get("multiscales").is_some() && self.get("image-label").is_none()
    }

    /// Whether the group has the layout of bioformats2raw.
    pub(super) fn has_series(&self) -> bool {
        self.get("bioformats2raw.layout").is_some()
    }

    /// Returns the image names that the group `OME` lists.
    pub(super) fn series(&self) -> Vec<Vec<u8>> {
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
