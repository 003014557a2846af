//! Interprets an array's dimensions: names, units, scale and origin, as far as metadata give them.
//!
//! OME-Zarr's `multiscales` of the group (0.1 to 0.6) has precedence. Then come the array's own dimension names, and
//! its attributes `spacing`, `origin` and `units`, if each is a list with one value per dimension. Coordinate variables
//! are not read, because the header of an exported file would then change with their chunks.

use serde_json::Value;

use crate::formats::Subject;
use crate::formats::ome_zarr::affine::{AffineMap, TakenInput};
use crate::formats::ome_zarr::coordinate_systems::{DescribedAxis, LevelPlace};
use crate::formats::ome_zarr::orientation::{FirstVoxel, anatomical_place, orientation_text};
use crate::formats::ome_zarr::{Level, level_of};

/// What a dimension of an array stands for, by the name of the dimension or OME-Zarr's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AxisKind {
    /// The X direction of space: longitude, easting or columns.
    X,
    /// The Y direction of space: latitude, northing or rows.
    Y,
    /// The Z direction of space: depth, height or level.
    Z,
    /// The dimension stands for time.
    Time,
    /// The dimension stands for channels or bands.
    Channel,
    /// The dimension stands for something else, or its kind is unknown.
    Other,
}

impl AxisKind {
    /// Whether the dimension is a direction of space (X, Y or Z).
    pub fn is_space(self) -> bool {
        matches!(self, AxisKind::X | AxisKind::Y | AxisKind::Z)
    }
}

