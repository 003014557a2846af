//! Units of lengths, times and angles by the names that OME-Zarr, CF and people give them.

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
        Some(match axis.unit.as_deref()? {
            "m" | "meter" | "meters" | "metre" | "metres" => Unit::Metre,
            "cm" | "centimeter" | "centimetre" => Unit::Centimetre,
            "mm" | "millimeter" | "millimetre" => Unit::Millimetre,
            "um" | "micrometer" | "micrometre" | "micron" => Unit::Micrometre,
            "nm" | "nanometer" | "nanometre" => Unit::Nanometre,
            "angstrom" | "Angstrom" => Unit::Angstrom,
            "h" | "hour" | "hours" => Unit::Hour,
            "min" | "minute" | "minutes" => Unit::Minute,
            "s" | "second" | "seconds" => Unit::Second,
            "ms" | "millisecond" | "milliseconds" => Unit::Millisecond,
            "us" | "microsecond" | "microseconds" => Unit::Microsecond,
            "degree" | "degrees" | "deg" => Unit::Degree,
            _ => return None,
        })
    }
}
