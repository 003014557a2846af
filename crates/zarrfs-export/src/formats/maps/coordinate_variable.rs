//! Interprets a coordinate variable: its quantity, unit and spacing.

use serde_json::Value;

use crate::formats::axes::AxisKind;
use crate::formats::units::{self, Unit};
use zarr_format::model::Attributes;

/// What is known of the coordinate variable of a dimension.
#[derive(Clone, Debug, PartialEq)]
pub struct CoordinateVariable {
    /// The name of the coordinate variable.
    pub name: String,
    /// What the variable's values mean, according to its attributes or its name.
    pub meaning: CoordinateMeaning,
    /// The positions of the dimension's elements, which the values give.
    pub line: Line,
}

/// The direction and the quantity of a coordinate variable's values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoordinateMeaning {
    /// The direction: X if the values increase eastward, Y if they increase northward, and other kinds for other
    /// variables.
    pub kind: AxisKind,
    /// The quantity that the values measure, with its unit.
    pub quantity: Quantity,
}

/// What the values of a coordinate variable measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Quantity {
    /// Longitude or latitude in degrees.
    Degrees,
    /// Angles that are no longitudes or latitudes (of a rotated grid, or from a satellite to the ground). The number is
    /// the length of their unit in radians.
    Angles(f64),
    /// Distances on a plane; the number is the length of their unit in metres.
    Lengths(f64),
    /// Distances in the unit of the projected system itself, such as feet, or a multiple of a metre as rioxarray writes
    /// it. The number is the length of this unit in metres.
    OwnLengths(f64),
    /// Another quantity, or an unknown one.
    Unknown,
}

/// The positions of the elements along a dimension, as the coordinate variable gives them.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// All positions are equally spaced.
    Regular {
        /// The position of the first element.
        first: f64,
        /// The distance between neighbouring elements; not 0.
        step: f64,
    },
    /// The variable has a single value, so the spacing is unknown.
    Single(f64),
    /// The positions are not equally spaced.
    Irregular,
    /// The values of the variable are not numbers that can be read; the text has the reason.
    NoNumbers(String),
    /// The unit of the values is not known; the text is its name.
    UnknownUnit(String),
}

/// What coordinate variables with common names mean, if their attributes do not tell.
const NAMES: &[(&str, AxisKind, Quantity)] = &[
    ("lon", AxisKind::X, Quantity::Degrees),
    ("longitude", AxisKind::X, Quantity::Degrees),
    ("lat", AxisKind::Y, Quantity::Degrees),
    ("latitude", AxisKind::Y, Quantity::Degrees),
    ("x", AxisKind::X, Quantity::Unknown),
    ("y", AxisKind::Y, Quantity::Unknown),
    ("xc", AxisKind::X, Quantity::Unknown),
    ("yc", AxisKind::Y, Quantity::Unknown),
    ("rlon", AxisKind::X, Quantity::Unknown),
    ("rlat", AxisKind::Y, Quantity::Unknown),
    ("easting", AxisKind::X, Quantity::Unknown),
    ("northing", AxisKind::Y, Quantity::Unknown),
    ("projection_x_coordinate", AxisKind::X, Quantity::Unknown),
    ("projection_y_coordinate", AxisKind::Y, Quantity::Unknown),
];

/// The direction and the quantity of CF's standard names for coordinates.
const STANDARD_NAMES: &[(&str, AxisKind, Quantity)] = &[
    ("longitude", AxisKind::X, Quantity::Degrees),
    ("latitude", AxisKind::Y, Quantity::Degrees),
    ("grid_longitude", AxisKind::X, Quantity::Unknown),
    ("grid_latitude", AxisKind::Y, Quantity::Unknown),
    ("projection_x_coordinate", AxisKind::X, Quantity::Unknown),
    ("projection_y_coordinate", AxisKind::Y, Quantity::Unknown),
    (
        "projection_x_angular_coordinate",
        AxisKind::X,
        Quantity::Unknown,
    ),
    (
        "projection_y_angular_coordinate",
        AxisKind::Y,
        Quantity::Unknown,
    ),
];

const DEGREE: f64 = std::f64::consts::PI / 180.0;

