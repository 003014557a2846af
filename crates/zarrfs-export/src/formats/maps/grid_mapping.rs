//! Writes the WKT of a CF grid mapping: a projection with parameters.
//!
//! The result is WKT 1. Projections that WKT 1 does not have become WKT 2: rotated poles, and views of the earth from
//! above. GDAL reads both versions.

use std::fmt::Write;

use serde_json::Value;

use crate::formats::netcdf::header::float;
use zarr_format::model::Attributes;

/// The parameters of a projection: the WKT name of each, and the CF attribute with its value.
type Parameters = &'static [(&'static str, &'static str)];

/// The projections: the CF name, the WKT name and the parameters of each.
const PROJECTIONS: &[(&str, &str, Parameters)] = &[
    (
        "transverse_mercator",
        "Transverse_Mercator",
        &[
            ("latitude_of_origin", ORIGIN_LATITUDE),
            ("central_meridian", "longitude_of_central_meridian"),
            ("scale_factor", "scale_factor_at_central_meridian"),
        ],
    ),
    (
        "lambert_conformal_conic",
        "Lambert_Conformal_Conic_2SP",
        &[
            FIRST_PARALLEL,
            SECOND_PARALLEL,
            ("latitude_of_origin", ORIGIN_LATITUDE),
            ("central_meridian", "longitude_of_central_meridian"),
        ],
    ),
    (
        "albers_conical_equal_area",
        "Albers_Conic_Equal_Area",
        &[
            FIRST_PARALLEL,
            SECOND_PARALLEL,
            ("latitude_of_center", ORIGIN_LATITUDE),
            ("longitude_of_center", "longitude_of_central_meridian"),
        ],
    ),
    (
        "lambert_azimuthal_equal_area",
        "Lambert_Azimuthal_Equal_Area",
        CENTRE,
    ),
    ("azimuthal_equidistant", "Azimuthal_Equidistant", CENTRE),
    (
        "orthographic",
        "Orthographic",
        &[
            ("latitude_of_origin", ORIGIN_LATITUDE),
            ("central_meridian", ORIGIN_LONGITUDE),
        ],
    ),
    (
        "stereographic",
        "Stereographic",
        &[
            ("latitude_of_origin", ORIGIN_LATITUDE),
            ("central_meridian", ORIGIN_LONGITUDE),
            ("scale_factor", "scale_factor_at_projection_origin"),
        ],
    ),
    (
        "lambert_cylindrical_equal_area",
        "Cylindrical_Equal_Area",
        &[
            FIRST_PARALLEL,
            ("central_meridian", "longitude_of_central_meridian"),
        ],
    ),
    (
        "oblique_mercator",
        "Hotine_Oblique_Mercator_Azimuth_Center",
        &[
            ("latitude_of_center", ORIGIN_LATITUDE),
            ("longitude_of_center", ORIGIN_LONGITUDE),
            ("azimuth", "azimuth_of_central_line"),
            // WKT also needs the angle from the skewed to the rectified grid. CF has no attribute for the angle, which
            // equals the azimuth of the central line.
            ("rectified_grid_angle", "rectified_grid_angle"),
            ("scale_factor", "scale_factor_at_projection_origin"),
        ],
    ),
];

const ORIGIN_LATITUDE: &str = "latitude_of_projection_origin";
const ORIGIN_LONGITUDE: &str = "longitude_of_projection_origin";
const ORIGIN_SCALE: (&str, &str) = ("scale_factor", "scale_factor_at_projection_origin");
const FIRST_PARALLEL: (&str, &str) = ("standard_parallel_1", "standard_parallel");
const SECOND_PARALLEL: (&str, &str) = ("standard_parallel_2", "standard_parallel");
const CENTRE: Parameters = &[
    ("latitude_of_center", ORIGIN_LATITUDE),
    ("longitude_of_center", ORIGIN_LONGITUDE),
];

/// Returns the height in metres of the satellite whose view a grid mapping describes, or `None` for another kind of
/// grid mapping.
pub(crate) fn satellite_height(mapping: &Attributes) -> Option<f64> {
    let height = number(mapping, "perspective_point_height", 0);
    height.filter(|_| {
        mapping
            .get("grid_mapping_name")
            .is_some_and(|name| name == "geostationary")
    })
}

