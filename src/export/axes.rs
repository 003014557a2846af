//! What the dimensions of an array mean: names, units, scale and origin, as far as the metadata tell.
//!
//! OME-Zarr's `multiscales` of the group (0.1 to 0.5) come first, then the array's own names of dimensions and its attributes
//! `spacing`, `origin` and `units`, if these are lists of a value each dimension. Coordinate variables are not read: the
//! header of a file would depend on chunks.

use serde_json::Value;

use crate::export::Subject;
use crate::model::Attributes;

/// What a dimension is, by its name or by what OME-Zarr says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AxisKind {
    /// The first direction of space: longitude, columns.
    X,
    /// The second: latitude, rows.
    Y,
    /// The third: depth, height, level.
    Z,
    /// Time.
    Time,
    /// Channels or bands.
    Channel,
    /// Anything else, or not known.
    Other,
}

/// What the metadata say of a dimension.
#[derive(Clone, Debug, PartialEq)]
pub struct AxisMeaning {
    /// Its name.
    pub name: Option<String>,
    /// What it is.
    pub kind: AxisKind,
    /// The unit of scale and origin.
    pub unit: Option<String>,
    /// The distance from one element to the next, finite and not 0; nothing if that is not known.
    pub scale: Option<f64>,
    /// Where the first element is, finite.
    pub origin: f64,
}

impl AxisMeaning {
    /// Returns the distance from one element to the next, 1 if it is not known.
    pub fn step(&self) -> f64 {
        self.scale.unwrap_or(1.0)
    }
}

/// Where an image lies in a space of as many directions as it has dimensions. All lists are in the order of a file whose
/// first dimension is the fastest.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// The distance between elements along each dimension, positive.
    pub spacing: Vec<f64>,
    /// The place of the first element.
    pub origin: Vec<f64>,
    /// For each dimension the direction of space in which it goes, and whether it goes backwards.
    pub directions: Vec<(usize, bool)>,
}

impl Placement {
    /// Returns a component of the direction in which a dimension goes: 1, -1 or 0.
    pub fn direction(&self, dimension: usize, component: usize) -> f64 {
        match self.directions.get(dimension) {
            Some(&(along, is_backwards)) if along == component => {
                if is_backwards {
                    -1.0
                } else {
                    1.0
                }
            }
            _ => 0.0,
        }
    }
}

/// Returns the meaning of each dimension of a box, outermost first.
pub fn axes_of(subject: &Subject) -> Vec<AxisMeaning> {
    let axes = array_axes(subject);
    let Some(taken) = subject.taken else {
        return axes;
    };
    let taken = taken
        .iter()
        .filter_map(|taken| Some((taken, axes.get(taken.axis)?)));
    taken
        .map(|(taken, axis)| {
            let mut axis = axis.clone();
            axis.origin = place(axis.origin + axis.scale.unwrap_or(0.0) * taken.start as f64);
            axis.scale = axis
                .scale
                .and_then(|scale| distance(scale * taken.step as f64));
            axis
        })
        .collect()
}

/// Returns a number if it can be the distance between elements: a product of distances may be none.
fn distance(number: f64) -> Option<f64> {
    (number.is_finite() && number != 0.0).then_some(number)
}

/// Returns a number if it is a place, and else 0.
fn place(number: f64) -> f64 {
    if number.is_finite() { number } else { 0.0 }
}

/// Returns the meaning of each dimension of an array, outermost first.
fn array_axes(subject: &Subject) -> Vec<AxisMeaning> {
    let rank = subject.array.shape.len();
    let mut axes: Vec<AxisMeaning> = (0..rank).map(|axis| named(subject, axis)).collect();
    let attribute = |name| list_of(subject.array.attributes.get(name), rank);
    set_scale(&mut axes, attribute("spacing"), attribute("origin"));
    for (axis, unit) in axes.iter_mut().zip(attribute("units").unwrap_or_default()) {
        axis.unit = unit.as_str().map(str::to_string);
    }
    if let Some(group) = subject.image() {
        for image in multiscales(group.attributes) {
            set_multiscale(&mut axes, &image, group.path);
        }
    }
    axes
}

