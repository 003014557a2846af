//! Selects and decodes the arrays of a netCDF file.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::formats::axes::AxisKind;
use crate::formats::cf::{self, DecodedArray, NoValues};
use crate::formats::group::{GroupFormat, GroupMember};
use crate::formats::maps::coordinate_variable::{CoordinateMeaning, Quantity};
use crate::inspect::companions::{COORDINATES, NamedDimension, names_of_bounds};
use crate::inspect::coordinates;
use crate::inspect::labels::Labels;
use crate::inspect::selection::SelectableDimensions;
use zarr_format::error::{Error, Result};
use zarr_format::grid::{SelectedAxis, Selection};
use zarr_format::model::{Array, Attributes};
use zarrfs_store::request_context::RequestContext;

/// The elements that are selected along each dimension of a file with several arrays.
#[derive(Default)]
pub(super) struct FileSelection {
    /// By the name of a selected dimension: its length and the selected elements.
    axes: BTreeMap<String, (u64, SelectedAxis)>,
    /// The path of the array for which the user wrote the selection, and that selection, which may also select along
    /// dimensions without a name.
    own: Option<(String, Selection)>,
}

impl FileSelection {
    /// Parses a selection by the names of a group's dimensions. Fails with `Invalid` if the selection has no meaning in
    /// the group.
    pub(super) fn of_group(
        context: &RequestContext,
        members: &[GroupMember],
        text: &str,
    ) -> Result<FileSelection> {
        let wrong = |why: String| Error::invalid(format!("selection '{text}'"), why);
        let is_named = |part: &str| part.contains('=');
        if !text.split(',').all(is_named) {
            let why = "name the dimensions of a group, such as time=2020-01 or x=#0";
            return Err(wrong(why.to_string()));
        }
        let dimensions = dimensions_of(members);
        let names: Vec<_> = dimensions
            .iter()
            .map(|dimension| Some(dimension.name.to_string()))
            .collect();
        let shape: Vec<u64> = dimensions
            .iter()
            .map(|dimension| dimension.length)
            .collect();
        let labels = |axis: usize| match dimensions.get(axis) {
            Some(dimension) => dimension.labels(context, members),
            None => Ok(None),
        };
        let selectable = SelectableDimensions {
            shape: &shape,
            names: &names,
            labels: &labels,
            has_slices_of_dates: true,
        };
        let selection = selectable.select(text)?;
        let selected = dimensions.iter().zip(&selection.axes);
        let selected =
            selected.filter(|(dimension, axis)| **axis != SelectedAxis::all(dimension.length));
        let mut axes = BTreeMap::new();
        for (dimension, &axis) in selected {
            if let Some((path, length)) = dimension.other {
                let Dimension {
                    name, length: own, ..
                } = dimension;
                let why = format!("dimension '{name}' has {own} elements, but {length} in {path}");
                return Err(wrong(why));
            }
            axes.insert(dimension.name.to_string(), (dimension.length, axis));
        }
        Ok(FileSelection { axes, own: None })
    }

    /// Turns the selection from one array into a selection from all arrays of the file. Fails with `Invalid` if the
    /// array has several dimensions of one name and the selection takes different elements along them, because they
    /// share one coordinate variable.
    pub(super) fn of_variable(member: &GroupMember, selection: Selection) -> Result<FileSelection> {
        let array = &member.array;
        let names = array.dimension_names.iter().zip(&array.shape);
        let is_all = |&(length, axis): &(u64, SelectedAxis)| axis == SelectedAxis::all(length);
        let mut axes = BTreeMap::new();
        for ((name, &length), &axis) in names.zip(&selection.axes) {
            let Some(name) = name else { continue };
            let own = (length, axis);
            let other = axes.insert(name.clone(), own);
            if other.is_some_and(|other| other != own && !(is_all(&other) && is_all(&own))) {
                let why = format!(
                    "several dimensions are named '{name}'; select the same elements along each"
                );
                return Err(Error::invalid(&member.path, why));
            }
        }
        axes.retain(|_, selected| !is_all(selected));
        Ok(FileSelection {
            axes,
            own: Some((member.path.clone(), selection)),
        })
    }