/// Finds the kind of a dimension (space, time or channel) by the dimension's name.
pub(crate) fn kind_of(name: &str) -> AxisKind {
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

/// The name, kind, unit, scale and origin of a dimension, according to the metadata.
#[derive(Clone, Debug, PartialEq)]
pub struct AxisMeaning {
    /// The name of the dimension.
    pub name: Option<String>,
    /// The kind of the dimension, such as time or a direction of space.
    pub kind: AxisKind,
    /// The unit of the dimension's scale and origin.
    pub unit: Option<String>,
    /// The distance between neighbouring elements along the dimension, finite and not 0; `None` if unknown.
    pub scale: Option<f64>,
    /// The coordinate of the first element along the dimension; always finite.
    pub origin: f64,
}

impl AxisMeaning {
    /// Returns the distance between neighbouring elements along the dimension, or 1 if it is unknown.
    pub fn step(&self) -> f64 {
        self.scale.unwrap_or(1.0)
    }
}

/// The meaning of all dimensions of an exported range of an array.
pub(crate) struct Dimensions {
    /// The meaning of each dimension, outermost first. For an image that is oblique in one coordinate system but not in
    /// another, the meaning comes from the other one.
    pub(crate) axes: Vec<AxisMeaning>,
    /// Position and directions of the image, if it is oblique or has an anatomical orientation.
    pub(crate) oblique: Option<Oblique>,
    /// Messages about metadata that no file format can express, with the reasons.
    pub(crate) left_out: Vec<String>,
}

/// Position and directions of an image that is oblique (its dimensions are not parallel to the axes of space) or that
/// has an anatomical orientation.
pub(crate) struct Oblique {
    system: Option<String>,
    /// The axes of the coordinate system, as many as the image has dimensions.
    pub(crate) axes: Vec<DescribedAxis>,
    /// Maps indices of elements to coordinates.
    pub(crate) map: AffineMap,
    /// The anatomical orientations of the axes as a text for messages. If it is present, the coordinates are in ITK's
    /// LPS space (left, posterior, superior).
    pub(crate) orientation: Option<String>,
}

impl Dimensions {
    /// Returns messages about all metadata that a file leaves out, if its format has no direction matrix.
    pub(crate) fn left_out_without_directions(&self) -> Vec<String> {
        let all = self.left_out.iter().cloned();
        all.chain(self.without_directions()).collect()
    }

    /// Returns the message that a file format without a direction matrix omits the directions of an oblique image, or
    /// `None` if the image has no such directions.
    pub(crate) fn without_directions(&self) -> Option<String> {
        let oblique = self.oblique.as_ref()?;
        if let Some(orientation) = &oblique.orientation
            && oblique.map.permutation().is_some()
        {
            return Some(format!(
                "{orientation}: the format cannot store orientations"
            ));
        }
        Some(match &oblique.system {
            Some(name) => format!("coordinate system {name:?}: the dimensions are oblique"),
            None => "directions of the dimensions: the dimensions are oblique".to_string(),
        })
    }
}

/// Returns the meaning of each dimension of an exported range of an array, outermost first.
pub fn axes_of(subject: &Subject) -> Vec<AxisMeaning> {
    dimensions_of(subject).axes
}

/// Returns the meaning of all dimensions of an exported range of an array.
pub(crate) fn dimensions_of(subject: &Subject) -> Dimensions {
    let mut found = of_array(subject);
    let Some(taken) = subject.taken else {
        return found;
    };
    if let Some(oblique) = found.oblique.take() {
        let inputs = taken.iter().map(|taken| TakenInput {
            input: taken.axis,
            start: taken.start as f64,
            step: taken.step as f64,
        });
        let inputs: Vec<TakenInput> = inputs.collect();
        let place = oblique.map.taken(&inputs).map(|(map, outputs)| Oblique {
            map,
            axes: outputs
                .into_iter()
                .filter_map(|output| oblique.axes.get(output).cloned())
                .collect(),
            system: oblique.system.clone(),
            orientation: oblique.orientation.clone(),
        });
        match place {
            Some(place) => found.oblique = Some(place),
            None => {
                found.oblique = Some(oblique);
                found.left_out.extend(found.without_directions());
                found.oblique = None;
            }
        }
    }
    let axes = &found.axes;
    let dimensions = taken
        .iter()
        .filter_map(|taken| Some((taken, axes.get(taken.axis)?)));
    found.axes = dimensions
        .map(|(taken, axis)| {
            let mut axis = axis.clone();
            axis.origin = place(axis.origin + axis.scale.unwrap_or(0.0) * taken.start as f64);
            axis.scale = axis
                .scale
                .and_then(|scale| distance(scale * taken.step as f64));
            axis
        })
        .collect();
    found
}

/// Accepts a number as the distance between elements only if it is finite and not 0, because a product of scales may
/// overflow or become 0.
fn distance(number: f64) -> Option<f64> {
    (number.is_finite() && number != 0.0).then_some(number)
}

/// Returns the coordinate if it is finite, or else 0, which stands for an unknown origin.
fn place(number: f64) -> f64 {
    if number.is_finite() { number } else { 0.0 }
}

/// Returns the meaning of each dimension of an array, and the position of an oblique image.
fn of_array(subject: &Subject) -> Dimensions {
    let rank = subject.array.shape.len();
    let mut axes: Vec<AxisMeaning> = (0..rank).map(|axis| named(subject, axis)).collect();
    let attribute = |name| list_of(subject.array.attributes.get(name), rank);
    set_scale(&mut axes, attribute("spacing"), attribute("origin"));
    for (axis, unit) in axes.iter_mut().zip(attribute("units").unwrap_or_default()) {
        axis.unit = unit.as_str().map(str::to_string);
    }
    let image = subject.image();
    let labelled = subject.around.labelled.as_ref();
    let level = image.and_then(|image| level_of(&image, labelled, rank));
    let mut found = Dimensions {
        axes,
        oblique: None,
        left_out: Vec::new(),
    };
    if let Some(level) = level {
        found.set_level(level);
    }
    found
}

impl Dimensions {
    /// Applies what OME-Zarr's metadata say about a resolution level of an image.
    fn set_level(&mut self, level: Level) {
        let described = level.axes.into_iter().flatten();
        for (axis, described) in self.axes.iter_mut().zip(described) {
            axis.describe(&described);
        }
        self.left_out = level.left_out;
        let last = level.places.len().saturating_sub(1);
        for (number, place) in level.places.into_iter().enumerate() {
            let first = level.first.as_ref().filter(|_| number == last);
            let body = self.anatomical_place(&place, first);
            if let Some(outputs) = place.map.permutation() {
                self.set_place(&place, &outputs);
                let oblique =
                    body.map(|(body, orientation)| (self.oblique_place(body), orientation));
                if let Some((Ok(oblique), orientation)) = oblique {
                    self.oblique
                        .get_or_insert(oblique.with_orientation(orientation));
                }
                return;
            }
            let (place, orientation) = match body {
                Some((body, orientation)) => (body, Some(orientation)),
                None => (place, None),
            };
            let oblique = self.oblique_place(place).map(|oblique| match orientation {
                Some(orientation) => oblique.with_orientation(orientation),
                None => oblique,
            });
            match oblique {
                Ok(oblique) => {
                    // The distances along oblique dimensions are right in every format. If another coordinate system is
                    // not oblique, its distances replace these.
                    for (input, axis) in self.axes.iter_mut().enumerate() {
                        axis.scale = distance(oblique.step(input));
                    }
                    self.oblique.get_or_insert(oblique);
                }
                Err(system) => {
                    let system = system.map(|name| format!("coordinate system {name:?}"));
                    let system = system.unwrap_or("position of the elements".to_string());
                    self.left_out
                        .push(format!("{system}: the dimensions are linearly dependent"));
                }
            }
        }
    }

    /// Returns the anatomical coordinate system of a resolution level. If the orientations of the axes do not define
    /// one, returns `None` and adds a message.
    fn anatomical_place(
        &mut self,
        place: &LevelPlace,
        first: Option<&FirstVoxel>,
    ) -> Option<(LevelPlace, String)> {
        let orientation = orientation_text(place.axes.as_ref()?)?;
        let body = anatomical_place(place, first);
        let known = "left, right, anterior, posterior, inferior and superior";
        let sentence = format!("{orientation}: files can only store {known}, one per axis");
        if body.is_none() && !self.left_out.contains(&sentence) {
            self.left_out.push(sentence);
        }
        Some((body?, orientation))
    }

    /// Takes scales and origins from a coordinate system that is not oblique: each dimension is parallel to the axis
    /// with the index in `outputs`.
    fn set_place(&mut self, place_of: &LevelPlace, outputs: &[usize]) {
        for (input, (axis, &output)) in self.axes.iter_mut().zip(outputs).enumerate() {
            if let Some(described) = place_of.axes.as_ref().and_then(|axes| axes.get(output)) {
                axis.describe(described);
            }
            axis.scale = distance(place_of.map.factor(output, input));
            axis.origin = place(place_of.map.offset(output));
        }
    }

    /// Returns the oblique coordinate system of a resolution level. Fails with its name if the dimensions are linearly
    /// dependent, or if a dimension other than those of space is oblique.
    fn oblique_place(&self, place: LevelPlace) -> Result<Oblique, Option<String>> {
        let (map, rank) = (place.map, self.axes.len());
        let Some(axes) = place.axes.filter(|axes| axes.len() == rank) else {
            return Err(place.system);
        };
        let is_space = |output: usize| axes.get(output).is_some_and(|axis| axis.kind.is_space());
        let is_same = |input: usize, output: usize| {
            // A dimension of unknown kind may run along an axis of space.
            let kind = self.axes.get(input).map(|axis| axis.kind);
            kind.is_some_and(|kind| kind == AxisKind::Other || kind.is_space() == is_space(output))
        };
        let is_alone = |input: usize, output: usize| {
            let of_input = (0..rank).filter(|&other| map.factor(other, input) != 0.0);
            let of_output = (0..rank).filter(|&other| map.factor(output, other) != 0.0);
            of_input.count() == 1 && of_output.count() == 1
        };
        let mut pairs = (0..rank).flat_map(|input| (0..rank).map(move |output| (input, output)));
        let fits = pairs.all(|(input, output)| {
            map.factor(output, input) == 0.0
                || (is_same(input, output) && (is_space(output) || is_alone(input, output)))
        });
        if fits && map.inverse().is_some() {
            let system = place.system;
            Ok(Oblique {
                system,
                axes,
                map,
                orientation: None,
            })
        } else {
            Err(place.system)
        }
    }
}

impl Oblique {
    /// Returns the same coordinate system, with a text of the anatomical orientations of its axes.
    fn with_orientation(self, orientation: String) -> Oblique {
        Oblique {
            orientation: Some(orientation),
            ..self
        }
    }

    pub(crate) fn step(&self, input: usize) -> f64 {
        let factors = (0..self.map.outputs()).map(|output| self.map.factor(output, input));
        factors.map(|factor| factor * factor).sum::<f64>().sqrt()
    }

    /// Returns a message for a sheared image: programs that do not support shear show it in a wrong position.
    pub(crate) fn without_shear(&self) -> String {
        let place = match &self.system {
            Some(name) => format!("coordinate system {name:?}"),
            None => "directions of the dimensions".to_string(),
        };
        format!("{place} for programs without shear, such as ITK")
    }

    /// Whether the dimensions of the image are at right angles to each other, within rounding errors.
    pub(crate) fn is_rectangular(&self) -> bool {
        let rank = self.map.inputs();
        let mut pairs = (0..rank).flat_map(|one| (0..one).map(move |other| (one, other)));
        pairs.all(|(one, other)| {
            let outputs = 0..self.map.outputs();
            let parts = outputs.map(|row| self.map.factor(row, one) * self.map.factor(row, other));
            let cosine = parts.sum::<f64>() / self.step(one) / self.step(other);
            // The tolerance is that of 32-bit floats, because writers may have rounded the numbers to them.
            cosine.abs() < 1e-5
        })
    }
}

impl AxisMeaning {
    /// Copies the name, the kind and the unit of an OME-Zarr axis to the dimension.
    fn describe(&mut self, described: &DescribedAxis) {
        if !described.name.is_empty() {
            self.name = Some(described.name.clone());
            self.kind = described.kind;
            self.unit.clone_from(&described.unit);
        }
    }
}

/// Whether the scale or the origin of at least one dimension is known.
pub(crate) fn has_scale(axes: &[AxisMeaning]) -> bool {
    axes.iter()
        .any(|axis| axis.scale.is_some() || axis.origin != 0.0)
}

pub(crate) fn joined(numbers: impl IntoIterator<Item = impl ToString>) -> String {
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

/// Returns a JSON list if it has one value per dimension, or else `None`.
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
