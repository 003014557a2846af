//! The texts (WKT 2) of the grid mappings of CF that have none in WKT 1: grids with a pole of their own, and the earth as it
//! is seen from above.

use serde_json::Value;

use crate::export::mapping_numbers::{Ellipsoid, number};
use crate::model::Attributes;

const DEGREE: &str = "ANGLEUNIT[\"degree\",0.0174532925199433]";
const METRE: &str = "LENGTHUNIT[\"metre\",1]";

/// A parameter: its name, its value and its unit.
type Parameter = (&'static str, f64, &'static str);

/// Returns the text of a grid mapping with this name; nothing for another one, or where the height of the eye is missing.
pub(super) fn system_of(named: &str, mapping: &Attributes) -> Option<String> {
    let number = |name| number(mapping, name, 0);
    let degrees = |name| number(name).unwrap_or(0.0);
    match named {
        "rotated_latitude_longitude" => Some(rotated(
            mapping,
            [
                degrees("grid_north_pole_latitude"),
                degrees("grid_north_pole_longitude"),
                degrees("north_pole_grid_longitude"),
            ],
        )),
        "geostationary" => {
            let method = format!("Geostationary Satellite (Sweep {})", swept_axis(mapping));
            let parameters = [
                (
                    "Longitude of natural origin",
                    degrees("longitude_of_projection_origin"),
                    DEGREE,
                ),
                (
                    "Satellite Height",
                    number("perspective_point_height")?,
                    METRE,
                ),
            ];
            Some(projected(mapping, &method, &parameters))
        }
        "vertical_perspective" => {
            let parameters = [
                (
                    "Latitude of topocentric origin",
                    degrees("latitude_of_projection_origin"),
                    DEGREE,
                ),
                (
                    "Longitude of topocentric origin",
                    degrees("longitude_of_projection_origin"),
                    DEGREE,
                ),
                (
                    "Viewpoint height",
                    number("perspective_point_height")?,
                    METRE,
                ),
            ];
            Some(projected(mapping, "Vertical Perspective", &parameters))
        }
        _ => None,
    }
}

/// Returns the axis along which a satellite sweeps: the one that is told, or the other of that which is fixed.
fn swept_axis(mapping: &Attributes) -> char {
    let is_x = |name| mapping.get(name).as_ref().and_then(Value::as_str) == Some("x");
    let is_y = |name| mapping.get(name).as_ref().and_then(Value::as_str) == Some("y");
    if is_x("sweep_angle_axis") || is_y("fixed_angle_axis") {
        'X'
    } else {
        'Y'
    }
}

/// Returns the text of longitudes and latitudes that the others are computed of.
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

/// Returns the text of a parameter.
fn text_of((name, value, unit): &Parameter) -> String {
    format!(",PARAMETER[\"{name}\",{value},{unit}]")
}

/// Returns the text of longitudes and latitudes around a pole of their own: where it lies, and the longitude of the other
/// pole around it.
fn rotated(mapping: &Attributes, [latitude, longitude, own]: [f64; 3]) -> String {
    let parameters = [
        (
            "Grid north pole latitude (netCDF CF convention)",
            latitude,
            DEGREE,
        ),
        (
            "Grid north pole longitude (netCDF CF convention)",
            longitude,
            DEGREE,
        ),
        (
            "North pole grid longitude (netCDF CF convention)",
            own,
            DEGREE,
        ),
    ];
    let parameters: String = parameters.iter().map(text_of).collect();
    format!(
        "GEOGCRS[\"unknown\",{},DERIVINGCONVERSION[\"unknown\",\
         METHOD[\"Pole rotation (netCDF CF convention)\"]{parameters}],CS[ellipsoidal,2],\
         AXIS[\"latitude\",north,ORDER[1],{DEGREE}],AXIS[\"longitude\",east,ORDER[2],{DEGREE}]]",
        base(mapping)
    )
}

/// Returns the text of metres on a plane.
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
