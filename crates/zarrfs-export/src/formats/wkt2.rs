//! Writes WKT 2 of CF grid mappings that WKT 1 lacks.
//!
//! These are rotated poles, and views of the earth from above.

use serde_json::Value;

use crate::formats::mapping_numbers::{Ellipsoid, number};
use zarr_format::model::Attributes;

const DEGREE: &str = "ANGLEUNIT[\"degree\",0.0174532925199433]";
const METRE: &str = "LENGTHUNIT[\"metre\",1]";

/// A parameter: its name, its value and its unit.
type Parameter = (&'static str, f64, &'static str);

/// Returns the WKT of a grid mapping with this name, or `None` if the name is another one or the height of the
/// viewpoint is missing.
pub(super) fn system_of(named: &str, mapping: &Attributes) -> Option<String> {
    match named {
        "rotated_latitude_longitude" => Some(rotated(mapping)),
        "geostationary" => satellite(mapping),
        "vertical_perspective" => perspective(mapping),
        _ => None,
    }
}

/// Returns an angle of an attribute in degrees, or 0 if it is missing.
fn degrees(mapping: &Attributes, attribute: &str) -> f64 {
    number(mapping, attribute, 0).unwrap_or(0.0)
}

/// Returns the height of the viewpoint in metres.
fn height(mapping: &Attributes) -> Option<f64> {
    number(mapping, "perspective_point_height", 0)
}

/// Returns the WKT of a geostationary satellite view.
fn satellite(mapping: &Attributes) -> Option<String> {
    let method = format!("Geostationary Satellite (Sweep {})", swept_axis(mapping));
    let longitude = degrees(mapping, "longitude_of_projection_origin");
    let parameters = [
        ("Longitude of natural origin", longitude, DEGREE),
        ("Satellite Height", height(mapping)?, METRE),
    ];
    Some(projected(mapping, &method, &parameters))
}

/// Returns the WKT of a vertical perspective.
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

/// Returns the sweep axis of a satellite: the given one, or the other one than the fixed axis.
fn swept_axis(mapping: &Attributes) -> char {
    let is_x = |name| mapping.get(name).as_ref().and_then(Value::as_str) == Some("x");
    let is_y = |name| mapping.get(name).as_ref().and_then(Value::as_str) == Some("y");
    if is_x("sweep_angle_axis") || is_y("fixed_angle_axis") {
        'X'
    } else {
        'Y'
    }
}

/// Returns the WKT of the geographic system that the projection is based on.
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

/// Returns the WKT of a parameter.
fn text_of((name, value, unit): &Parameter) -> String {
    format!(",PARAMETER[\"{name}\",{value},{unit}]")
}

/// Returns the WKT of a rotated-pole system: the place of its pole, and the longitude of the geographic pole in it.
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

/// Returns the WKT of a projected system in metres.
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
