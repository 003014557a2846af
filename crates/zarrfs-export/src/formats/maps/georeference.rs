//! Finds a map's reference system and geotransform.
//!
//! Reads the attributes of the array, of its grid mapping and of its group, in the conventions of GDAL, GeoZarr, EOPF
//! and CF, and the coordinate variables. If attributes contradict coordinate variables, the coordinate variables are
//! right: programs that cut a map keep the old attributes. `left_out` lists everything that a file cannot express, with
//! the reason.

use serde_json::Value;

use crate::formats::Subject;
use crate::formats::axes::{AxisKind, AxisMeaning, axes_of, has_scale};
use crate::formats::maps::coordinate_variable::{CoordinateVariable, Line, Quantity, kind_of_name};
use crate::formats::maps::geo_transform::{self, AttributeTransform, GeoTransform, Pixels};
use crate::formats::maps::levels::{DERIVED_FROM, LevelBase, LevelSource};
use crate::formats::maps::reference_system::ReferenceSystem;
use crate::formats::maps::{PlaneAxes, PlaneSize, grid_mapping};
use zarr_format::model::Attributes;

/// Reference system and geotransform of a map, as far as a file can express them.
#[derive(Default)]
pub(crate) struct Georeference {
    /// The reference system of the geotransform's coordinates.
    pub(crate) system: Option<ReferenceSystem>,
    /// The geotransform, from pixel indices to coordinates.
    pub(crate) place: Option<GeoTransform>,
    /// Whether metadata give the array a geotransform or a reference system. If not, `place` has only the pixel spacing
    /// of an image.
    pub(crate) is_map: bool,
    /// The metadata that the file omits; each text is a name, a colon and the reason.
    pub(crate) left_out: Vec<String>,
}

/// Returns the meaning of each dimension of an exported map. The y and x dimensions are found by their names, by
/// `spatial:dimensions` of GeoZarr, or by the coordinate variables.
pub(crate) fn map_axes(subject: &Subject) -> Vec<AxisMeaning> {
    let spatial =
        map_attributes(subject).find_map(|attributes| match attributes.get("spatial:dimensions") {
            Some(Value::Array(names)) if names.len() >= 2 => Some(names),
            _ => None,
        });
    let named = |name: &str| {
        let from_last = spatial.iter().flatten().rev().position(|own| own == name);
        match from_last? {
            0 => Some(AxisKind::X),
            1 => Some(AxisKind::Y),
            _ => None,
        }
    };
    let mut axes = axes_of(subject);
    for (place, axis) in axes.iter_mut().enumerate() {
        let of_array = axis_of_array(subject, place);
        let variable = of_array.and_then(|place| coordinate_variable(subject, place));
        let of_variable = variable.map(|variable| variable.meaning.kind);
        let kind = axis.name.as_deref().and_then(named).or(of_variable);
        if axis.kind == AxisKind::Other
            && let Some(kind @ (AxisKind::X | AxisKind::Y)) = kind
        {
            axis.kind = kind;
        }
    }
    axes
}

/// Returns the index of the array's dimension that becomes dimension `place` of the file.
fn axis_of_array(subject: &Subject, place: usize) -> Option<usize> {
    match subject.taken {
        Some(taken) => Some(taken.get(place)?.axis),
        None => Some(place),
    }
}

fn coordinate_variable<'a>(subject: &Subject<'a>, axis: usize) -> Option<&'a CoordinateVariable> {
    subject.around.coordinates.get(axis)?.as_ref()
}

