//! The nodes around an array that say where a map lies: the level of GeoZarr, the grid mapping that no attribute names, the root
//! of a product of EOPF, and the coordinate variables of rows and columns, whose values are read.

use std::sync::Arc;

use serde_json::Value;

use crate::array::Arrays;
use crate::error::Result;
use crate::export::axes::AxisKind;
use crate::export::coordinate_variable::{
    CoordinateMeaning, CoordinateVariable, Line, unknown_unit,
};
use crate::export::ome_zarr::names_level;
use crate::hierarchy::{Hierarchy, NodeEntry};
use crate::inspect::coordinate_lines::CoordinateLines;
use crate::inspect::surrounding_nodes::{FindNode, SurroundingNodes, attributes, groups_above};
use crate::model::{Array, Attributes};
use crate::request_context::RequestContext;
use crate::store::Key;

/// Where the nodes and the values are found that say where a map lies.
pub struct MapSource<'a> {
    /// The nodes.
    pub hierarchy: &'a Hierarchy,
    /// The arrays of the hierarchy.
    pub arrays: &'a Arrays,
    /// What was read before.
    pub lines: &'a CoordinateLines,
}

impl MapSource<'_> {
    /// Adds those of an array to the nodes around it. Fails if the values of a coordinate variable do not read.
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
            // OME-Zarr has no variables beside its levels.
            return Ok(around);
        }
        around.level = level_of(&group, array.path.name());
        if around.level.is_none()
            && let Some(above) = group.path.parent()
            && let Some(above) = find(&above)?
        {
            let of_group = level_of(&above, group.path.name());
            let path = array.path.below(&above.path);
            let of_array = || level_of(&above, path?.as_bytes());
            around.level = of_group.or_else(of_array);
            around.levels = around.level.is_some().then_some(above);
        }
        if !group.path.is_root() {
            around.root = find(&Key::root())?;
        }
        if around.mapping.is_none() {
            around.mapping = unnamed_mapping(array, &find)?;
        }
        let variables = coordinate_variables(array, found, &find)?;
        for variable in variables {
            around.coordinates.push(match variable {
                Some((node, meaning)) => Some(CoordinateVariable {
                    name: String::from_utf8_lossy(node.path.name()).into_owned(),
                    line: match attributes(Some(&node)).and_then(unknown_unit) {
                        Some(unit) => Line::UnknownUnit(unit),
                        None => (self.lines).line(context, self.arrays, (&node, &meaning))?,
                    },
                    meaning,
                }),
                None => None,
            });
        }
        Ok(around)
    }
}

/// Finds the variable that rioxarray writes, in the group of an array that names none: programs that compute with an array
/// keep the variable and lose the attribute.
fn unnamed_mapping(array: &NodeEntry, find: FindNode<'_>) -> Result<Option<Arc<NodeEntry>>> {
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

/// Returns what the layout of GeoZarr's `multiscales` in a group says of its level at a path.
fn level_of(group: &Arc<NodeEntry>, path: &[u8]) -> Option<Attributes> {
    let multiscales = attributes(Some(group))?.get("multiscales")?;
    let mut levels = multiscales.get("layout")?.as_array()?.iter();
    let level = levels.find(|level| {
        let asset = level.get("asset").and_then(Value::as_str);
        asset.is_some_and(|asset| asset.as_bytes() == path)
    });
    Some(level?.as_object()?.clone().into())
}

/// The variable of a dimension, and what its values are.
type FoundVariable = (Arc<NodeEntry>, CoordinateMeaning);

/// Finds the coordinate variables of the dimensions along which a map can run, from the last one on, until one runs east
/// and one runs north: the arrays of their names, or those of one dimension that the attribute `coordinates` names.
fn coordinate_variables(
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
        for other in own.into_iter().chain(coordinate_names(found)) {
            let variable = variable_of((array, &other), (name, length), find)?;
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

/// How many variables that an array names are looked for.
const MAX_COORDINATES: usize = 16;

/// Returns the names that the attribute `coordinates` has.
fn coordinate_names(array: &Array) -> Vec<String> {
    let names = array.attributes.in_files().get("coordinates");
    let names = names.as_ref().and_then(Value::as_str).unwrap_or_default();
    let names = names.split_whitespace().take(MAX_COORDINATES);
    names.map(str::to_string).collect()
}

/// Finds the variable of a name that has one number for each element along a dimension: in the group of the array, or else
/// in the nearest group above; nothing if it runs neither east nor north.
fn variable_of(
    (array, name): (&NodeEntry, &str),
    (dimension, length): (&str, u64),
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
            [Some(own)] => own == dimension,
            _ => name == dimension,
        };
        if variable.shape != [length] || !is_of {
            return Ok(None);
        }
        let meaning = CoordinateMeaning::of(name, variable.attributes.in_files());
        let is_of_map = matches!(meaning.kind, AxisKind::X | AxisKind::Y);
        return Ok(is_of_map.then_some((node, meaning)));
    }
    Ok(None)
}