    /// Reduces each array of the file to the selected elements.
    pub(super) fn apply(&self, members: &mut [GroupMember]) {
        if self.axes.is_empty() && self.own.is_none() {
            return;
        }
        let bounds: Vec<String> = members.iter().flat_map(bounds_of).collect();
        let mut dropped: Vec<Vec<String>> = Vec::new();
        for member in members.iter_mut() {
            dropped.push(self.cut(member));
        }
        let paths: Vec<String> = members.iter().map(|member| member.path.clone()).collect();
        for (member, names) in members.iter_mut().zip(dropped) {
            if bounds.contains(&member.path) {
                continue;
            }
            let coordinates = names.iter().filter(|name| {
                let path = path_beside(&member.path, name);
                path != member.path && paths.contains(&path)
            });
            add_coordinate_names(member, &coordinates.cloned().collect::<Vec<_>>());
        }
    }

    /// Reduces an array to the selected elements. Returns the names of the dimensions that the selection drops.
    fn cut(&self, member: &mut GroupMember) -> Vec<String> {
        let selection = match &self.own {
            Some((path, own)) if *path == member.path => own.clone(),
            _ => self.selection_of(&member.array),
        };
        let array = Arc::make_mut(&mut member.array);
        let dimensions = selection.remaining_axes();
        let names = std::mem::take(&mut array.dimension_names);
        let remains = |axis: &usize| dimensions.contains(axis);
        let chunk_shape = std::mem::take(&mut array.chunk_shape);
        let lengths = dimensions.iter().filter_map(|&axis| chunk_shape.get(axis));
        array.chunk_shape = lengths.copied().collect();
        array.chunk_edges = Vec::new();
        array.shape = selection.shape();
        let (mut left, mut lost) = (Vec::new(), Vec::new());
        for (axis, name) in names.into_iter().enumerate() {
            match name {
                name if remains(&axis) => left.push(name),
                Some(name) => lost.push(name),
                None => {}
            }
        }
        array.dimension_names = left;
        if let Some(source) = &mut member.source {
            source.selection = selection;
        }
        lost
    }

    fn selection_of(&self, array: &Array) -> Selection {
        let axes = array.shape.iter().enumerate().map(|(axis, &length)| {
            let name = array.dimension_names.get(axis).and_then(Option::as_ref);
            let known = name.and_then(|name| self.axes.get(name));
            match known {
                Some(&(known, selected)) if known == length => selected,
                _ => SelectedAxis::all(length),
            }
        });
        Selection {
            axes: axes.collect(),
        }
    }
}

/// A dimension that arrays of a group share by its name.
struct Dimension<'a> {
    name: &'a str,
    length: u64,
    /// The first array in which a dimension of the same name has another length, and that length.
    other: Option<(&'a str, u64)>,
}

impl Dimension<'_> {
    /// Reads the labels of the dimension, or returns `None` if it has no coordinate variable. Fails with `Invalid` if
    /// groups have coordinate variables with different labels, because a label could not select the same elements in
    /// all groups.
    fn labels(&self, context: &RequestContext, members: &[GroupMember]) -> Result<Option<Labels>> {
        let mut known: Option<(&str, Labels)> = None;
        for coordinate in self.coordinates(members) {
            let path = coordinate.path.as_str();
            let open = &coordinate.source()?.array;
            let found = coordinates::read(context, open, &coordinate.array)?;
            match &known {
                None => known = Some((path, found)),
                Some((_, first)) if found.are_same(first) => {}
                Some((first, _)) => {
                    let name = self.name;
                    let why = format!(
                        "{first} and {path} have different labels; select by number, such as {name}=#0"
                    );
                    return Err(Error::invalid(format!("dimension '{name}'"), why));
                }
            }
        }
        Ok(known.map(|(_, labels)| labels))
    }

    /// Returns the coordinate variables of the dimension, each once. For each array along the dimension, this is the
    /// array with the dimension's name in the same group, or else in the nearest group above that has one.
    fn coordinates<'m>(&self, members: &'m [GroupMember]) -> Vec<&'m GroupMember> {
        let mut found: Vec<&GroupMember> = Vec::new();
        let places = places_of(members);
        let dimension = NamedDimension {
            name: self.name,
            length: self.length,
        };
        for member in members {
            let array = &member.array;
            let mut names = array.dimension_names.iter().zip(&array.shape);
            if !names.any(|(name, &length)| self.is(name.as_deref(), length)) {
                continue;
            }
            let nearest = find_nearest(&places, &member.path, self.name);
            let nearest = nearest.and_then(|place| members.get(place));
            let nearest = nearest.filter(|nearest| dimension.has_coordinate(&nearest.array));
            if let Some(nearest) = nearest
                && !found.iter().any(|known| known.path == nearest.path)
            {
                found.push(nearest);
            }
        }
        found
    }

    fn is(&self, name: Option<&str>, length: u64) -> bool {
        name == Some(self.name) && length == self.length
    }
}

