//! The nodes around an array whose metadata say something of it: the group that it is in, the group of OME-Zarr that names
//! it as a level of an image, and the variable that its attribute `grid_mapping` names.

use std::sync::Arc;

use serde_json::Value;

use crate::error::Result;
use crate::export::axes::names_level;
use crate::export::surroundings::{ImageGroup, Surroundings};
use crate::hierarchy::{Hierarchy, NodeEntry};
use crate::model::Attributes;
use crate::request_context::RequestContext;
use crate::store::Key;

/// How many groups above its own may name an array, or have the variable that it names.
const MAX_ABOVE: usize = 4;

/// The nodes around an array.
#[derive(Default)]
pub struct SurroundingNodes {
    /// The group that it is in.
    pub group: Option<Arc<NodeEntry>>,
    /// The group of its image and the path from there, if that is not the group that it is in.
    image: Option<(Arc<NodeEntry>, Key)>,
    mapping: Option<Arc<NodeEntry>>,
}

/// Finds the node at a path.
pub type FindNode<'a> = &'a dyn Fn(&Key) -> Result<Option<Arc<NodeEntry>>>;

impl SurroundingNodes {
    /// Returns the group of an array alone.
    pub fn of_group(group: Option<Arc<NodeEntry>>) -> SurroundingNodes {
        SurroundingNodes {
            group,
            ..SurroundingNodes::default()
        }
    }

    /// Finds the nodes around an array.
    pub fn of(
        context: &RequestContext,
        hierarchy: &Hierarchy,
        array: &NodeEntry,
    ) -> Result<SurroundingNodes> {
        let group = match array.path.parent() {
            Some(group) => hierarchy.node(context, &group)?,
            None => None,
        };
        let alone = SurroundingNodes::of_group(group);
        alone.with_others(array, &|path| hierarchy.node(context, path))
    }

    /// Finds those beside the group; fails as `find` does.
    pub fn with_others(
        mut self,
        array: &NodeEntry,
        find: FindNode<'_>,
    ) -> Result<SurroundingNodes> {
        if self.group.is_none() {
            return Ok(self);
        }
        self.image = self.image_above(array, find)?;
        self.mapping = mapping_of(array, find)?;
        Ok(self)
    }

    /// Returns the attributes of these nodes.
    pub fn attributes(&self) -> Surroundings<'_> {
        let image = self.image.as_ref();
        Surroundings {
            group: attributes(self.group.as_ref()),
            image: image.and_then(|(group, path)| {
                Some(ImageGroup {
                    attributes: attributes(Some(group))?,
                    path: path.as_bytes(),
                })
            }),
            mapping: attributes(self.mapping.as_ref()),
        }
    }

    /// Finds the nearest group above the array's own that names it as a level of an image, where its own does not.
    fn image_above(
        &self,
        array: &NodeEntry,
        find: FindNode<'_>,
    ) -> Result<Option<(Arc<NodeEntry>, Key)>> {
        let own = attributes(self.group.as_ref());
        if own.is_some_and(|own| names_level(own, array.path.name())) {
            return Ok(None);
        }
        for above in groups_above(&array.path).into_iter().skip(1) {
            let Some(group) = find(&above)? else { continue };
            let path = array.path.below(&above);
            let named = path.filter(|path| {
                let group = attributes(Some(&group));
                group.is_some_and(|group| names_level(group, path.as_bytes()))
            });
            if let Some(path) = named {
                return Ok(Some((group, path)));
            }
        }
        Ok(None)
    }
}

/// Returns the group of an array and those above it, the nearest first.
fn groups_above(array: &Key) -> Vec<Key> {
    let above = std::iter::successors(array.parent(), Key::parent);
    above.take(1 + MAX_ABOVE).collect()
}

/// Finds the variable that `grid_mapping` names: in the group of the array, or else in the nearest group above that has it.
fn mapping_of(array: &NodeEntry, find: FindNode<'_>) -> Result<Option<Arc<NodeEntry>>> {
    let named = array
        .array()
        .and_then(|array| array.attributes.in_files().get("grid_mapping"));
    let Some(Value::String(named)) = named else {
        return Ok(None);
    };
    // One of several is followed by a colon and the coordinates that it is for.
    let first = named.split_whitespace().next().unwrap_or_default();
    let first = first.trim_end_matches(':');
    let from = match first.strip_prefix('/') {
        Some(_) => vec![Key::root()],
        None => groups_above(&array.path),
    };
    let names = || first.split('/').filter(|name| !name.is_empty());
    for group in from {
        let path = names().try_fold(group, |path, name| path.child(name.as_bytes()));
        let Ok(path) = path else { return Ok(None) };
        match find(&path)? {
            Some(found) if found.array().is_some() => return Ok(Some(found)),
            _ => {}
        }
    }
    Ok(None)
}

/// Returns the attributes of a node that files have.
fn attributes(node: Option<&Arc<NodeEntry>>) -> Option<&Attributes> {
    let node = node.and_then(|node| node.node.as_ref().ok());
    node.map(|node| node.attributes().in_files())
}
