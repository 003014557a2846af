//! The numbers of a grid mapping of CF: its parameters, and the ellipsoid of its longitudes and latitudes.

use serde_json::Value;

use crate::formats::netcdf_header::float;
use zarr_format::model::Attributes;

/// Returns a finite number of an attribute, of a list the one at a place or the last before it.
pub(super) fn number(mapping: &Attributes, attribute: &str, place: usize) -> Option<f64> {
    let found = match mapping.get(attribute)? {
        Value::Array(list) => float(list.get(place).or(list.last())?),
        one => float(&one),
    };
    found.filter(|number| number.is_finite())
}

/// What longitudes and latitudes lie on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ellipsoid {
    /// The longer half axis, in metres.
    pub(super) major: f64,
    /// The inverse flattening; 0 of a sphere.
    pub(super) flattening: f64,
    /// Where longitudes begin, in degrees east of Greenwich.
    pub(super) meridian: f64,
}

impl Ellipsoid {
    /// Returns the ellipsoid of a grid mapping; that of WGS 84 if none is given.
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

    /// Returns what the meridian is called: readers take one of the name of Greenwich for that.
    pub(super) fn meridian_name(&self) -> &'static str {
        if self.meridian == 0.0 {
            "Greenwich"
        } else {
            "unknown"
        }
    }
}