/// Returns the dimensions of all arrays, each once. The dimensions of arrays in the top group come first.
fn dimensions_of(members: &[GroupMember]) -> Vec<Dimension<'_>> {
    let mut list: Vec<Dimension> = Vec::new();
    let mut ordered: Vec<&GroupMember> = members.iter().collect();
    ordered.sort_by_key(|member| member.path.matches('/').count());
    for member in ordered {
        let array = &member.array;
        for (name, &length) in array.dimension_names.iter().zip(&array.shape) {
            let Some(name) = name else { continue };
            match list.iter_mut().find(|known| known.name == name) {
                None => list.push(Dimension {
                    name,
                    length,
                    other: None,
                }),
                Some(known) if known.length != length => {
                    known.other.get_or_insert((&member.path, length));
                }
                Some(_) => {}
            }
        }
    }
    list
}

/// Returns the path of the node `name` in the group of the array at `path`.
fn path_beside(path: &str, name: &str) -> String {
    in_group(groups_of(path).next().unwrap_or_default(), name)
}

/// Returns the index of each array by its path.
fn places_of(members: &[GroupMember]) -> BTreeMap<&str, usize> {
    let paths = members.iter().map(|member| member.path.as_str());
    paths.zip(0..).collect()
}

/// Returns the index of the array to which a name refers from the array at `path`: in the same group, or else in the
/// nearest group above.
fn find_nearest(places: &BTreeMap<&str, usize>, path: &str, name: &str) -> Option<usize> {
    groups_of(path).find_map(|group| places.get(in_group(group, name).as_str()).copied())
}

/// Returns the path of the node `name` in a group.
fn in_group(group: &str, name: &str) -> String {
    match group {
        "" => name.to_string(),
        group => format!("{group}/{name}"),
    }
}

/// Returns the paths of the groups above an array, the nearest first; the last is the group of the file.
fn groups_of(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.rmatch_indices('/');
    let groups = ends.filter_map(move |(end, _)| path.get(..end));
    groups.chain(std::iter::once(""))
}

/// Adds names to the attribute `coordinates` of an array.
fn add_coordinate_names(member: &mut GroupMember, names: &[String]) {
    let before = match member.array.attributes.get(COORDINATES) {
        Some(Value::String(text)) => text,
        Some(_) => return,
        None => String::new(),
    };
    let known: Vec<&str> = before.split_whitespace().collect();
    let new = names.iter().map(String::as_str);
    let new: Vec<&str> = new.filter(|name| !known.contains(name)).collect();
    if !new.is_empty() {
        let text = [known, new].concat().join(" ");
        let array = Arc::make_mut(&mut member.array);
        array.attributes = array.attributes.with(COORDINATES, &Value::from(text));
    }
}

/// Returns the paths of the variables that hold the bounds of an array.
fn bounds_of(member: &GroupMember) -> Vec<String> {
    let names = names_of_bounds(&member.array.attributes).into_iter();
    names.map(|name| path_beside(&member.path, &name)).collect()
}

/// Adds the attribute `axis` to coordinate variables of which only the names tell that they run east or north, because
/// GDAL does not recognize them by name.
pub(super) fn add_axes(members: &mut [GroupMember]) {
    let (mut missing, places): (Vec<(usize, &str)>, _) = (Vec::new(), places_of(members));
    for map in members.iter() {
        let array = &map.array;
        if array.attributes.in_files().get("grid_mapping").is_none() {
            continue;
        }
        for (name, &length) in array.dimension_names.iter().zip(&array.shape) {
            let Some(name) = name else { continue };
            let place = find_nearest(&places, &map.path, name);
            let found = place.and_then(|place| Some((place, &members.get(place)?.array)));
            let dimension = NamedDimension { name, length };
            let found = found.filter(|(_, found)| dimension.has_coordinate(found));
            if let Some((place, axis)) =
                found.and_then(|(place, found)| Some((place, missing_axis(name, found)?)))
            {
                missing.push((place, axis));
            }
        }
    }
    for (place, axis) in missing {
        if let Some(member) = members.get_mut(place) {
            let array = Arc::make_mut(&mut member.array);
            array.attributes = array.attributes.with("axis", &axis.into());
        }
    }
}