/// Returns the georeference of an exported map; `plane` says which dimensions are rows and columns, and `axes` what the
/// dimensions mean.
pub(crate) fn georeference(
    subject: &Subject,
    axes: &[AxisMeaning],
    plane: PlaneAxes,
) -> Georeference {
    let (Some(y), Some(x)) = (axes.get(plane.rows), axes.get(plane.columns)) else {
        return Georeference::default();
    };
    let of_array = |axis| axis_of_array(subject, axis);
    let (Some(rows), Some(columns)) = (of_array(plane.rows), of_array(plane.columns)) else {
        return Georeference::default();
    };
    let facts = MapFacts::of(subject, PlaneAxes { rows, columns });
    let is_map = matches!(y.kind, AxisKind::Y | AxisKind::Other)
        && matches!(x.kind, AxisKind::X | AxisKind::Other);
    if !is_map {
        let mut left_out = Vec::new();
        if facts.is_any() {
            let sentence =
                "the georeference: the rows and columns of the file do not run along y and x";
            left_out.push(sentence.to_string());
        }
        // The pixel spacing is right even if, for example, the rows are heights; it is wrong if x and y are exchanged.
        let is_exchanged = y.kind == AxisKind::X || x.kind == AxisKind::Y;
        return Georeference {
            place: (!is_exchanged)
                .then(|| place_by_spacing(subject, y, x))
                .flatten(),
            left_out,
            ..Georeference::default()
        };
    }
    facts.into_georeference(subject, plane, MapAxes { y, x })
}

/// Returns the array as a base level, from which lower resolution levels were derived. Returns `None` if its
/// geotransform is unknown.
pub(crate) fn level_base(subject: &Subject, source: LevelSource) -> Option<LevelBase> {
    let axes = map_axes(subject);
    let plane = PlaneAxes::of(&axes)?;
    let found = georeference(subject, &axes, plane);
    let place = found.place.filter(|_| found.is_map)?;
    let size = plane.size(subject.shape);
    Some(LevelBase::new(source, found.system, place, size))
}

/// Returns a geotransform made of the spacing and the origin of the two dimensions.
fn place_by_spacing(subject: &Subject, y: &AxisMeaning, x: &AxisMeaning) -> Option<GeoTransform> {
    let axes = [y.clone(), x.clone()];
    let corner = |axis: &AxisMeaning| axis.origin - axis.step() / 2.0;
    let place = || GeoTransform {
        x: corner(x),
        y: corner(y),
        ..GeoTransform::straight(x.step(), y.step())
    };
    has_scale(&axes).then(|| in_metres(subject, place()))
}

/// If all numbers of a geotransform are below this limit, they may be angles in radians: no satellite map is this few
/// metres wide.
const MAX_ANGLE: f64 = 2.0;

/// Converts the geotransform of a satellite map to metres. CF stores view angles in radians; multiplied by the height
/// of the satellite, they are distances.
fn in_metres(subject: &Subject, place: GeoTransform) -> GeoTransform {
    let mut numbers = place.numbers().into_iter();
    let is_angle = numbers.all(|number| number.abs() < MAX_ANGLE);
    let height = satellite_height(subject).filter(|_| is_angle);
    place.scaled(height.unwrap_or(1.0), height.unwrap_or(1.0))
}

fn satellite_height(subject: &Subject) -> Option<f64> {
    map_attributes(subject).find_map(grid_mapping::satellite_height)
}

/// Returns the attributes that may state the geotransform of a map: those of the array, its grid mapping, its
/// resolution level and its group, and of the group that lists the level.
fn map_attributes<'a>(subject: &Subject<'a>) -> impl Iterator<Item = &'a Attributes> {
    let around = subject.around;
    let own = [Some(&subject.array.attributes)];
    let others = [around.mapping, around.level, around.group, around.levels];
    own.into_iter().chain(others).flatten()
}

/// Returns the attributes that apply to one array alone: its own, and those of the grid mapping that it names.
fn own_attributes<'a>(subject: &Subject<'a>) -> impl Iterator<Item = &'a Attributes> {
    let own = &subject.array.attributes;
    let named = own.get("grid_mapping").and(subject.around.mapping);
    [Some(own), named].into_iter().flatten()
}

