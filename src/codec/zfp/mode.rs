//! How much zfp keeps of a number, as configurations say it.
//!
//! Every mode that is made here is one that the library takes: no block has more than `MAX_BITS`.

use crate::codec::config::Configuration;
use crate::error::Result;

/// The most bits of a block that a mode may ask for: what the header of a stream can say.
pub(super) const MAX_BITS: u32 = 1 << 15;

/// How much is kept of a number (zfp, "Compression Modes").
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mode {
    Reversible,
    /// Bits a number; a block of so many dimensions has from 1 to `MAX_BITS`.
    Rate {
        rate: f64,
        dimensions: usize,
    },
    Precision(u32),
    /// The largest difference, finite and not negative.
    Accuracy(f64),
    /// `minbits` is at most `MAX_BITS` and at most `maxbits`, which is not 0; `maxprec` is from 1 to 64.
    Expert {
        minbits: u32,
        maxbits: u32,
        maxprec: u32,
        minexp: i32,
    },
}

/// Reads the configuration (codec `zfp`, "Configuration parameters") for chunks of so many dimensions.
pub(super) fn zfp(config: Configuration<'_>, dimensions: usize) -> Result<Mode> {
    let modes = [
        "reversible",
        "expert",
        "fixed_accuracy",
        "fixed_rate",
        "fixed_precision",
    ];
    let word = config.keyword("mode", &modes)?;
    Ok(
        match word.ok_or_else(|| config.unexpected("mode", "a mode"))? {
            "expert" => expert(config)?,
            "fixed_accuracy" => accuracy(config)?,
            "fixed_rate" => rate(config, dimensions)?,
            "fixed_precision" => Mode::Precision(natural(config, "precision")?),
            _ => Mode::Reversible,
        },
    )
}

/// Reads the configuration (numcodecs, `ZFPY`): modes by number, and a negative parameter for "reversible".
pub(super) fn zfpy(config: Configuration<'_>, dimensions: usize) -> Result<Mode> {
    let set = |name| {
        let number = config.get(name).map(|_| float(config, name));
        number.transpose().map(|n| n.is_some_and(|n| n >= 0.0))
    };
    Ok(match config.integer("mode", 2..=5)?.unwrap_or(4) {
        2 if set("rate")? => rate(config, dimensions)?,
        3 if set("precision")? => Mode::Precision(natural(config, "precision")?),
        4 if set("tolerance")? => accuracy(config)?,
        _ => Mode::Reversible,
    })
}

fn float(config: Configuration<'_>, name: &str) -> Result<f64> {
    let number = config.get(name).and_then(serde_json::Value::as_f64);
    number.ok_or_else(|| config.unexpected(name, "a number"))
}

fn natural(config: Configuration<'_>, name: &str) -> Result<u32> {
    let number = config.integer(name, 0..=i64::from(u32::MAX))?;
    let number = number.and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| config.unexpected(name, "an integer"))
}

fn accuracy(config: Configuration<'_>) -> Result<Mode> {
    let tolerance = float(config, "tolerance")?;
    match tolerance.is_finite() && tolerance >= 0.0 {
        true => Ok(Mode::Accuracy(tolerance)),
        false => Err(config.unexpected("tolerance", "a number not below 0")),
    }
}

fn rate(config: Configuration<'_>, dimensions: usize) -> Result<Mode> {
    let rate = float(config, "rate")?;
    let expected = || format!("a rate of 1 to {MAX_BITS} bits a block");
    let bits = rate_bits(rate, dimensions);
    bits.ok_or_else(|| config.unexpected("rate", expected()))?;
    Ok(Mode::Rate { rate, dimensions })
}

fn expert(config: Configuration<'_>) -> Result<Mode> {
    let (minbits, maxbits) = (natural(config, "minbits")?, natural(config, "maxbits")?);
    if maxbits == 0 || minbits > maxbits.min(MAX_BITS) {
        let expected = format!("at most maxbits ({maxbits}, not 0) and {MAX_BITS}");
        return Err(config.unexpected("minbits", expected));
    }
    let maxprec = config.integer("maxprec", 1..=64)?;
    let minexp = config.integer("minexp", -16495..=16495)?;
    Ok(Mode::Expert {
        minbits,
        maxbits,
        maxprec: maxprec.ok_or_else(|| config.unexpected("maxprec", "an integer"))? as u32,
        minexp: minexp.ok_or_else(|| config.unexpected("minexp", "an integer"))? as i32,
    })
}

/// Returns the bits of a block at `rate`; nothing if that is not from 1 to `MAX_BITS`.
pub(super) fn rate_bits(rate: f64, dimensions: usize) -> Option<u32> {
    let values = f64::from(1_u32 << (2 * dimensions.min(4)));
    let bits = (values * rate + 0.5).floor();
    (1.0..=f64::from(MAX_BITS))
        .contains(&bits)
        .then_some(bits as u32)
}
