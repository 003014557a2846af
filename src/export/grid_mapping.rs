//! The reference system that the attributes of a grid mapping of CF describe without words for it: the name of a
//! projection and its parameters, as the text (WKT 1) that GDAL reads.

use std::fmt::Write;

use serde_json::Value;

use crate::export::netcdf_header::float;
use crate::model::Attributes;

/// Names of parameters in WKT, and of the attributes that have their numbers.
type Parameters = &'static [(&'static str, &'static str)];

/// Names of projections in CF and in WKT, with their parameters.
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
        "sinusoidal",
        "Sinusoidal",
        &[("longitude_of_center", "longitude_of_central_meridian")],
    ),
    (
        "lambert_cylindrical_equal_area",
        "Cylindrical_Equal_Area",
        &[
            FIRST_PARALLEL,
            ("central_meridian", "longitude_of_central_meridian"),
        ],
    ),
];

const ORIGIN_LATITUDE: &str = "latitude_of_projection_origin";
const ORIGIN_LONGITUDE: &str = "longitude_of_projection_origin";
const FIRST_PARALLEL: (&str, &str) = ("standard_parallel_1", "standard_parallel");
const SECOND_PARALLEL: (&str, &str) = ("standard_parallel_2", "standard_parallel");
const CENTRE: Parameters = &[
    ("latitude_of_center", ORIGIN_LATITUDE),
    ("longitude_of_center", ORIGIN_LONGITUDE),
];

/// Returns the text of the system that a grid mapping describes; nothing for a projection that is not known.
pub(super) fn system_of(mapping: &Attributes) -> Option<String> {
    let named = mapping.get("grid_mapping_name")?;
    let system = geographic(mapping);
    if named == "latitude_longitude" {
        return Some(system);
    }
    let (projection, parameters) = projection(named.as_str()?, mapping)?;
    let mut text = format!("PROJCS[\"unknown\",{system},PROJECTION[\"{projection}\"]");
    let eastings = [
        ("false_easting", "false_easting"),
        ("false_northing", "false_northing"),
    ];
    for (name, attribute) in parameters.into_iter().chain(eastings) {
        let value = parameter(mapping, name, attribute);
        // Writing to text does not fail.
        let _ = write!(text, ",PARAMETER[\"{name}\",{value}]");
    }
    Some(text + ",UNIT[\"metre\",1]]")
}

/// Returns the name of a projection in WKT and its parameters.
fn projection(
    named: &str,
    mapping: &Attributes,
) -> Option<(&'static str, Vec<(&'static str, &'static str)>)> {
    let has_parallel = mapping.get("standard_parallel").is_some();
    let parallel = ("latitude_of_origin", "standard_parallel");
    let scale = ("scale_factor", "scale_factor_at_projection_origin");
    match named {
        "mercator" => {
            let meridian = ("central_meridian", ORIGIN_LONGITUDE);
            Some(if has_parallel {
                ("Mercator_2SP", vec![FIRST_PARALLEL, meridian])
            } else {
                ("Mercator_1SP", vec![meridian, scale])
            })
        }
        "polar_stereographic" => {
            // The latitude is that of the parallel at its own scale, or the pole, which has another.
            let origin = ("latitude_of_origin", ORIGIN_LATITUDE);
            let meridian = (
                "central_meridian",
                if mapping
                    .get("straight_vertical_longitude_from_pole")
                    .is_some()
                {
                    "straight_vertical_longitude_from_pole"
                } else {
                    ORIGIN_LONGITUDE
                },
            );
            let latitude = if has_parallel { parallel } else { origin };
            Some(("Polar_Stereographic", vec![latitude, meridian, scale]))
        }
        named => {
            let known = PROJECTIONS.iter().find(|(known, ..)| *known == named)?;
            Some((known.1, known.2.to_vec()))
        }
    }
}

/// Returns the number of a parameter, as it is where the attribute is missing: 1 of a scale, and else 0.
fn parameter(mapping: &Attributes, name: &str, attribute: &str) -> f64 {
    let missing = if name == "scale_factor" { 1.0 } else { 0.0 };
    let second = name == SECOND_PARALLEL.0;
    number(mapping, attribute, usize::from(second)).unwrap_or(missing)
}

/// Returns a finite number of an attribute, of a list the one at a place or the last before it.
fn number(mapping: &Attributes, attribute: &str, place: usize) -> Option<f64> {
    let found = match mapping.get(attribute)? {
        Value::Array(list) => float(list.get(place).or(list.last())?),
        one => float(&one),
    };
    found.filter(|number| number.is_finite())
}

/// Returns the text of longitudes and latitudes on an ellipsoid; that of WGS 84 if none is given.
fn geographic(mapping: &Attributes) -> String {
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
    let meridian = number("longitude_of_prime_meridian").unwrap_or(0.0);
    format!(
        "GEOGCS[\"unknown\",DATUM[\"unknown\",SPHEROID[\"unknown\",{major},{flattening}]],\
         PRIMEM[\"Greenwich\",{meridian}],UNIT[\"degree\",0.0174532925199433]]"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    fn attributes(value: Value) -> Attributes {
        let members: Map<String, Value> = serde_json::from_value(value).unwrap();
        members.into()
    }

    #[test]
    fn parameters_have_the_numbers_of_their_attributes() {
        let mapping = json!({"grid_mapping_name": "lambert_conformal_conic", "standard_parallel": [30.0, 60.0],
            "latitude_of_projection_origin": 45, "longitude_of_central_meridian": -100.5, "false_easting": 7,
            "earth_radius": 6371229.0});
        let text = system_of(&attributes(mapping)).unwrap();
        let part = "PARAMETER[\"standard_parallel_1\",30],PARAMETER[\"standard_parallel_2\",60],\
                    PARAMETER[\"latitude_of_origin\",45],PARAMETER[\"central_meridian\",-100.5],\
                    PARAMETER[\"false_easting\",7],PARAMETER[\"false_northing\",0]";
        assert!(text.contains(part), "{text}");
        assert!(text.contains("SPHEROID[\"unknown\",6371229,0]"), "{text}");
        // One parallel is both.
        let mapping =
            json!({"grid_mapping_name": "lambert_conformal_conic", "standard_parallel": 40});
        let text = system_of(&attributes(mapping)).unwrap();
        assert!(text.contains("\"standard_parallel_2\",40"), "{text}");
        let unknown = json!({"grid_mapping_name": "rotated_latitude_longitude"});
        assert_eq!(system_of(&attributes(unknown)), None);
        assert_eq!(system_of(&attributes(json!({"units": "m"}))), None);
    }
}