/// Whether the georeference of the group applies to the array, since a group may contain tables next to maps. It
/// applies if the array has dimensions of a map, if its own attributes state a geotransform, or if it has no dimension
/// names and the group states its size.
fn is_map_of_group(subject: &Subject, size: PlaneSize) -> bool {
    let whole = Subject {
        shape: &subject.array.shape,
        taken: None,
        ..*subject
    };
    let axes = map_axes(&whole);
    let has = |kind| axes.iter().any(|axis| is_named(axis, kind));
    let is_nameless = || axes.iter().all(|axis| axis.name.is_none());
    has(AxisKind::X) && has(AxisKind::Y)
        || own_attributes(subject).any(|own| AttributeTransform::of(own).is_some())
        || is_nameless()
            && (subject.around.level.is_some()
                || map_attributes(subject)
                    .any(|attributes| geo_transform::has_fitting_transform(attributes, size)))
}

/// Whether a dimension has a name of northing or easting, which CF's standard names may be too.
fn is_named(axis: &AxisMeaning, kind: AxisKind) -> bool {
    let name = axis
        .name
        .as_deref()
        .filter(|_| axis.kind == AxisKind::Other);
    axis.kind == kind || name.is_some_and(|name| kind_of_name(name) == Some(kind))
}

/// The dimensions of a map along y and x.
#[derive(Clone, Copy)]
struct MapAxes<'a> {
    y: &'a AxisMeaning,
    x: &'a AxisMeaning,
}

/// What metadata say about the georeference of an array.
struct MapFacts<'a> {
    /// The number of rows and columns of the whole array.
    size: PlaneSize,
    system: Option<ReferenceSystem>,
    /// The geotransform that attributes state.
    place: Option<AttributeTransform>,
    /// Whether the group states a geotransform that may belong to another array.
    is_of_others: bool,
    /// Whether attributes state a map from pixels to coordinates that is not affine.
    is_unknown: bool,
    /// The geotransform that follows from the base level or from the bounds of the map. It is used if coordinate
    /// variables give none.
    other: Option<Result<GeoTransform, String>>,
    y: Option<&'a CoordinateVariable>,
    x: Option<&'a CoordinateVariable>,
}