/// Returns the multiscale images of a group of OME-Zarr, of 0.5 or before.
pub(super) fn multiscales(group: &Attributes) -> Vec<Value> {
    let of_root = group.get("ome");
    let of_root = of_root.and_then(|mut root| Some(root.get_mut("multiscales")?.take()));
    match of_root.or_else(|| group.get("multiscales")) {
        Some(Value::Array(images)) => images,
        _ => Vec::new(),
    }
}

/// Whether scale or origin of a dimension are known.
pub fn has_scale(axes: &[AxisMeaning]) -> bool {
    axes.iter()
        .any(|axis| axis.scale.is_some() || axis.origin != 0.0)
}

/// Returns where an image of these dimensions lies. Dimensions go in the directions of their names where they are X, Y
/// and Z, each once, and else in order.
pub fn placement_of(axes: &[AxisMeaning]) -> Placement {
    let rank = axes.len();
    let fastest_first = || axes.iter().rev();
    let mut components: Vec<usize> = fastest_first().map(|axis| axis.kind as usize).collect();
    let is_spatial = (0..rank).all(|component| components.contains(&component));
    if !is_spatial || rank > 3 {
        components = (0..rank).collect();
    }
    let mut origin = vec![0.0; rank];
    for (axis, &component) in fastest_first().zip(&components) {
        origin[component] = axis.origin;
    }
    let is_backwards = fastest_first().map(|axis| axis.step() < 0.0);
    Placement {
        spacing: fastest_first().map(|axis| axis.step().abs()).collect(),
        origin,
        directions: components.into_iter().zip(is_backwards).collect(),
    }
}

/// Returns numbers with blanks between them.
pub fn joined(numbers: impl IntoIterator<Item = impl ToString>) -> String {
    let numbers: Vec<String> = numbers
        .into_iter()
        .map(|number| number.to_string())
        .collect();
    numbers.join(" ")
}

fn named(subject: &Subject, axis: usize) -> AxisMeaning {
    let name = subject.array.dimension_names.get(axis).cloned().flatten();
    AxisMeaning {
        kind: kind_of(name.as_deref().unwrap_or_default()),
        name,
        unit: None,
        scale: None,
        origin: 0.0,
    }
}

fn kind_of(name: &str) -> AxisKind {
    match name.to_ascii_lowercase().as_str() {
        "x" | "lon" | "longitude" | "easting" | "col" | "cols" | "column" | "columns" => {
            AxisKind::X
        }
        "y" | "lat" | "latitude" | "northing" | "row" | "rows" => AxisKind::Y,
        "z" | "depth" | "height" | "altitude" | "lev" | "level" | "plev" => AxisKind::Z,
        "t" | "time" => AxisKind::Time,
        "c" | "channel" | "channels" | "band" | "bands" | "wavelength" => AxisKind::Channel,
        _ => AxisKind::Other,
    }
}

/// Returns a list of one value a dimension.
fn list_of(value: Option<Value>, rank: usize) -> Option<Vec<Value>> {
    match value {
        Some(Value::Array(list)) if list.len() == rank => Some(list),
        _ => None,
    }
}

fn set_scale(axes: &mut [AxisMeaning], scale: Option<Vec<Value>>, origin: Option<Vec<Value>>) {
    for (axis, value) in axes.iter_mut().zip(scale.unwrap_or_default()) {
        axis.scale = value.as_f64().and_then(distance);
    }
    for (axis, value) in axes.iter_mut().zip(origin.unwrap_or_default()) {
        axis.origin = place(value.as_f64().unwrap_or(0.0));
    }
}

/// Whether a group has a multiscale image of which the array at a path from the group is a level.
pub fn names_level(group: &Attributes, path: &[u8]) -> bool {
    let images = multiscales(group);
    images.iter().any(|image| level_at(image, path).is_some())
}

/// Returns the paths of the levels of a multiscale image, in their order.
pub(super) fn level_paths(image: &Value) -> impl Iterator<Item = &str> {
    let levels = image.get("datasets").and_then(Value::as_array);
    let levels = levels.into_iter().flatten();
    levels.filter_map(|level| level.get("path")?.as_str())
}