/// Returns the WKT of a grid mapping, or `None` if its projection is unknown.
pub(crate) fn system_of(mapping: &Attributes) -> Option<String> {
    let named = mapping.get("grid_mapping_name")?;
    let system = geographic(mapping);
    if named == "latitude_longitude" {
        return Some(system);
    }
    let named = named.as_str()?;
    if let Some(text) = wkt2_of(named, mapping) {
        return Some(text);
    }
    let (projection, parameters) = projection(named, mapping)?;
    let mut text = format!("PROJCS[\"unknown\",{system},PROJECTION[\"{projection}\"]");
    let eastings = [
        ("false_easting", "false_easting"),
        ("false_northing", "false_northing"),
    ];
    for (name, attribute) in parameters.into_iter().chain(eastings) {
        let value = parameter(mapping, name, attribute);
        // A write to a string cannot fail, so the result is ignored.
        let _ = write!(text, ",PARAMETER[\"{name}\",{value}]");
    }
    Some(text + ",UNIT[\"metre\",1]]")
}

/// Returns the WKT name of a CF projection, and the parameters that the grid mapping gives it.
fn projection(
    named: &str,
    mapping: &Attributes,
) -> Option<(&'static str, Vec<(&'static str, &'static str)>)> {
    let has_parallel = mapping.get("standard_parallel").is_some();
    match named {
        "mercator" => {
            let meridian = ("central_meridian", ORIGIN_LONGITUDE);
            Some(if has_parallel {
                ("Mercator_2SP", vec![FIRST_PARALLEL, meridian])
            } else {
                ("Mercator_1SP", vec![meridian, ORIGIN_SCALE])
            })
        }
        // The first versions of CF did not have the sinusoidal projection, so programs chose other attributes for it.
        "sinusoidal" => {
            let has_origin = mapping.get(ORIGIN_LONGITUDE).is_some();
            let other = "longitude_of_central_meridian";
            let meridian = if has_origin { ORIGIN_LONGITUDE } else { other };
            Some(("Sinusoidal", vec![("longitude_of_center", meridian)]))
        }
        // WKT needs a standard parallel, but the grid mapping has a scale at the equator instead. The parallel with
        // this scale depends on the ellipsoid, so it is not computed.
        "lambert_cylindrical_equal_area" if !has_parallel && has_scale(mapping) => None,
        "polar_stereographic" => Some(polar(mapping)),
        named => {
            let known = PROJECTIONS.iter().find(|(known, ..)| *known == named)?;
            Some((known.1, known.2.to_vec()))
        }
    }
}

/// Returns the WKT name and the parameters of a polar projection. It is defined by the standard parallel if the grid
/// mapping has one, or else by a scale factor at the pole.
fn polar(mapping: &Attributes) -> (&'static str, Vec<(&'static str, &'static str)>) {
    let has = |name| mapping.get(name).is_some();
    let straight = "straight_vertical_longitude_from_pole";
    let parallel = "standard_parallel";
    let meridian = if has(straight) {
        straight
    } else {
        ORIGIN_LONGITUDE
    };
    let latitude = if has(parallel) {
        parallel
    } else {
        ORIGIN_LATITUDE
    };
    let parameters = vec![
        ("latitude_of_origin", latitude),
        ("central_meridian", meridian),
        ORIGIN_SCALE,
    ];
    ("Polar_Stereographic", parameters)
}

/// Whether a grid mapping has a scale factor other than 1 at its origin.
fn has_scale(mapping: &Attributes) -> bool {
    number(mapping, "scale_factor_at_projection_origin", 0).is_some_and(|scale| scale != 1.0)
}

/// Returns the value of a projection's parameter. If the attribute is missing, a scale is 1 and any other parameter is
/// 0.
fn parameter(mapping: &Attributes, name: &str, attribute: &str) -> f64 {
    let missing = if name == "scale_factor" { 1.0 } else { 0.0 };
    let second = name == SECOND_PARALLEL.0;
    number(mapping, attribute, usize::from(second)).unwrap_or(missing)
}

/// Returns the WKT of the geographic system on the ellipsoid of a grid mapping.
fn geographic(mapping: &Attributes) -> String {
    let ellipsoid = Ellipsoid::of(mapping);
    let named = ellipsoid.meridian_name();
    let Ellipsoid {
        major,
        flattening,
        meridian,
    } = ellipsoid;
    format!(
        "GEOGCS[\"unknown\",DATUM[\"unknown\",SPHEROID[\"unknown\",{major},{flattening}]],\
         PRIMEM[\"{named}\",{meridian}],UNIT[\"degree\",0.0174532925199433]]"
    )
}

