//! Finds variables that a variable refers to, by the rules of netCDF and CF.
//!
//! A name in an attribute means the array of that name in the variable's own group, or else in the nearest group above
//! that has one.

use std::sync::Arc;

use serde_json::Value;

use crate::formats::group::{GroupContents, GroupMember, MemberSource};
use crate::inspect::surrounding_nodes::find_mapping;
use zarr_format::error::Result;
use zarr_format::model::{Array, Attributes, Node};
use zarrfs_array::array::Arrays;
use zarrfs_array::hierarchy::{Hierarchy, NodeEntry};
use zarrfs_store::Key;
use zarrfs_store::request_context::RequestContext;

pub(super) const COORDINATES: &str = "coordinates";

/// A variable to which another variable refers, such as a coordinate variable.
pub(super) struct Companion {
    pub(super) name: String,
    pub(super) node: Arc<NodeEntry>,
}

impl Companion {
    /// Adds the variable to the contents of a file, unless the file has a node of the same name.
    pub(super) fn add_to(&self, arrays: &Arrays, contents: &mut GroupContents) -> Result<()> {
        let members = contents.members.iter().map(|member| &member.path);
        let groups = contents.subgroups.iter().map(|group| &group.path);
        if members.chain(groups).any(|path| *path == self.name) {
            return Ok(());
        }
        let array = match self.node.node() {
            Ok(Node::Array(array)) => array,
            Ok(Node::Group(_)) => return Ok(()),
            Err(error) => {
                contents.left_out.push(error.to_string());
                return Ok(());
            }
        };
        let open = arrays.open(&self.node)?;
        match open.check_decodable() {
            Err(error) => contents.left_out.push(error.to_string()),
            Ok(()) => contents.members.push(GroupMember {
                path: self.name.clone(),
                array: Arc::new((**array).clone()),
                source: Some(MemberSource::whole(open)),
            }),
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
pub(super) struct NamedDimension<'a> {
    pub(super) name: &'a str,
    pub(super) length: u64,
}

impl NamedDimension<'_> {
    /// Whether an array with the dimension's name is the coordinate variable of the dimension: it has one value for
    /// each element along the dimension.
    pub(super) fn has_coordinate(self, array: &Array) -> bool {
        let own = array.dimension_names.first().and_then(Option::as_deref);
        array.shape == [self.length] && own.is_none_or(|own| own == self.name)
    }
}

/// Returns the array that a name in a group refers to: the array in the group, or else in the nearest group above that
/// has one. A node that cannot be read is returned as well, because it may be the array. A name with slashes is a path
/// from the group or, with a leading slash, from the root.
fn find_visible(
    context: &RequestContext,
    hierarchy: &Hierarchy,
    group: &Key,
    name: &str,
) -> Result<Option<Arc<NodeEntry>>> {
    if name.contains('/') {
        let root = name.starts_with('/').then(Key::root);
        let from = root.unwrap_or_else(|| group.clone());
        let mut names = name.split('/').filter(|name| !["", "."].contains(name));
        let path = names.try_fold(from, |above, name| match name {
            ".." => above.parent(),
            name => above.child(name.as_bytes()).ok(),
        });
        let node = path
            .map(|path| hierarchy.node(context, &path))
            .transpose()?;
        return Ok(node.flatten().filter(|node| node.is_array()));
    }
    let groups = std::iter::successors(Some(group.clone()), Key::parent);
    // 32 groups above each other are more than real hierarchies have.
    for group in groups.take(32) {
        let Ok(path) = group.child(name.as_bytes()) else {
            return Ok(None);
        };
        match hierarchy.node(context, &path)? {
            Some(node) if node.is_array() || node.node.is_err() => return Ok(Some(node)),
            _ => {}
        }
    }
    Ok(None)
}

/// Returns the coordinate variable of a dimension in a group: the array with the dimension's name, if it has one value
/// for each element along the dimension. Fails if the array with this name cannot be read.
pub(super) fn find_coordinate_variable(
    context: &RequestContext,
    hierarchy: &Hierarchy,
    group: &Key,
    dimension: NamedDimension<'_>,
) -> Result<Option<Arc<NodeEntry>>> {
    let Some(node) = find_visible(context, hierarchy, group, dimension.name)? else {
        return Ok(None);
    };
    node.node()?;
    let is_coordinate = |array: &Array| dimension.has_coordinate(array);
    Ok(node.array().is_some_and(is_coordinate).then_some(node))
}

/// Returns the variables to which an array refers, each once: its coordinates and their bounds, its own bounds, and its
/// grid mapping. `array` must have dimension names.
pub(super) fn find_companions(
    context: &RequestContext,
    hierarchy: &Hierarchy,
    entry: &NodeEntry,
    array: &Array,
) -> Result<Vec<Companion>> {
    let Some(group) = entry.path.parent() else {
        return Ok(Vec::new());
    };
    let attributes = array.attributes.in_files();
    let find = |group: &Key, name: &str| find_visible(context, hierarchy, group, name);
    let mut found: Vec<Companion> = Vec::new();
    let mut add = |name: &str, node: Arc<NodeEntry>| {
        let name = last_name(name);
        if node.path != entry.path && !found.iter().any(|known| known.name == name) {
            let name = name.to_string();
            found.push(Companion { name, node });
        }
    };
    let dimensions = array.dimension_names.iter().zip(&array.shape);
    let dimensions = dimensions.filter_map(|(name, &length)| Some((name.clone()?, Some(length))));
    let named = coordinate_names(attributes)
        .into_iter()
        .map(|name| (name, None));
    for (name, length) in dimensions.chain(named) {
        let Some(node) = find(&group, &name)? else {
            continue;
        };
        let Some(own_group) = node.path.parent() else {
            continue;
        };
        // In another group, a name may stand for another dimension, so the lengths of the dimensions must match, too.
        let fits = |found: &Array| match length {
            Some(length) => NamedDimension {
                name: &name,
                length,
            }
            .has_coordinate(found),
            None => are_dimensions_of(found, array),
        };
        if own_group != group && !node.array().is_none_or(fits) {
            continue;
        }
        let bounds = node.array().map(|array| array.attributes.in_files());
        let bounds = bounds.map(names_of_bounds).unwrap_or_default();
        add(&name, node);
        for name in bounds {
            if let Some(node) = find(&own_group, &name)? {
                add(&name, node);
            }
        }
    }
    for name in names_of_bounds(attributes) {
        if let Some(node) = find(&group, &name)? {
            add(&name, node);
        }
    }
    if let Some(mapping) = find_mapping(entry, &|path| hierarchy.node(context, path))? {
        let name = String::from_utf8_lossy(mapping.path.name()).into_owned();
        add(&name, mapping);
    }
    Ok(found)
}

/// Returns the last component of a variable's path, as the variable's name in a file without groups.
fn last_name(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(_, last)| last)
}

