//! The filters of codec `lzma`: LZMA itself, differences of bytes, and those for machine code.
//!
//! They are listed as Python's `lzma` has them ("Specifying custom filter chains"): an `id` and its options,
//! the compressor last. The whole list is tried out when an array is opened, so that a chunk cannot fail for
//! its configuration.

use liblzma::stream::{Filters, LzmaOptions, MatchFinder, Mode, Stream};
use serde_json::Value;

use crate::codec::config::Configuration;
use crate::error::{Error, Result};
use crate::model::CodecSpec;

use super::lzma::{NAME, PRESETS};

const LZMA1: i64 = 0x4000_0000_0000_0001;
const LZMA2: i64 = 0x21;
const DELTA: i64 = 3;

/// The shortest dictionary there is.
const LEAST_DICTIONARY: u32 = 4096;

/// A method that sets one of LZMA's options.
type Setter = fn(&mut LzmaOptions, u32) -> &mut LzmaOptions;

/// One filter, as it is configured.
#[derive(Debug)]
pub(super) enum Filter {
    Lzma1(Compressor),
    Lzma2(Compressor),
    /// Differences to the byte that many before, less one.
    Delta(u8),
    /// For the machine code of `id`, whose first byte is byte `start` of the program.
    Code {
        id: i64,
        start: u32,
    },
}

/// The options of LZMA; those that are not given are the preset's.
#[derive(Debug, Default)]
pub(super) struct Compressor {
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

/// Reads `filters`, or makes the list that GDAL's `delta` stands for; empty if there is neither.
pub(super) fn filters(config: Configuration<'_>, preset: u32) -> Result<Vec<Filter>> {
    let list = match config.get("filters") {
        None => return gdal_delta(config, preset),
        Some(Value::Array(list)) => list,
        Some(_) => return Err(config.unexpected("filters", "a list of filters")),
    };
    let filters: Option<Vec<Filter>> = list.iter().map(|value| Filter::read(value).ok()).collect();
    let filters = filters.filter(|filters| filters.is_empty() || are_possible(filters));
    filters.ok_or_else(|| config.unexpected("filters", "a list of liblzma's filters, LZMA last"))
}

fn gdal_delta(config: Configuration<'_>, preset: u32) -> Result<Vec<Filter>> {
    let Some(distance) = config.integer("delta", 1..=256)? else {
        return Ok(Vec::new());
    };
    let compressor = Compressor {
        preset,
        ..Compressor::default()
    };
    let delta = Filter::Delta((distance - 1) as u8);
    Ok(vec![delta, Filter::Lzma2(compressor)])
}

/// Returns whether liblzma takes the list.
fn are_possible(filters: &[Filter]) -> bool {
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
            Some(LZMA1) => Ok(Filter::Lzma1(Compressor::read(config)?)),
            Some(LZMA2) => Ok(Filter::Lzma2(Compressor::read(config)?)),
            Some(DELTA) => {
                let distance = config.integer("dist", 1..=256)?.unwrap_or(1);
                Ok(Filter::Delta((distance - 1) as u8))
            }
            Some(id @ 4..=11) => {
                let start = config.integer("start_offset", 0..=i64::from(u32::MAX))?;
                let start = start.unwrap_or(0) as u32;
                Ok(Filter::Code { id, start })
            }
            _ => Err(config.unexpected("id", "the number of a filter")),
        }
    }

    /// Appends the filter to a chain that decodes at the most `most` bytes, or that encodes.
    pub(super) fn add_to(&self, chain: &mut Filters, most: Option<usize>) -> Result<()> {
        let added = match self {
            Filter::Lzma1(_) => Ok(chain.lzma1(&self.lzma_options(most)?)),
            Filter::Lzma2(_) => Ok(chain.lzma2(&self.lzma_options(most)?)),
            Filter::Delta(distance) => chain.delta_properties(&[*distance]),
            Filter::Code { id, start } => add_code(chain, *id, *start),
        };
        added
            .map(|_| ())
            .map_err(|error| Error::corrupt(NAME, error))
    }

    /// Returns the options of a compressor.
    pub(super) fn lzma_options(&self, most: Option<usize>) -> Result<LzmaOptions> {
        match self {
            Filter::Lzma1(compressor) | Filter::Lzma2(compressor) => compressor.options(most),
            Filter::Delta(_) | Filter::Code { .. } => {
                Err(Error::invalid(NAME, "expected LZMA, found another filter"))
            }
        }
    }
}

fn add_code(
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

impl Compressor {
    fn read(config: Configuration<'_>) -> Result<Compressor> {
        let number = |name: &str, most: i64| -> Result<Option<u32>> {
            Ok(config.integer(name, 0..=most)?.map(|number| number as u32))
        };
        let mode = config.integer("mode", 1..=2)?;
        Ok(Compressor {
            preset: number("preset", *PRESETS.end())?.unwrap_or(6),
            dictionary: number("dict_size", i64::from(u32::MAX))?,
            literal_context: number("lc", 4)?,
            literal_position: number("lp", 4)?,
            position: number("pb", 4)?,
            fast: mode.map(|mode| mode == 1),
            nice: number("nice_len", 273)?,
            finder: config.integer("mf", 3..=20)?,
            depth: number("depth", i64::from(u32::MAX))?,
        })
    }

    fn options(&self, most: Option<usize>) -> Result<LzmaOptions> {
        let mut options = LzmaOptions::new_preset(self.preset)
            .map_err(|_| Error::corrupt(NAME, format!("no preset {}", self.preset)))?;
        let settings: [(Option<u32>, Setter); 6] = [
            (self.literal_context, LzmaOptions::literal_context_bits),
            (self.literal_position, LzmaOptions::literal_position_bits),
            (self.position, LzmaOptions::position_bits),
            (self.nice, LzmaOptions::nice_len),
            (self.depth, LzmaOptions::depth),
            (self.dictionary_for(most), LzmaOptions::dict_size),
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

    /// Returns the length of the dictionary: no more of it than a decoder can ever fill.
    fn dictionary_for(&self, most: Option<usize>) -> Option<u32> {
        let Some(most) = most else {
            return self.dictionary;
        };
        let most = u32::try_from(most)
            .unwrap_or(u32::MAX)
            .max(LEAST_DICTIONARY);
        Some(self.dictionary.unwrap_or(u32::MAX).min(most))
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
