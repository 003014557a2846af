//! The filters of codec `lzma`: LZMA, byte differences, and machine code (BCJ).
//!
//! The configuration is the one of Python's `lzma` ("Specifying custom filter chains"): each filter has an `id` and its
//! options, LZMA last. liblzma checks the whole list when an array is opened, so that no chunk fails because of its
//! configuration.

use std::ops::RangeInclusive;

use liblzma::stream::{Filters, LzmaOptions, MatchFinder, Mode, Stream};
use serde_json::Value;

use crate::codec::config::Configuration;
use crate::error::{Error, Result};
use crate::model::CodecSpec;

pub(super) const NAME: &str = "lzma";

/// The presets of liblzma, 0 to 9, with or without `PRESET_EXTREME`.
pub(super) const PRESETS: RangeInclusive<u32> = 0..=(1 << 31 | 9);

const LZMA1: i64 = 0x4000_0000_0000_0001;
const LZMA2: i64 = 0x21;
const DELTA: i64 = 3;

/// Size of the smallest dictionary in bytes.
const MIN_DICTIONARY: u32 = 4096;

/// A method that sets one option of LZMA.
type Setter = fn(&mut LzmaOptions, u32) -> &mut LzmaOptions;

/// One filter.
#[derive(Debug)]
pub(super) enum Filter {
    Lzma1(LzmaParameters),
    Lzma2(LzmaParameters),
    /// Differences to an earlier byte; the distance minus one.
    Delta(u8),
    /// Machine code of processor `id` that begins at offset `start` of the program.
    Bcj {
        id: i64,
        start: u32,
    },
}

/// The options of LZMA; missing ones have the preset's values.
#[derive(Debug, Default)]
pub(super) struct LzmaParameters {
    preset: u32,
    dictionary: Option<u32>,
    literal_context: Option<u32>,
    literal_position: Option<u32>,
    position: Option<u32>,
    fast: Option<bool>,
    nice: Option<u32>,
    finder: Option<i64>,
    depth: Option<u32>,
}

/// Reads `filters`, or converts GDAL's `delta` into a list; empty if neither is there.
pub(super) fn filters(config: Configuration<'_>, preset: u32) -> Result<Vec<Filter>> {
    let list = match config.get("filters") {
        None => return gdal_delta(config, preset),
        Some(Value::Array(list)) => list,
        Some(_) => return Err(config.unexpected("filters", "a list of filters")),
    };
    let filters: Option<Vec<Filter>> = list.iter().map(|value| Filter::read(value).ok()).collect();
    let filters = filters.filter(|filters| filters.is_empty() || is_valid_chain(filters));
    filters.ok_or_else(|| config.unexpected("filters", "a list of liblzma's filters, LZMA last"))
}

fn gdal_delta(config: Configuration<'_>, preset: u32) -> Result<Vec<Filter>> {
    let Some(delta) = delta(config, "delta")? else {
        return Ok(Vec::new());
    };
    let parameters = LzmaParameters {
        preset,
        ..LzmaParameters::default()
    };
    Ok(vec![delta, Filter::Lzma2(parameters)])
}

/// Reads the distance of a delta filter, from 1 to 256.
fn delta(config: Configuration<'_>, name: &str) -> Result<Option<Filter>> {
    let distance = config.unsigned(name, 1..=256)?;
    let less_one = distance.and_then(|distance| u8::try_from(distance - 1).ok());
    Ok(less_one.map(Filter::Delta))
}

/// Whether liblzma accepts the filter chain.
fn is_valid_chain(filters: &[Filter]) -> bool {
    let mut chain = Filters::new();
    let added = filters
        .iter()
        .all(|filter| filter.add_to(&mut chain, Some(0)).is_ok());
    added && Stream::new_raw_decoder(&chain).is_ok()
}

impl Filter {
    fn read(value: &Value) -> Result<Filter> {
        let spec = CodecSpec::new(NAME, value.clone());
        let config = Configuration::of(&spec);
        match config.integer("id", 0..=i64::MAX)? {
            Some(LZMA1) => Ok(Filter::Lzma1(LzmaParameters::read(config)?)),
            Some(LZMA2) => Ok(Filter::Lzma2(LzmaParameters::read(config)?)),
            Some(DELTA) => Ok(delta(config, "dist")?.unwrap_or(Filter::Delta(0))),
            Some(id @ 4..=11) => {
                let start = config.unsigned("start_offset", 0..=u32::MAX)?;
                let start = start.unwrap_or(0);
                Ok(Filter::Bcj { id, start })
            }
            _ => Err(config.unexpected("id", "the number of a filter")),
        }
    }