/// Replaces paths in the attribute `coordinates` of the first variable by names, because the file has no groups.
pub(super) fn strip_coordinate_paths(members: &mut [GroupMember]) {
    let Some((own, others)) = members.split_first_mut() else {
        return;
    };
    let attributes = &own.array.attributes;
    let names = coordinate_names(attributes.in_files());
    if !names.iter().any(|name| name.contains('/')) {
        return;
    }
    let is_member = |name: &&str| others.iter().any(|member| member.path == *name);
    let names = names
        .iter()
        .map(|name| Some(last_name(name)).filter(is_member).unwrap_or(name));
    let text = names.collect::<Vec<&str>>().join(" ");
    let attributes = attributes.with(COORDINATES, &text.into());
    Arc::make_mut(&mut own.array).attributes = attributes;
}

/// Whether an array has all dimensions of a coordinate variable, with equal lengths.
fn are_dimensions_of(coordinate: &Array, array: &Array) -> bool {
    let own: Vec<_> = array.dimension_names.iter().zip(&array.shape).collect();
    let mut dimensions = coordinate.dimension_names.iter().zip(&coordinate.shape);
    dimensions.all(|(name, length)| name.is_some() && own.contains(&(name, length)))
        && coordinate.dimension_names.len() == coordinate.shape.len()
}

/// Returns the names that the attribute `coordinates` lists.
pub(super) fn coordinate_names(attributes: &Attributes) -> Vec<String> {
    let named = attributes.get(COORDINATES);
    let named = named.as_ref().and_then(Value::as_str).unwrap_or_default();
    named.split_whitespace().map(str::to_string).collect()
}

/// Returns the names of the variables with the bounds of an array, as its attributes state them.
pub(super) fn names_of_bounds(attributes: &Attributes) -> Vec<String> {
    let names = ["bounds", "climatology"].into_iter();
    let names = names.filter_map(|name| attributes.get(name));
    names
        .filter_map(|name| name.as_str().map(str::to_string))
        .collect()
}