const DEGREE: &str = "ANGLEUNIT[\"degree\",0.0174532925199433]";
const METRE: &str = "LENGTHUNIT[\"metre\",1]";

/// A parameter of a WKT projection: its name, its value and its unit.
type Parameter = (&'static str, f64, &'static str);

/// Returns the WKT 2 of the grid mapping with the name `named`; `None` if WKT 1 can express it, or if the height of the
/// viewpoint is missing.
fn wkt2_of(named: &str, mapping: &Attributes) -> Option<String> {
    match named {
        "rotated_latitude_longitude" => Some(rotated(mapping)),
        "geostationary" => satellite(mapping),
        "vertical_perspective" => perspective(mapping),
        _ => None,
    }
}

/// Returns an angle of the grid mapping in degrees, or 0 if its attribute is missing.
fn degrees(mapping: &Attributes, attribute: &str) -> f64 {
    number(mapping, attribute, 0).unwrap_or(0.0)
}

fn height(mapping: &Attributes) -> Option<f64> {
    number(mapping, "perspective_point_height", 0)
}

/// Returns the WKT of a geostationary satellite's view of the earth; `None` if the height is missing.
fn satellite(mapping: &Attributes) -> Option<String> {
    let method = format!("Geostationary Satellite (Sweep {})", swept_axis(mapping));
    let longitude = degrees(mapping, "longitude_of_projection_origin");
    let parameters = [
        ("Longitude of natural origin", longitude, DEGREE),
        ("Satellite Height", height(mapping)?, METRE),
    ];
    Some(projected(mapping, &method, &parameters))
}

/// Returns the WKT of the projection vertical perspective; `None` if the height is missing.
fn perspective(mapping: &Attributes) -> Option<String> {
    let latitude = degrees(mapping, "latitude_of_projection_origin");
    let longitude = degrees(mapping, "longitude_of_projection_origin");
    let parameters = [
        ("Latitude of topocentric origin", latitude, DEGREE),
        ("Longitude of topocentric origin", longitude, DEGREE),
        ("Viewpoint height", height(mapping)?, METRE),
    ];
    Some(projected(mapping, "Vertical Perspective", &parameters))
}

/// Returns the axis along which a satellite's scanner sweeps. If the grid mapping names only the fixed axis, this is
/// the other axis.
fn swept_axis(mapping: &Attributes) -> char {
    let is_x = |name| mapping.get(name).as_ref().and_then(Value::as_str) == Some("x");
    let is_y = |name| mapping.get(name).as_ref().and_then(Value::as_str) == Some("y");
    if is_x("sweep_angle_axis") || is_y("fixed_angle_axis") {
        'X'
    } else {
        'Y'
    }
}

/// Returns the WKT of the geographic system on which a projection is based.
fn base(mapping: &Attributes) -> String {
    let ellipsoid = Ellipsoid::of(mapping);
    let named = ellipsoid.meridian_name();
    let Ellipsoid {
        major,
        flattening,
        meridian,
    } = ellipsoid;
    format!(
        "BASEGEOGCRS[\"unknown\",DATUM[\"unknown\",ELLIPSOID[\"unknown\",{major},{flattening},{METRE}]],\
         PRIMEM[\"{named}\",{meridian},{DEGREE}]]"
    )
}

fn text_of((name, value, unit): &Parameter) -> String {
    format!(",PARAMETER[\"{name}\",{value},{unit}]")
}

/// Returns the WKT of a system with a rotated pole: the position of the pole, and the longitude of the geographic pole
/// in the rotated system.
fn rotated(mapping: &Attributes) -> String {
    let parameters = [
        (
            "Grid north pole latitude (netCDF CF convention)",
            "grid_north_pole_latitude",
        ),
        (
            "Grid north pole longitude (netCDF CF convention)",
            "grid_north_pole_longitude",
        ),
        (
            "North pole grid longitude (netCDF CF convention)",
            "north_pole_grid_longitude",
        ),
    ];
    let parameters = parameters.map(|(name, of)| (name, degrees(mapping, of), DEGREE));
    let parameters: String = parameters.iter().map(text_of).collect();
    format!(
        "GEOGCRS[\"unknown\",{},DERIVINGCONVERSION[\"unknown\",\
         METHOD[\"Pole rotation (netCDF CF convention)\"]{parameters}],CS[ellipsoidal,2],\
         AXIS[\"latitude\",north,ORDER[1],{DEGREE}],AXIS[\"longitude\",east,ORDER[2],{DEGREE}]]",
        base(mapping)
    )
}

