//! Finds the nodes that define the position of a map.
//!
//! These are the GeoZarr level, a grid mapping that no attribute names, the root of an EOPF product, and the
//! coordinate variables of rows and columns, whose values are read.

use std::sync::Arc;

use crate::formats::Subject;
use crate::formats::axes::AxisKind;
use crate::formats::maps::coordinate_variable::{
    CoordinateMeaning, CoordinateVariable, Line, unknown_unit,
};
use crate::formats::maps::georeference::level_base;
use crate::formats::maps::levels::{LevelBase, MapLayout};
use crate::formats::ome_zarr::names_level;
use crate::inspect::companions::{NamedDimension, coordinate_names};
use crate::inspect::coordinates::CoordinateLines;
use crate::inspect::surrounding_nodes::{FindNode, SurroundingNodes, attributes, groups_above};
use zarr_format::error::Result;
use zarr_format::model::{Array, Attributes};
use zarrfs_array::array::Arrays;
use zarrfs_array::hierarchy::{Hierarchy, NodeEntry};
use zarrfs_store::Key;
use zarrfs_store::request_context::RequestContext;

/// The source of the nodes and values that define the position of a map.
pub struct MapSource<'a> {
    /// The nodes.
    pub hierarchy: &'a Hierarchy,
    /// The arrays of the hierarchy.
    pub arrays: &'a Arrays,
    /// The cache of positions along dimensions.
    pub lines: &'a CoordinateLines,
}

impl MapSource<'_> {
    /// Adds these nodes to the nodes around an array. Fails if the values of a coordinate variable cannot be read.
    pub fn add_to(
        &self,
        context: &RequestContext,
        mut around: SurroundingNodes,
        array: &NodeEntry,
    ) -> Result<SurroundingNodes> {
        let find = |path: &Key| self.hierarchy.node(context, path);
        let (Some(found), Some(group)) = (array.array(), around.group.clone()) else {
            return Ok(around);
        };
        let own = attributes(Some(&group));
        if around.image.is_some() || own.is_some_and(|own| names_level(own, array.path.name())) {
            // OME-Zarr has no coordinate variables for its levels.
            return Ok(around);
        }
        let mut unplaced = None;
        if let Some(level) = find_level(&array.path, &find)? {
            around.level = Some(level.attributes.clone());
            around.levels = Some(level.group.clone()).filter(|levels| levels.path != group.path);
            unplaced = Some(level).filter(|level| !is_placed(level));
        }
        if !group.path.is_root() {
            around.root = find(&Key::root())?;
        }
        if around.mapping.is_none() {
            around.mapping = find_unnamed_mapping(array, &find)?;
        }
        let variables = find_coordinate_variables(array, found, &find)?;
        for variable in variables {
            around.coordinates.push(match variable {
                Some((node, meaning)) => Some(CoordinateVariable {
                    name: String::from_utf8_lossy(node.path.name()).into_owned(),
                    line: match attributes(Some(&node)).and_then(unknown_unit) {
                        Some(unit) => Line::UnknownUnit(unit),
                        None => (self.lines).line(context, self.arrays, &node, &meaning)?,
                    },
                    meaning,
                }),
                None => None,
            });
        }
        // A level with coordinate variables of its own does not need its base.
        if let Some(level) = unplaced.filter(|_| around.coordinates.iter().all(Option::is_none)) {
            around.base = self.find_base(context, &level)?;
        }
        Ok(around)
    }

    /// Finds the level that another one was derived from, and its position.
    fn find_base(&self, context: &RequestContext, level: &NamedLevel) -> Result<Option<LevelBase>> {
        let Some(source) = level.layout.source(&level.path) else {
            return Ok(None);
        };
        let names = source.path.split('/').chain(level.below.split('/'));
        let mut names = names.filter(|name| !name.is_empty());
        let from = level.group.path.clone();
        let Ok(path) = names.try_fold(from, |above, name| above.child(name.as_bytes())) else {
            return Ok(None);
        };
        let Some(node) = self.hierarchy.node(context, &path)? else {
            return Ok(None);
        };
        let Some(array) = node.array() else {
            return Ok(None);
        };
        // The recursion ends, since that level is not derived from another one.
        let around = SurroundingNodes::of(context, self.hierarchy, &node)?;
        let around = self.add_to(context, around, &node)?;
        let subject = Subject {
            name: path.name(),
            around: around.attributes(),
            ..Subject::alone(array, &array.shape)
        };
        Ok(level_base(&subject, source))
    }
}

/// A GeoZarr level of an array.
struct NamedLevel {
    /// The group with the layout.
    group: Arc<NodeEntry>,
    layout: MapLayout,
    /// The entry of the level in the layout.
    attributes: Attributes,
    /// The path of the level relative to the group, and of the array relative to the level.
    path: String,
    below: String,
}