/// The quantity that each known unit of coordinates measures.
const UNITS: &[(&str, Quantity)] = &[
    ("degree", Quantity::Angles(DEGREE)),
    ("degrees", Quantity::Angles(DEGREE)),
    ("deg", Quantity::Angles(DEGREE)),
    ("rad", Quantity::Angles(1.0)),
    ("radian", Quantity::Angles(1.0)),
    ("radians", Quantity::Angles(1.0)),
    ("mrad", Quantity::Angles(1e-3)),
    ("milliradian", Quantity::Angles(1e-3)),
    ("milliradians", Quantity::Angles(1e-3)),
    ("urad", Quantity::Angles(1e-6)),
    ("microradian", Quantity::Angles(1e-6)),
    ("microradians", Quantity::Angles(1e-6)),
    // The US survey foot differs slightly from the international foot.
    ("US_survey_foot", Quantity::OwnLengths(1200.0 / 3937.0)),
    ("US_survey_feet", Quantity::OwnLengths(1200.0 / 3937.0)),
    ("US survey foot", Quantity::OwnLengths(1200.0 / 3937.0)),
    ("us-ft", Quantity::OwnLengths(1200.0 / 3937.0)),
];

/// Returns the quantity that a unit measures. The unit is a name, or a number followed by a name; texts of more than 64
/// bytes are not parsed.
fn measured(units: &str) -> Option<Quantity> {
    if units.len() > 64 {
        return None;
    }
    let known = UNITS.iter().find(|known| known.0 == units);
    if let Some((_, quantity)) = known {
        return Some(*quantity);
    }
    if let Some((number, named)) = units.split_once(char::is_whitespace) {
        let number = number.parse::<f64>().ok()?;
        let is_factor = number.is_finite() && number > 0.0;
        return match measured(named.trim_start()).filter(|_| is_factor)? {
            Quantity::Angles(unit) => Some(Quantity::Angles(number * unit)),
            Quantity::Lengths(1.0) if number != 1.0 => Some(Quantity::OwnLengths(number)),
            Quantity::Lengths(unit) => Some(Quantity::Lengths(number * unit)),
            Quantity::OwnLengths(unit) => Some(Quantity::OwnLengths(number * unit)),
            other => Some(other),
        };
    }
    let unit = Unit::named(units).filter(|unit| unit.quantity == units::Quantity::Length)?;
    let length = unit.in_power_of_ten(0);
    Some(if unit.is_metric() {
        Quantity::Lengths(length)
    } else {
        Quantity::OwnLengths(length)
    })
}

/// Returns the unit of a variable, shortened for a message, if it is not a unit that coordinates of maps have.
pub(crate) fn unknown_unit(attributes: &Attributes) -> Option<String> {
    let units = attributes.get("units")?;
    let units = units.as_str()?.trim();
    // Units of time are no error here: such variables are recognized later, when their values are read.
    let is_time = units.contains(" since ");
    let is_known =
        units.is_empty() || is_time || kind_of_units(units).is_some() || measured(units).is_some();
    (!is_known).then(|| units.chars().take(40).collect())
}

impl CoordinateMeaning {
    /// Finds the meaning of a coordinate variable by its units, its standard name, its axis or its name, in this order.
    pub fn of(name: &str, attributes: &Attributes) -> CoordinateMeaning {
        let text = |name: &str| match attributes.get(name) {
            Some(Value::String(text)) => text.trim().to_string(),
            _ => String::new(),
        };
        let units = text("units");
        let measured = measured(&units);
        if let Some(kind) = kind_of_units(&units) {
            let quantity = Quantity::Degrees;
            return CoordinateMeaning { kind, quantity };
        }
        let named = |table: &[(&str, AxisKind, Quantity)], name: &str| {
            let found = table.iter().find(|known| known.0 == name);
            found.map(|known| (known.1, known.2))
        };
        let axis = match text("axis").to_ascii_uppercase().as_str() {
            "X" => Some((AxisKind::X, Quantity::Unknown)),
            "Y" => Some((AxisKind::Y, Quantity::Unknown)),
            "Z" => Some((AxisKind::Z, Quantity::Unknown)),
            "T" => Some((AxisKind::Time, Quantity::Unknown)),
            _ => None,
        };
        let by_name = named(NAMES, &name.to_ascii_lowercase());
        let standard = named(STANDARD_NAMES, &text("standard_name"));
        let found = standard.or(axis).or(by_name);
        let (kind, quantity) = found.unwrap_or((AxisKind::Other, Quantity::Unknown));
        let is_degrees = [standard, by_name]
            .into_iter()
            .flatten()
            .any(|(named, counted)| named == kind && counted == Quantity::Degrees);
        let quantity = match measured {
            // The unit `degrees` alone does not say that the values are longitudes or latitudes; the standard name or
            // the name does.
            Some(Quantity::Angles(DEGREE)) if is_degrees => Quantity::Degrees,
            Some(measured) => measured,
            None if is_degrees && units.is_empty() => Quantity::Degrees,
            None => quantity,
        };
        CoordinateMeaning { kind, quantity }
    }

