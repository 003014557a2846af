//! The nodes around an array that say something of it: the group that it is in, the group of OME-Zarr or GeoZarr that
//! names it as a level of an image, the variable of its grid mapping, and the coordinate variables of its dimensions.

use std::sync::Arc;

use serde_json::Value;

use crate::error::Result;
use crate::export::axes::names_level;
use crate::export::coordinate_variable::CoordinateVariable;
use crate::export::surroundings::{ImageGroup, Surroundings};
use crate::hierarchy::{Hierarchy, NodeEntry};
use crate::model::{Array, Attributes};
use crate::request_context::RequestContext;
use crate::store::Key;

/// How many groups above its own may name an array, or have the variable that it names.
const MAX_ABOVE: usize = 4;

/// The nodes around an array.
#[derive(Clone, Default)]
pub struct SurroundingNodes {
    /// The group that it is in.
    pub group: Option<Arc<NodeEntry>>,
    /// The group of its image and the path from there, if that is not the group that it is in.
    pub(super) image: Option<(Arc<NodeEntry>, Key)>,
    pub(super) mapping: Option<Arc<NodeEntry>>,
    /// What the layout of GeoZarr says of the level that the array is of.
    pub(super) level: Option<Attributes>,
    /// The group with that layout, if it is the one above the array's own.
    pub(super) levels: Option<Arc<NodeEntry>>,
    /// The root of the hierarchy, if that is not the array's own group.
    pub(super) root: Option<Arc<NodeEntry>>,
    /// In the order of the dimensions.
    pub(super) coordinates: Vec<Option<CoordinateVariable>>,
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
            level: self.level.as_ref(),
            levels: attributes(self.levels.as_ref()),
            root: attributes(self.root.as_ref()),
            coordinates: &self.coordinates,
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
pub(super) fn groups_above(array: &Key) -> Vec<Key> {
    let above = std::iter::successors(array.parent(), Key::parent);
    above.take(1 + MAX_ABOVE).collect()
}

/// Finds the variable that `grid_mapping` names: in the group of the array, or else in the nearest group above that has it.
fn mapping_of(array: &NodeEntry, find: FindNode<'_>) -> Result<Option<Arc<NodeEntry>>> {
    let Some(found) = array.array() else {
        return Ok(None);
    };
    let Some(Value::String(named)) = found.attributes.in_files().get("grid_mapping") else {
        return Ok(None);
    };
    let first = mapping_name(&named, found);
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

/// Returns the name of a grid mapping. Of several each is followed by a colon and the coordinates that it is for; those of
/// the dimensions count.
fn mapping_name<'a>(named: &'a str, array: &Array) -> &'a str {
    let mut mapping = None;
    for word in named.split_whitespace() {
        if let Some(name) = word.strip_suffix(':') {
            mapping = Some(name);
        } else if let Some(mapping) = mapping {
            let is_own = |name: &Option<String>| name.as_deref() == Some(word);
            if array.dimension_names.iter().any(is_own) {
                return mapping;
            }
        }
    }
    let first = named.split_whitespace().next().unwrap_or_default();
    first.trim_end_matches(':')
}

/// Returns the attributes of a node that files have.
pub(super) fn attributes(node: Option<&Arc<NodeEntry>>) -> Option<&Attributes> {
    let node = node.and_then(|node| node.node.as_ref().ok());
    node.map(|node| node.attributes().in_files())
}