/// Finds the nearest GeoZarr layout that names an array, or a group above it, as a level.
fn find_level(array: &Key, find: FindNode<'_>) -> Result<Option<NamedLevel>> {
    for above in groups_above(array) {
        let Some(group) = find(&above)? else { continue };
        let Some(layout) = attributes(Some(&group)).and_then(MapLayout::of) else {
            continue;
        };
        let paths = std::iter::successors(array.below(&above), Key::parent);
        for level in paths.take_while(|path| !path.is_root()) {
            let whole = array.below(&above).and_then(|whole| whole.below(&level));
            let text = |key: &Key| String::from_utf8_lossy(key.as_bytes()).into_owned();
            let path = text(&level);
            if let Some(attributes) = layout.level(&path) {
                let below = whole.map(|key| text(&key)).unwrap_or_default();
                return Ok(Some(NamedLevel {
                    group,
                    layout,
                    attributes,
                    path,
                    below,
                }));
            }
        }
    }
    Ok(None)
}

/// Whether a layout defines the position of a level.
fn is_placed(level: &NamedLevel) -> bool {
    let has = |name| level.attributes.get(name).is_some();
    has("spatial:transform") || has("proj:transform")
}

/// Finds `spatial_ref`, the variable of rioxarray, in the group of an array without `grid_mapping`: programs that
/// compute with an array keep the variable but lose the attribute.
fn find_unnamed_mapping(array: &NodeEntry, find: FindNode<'_>) -> Result<Option<Arc<NodeEntry>>> {
    let is_named = |array: &Array| array.attributes.in_files().get("grid_mapping").is_some();
    let group = array.path.parent();
    let path = group.and_then(|group| group.child(b"spatial_ref").ok());
    let path = path.filter(|_| array.array().is_some_and(|array| !is_named(array)));
    let Some(path) = path else { return Ok(None) };
    let is_mapping = |node: &Arc<NodeEntry>| {
        let array = node.array();
        array.is_some_and(|array| array.shape.iter().all(|&length| length == 1))
    };
    Ok(find(&path)?.filter(is_mapping))
}

/// A coordinate variable and the meaning of its values.
type FoundVariable = (Arc<NodeEntry>, CoordinateMeaning);

/// Finds coordinate variables, starting at the last dimension, until one runs east and one runs north. Candidates are
/// the array named like the dimension, and arrays of one dimension in the attribute `coordinates`.
fn find_coordinate_variables(
    array: &NodeEntry,
    found: &Array,
    find: FindNode<'_>,
) -> Result<Vec<Option<FoundVariable>>> {
    let mut variables = vec![None; found.shape.len()];
    let dimensions = found.dimension_names.iter().zip(&found.shape).enumerate();
    for (axis, (name, &length)) in dimensions.collect::<Vec<_>>().into_iter().rev() {
        let Some(name) = name.as_deref() else {
            continue;
        };
        let own = [name.to_string()];
        // Real attributes name fewer.
        let others = coordinate_names(found.attributes.in_files()).into_iter();
        for other in own.into_iter().chain(others.take(16)) {
            let dimension = NamedDimension { name, length };
            let variable = find_variable(array, &other, dimension, find)?;
            if variable.is_some() {
                variables[axis] = variable;
                break;
            }
        }
        let has = |kind| {
            let mut found = variables.iter().flatten();
            found.any(|(_, meaning): &FoundVariable| meaning.kind == kind)
        };
        if has(AxisKind::X) && has(AxisKind::Y) {
            break;
        }
    }
    Ok(variables)
}

/// Finds the variable of a name with one value for each element along a dimension, in the group of the array or in
/// the nearest group above. Returns `None` if it runs neither east nor north.
fn find_variable(
    array: &NodeEntry,
    name: &str,
    dimension: NamedDimension<'_>,
    find: FindNode<'_>,
) -> Result<Option<FoundVariable>> {
    for group in groups_above(&array.path) {
        let Ok(path) = group.child(name.as_bytes()) else {
            return Ok(None);
        };
        let Some(node) = find(&path)? else { continue };
        let Some(variable) = node.array() else {
            return Ok(None);
        };
        let is_of = match &variable.dimension_names[..] {
            [Some(own)] => own == dimension.name,
            _ => name == dimension.name,
        };
        if variable.shape != [dimension.length] || !is_of {
            return Ok(None);
        }
        let meaning = CoordinateMeaning::of(name, variable.attributes.in_files());
        let is_of_map = matches!(meaning.kind, AxisKind::X | AxisKind::Y);
        return Ok(is_of_map.then_some((node, meaning)));
    }
    Ok(None)
}