    /// Appends the filter to a chain for a decoder of at most `max` bytes, or for an encoder.
    pub(super) fn add_to(&self, chain: &mut Filters, max: Option<usize>) -> Result<()> {
        let added = match self {
            Filter::Lzma1(_) => Ok(chain.lzma1(&self.lzma_options(max)?)),
            Filter::Lzma2(_) => Ok(chain.lzma2(&self.lzma_options(max)?)),
            Filter::Delta(distance) => chain.delta_properties(&[*distance]),
            Filter::Bcj { id, start } => add_bcj(chain, *id, *start),
        };
        added
            .map(|_| ())
            .map_err(|error| Error::corrupt(NAME, error))
    }

    /// Returns the options of LZMA; `Invalid` for another filter.
    pub(super) fn lzma_options(&self, max: Option<usize>) -> Result<LzmaOptions> {
        match self {
            Filter::Lzma1(parameters) | Filter::Lzma2(parameters) => parameters.options(max),
            Filter::Delta(_) | Filter::Bcj { .. } => {
                Err(Error::invalid(NAME, "expected LZMA, found another filter"))
            }
        }
    }
}

fn add_bcj(
    chain: &mut Filters,
    id: i64,
    start: u32,
) -> std::result::Result<&mut Filters, liblzma::stream::Error> {
    let start = start.to_le_bytes();
    match id {
        4 => chain.x86_properties(&start),
        5 => chain.powerpc_properties(&start),
        6 => chain.ia64_properties(&start),
        7 => chain.arm_properties(&start),
        8 => chain.arm_thumb_properties(&start),
        9 => chain.sparc_properties(&start),
        10 => chain.arm64_properties(&start),
        _ => chain.riscv_properties(&start),
    }
}

impl LzmaParameters {
    fn read(config: Configuration<'_>) -> Result<LzmaParameters> {
        let number = |name: &str, max: u32| config.unsigned(name, 0..=max);
        let mode = config.integer("mode", 1..=2)?;
        Ok(LzmaParameters {
            preset: number("preset", *PRESETS.end())?.unwrap_or(6),
            dictionary: number("dict_size", u32::MAX)?,
            literal_context: number("lc", 4)?,
            literal_position: number("lp", 4)?,
            position: number("pb", 4)?,
            fast: mode.map(|mode| mode == 1),
            nice: number("nice_len", 273)?,
            finder: config.integer("mf", 3..=20)?,
            depth: number("depth", u32::MAX)?,
        })
    }

    fn options(&self, max: Option<usize>) -> Result<LzmaOptions> {
        let mut options = LzmaOptions::new_preset(self.preset)
            .map_err(|_| Error::corrupt(NAME, format!("no preset {}", self.preset)))?;
        let settings: [(Option<u32>, Setter); 6] = [
            (self.literal_context, LzmaOptions::literal_context_bits),
            (self.literal_position, LzmaOptions::literal_position_bits),
            (self.position, LzmaOptions::position_bits),
            (self.nice, LzmaOptions::nice_len),
            (self.depth, LzmaOptions::depth),
            (self.dictionary_for(max), LzmaOptions::dict_size),
        ];
        for (value, set) in settings {
            value.map(|value| set(&mut options, value));
        }
        if let Some(fast) = self.fast {
            options.mode(if fast { Mode::Fast } else { Mode::Normal });
        }
        if let Some(finder) = self.finder.and_then(match_finder) {
            options.match_finder(finder);
        }
        Ok(options)
    }

    /// Returns the size of the dictionary in bytes; for a decoder, at most the bytes that it can decode.
    fn dictionary_for(&self, max: Option<usize>) -> Option<u32> {
        let Some(max) = max else {
            return self.dictionary;
        };
        let max = u32::try_from(max).unwrap_or(u32::MAX);
        let dictionary = self.dictionary.unwrap_or(u32::MAX);
        Some(dictionary.min(max.max(MIN_DICTIONARY)))
    }
}

fn match_finder(number: i64) -> Option<MatchFinder> {
    match number {
        3 => Some(MatchFinder::HashChain3),
        4 => Some(MatchFinder::HashChain4),
        0x12 => Some(MatchFinder::BinaryTree2),
        0x13 => Some(MatchFinder::BinaryTree3),
        0x14 => Some(MatchFinder::BinaryTree4),
        _ => None,
    }
}
