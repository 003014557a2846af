//! Reads the numbers of a CF grid mapping: its parameters and its ellipsoid.

use serde_json::Value;

use crate::formats::netcdf_header::float;
use zarr_format::model::Attributes;

/// Returns a finite number of an attribute; if it is a list, the element at `place`, or else the last one.
pub(super) fn number(mapping: &Attributes, attribute: &str, place: usize) -> Option<f64> {
    let found = match mapping.get(attribute)? {
        Value::Array(list) => float(list.get(place).or(list.last())?),
        one => float(&one),
    };
    found.filter(|number| number.is_finite())
}

/// The ellipsoid of a geographic system.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ellipsoid {
    /// The semi-major axis in metres.
    pub(super) major: f64,
    /// The inverse flattening; 0 for a sphere.
    pub(super) flattening: f64,
    /// The prime meridian, in degrees east of Greenwich.
    pub(super) meridian: f64,
}

impl Ellipsoid {
    /// Returns the ellipsoid of a grid mapping; WGS 84 if it has none.
    pub(super) fn of(mapping: &Attributes) -> Ellipsoid {
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

    /// Returns the name of the prime meridian. Readers treat any meridian named Greenwich as Greenwich.
    pub(super) fn meridian_name(&self) -> &'static str {
        if self.meridian == 0.0 {
            "Greenwich"
        } else {
            "unknown"
        }
    }
}