/// Returns the WKT of a projected system whose unit is the metre.
fn projected(mapping: &Attributes, method: &str, parameters: &[Parameter]) -> String {
    let shift = |name| number(mapping, name, 0).unwrap_or(0.0);
    let shifts = [
        ("False easting", shift("false_easting"), METRE),
        ("False northing", shift("false_northing"), METRE),
    ];
    let parameters: String = parameters.iter().chain(&shifts).map(text_of).collect();
    format!(
        "PROJCRS[\"unknown\",{},CONVERSION[\"unknown\",METHOD[\"{method}\"]{parameters}],CS[Cartesian,2],\
         AXIS[\"easting\",east,ORDER[1],{METRE}],AXIS[\"northing\",north,ORDER[2],{METRE}]]",
        base(mapping)
    )
}

/// Returns a finite number in an attribute. If the attribute is a list, returns the item at index `place`, or the last
/// item of a shorter list.
pub(crate) fn number(mapping: &Attributes, attribute: &str, place: usize) -> Option<f64> {
    let found = match mapping.get(attribute)? {
        Value::Array(list) => float(list.get(place).or(list.last())?),
        one => float(&one),
    };
    found.filter(|number| number.is_finite())
}

/// The ellipsoid and the prime meridian of a geographic system.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ellipsoid {
    /// The semi-major axis of the ellipsoid in metres.
    pub(crate) major: f64,
    /// The inverse flattening of the ellipsoid. By the convention of WKT, 0 means a sphere.
    pub(crate) flattening: f64,
    /// The prime meridian, in degrees east of Greenwich.
    pub(crate) meridian: f64,
}

impl Ellipsoid {
    /// Returns the ellipsoid of a grid mapping, or that of WGS 84 if the grid mapping has none.
    pub(crate) fn of(mapping: &Attributes) -> Ellipsoid {
        let number = |name| number(mapping, name, 0);
        let major = number("semi_major_axis").or_else(|| number("earth_radius"));
        let of_minor = |minor: f64| {
            let major = major?;
            Some(if minor == major {
                0.0
            } else {
                major / (major - minor)
            })
        };
        let flattening = number("inverse_flattening")
            .or_else(|| number("semi_minor_axis").and_then(of_minor))
            .filter(|flattening| flattening.is_finite());
        let (major, flattening) = match (major, flattening) {
            (None, _) => (6_378_137.0, 298.257_223_563),
            (Some(major), flattening) => (major, flattening.unwrap_or(0.0)),
        };
        Ellipsoid {
            major,
            flattening,
            meridian: number("longitude_of_prime_meridian").unwrap_or(0.0),
        }
    }

    /// Returns a name for the prime meridian. Only longitude 0 is named Greenwich, because readers ignore the longitude
    /// of a meridian with this name.
    pub(crate) fn meridian_name(&self) -> &'static str {
        if self.meridian == 0.0 {
            "Greenwich"
        } else {
            "unknown"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, Value, json};

    fn attributes(value: Value) -> Attributes {
        let members: Map<String, Value> = serde_json::from_value(value).unwrap();
        members.into()
    }

    #[test]
    fn projection_parameters_come_from_the_attributes() {
        let mapping = json!({"grid_mapping_name": "lambert_conformal_conic", "standard_parallel": [30.0, 60.0],
            "latitude_of_projection_origin": 45, "longitude_of_central_meridian": -100.5, "false_easting": 7,
            "earth_radius": 6371229.0});
        let text = system_of(&attributes(mapping)).unwrap();
        let part = "PARAMETER[\"standard_parallel_1\",30],PARAMETER[\"standard_parallel_2\",60],\
                    PARAMETER[\"latitude_of_origin\",45],PARAMETER[\"central_meridian\",-100.5],\
                    PARAMETER[\"false_easting\",7],PARAMETER[\"false_northing\",0]";
        assert!(text.contains(part), "{text}");
        assert!(text.contains("SPHEROID[\"unknown\",6371229,0]"), "{text}");
        // A single standard parallel in CF is both the first and the second standard parallel.
        let mapping =
            json!({"grid_mapping_name": "lambert_conformal_conic", "standard_parallel": 40});
        let text = system_of(&attributes(mapping)).unwrap();
        assert!(text.contains("\"standard_parallel_2\",40"), "{text}");
        let unknown = json!({"grid_mapping_name": "healpix"});
        assert_eq!(system_of(&attributes(unknown)), None);
        assert_eq!(system_of(&attributes(json!({"units": "m"}))), None);
    }
}