/// Returns what a multiscale image says of its level at a path, if it has that.
fn level_at<'a>(image: &'a Value, path: &[u8]) -> Option<&'a Value> {
    let mut levels = image.get("datasets")?.as_array()?.iter();
    levels.find(|level| {
        let own = level.get("path").and_then(Value::as_str);
        own.is_some_and(|own| own.as_bytes() == path)
    })
}

/// Takes over what a multiscale image says of the array at a path, if that is one of its levels.
fn set_multiscale(axes: &mut [AxisMeaning], image: &Value, path: &[u8]) {
    let list = |value: &Value, member: &str| value.get(member).and_then(Value::as_array).cloned();
    let Some(level) = level_at(image, path) else {
        return;
    };
    let described = list_of(image.get("axes").cloned(), axes.len());
    for (axis, described) in axes.iter_mut().zip(described.unwrap_or_default()) {
        set_axis(axis, &described);
    }
    for described in [level, image] {
        for step in list(described, "coordinateTransformations").unwrap_or_default() {
            let numbers = |member| list_of(step.get(member).cloned(), axes.len());
            transform(axes, numbers("scale"), numbers("translation"));
        }
    }
}

/// Takes over the name, type and unit of an axis; before version 0.4 it is a name alone.
fn set_axis(axis: &mut AxisMeaning, described: &Value) {
    let text = |member: &str| {
        described
            .get(member)
            .and_then(Value::as_str)
            .map(str::to_string)
    };
    let name = described
        .as_str()
        .map(str::to_string)
        .or_else(|| text("name"));
    let Some(name) = name else { return };
    axis.kind = match text("type").as_deref() {
        Some("time") => AxisKind::Time,
        Some("channel") => AxisKind::Channel,
        _ => kind_of(&name),
    };
    axis.name = Some(name);
    axis.unit = text("unit");
}

/// Applies a transformation after those that were applied before.
fn transform(axes: &mut [AxisMeaning], scale: Option<Vec<Value>>, translation: Option<Vec<Value>>) {
    for (axis, value) in axes.iter_mut().zip(scale.unwrap_or_default()) {
        if let Some(scale) = value.as_f64().and_then(distance) {
            axis.scale = distance(axis.step() * scale);
            axis.origin = place(axis.origin * scale);
        }
    }
    for (axis, value) in axes.iter_mut().zip(translation.unwrap_or_default()) {
        axis.origin = place(axis.origin + value.as_f64().unwrap_or(0.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(kind: AxisKind, scale: f64, origin: f64) -> AxisMeaning {
        AxisMeaning {
            name: None,
            kind,
            unit: None,
            scale: Some(scale),
            origin,
        }
    }

    #[test]
    fn scales_stay_finite_and_other_than_zero() {
        let twice = |scale: f64, origin: f64| {
            let mut axes = [axis(AxisKind::X, scale, origin)];
            let list = |number: f64| Some(vec![Value::from(number)]);
            transform(&mut axes, list(scale), list(origin));
            let [axis] = axes;
            (axis.scale, axis.origin)
        };
        assert_eq!(twice(2.0, 3.0), (Some(4.0), 9.0));
        assert_eq!(twice(1e200, 1e200), (None, 1e200));
        assert_eq!(twice(1e-200, 1.0), (None, 1.0));
        assert_eq!(twice(1.0, f64::MAX), (Some(1.0), 0.0));
    }

    #[test]
    fn dimensions_go_in_the_directions_of_their_names() {
        let axes = [
            axis(AxisKind::X, 2.0, 5.0),
            axis(AxisKind::Y, -3.0, 6.0),
            axis(AxisKind::Z, 4.0, 7.0),
        ];
        let place = placement_of(&axes);
        assert_eq!(place.spacing, [4.0, 3.0, 2.0]);
        assert_eq!(place.origin, [5.0, 6.0, 7.0]);
        assert_eq!(place.directions, [(2, false), (1, true), (0, false)]);
        let unnamed = axes.map(|axis| AxisMeaning {
            kind: AxisKind::Other,
            ..axis
        });
        let place = placement_of(&unnamed);
        assert_eq!(place.origin, [7.0, 6.0, 5.0]);
        assert_eq!(place.directions, [(0, false), (1, true), (2, false)]);
    }
}