/// Returns the axis of a coordinate variable that runs east or north, or `None` if GDAL recognizes the variable by its
/// attributes.
fn missing_axis(name: &str, array: &Array) -> Option<&'static str> {
    let attributes = array.attributes.in_files();
    let standard = attributes.get("standard_name");
    let standard = standard.as_ref().and_then(Value::as_str);
    let meaning = CoordinateMeaning::of(name, attributes);
    let is_recognized = attributes.get("axis").is_some()
        || meaning.quantity == Quantity::Degrees
        || matches!(
            standard,
            Some("projection_x_coordinate" | "projection_y_coordinate" | "longitude" | "latitude")
        );
    match meaning.kind {
        _ if is_recognized => None,
        AxisKind::X => Some("X"),
        AxisKind::Y => Some("Y"),
        _ => None,
    }
}

/// What a file of CF-decoded values lacks in comparison with stored values: arrays and attributes.
#[derive(Default)]
pub(super) struct CfLosses {
    /// A message for each array that is left out because its CF attributes are invalid.
    pub(super) members: Vec<String>,
    /// A message for each array that lost attributes.
    pub(super) attributes: Vec<String>,
}

/// Replaces the elements of arrays by their CF-decoded values, for files of a format. Drops arrays whose CF attributes
/// are invalid. A variable of time bounds without `units` uses the `units` of its time variable, as in CF and xarray.
pub(super) fn decode_cf(members: &mut Vec<GroupMember>, format: &GroupFormat) -> CfLosses {
    let (units, mut lost) = (units_of_bounds(members), CfLosses::default());
    members.retain_mut(|member| match decoded(member, &units, format) {
        Ok(decoded) => {
            let own = member.array.in_files();
            let is_lost = |name: &&&str| {
                own.attributes.get(name).is_some() && decoded.array.attributes.get(name).is_none()
            };
            let limits: Vec<&str> = cf::LIMITS.iter().filter(is_lost).copied().collect();
            if !limits.is_empty() {
                let (path, limits) = (&member.path, limits.join(", "));
                let sentence = format!("{path}: {limits}: valid only for stored values");
                lost.attributes.push(sentence);
            }
            member.array = Arc::new(decoded.array);
            if let Some(source) = &mut member.source {
                source.conversion = decoded.conversion;
            }
            true
        }
        // An array whose elements are not numbers stays unchanged.
        Err(NoValues::NotNumbers) => true,
        Err(why) => {
            lost.members.push(format!("{}: {why}", member.path));
            false
        }
    });
    lost
}

/// Returns the reason why the CF attributes of the array at a path are invalid, or `None` if they are valid.
pub(super) fn cf_fault(
    members: &[GroupMember],
    path: &str,
    format: &GroupFormat,
) -> Option<NoValues> {
    let member = members.iter().find(|member| member.path == path)?;
    let why = decoded(member, &units_of_bounds(members), format).err();
    why.filter(|why| *why != NoValues::NotNumbers)
}

/// Returns the attributes of each variable that has bounds, by the path of the variable with the bounds.
fn units_of_bounds(members: &[GroupMember]) -> BTreeMap<String, Attributes> {
    let mut units = BTreeMap::new();
    for member in members {
        for path in bounds_of(member) {
            units.insert(path, member.array.attributes.clone());
        }
    }
    units
}

fn decoded(
    member: &GroupMember,
    units: &BTreeMap<String, Attributes>,
    format: &GroupFormat,
) -> std::result::Result<DecodedArray, NoValues> {
    let mut array = (*member.array).clone();
    let of_times = units.get(&member.path);
    let inherited = of_times.map(|of_times| inherit_units(&mut array, of_times));
    let mut decoded = (format.decode)(&array)?;
    // The bounds have inherited attributes of the time variable only for decoding, so these attributes are removed
    // again.
    let attributes = &decoded.array.attributes;
    let inherited = inherited.unwrap_or_default().into_iter();
    let inherited = inherited.filter(|name| attributes.get(name).is_some());
    let removed: Vec<_> = inherited.map(|name| (name.to_string(), None)).collect();
    if !removed.is_empty() {
        decoded.array.attributes = attributes.edited(&removed);
    }
    Ok(decoded)
}

/// Adds `units` and `calendar` of a time variable to its bounds if the bounds lack them. Returns the names of the added
/// attributes.
fn inherit_units(array: &mut Array, of_times: &Attributes) -> Vec<&'static str> {
    let mut inherited = Vec::new();
    let is_of_time =
        matches!(of_times.get("units"), Some(Value::String(units)) if units.contains("since"));
    for name in ["units", "calendar"] {
        if is_of_time
            && array.attributes.get(name).is_none()
            && let Some(value) = of_times.get(name)
        {
            array.attributes = array.attributes.with(name, &value);
            inherited.push(name);
        }
    }
    inherited
}
