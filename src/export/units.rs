//! Units of lengths, times and angles by the names that OME-Zarr and CF give them, in the singular and the plural.

use crate::export::axes::AxisMeaning;

/// A unit that formats have names of their own for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Metre,
    Centimetre,
    Millimetre,
    Micrometre,
    Nanometre,
    Angstrom,
    Hour,
    Minute,
    Second,
    Millisecond,
    Microsecond,
    Degree,
}

impl Unit {
    /// Returns the unit of a dimension, if it has one of these.
    pub(super) fn of(axis: &AxisMeaning) -> Option<Unit> {
        let name = axis.unit.as_deref()?;
        // Long names may be plurals; `s` and `ms` are units themselves.
        let singular = name.strip_suffix('s').filter(|name| name.len() > 3);
        Some(match singular.unwrap_or(name) {
            "m" | "meter" | "metre" => Unit::Metre,
            "cm" | "centimeter" | "centimetre" => Unit::Centimetre,
            "mm" | "millimeter" | "millimetre" => Unit::Millimetre,
            "um" | "\u{b5}m" | "\u{3bc}m" | "micrometer" | "micrometre" | "micron" => {
                Unit::Micrometre
            }
            "nm" | "nanometer" | "nanometre" => Unit::Nanometre,
            "angstrom" | "Angstrom" => Unit::Angstrom,
            "h" | "hour" => Unit::Hour,
            "min" | "minute" => Unit::Minute,
            "s" | "second" => Unit::Second,
            "ms" | "millisecond" => Unit::Millisecond,
            "us" | "\u{b5}s" | "\u{3bc}s" | "microsecond" => Unit::Microsecond,
            "degree" | "deg" => Unit::Degree,
            _ => return None,
        })
    }
}