    /// Whether the values are longitudes, which repeat after 360 degrees.
    pub fn is_longitude(&self) -> bool {
        self.kind == AxisKind::X && self.quantity == Quantity::Degrees
    }
}

/// Returns the direction (X or Y) of a coordinate variable, if its name alone tells it.
pub(crate) fn kind_of_name(name: &str) -> Option<AxisKind> {
    let name = name.to_ascii_lowercase();
    let known = NAMES.iter().find(|known| known.0 == name);
    known.map(|known| known.1)
}

/// Returns X for a CF unit of longitude, such as `degrees_east`, and Y for a CF unit of latitude.
fn kind_of_units(units: &str) -> Option<AxisKind> {
    let units = units.to_ascii_lowercase();
    let rest = units
        .strip_prefix("degrees")
        .or_else(|| units.strip_prefix("degree"))?;
    match rest.strip_prefix(['_', ' ']).unwrap_or(rest) {
        "east" | "e" => Some(AxisKind::X),
        "north" | "n" => Some(AxisKind::Y),
        _ => None,
    }
}

impl Line {
    /// Finds out whether the values of a coordinate variable are equally spaced. Values of 32-bit floats may be
    /// rounded, and longitudes may jump from 180 to -180.
    pub fn of(values: &[f64], is_single: bool, is_longitude: bool) -> Line {
        let turned = is_longitude.then(|| turned(values));
        let values = turned.as_deref().unwrap_or(values);
        let (first, last) = match *values {
            [] => return Line::NoNumbers("the variable has no values".to_string()),
            [value] => return Line::Single(value),
            [first, .., last] => (first, last),
        };
        let step = (last - first) / (values.len() - 1) as f64;
        if !step.is_finite() || step == 0.0 {
            return Line::Irregular;
        }
        // Values may deviate from equal spacing by 1/1000 of the spacing. Values of 32-bit floats may also deviate by
        // their rounding error, up to 1/20 of the spacing.
        let mut tolerance = 1e-3 * step.abs();
        if is_single {
            let largest = first.abs().max(last.abs());
            let rounding = largest * f64::from(f32::EPSILON);
            tolerance = tolerance.max(rounding.min(0.05 * step.abs()));
        }
        let is_regular = values.iter().enumerate().all(|(number, value)| {
            let expected = first + step * number as f64;
            // NaN values are irregular, because a comparison with NaN is false.
            (value - expected).abs() <= tolerance
        });
        if is_regular {
            Line::Regular { first, step }
        } else {
            Line::Irregular
        }
    }
}

