//! The modes of zfp, as configurations state them.
//!
//! zfp accepts every mode that is read here: no block has more than `MAX_BITS`.

use crate::codec::config::Configuration;
use crate::error::Result;

/// Maximum number of bits in a block that a mode may request: the maximum that a stream's header can store.
pub(super) const MAX_BITS: u32 = 1 << 15;

/// The precision of encoded numbers (zfp, "Compression Modes").
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mode {
    Reversible,
    /// Bits per number; a block of `dimensions` dimensions has from 1 to `MAX_BITS`.
    Rate {
        rate: f64,
        dimensions: usize,
    },
    Precision(u32),
    /// The maximum error, finite and not negative.
    Accuracy(f64),
    /// `minbits` is at most `MAX_BITS` and at most `maxbits`, which is not 0; `maxprec` is from 1 to 64.
    Expert {
        minbits: u32,
        maxbits: u32,
        maxprec: u32,
        minexp: i32,
    },
}

/// Reads the configuration of codec `zfp` ("Configuration parameters").
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
            "fixed_precision" => Mode::Precision(unsigned(config, "precision")?),
            _ => Mode::Reversible,
        },
    )
}

/// Reads the configuration of numcodecs' `ZFPY`: modes by number, and a negative parameter for "reversible".
pub(super) fn zfpy(config: Configuration<'_>, dimensions: usize) -> Result<Mode> {
    let set = |name| {
        let number = config.get(name).map(|_| float(config, name));
        number.transpose().map(|n| n.is_some_and(|n| n >= 0.0))
    };
    Ok(match config.integer("mode", 2..=5)?.unwrap_or(4) {
        2 if set("rate")? => rate(config, dimensions)?,
        3 if set("precision")? => Mode::Precision(unsigned(config, "precision")?),
        4 if set("tolerance")? => accuracy(config)?,
        _ => Mode::Reversible,
    })
}

fn float(config: Configuration<'_>, name: &str) -> Result<f64> {
    let number = config.get(name).and_then(serde_json::Value::as_f64);
    number.ok_or_else(|| config.unexpected(name, "a number"))
}

fn unsigned(config: Configuration<'_>, name: &str) -> Result<u32> {
    let number = config.unsigned(name, 0..=u32::MAX)?;
    number.ok_or_else(|| config.unexpected(name, "an integer"))
}

fn accuracy(config: Configuration<'_>) -> Result<Mode> {
    let tolerance = float(config, "tolerance")?;
    if tolerance.is_finite() && tolerance >= 0.0 {
        Ok(Mode::Accuracy(tolerance))
    } else {
        Err(config.unexpected("tolerance", "a number of at least 0"))
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
    let (minbits, maxbits) = (unsigned(config, "minbits")?, unsigned(config, "maxbits")?);
    if maxbits == 0 || minbits > maxbits.min(MAX_BITS) {
        let expected = format!("at most maxbits ({maxbits}, not 0) and {MAX_BITS}");
        return Err(config.unexpected("minbits", expected));
    }
    let maxprec = config.unsigned("maxprec", 1..=64)?;
    let minexp = config.integer("minexp", -16495..=16495)?;
    let minexp = minexp.and_then(|minexp| i32::try_from(minexp).ok());
    Ok(Mode::Expert {
        minbits,
        maxbits,
        maxprec: maxprec.ok_or_else(|| config.unexpected("maxprec", "an integer"))?,
        minexp: minexp.ok_or_else(|| config.unexpected("minexp", "an integer"))?,
    })
}

/// Returns the number of bits of a block at `rate`, or `None` if it is not from 1 to `MAX_BITS`.
pub(super) fn rate_bits(rate: f64, dimensions: usize) -> Option<u32> {
    let values = f64::from(1_u32 << (2 * dimensions.min(4)));
    let bits = (values * rate + 0.5).floor();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number from 1 to MAX_BITS"
    )]
    (1.0..=f64::from(MAX_BITS))
        .contains(&bits)
        .then_some(bits as u32)
}