impl<'a> MapFacts<'a> {
    fn of(subject: &Subject<'a>, plane: PlaneAxes) -> MapFacts<'a> {
        let size = plane.size(&subject.array.shape);
        let around = subject.around;
        let is_of_group = is_map_of_group(subject, size);
        let own: Vec<&Attributes> = own_attributes(subject).collect();
        let all = map_attributes(subject).filter(|_| is_of_group);
        let all: Vec<&Attributes> = own.iter().copied().chain(all).collect();
        let others = [around.mapping, around.level].into_iter().flatten();
        let others = others.filter(|_| is_of_group);
        let place = own
            .into_iter()
            .chain(others)
            .find_map(AttributeTransform::of);
        // A geotransform in the group that lists resolution levels is that of the first level. It applies to a derived
        // level only if the group also states a shape or bounds that fit the level.
        let is_made = around
            .level
            .is_some_and(|level| level.get(DERIVED_FROM).is_some());
        let groups = [around.group, around.levels].into_iter().flatten();
        let of_groups = groups
            .filter(|_| is_of_group)
            .filter_map(|group| Some((AttributeTransform::of(group)?, group)));
        let of_groups: Vec<_> = of_groups.collect();
        let fitting = of_groups.iter().find(|(found, group)| {
            found.transform.fits(group, size) && (!is_made || geo_transform::has_extent(group))
        });
        let is_unknown = all.iter().copied().any(geo_transform::is_not_affine);
        let [y, x] = [plane.rows, plane.columns].map(|axis| coordinate_variable(subject, axis));
        let is_free = y.is_none() && x.is_none() && !is_unknown;
        let by_bounds = |attributes: &Attributes| {
            let fits = is_made || geo_transform::fits_shape(attributes, size);
            let place = GeoTransform::of_bounds(attributes, size).filter(|_| fits);
            place.map(Ok)
        };
        let level = around.level.filter(|_| is_of_group);
        let own_bounds = || own_attributes(subject).chain(level).find_map(by_bounds);
        let of_base = || around.base?.place_of(size, plane);
        let other = || {
            let of_others = || all.iter().copied().find_map(by_bounds);
            own_bounds().or_else(of_base).or_else(of_others)
        };
        MapFacts {
            size,
            system: all.iter().copied().find_map(ReferenceSystem::of),
            place: place.or(fitting.map(|(found, _)| *found)),
            is_of_others: !of_groups.is_empty(),
            is_unknown,
            other: is_free.then(other).flatten(),
            y,
            x,
        }
    }

    fn is_any(&self) -> bool {
        self.system.is_some() || self.place.is_some() || self.y.is_some() && self.x.is_some()
    }

    /// Returns the geotransform that the coordinate variables give, in the unit of the reference system.
    fn of_coordinates(&self, subject: &Subject) -> Option<GeoTransform> {
        let pixels = |variable: Option<&CoordinateVariable>| match variable?.line {
            Line::Regular { first, step } => Some(Pixels::around(first, step)),
            _ => None,
        };
        let place = GeoTransform::from_pixels(pixels(self.x)?, pixels(self.y)?);
        let factor = |variable: Option<&CoordinateVariable>| {
            let quantity = variable.map(|variable| variable.meaning.quantity);
            self.factor(subject, quantity?)
        };
        let place = match (factor(self.x), factor(self.y)) {
            (None, None) => in_metres(subject, place),
            (along_x, along_y) => place.scaled(along_x.unwrap_or(1.0), along_y.unwrap_or(1.0)),
        };
        place.is_finite().then_some(place)
    }

    /// Returns the factor from the unit of a coordinate variable to the unit of the reference system; `None` if the
    /// variable's quantity is unknown.
    fn factor(&self, subject: &Subject, quantity: Quantity) -> Option<f64> {
        let degree = std::f64::consts::PI / 180.0;
        let system = self.system.as_ref();
        match (quantity, satellite_height(subject)) {
            (Quantity::Angles(unit), Some(height)) => Some(unit * height),
            (Quantity::Angles(unit), None) if unit != degree => system
                .filter(|system| system.is_geographic())
                .map(|_| unit / degree),
            (Quantity::OwnLengths(unit), _) => {
                let has_own = system.is_some_and(ReferenceSystem::is_plane);
                Some(if has_own { 1.0 } else { unit })
            }
            (Quantity::Lengths(unit), _) => {
                let is_plane = |system: &&ReferenceSystem| !system.is_geographic();
                let unit = system.filter(is_plane).map_or(1.0, |system| {
                    if system.is_in_kilometres() {
                        unit / 1000.0
                    } else {
                        unit
                    }
                });
                Some(unit)
            }
            (Quantity::Degrees | Quantity::Angles(_), _) => Some(1.0),
            (Quantity::Unknown, _) => None,
        }
    }

    /// Whether the coordinate variables are longitudes and latitudes.
    fn is_of_degrees(&self) -> bool {
        let counts = |variable: Option<&CoordinateVariable>, kind: AxisKind, most: f64| {
            variable.is_some_and(|variable| match variable.line {
                // The limits allow for pixels that extend beyond a pole.
                Line::Regular { first, .. } | Line::Single(first) => {
                    variable.meaning.kind == kind
                        && variable.meaning.quantity == Quantity::Degrees
                        && first.abs() <= most
                }
                _ => false,
            })
        };
        counts(self.y, AxisKind::Y, 90.0) && counts(self.x, AxisKind::X, 540.0)
    }

    fn into_georeference(
        mut self,
        subject: &Subject,
        plane: PlaneAxes,
        axes: MapAxes<'_>,
    ) -> Georeference {
        let mut left_out = Vec::new();
        let of_others = |name: &str| {
            format!("the georeference in {name}: the coordinate variables contradict {name}")
        };
        let is_of_degrees = self.is_of_degrees();
        let other = self.system.take_if(|own| is_of_degrees && own.is_plane());
        if let Some(other) = other {
            // The reference system is that of other maps in the group, so the group's geotransform is theirs too.
            let sentence = "the coordinates are longitudes and latitudes";
            left_out.push(format!(
                "the reference system {}: {sentence}",
                other.label()
            ));
            self.place = None;
        }
        let of_coordinates = self.of_coordinates(subject);
        let of_attributes = self
            .place
            .map(|found| (in_metres(subject, found.transform), found.attribute));
        let whole = match (of_attributes, of_coordinates) {
            (Some((own, name)), Some(measured)) if !self.are_same(&own, &measured) => {
                left_out.push(of_others(name));
                Some(measured)
            }
            (Some((own, _)), Some(_)) => Some(own),
            (Some((own, name)), None) => {
                let corrected = self.corrected(subject, own);
                if corrected.is_some_and(|corrected| corrected != own) {
                    left_out.push(of_others(name));
                }
                corrected
            }
            (None, Some(measured)) => Some(measured),
            (None, None) => {
                let other = self.other.as_ref().and_then(|other| other.as_ref().ok());
                other.map(|&place| in_metres(subject, place))
            }
        };
        let of_base = subject.around.base.and_then(|base| base.system.clone());
        self.system = self.system.or(of_base.filter(|_| whole.is_some()));
        if self.system.is_none() && whole.is_some() {
            self.system = if is_of_degrees {
                Some(ReferenceSystem::of_degrees())
            } else {
                subject.around.root.and_then(ReferenceSystem::of_product)
            };
        }
        if self.system.is_none() {
            left_out.extend(missing_system_text(subject));
        }
        let is_map = whole.is_some() || self.system.is_some();
        let place = match whole {
            Some(whole) => taken_place(subject, whole, plane),
            None => {
                match &self.other {
                    Some(Err(why)) => left_out.push(why.clone()),
                    _ => left_out.extend(self.missing_place_text(subject, axes)),
                }
                place_by_spacing(subject, axes.y, axes.x)
            }
        };
        Georeference {
            system: self.system,
            place,
            is_map,
            left_out,
        }
    }

    /// Moves the geotransform in the attributes along y and x to the positions in the coordinate variables, because
    /// programs that cut rows out of a map keep the old attributes. Returns `None` if the coordinate variables are not
    /// evenly spaced. A skewed geotransform is not moved, since coordinate variables cannot express one.
    fn corrected(&self, subject: &Subject, own: GeoTransform) -> Option<GeoTransform> {
        if own.is_skewed() {
            return Some(own);
        }
        let along = |variable: Option<&CoordinateVariable>, own: Pixels, length: u64| {
            let Some(variable) = variable else {
                return Some(own);
            };
            let factor = |value: f64| {
                let known = self.factor(subject, variable.meaning.quantity);
                let height = || satellite_height(subject).filter(|_| value.abs() < MAX_ANGLE);
                known.or_else(height).unwrap_or(1.0)
            };
            let (first, step) = match variable.line {
                Line::Regular { first, step } => (first * factor(first), step * factor(first)),
                Line::Single(value) => (value * factor(value), own.step),
                Line::Irregular => return None,
                Line::NoNumbers(_) | Line::UnknownUnit(_) => return Some(own),
            };
            let measured = Pixels::around(first, step);
            Some(if own.is_near(measured, length) {
                own
            } else {
                measured
            })
        };
        let columns = along(self.x, own.columns(), self.size.columns)?;
        let rows = along(self.y, own.rows(), self.size.rows)?;
        let place = GeoTransform::from_pixels(columns, rows);
        place.is_finite().then_some(place)
    }

    /// Whether two geotransforms agree within a quarter of a pixel. A skewed geotransform counts as equal, since
    /// coordinate variables cannot express one.
    fn are_same(&self, own: &GeoTransform, measured: &GeoTransform) -> bool {
        own.is_skewed()
            || own.columns().is_near(measured.columns(), self.size.columns)
                && own.rows().is_near(measured.rows(), self.size.rows)
    }

    /// Returns a message why the file has no geotransform, or `None` if users would not expect one.
    fn missing_place_text(&self, subject: &Subject, axes: MapAxes<'_>) -> Option<String> {
        let because = |why: &str| Some(format!("the georeference: {why}"));
        let coordinates = subject.array.attributes.get("coordinates");
        let coordinates = coordinates
            .as_ref()
            .and_then(Value::as_str)
            .unwrap_or_default();
        let names = coordinates.to_ascii_lowercase();
        for variable in [self.y, self.x].into_iter().flatten() {
            let name = &variable.name;
            match &variable.line {
                Line::Regular { .. } => {}
                Line::Irregular => {
                    return because(&format!("the values of {name} are not evenly spaced"));
                }
                Line::Single(_) => {
                    return because(&format!(
                        "{name} has only one value, so the spacing is unknown"
                    ));
                }
                Line::UnknownUnit(unit) => {
                    return because(&format!("unknown unit {unit} of {name}"));
                }
                Line::NoNumbers(why) => return because(&format!("{name} cannot be read: {why}")),
            }
        }
        if self.is_unknown {
            return because("spatial:transform_type is not affine");
        }
        if self.is_of_others {
            return because("the group has the georeference of arrays of another shape");
        }
        if names.contains("lat") && names.contains("lon") {
            return because(&format!(
                "the coordinates {coordinates} are not one-dimensional"
            ));
        }
        let missing = [(self.y, axes.y), (self.x, axes.x)];
        let missing = missing.iter().find(|(variable, _)| variable.is_none());
        match missing {
            Some((_, axis)) if self.y.is_some() != self.x.is_some() => {
                because(&match axis.name.as_deref() {
                    Some(name) => format!("the dimension {name} has no coordinate variable"),
                    None => "the other dimension has no coordinate variable".to_string(),
                })
            }
            _ if self.system.is_some() => {
                because("neither attributes nor coordinate variables give the georeference")
            }
            _ => None,
        }
    }
}

/// Returns a message that the grid mapping that an array names is missing or unknown; `None` if the array names none.
fn missing_system_text(subject: &Subject) -> Option<String> {
    let named = subject.array.attributes.get("grid_mapping")?;
    let named = named.as_str().filter(|named| !named.trim().is_empty())?;
    let abbreviated = |name: &str| name.chars().take(100).collect::<String>();
    let Some(mapping) = subject.around.mapping else {
        return Some(format!(
            "the reference system: grid_mapping names {}, which does not exist",
            abbreviated(named)
        ));
    };
    let kind = mapping.get("grid_mapping_name")?;
    let kind = abbreviated(kind.as_str()?);
    Some(format!(
        "the reference system: the grid mapping {kind:?} is unknown or incomplete"
    ))
}

/// Returns the geotransform of an exported index range, given that of the whole array. Returns `None` if the range has
/// no rows or no columns.
fn taken_place(subject: &Subject, whole: GeoTransform, plane: PlaneAxes) -> Option<GeoTransform> {
    let Some(taken) = subject.taken else {
        return Some(whole);
    };
    let place = whole.taken(taken.get(plane.columns)?, taken.get(plane.rows)?);
    place.is_finite().then_some(place)
}

/// Escapes text for XML, which forbids control characters, U+FFFE and U+FFFF.
pub(crate) fn escaped(text: &str) -> String {
    let plain: String = text.chars().filter(|letter| !letter.is_control()).collect();
    let plain = plain.replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}");
    let plain = plain
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    plain.replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_invalid_in_xml_are_dropped_or_replaced() {
        assert_eq!(escaped("a\u{fffe}\u{ffff}\u{1}<"), "a\u{fffd}\u{fffd}&lt;");
    }
}
