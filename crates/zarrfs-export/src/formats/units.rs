//! Units of length, time and angle by their UDUNITS-2 names and their symbols.

use crate::formats::axes::AxisMeaning;

/// What a unit measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantity {
    Length,
    Time,
    Angle,
}

/// A unit of length, time or angle: `factor * 10^exponent` metres, seconds or degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Unit {
    pub(super) quantity: Quantity,
    factor: f64,
    exponent: i32,
    /// The symbol of the unit; OME's symbol for lengths and times.
    pub(super) symbol: &'static str,
}

/// A metric prefix: its name, its power of ten, and the symbols of the metre and the second with the prefix.
type Prefix = (&'static str, i32, &'static str, &'static str);

const PREFIXES: [Prefix; 21] = [
    ("", 0, "m", "s"),
    ("yotta", 24, "Ym", "Ys"),
    ("zetta", 21, "Zm", "Zs"),
    ("exa", 18, "Em", "Es"),
    ("peta", 15, "Pm", "Ps"),
    ("tera", 12, "Tm", "Ts"),
    ("giga", 9, "Gm", "Gs"),
    ("mega", 6, "Mm", "Ms"),
    ("kilo", 3, "km", "ks"),
    ("hecto", 2, "hm", "hs"),
    ("deca", 1, "dam", "das"),
    ("deci", -1, "dm", "ds"),
    ("centi", -2, "cm", "cs"),
    ("milli", -3, "mm", "ms"),
    ("micro", -6, "\u{b5}m", "\u{b5}s"),
    ("nano", -9, "nm", "ns"),
    ("pico", -12, "pm", "ps"),
    ("femto", -15, "fm", "fs"),
    ("atto", -18, "am", "as"),
    ("zepto", -21, "zm", "zs"),
    ("yocto", -24, "ym", "ys"),
];

/// Units that are not a metre or a second with a metric prefix: the names of each, and the unit.
const OTHERS: [(&[&str], Unit); 10] = [
    (
        &["angstrom", "\u{e5}ngstr\u{f6}m"],
        length(1.0, -10, "\u{c5}"),
    ),
    (&["inch", "inche", "in"], length(2.54, -2, "in")),
    (&["foot", "feet", "ft"], length(3.048, -1, "ft")),
    (&["yard", "yd"], length(9.144, -1, "yd")),
    (&["mile", "mi"], length(1.609_344, 3, "mi")),
    (&["parsec", "pc"], length(3.085_677_581_491_367_3, 16, "pc")),
    (&["minute", "min"], time(6.0, 1, "min")),
    (&["hour", "hr", "h"], time(3.6, 3, "h")),
    (&["day", "d"], time(8.64, 4, "d")),
    (
        &["degree", "deg"],
        Unit {
            quantity: Quantity::Angle,
            factor: 1.0,
            exponent: 0,
            symbol: "deg",
        },
    ),
];

const fn length(factor: f64, exponent: i32, symbol: &'static str) -> Unit {
    Unit {
        quantity: Quantity::Length,
        factor,
        exponent,
        symbol,
    }
}

const fn time(factor: f64, exponent: i32, symbol: &'static str) -> Unit {
    Unit {
        quantity: Quantity::Time,
        factor,
        exponent,
        symbol,
    }
}

impl Unit {
    /// Returns the unit of a dimension, or `None` if the dimension has none or an unknown one.
    pub(super) fn of(axis: &AxisMeaning) -> Option<Unit> {
        Unit::named(axis.unit.as_deref()?)
    }

    /// Returns the unit with a UDUNITS name or a symbol, or `None` if it is unknown.
    pub(super) fn named(name: &str) -> Option<Unit> {
        let name = name.trim();
        Unit::of_symbol(name).or_else(|| {
            let lower = name.to_lowercase();
            // Only long names may be plurals: `s` and `ms` are units themselves.
            let singular = lower.strip_suffix('s').filter(|_| lower.len() > 3);
            Unit::of_name(singular.unwrap_or(&lower))
        })
    }

    fn of_symbol(symbol: &str) -> Option<Unit> {
        // Unicode has two characters for micro and two for angstrom, and ASCII texts have `u` for micro.
        let symbol = match symbol {
            "um" | "\u{3bc}m" => "\u{b5}m",
            "us" | "\u{3bc}s" => "\u{b5}s",
            "\u{212b}" => "\u{c5}",
            other => other,
        };
        let mut others = OTHERS.iter().map(|(_, unit)| *unit);
        let other = others.find(|unit| unit.symbol == symbol);
        other.or_else(|| {
            PREFIXES.iter().find_map(|&(_, exponent, metre, second)| {
                let is_time = symbol == second;
                (is_time || symbol == metre).then(|| {
                    if is_time {
                        time(1.0, exponent, second)
                    } else {
                        length(1.0, exponent, metre)
                    }
                })
            })
        })
    }

    fn of_name(name: &str) -> Option<Unit> {
        if name == "micron" {
            return Unit::of_symbol("\u{b5}m");
        }
        let mut others = OTHERS.iter();
        if let Some((_, unit)) = others.find(|(names, _)| names.contains(&name)) {
            return Some(*unit);
        }
        PREFIXES
            .iter()
            .find_map(
                |&(prefix, exponent, metre, second)| match name.strip_prefix(prefix)? {
                    "meter" | "metre" => Some(length(1.0, exponent, metre)),
                    "second" | "sec" => Some(time(1.0, exponent, second)),
                    _ => None,
                },
            )
    }

    /// Whether the unit is a power of ten of metres, seconds or degrees.
    pub(super) fn is_metric(self) -> bool {
        self.factor == 1.0
    }

    /// Returns the factor from the unit to 10^`exponent` metres, seconds or degrees.
    pub(super) fn in_power_of_ten(self, exponent: i32) -> f64 {
        // Division by a power of ten is exact, but multiplication by its inverse is not.
        match self.exponent - exponent {
            power @ 0.. => self.factor * 10_f64.powi(power),
            power => self.factor / 10_f64.powi(-power),
        }
    }
}

/// Returns the message that a file omits the units of some dimensions. `supported` says which units the format
/// supports.
pub(super) fn left_out<'a>(
    axes: impl Iterator<Item = &'a AxisMeaning>,
    supported: &str,
) -> Option<String> {
    let units = axes.filter_map(|axis| {
        let unit = axis.unit.as_ref().filter(|unit| !unit.is_empty())?;
        Some(match &axis.name {
            Some(name) => format!("{unit} of {name}"),
            None => unit.to_string(),
        })
    });
    let units: Vec<String> = units.collect();
    (!units.is_empty()).then(|| format!("units {}: {supported}", units.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_of_ome_zarr_is_known() {
        let lengths = "angstrom attometer centimeter decimeter exameter femtometer foot gigameter hectometer inch \
            kilometer megameter meter micrometer mile millimeter nanometer parsec petameter picometer terameter yard \
            yoctometer yottameter zeptometer zettameter";
        let times = "attosecond centisecond day decisecond exasecond femtosecond gigasecond hectosecond hour \
            kilosecond megasecond microsecond millisecond minute nanosecond petasecond picosecond second terasecond \
            yoctosecond yottasecond zeptosecond zettasecond";
        for (names, quantity) in [(lengths, Quantity::Length), (times, Quantity::Time)] {
            for name in names.split_whitespace() {
                let unit = Unit::named(name).unwrap();
                assert_eq!(unit.quantity, quantity, "{name}");
                assert_eq!(Unit::named(unit.symbol), Some(unit), "{name}");
                assert_eq!(Unit::named(&format!("{name}s")), Some(unit), "{name}");
            }
        }
    }

    #[test]
    fn units_are_converted_to_powers_of_ten() {
        let cases = [
            ("nm", -6, 1e-3),
            ("\u{3bc}m", -6, 1.0),
            ("micron", -3, 1e-3),
            ("cm", -3, 10.0),
            ("inches", -3, 25.4),
            ("feet", 0, 0.3048),
            ("Angstrom", -10, 1.0),
            ("mm", -10, 1e7),
            ("min", 0, 60.0),
            ("hours", 0, 3600.0),
            ("day", 0, 86_400.0),
            ("ms", -6, 1000.0),
        ];
        for (name, exponent, expected) in cases {
            let found = Unit::named(name).unwrap().in_power_of_ten(exponent);
            assert!((found / expected - 1.0).abs() < 1e-15, "{name}: {found}");
        }
        assert_eq!(Unit::named("degrees").unwrap().quantity, Quantity::Angle);
        for name in ["", "K", "m s-1", "pixel", "micro", "xm"] {
            assert_eq!(Unit::named(name), None, "{name}");
        }
    }
}