/// Adds multiples of 360 degrees to longitudes, so that neighbours differ by at most 180 degrees.
fn turned(values: &[f64]) -> Vec<f64> {
    let mut turns = 0.0;
    let mut before = None;
    let turned = values.iter().map(|&value| {
        let difference = before.map_or(0.0, |before: f64| value - before);
        if difference > 180.0 {
            turns -= 360.0;
        } else if difference < -180.0 {
            turns += 360.0;
        }
        before = Some(value);
        value + turns
    });
    turned.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    #[test]
    fn regular_values_are_within_a_thousandth_of_a_step() {
        let line = |off: f64| {
            let mut values: Vec<f64> = (0..9)
                .map(|number| 10.0 - 0.5 * f64::from(number))
                .collect();
            values[4] += off;
            Line::of(&values, false, false)
        };
        let regular = Line::Regular {
            first: 10.0,
            step: -0.5,
        };
        assert_eq!(line(0.0), regular);
        assert_eq!(line(0.00049), regular);
        assert_eq!(line(0.00051), Line::Irregular);
        assert_eq!(line(f64::NAN), Line::Irregular);
        assert_eq!(Line::of(&[3.0], false, false), Line::Single(3.0));
        assert!(matches!(Line::of(&[], false, false), Line::NoNumbers(_)));
        assert_eq!(Line::of(&[3.0, 3.0], false, false), Line::Irregular);
        assert_eq!(Line::of(&[f64::NAN, 1.0], false, false), Line::Irregular);
    }

    #[test]
    fn values_rounded_to_32_bit_floats_are_regular() {
        // The spacing is 1/300 degree. At longitudes around 180, 32-bit floats are 1.5e-5 apart, so the rounded values
        // are not equally spaced.
        let values: Vec<f64> = (0..900)
            .map(|number| f64::from((170.0 + f64::from(number) / 300.0) as f32))
            .collect();
        assert_eq!(Line::of(&values, false, false), Line::Irregular);
        assert!(matches!(
            Line::of(&values, true, false),
            Line::Regular { .. }
        ));
    }

    #[test]
    fn longitudes_that_wrap_around_are_regular() {
        let east = Line::Regular {
            first: 170.0,
            step: 5.0,
        };
        assert_eq!(Line::of(&[170.0, 175.0, 180.0, -175.0], false, true), east);
        assert_eq!(
            Line::of(&[170.0, 175.0, 180.0, -175.0], false, false),
            Line::Irregular
        );
        let west = Line::Regular {
            first: 1.0,
            step: -2.0,
        };
        assert_eq!(Line::of(&[1.0, 359.0, 357.0], false, true), west);
    }

    #[test]
    fn units_that_no_map_has_are_reported() {
        let unknown = |units: Value| {
            let members: Map<String, Value> =
                serde_json::from_value(json!({"units": units})).unwrap();
            unknown_unit(&members.into())
        };
        for units in [
            "furlong", "s", "pixel", "0 km", "1e999 m", "2 3 4 s", "1 2", "m s-1",
        ] {
            assert_eq!(unknown(units.into()).as_deref(), Some(units));
        }
        for units in [
            "",
            " ",
            "m",
            "cm",
            "0.3048006 metre",
            "degrees_north",
            "deg",
            "2 3 m",
            "days since 2000-01-01",
        ] {
            assert_eq!(unknown(units.into()), None, "{units}");
        }
        assert_eq!(unknown(Value::Null), None);
    }

    #[test]
    fn axis_and_quantity_follow_the_name_and_attributes() {
        let meaning = |name: &str, attributes: Value| {
            let members: Map<String, Value> = serde_json::from_value(attributes).unwrap();
            let CoordinateMeaning { kind, quantity } = CoordinateMeaning::of(name, &members.into());
            (kind, quantity)
        };
        let (x, y) = (AxisKind::X, AxisKind::Y);
        let (degrees, unknown) = (Quantity::Degrees, Quantity::Unknown);
        for (name, attributes, expected) in [
            ("nav", json!({"units": "degrees_east"}), (x, degrees)),
            ("nav", json!({"units": "degreeN"}), (y, degrees)),
            ("lat", json!({}), (y, degrees)),
            ("lat", json!({"units": "degrees"}), (y, degrees)),
            ("lat", json!({"units": "m"}), (y, Quantity::Lengths(1.0))),
            ("a", json!({"standard_name": "longitude"}), (x, degrees)),
            (
                "rlon",
                json!({"standard_name": "grid_longitude", "units": "degrees"}),
                (x, Quantity::Angles(DEGREE)),
            ),
            (
                "a",
                json!({"axis": "Y", "units": "km"}),
                (y, Quantity::Lengths(1000.0)),
            ),
            ("x", json!({"units": "rad"}), (x, Quantity::Angles(1.0))),
            ("x", json!({"units": "mrad"}), (x, Quantity::Angles(1e-3))),
            (
                "x",
                json!({"units": "100  km"}),
                (x, Quantity::Lengths(1e5)),
            ),
            ("x", json!({"units": "Meters"}), (x, Quantity::Lengths(1.0))),
            (
                "x",
                json!({"units": "0.25 metre"}),
                (x, Quantity::OwnLengths(0.25)),
            ),
            (
                "x",
                json!({"units": "ft"}),
                (x, Quantity::OwnLengths(0.3048)),
            ),
            ("lon", json!({"units": "Degrees East"}), (x, degrees)),
            ("x", json!({}), (x, unknown)),
            ("row", json!({}), (AxisKind::Other, unknown)),
            ("x", json!({"axis": "T"}), (AxisKind::Time, unknown)),
        ] {
            assert_eq!(meaning(name, attributes), expected, "{name}");
        }
    }
}
