//! Codec `numcodecs.lzma` (which sci-rs calls `xz`): xz, `.lzma` and raw streams.
//!
//! Streams of xz and `.lzma` state their filters; a raw stream is decoded with the filters of the configuration
//! (`Filter`). Several streams make up one chunk, and bytes after the last stream are ignored (`decode_all`). The size
//! of the dictionary that a stream requests is limited, and liblzma reports failed allocations.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use liblzma::stream::{
    Action, Check, Filters, LzmaOptions, MatchFinder, Mode, Status, Stream, Stream as Coder,
};
use serde_json::Value;

use crate::codec::config::Configuration;
use crate::codec::traits::{BytesToBytes, ChainPosition, Codec, Data, Length};
use crate::error::{Error, Result};
use crate::model::CodecSpec;

use super::{StreamDecoder, decode_all, memory_length};

/// Presets of liblzma: 0 to 9, with or without the flag `PRESET_EXTREME`.
const PRESETS: RangeInclusive<u32> = 0..=(1 << 31 | 9);

/// Container of the compressed bytes (`FORMAT_XZ` and so on in Python's `lzma`).
#[derive(Clone, Copy, Debug, PartialEq)]
enum Container {
    Xz,
    Alone,
    Raw,
}

/// Parameters for encoding with LZMA. The `filters` are also needed to decode raw streams.
#[derive(Debug)]
struct Lzma {
    container: Container,
    check: Check,
    preset: u32,
    filters: Vec<Filter>,
}

/// Builds `numcodecs.lzma` from the numbers of Python's `lzma`, or from GDAL's `delta`, the distance of a delta filter.
pub(crate) fn build(config: Configuration<'_>, _: &ChainPosition<'_>) -> Result<Codec> {
    let container = match config.integer("format", 0..=3)? {
        // 0 is Python's `FORMAT_AUTO`, which exists only for decoding; streams are then encoded as xz.
        None | Some(0 | 1) => Container::Xz,
        Some(2) => Container::Alone,
        Some(_) => Container::Raw,
    };
    let preset = config.unsigned("preset", PRESETS)?.unwrap_or(6);
    let filters = filters(config, preset)?;
    if container == Container::Raw && filters.is_empty() {
        return Err(config.unexpected("filters", "a list of filters for a raw stream"));
    }
    Ok(Codec::BytesToBytes(Box::new(Lzma {
        container,
        check: check(config)?,
        preset,
        filters,
    })))
}

/// Reads the parameter `check`, the type of checksum in an xz stream; liblzma's default is CRC-64.
fn check(config: Configuration<'_>) -> Result<Check> {
    match config.integer("check", -1..=16)? {
        Some(0) => Ok(Check::None),
        Some(1) => Ok(Check::Crc32),
        None | Some(-1 | 4) => Ok(Check::Crc64),
        Some(10) => Ok(Check::Sha256),
        Some(_) => Err(config.unexpected("check", "-1, 0, 1, 4 or 10")),
    }
}

impl Lzma {
    /// Opens a decoder of a stream that decodes to at most `max` bytes.
    fn decoder(&self, container: Container, max: usize) -> Result<Coder> {
        // Memory limit of the decoder in bytes: about four times as much as a stream of any preset needs.
        let memory = (256 << 20).max((max as u64).saturating_mul(2));
        let coder = match container {
            Container::Xz => Coder::new_stream_decoder(memory, 0),
            Container::Alone => Coder::new_lzma_decoder(memory),
            Container::Raw => Coder::new_raw_decoder(&self.liblzma_filters(Some(max))?),
        };
        coder.map_err(|error| Error::corrupt("lzma", error))
    }

    fn encoder(&self) -> Result<Coder> {
        let coder = match self.container {
            Container::Xz if self.filters.is_empty() => {
                Coder::new_easy_encoder(self.preset, self.check)
            }
            Container::Xz => Coder::new_stream_encoder(&self.liblzma_filters(None)?, self.check),
            Container::Alone => Coder::new_lzma_encoder(&self.lzma1_options()?),
            Container::Raw => Coder::new_raw_encoder(&self.liblzma_filters(None)?),
        };
        coder.map_err(|error| Error::invalid("lzma", error))
    }

    /// Returns the configured filters as liblzma takes them. For a decoder, `max` is the upper bound of the decoded
    /// bytes; for an encoder it is `None`.
    fn liblzma_filters(&self, max: Option<usize>) -> Result<Filters> {
        let mut chain = Filters::new();
        for filter in &self.filters {
            filter.add_to(&mut chain, max)?;
        }
        Ok(chain)
    }

    /// Returns the options of LZMA1, the only filter that a `.lzma` stream can have.
    fn lzma1_options(&self) -> Result<LzmaOptions> {
        match self.filters.as_slice() {
            [filter] => filter.lzma_options(None),
            _ => {
                LzmaOptions::new_preset(self.preset).map_err(|error| Error::invalid("lzma", error))
            }
        }
    }

    /// Returns the container of a stream from its first bytes, since `.lzma` is accepted where the configuration states
    /// xz.
    fn container_of(&self, encoded: &[u8]) -> Container {
        match self.container {
            Container::Xz if !encoded.starts_with(&[0xfd, b'7', b'z', b'X', b'Z', 0]) => {
                Container::Alone
            }
            container => container,
        }
    }
}

impl StreamDecoder for Coder {
    fn advance(&mut self, input: &[u8], output: &mut Vec<u8>) -> Result<(usize, bool)> {
        let before = self.total_in();
        let status = self
            .process_vec(input, output, Action::Run)
            .map_err(|error| Error::corrupt("lzma", error))?;
        let used = memory_length(self.total_in() - before);
        Ok((used, matches!(status, Status::StreamEnd)))
    }
}

impl BytesToBytes for Lzma {
    fn encoded_length(&self, decoded: Length) -> Length {
        decoded.compressed()
    }

    fn decode<'a>(&self, encoded: Data<'a>, want: Length) -> Result<Data<'a>> {
        let max = want.upper_bound();
        let container = self.container_of(&encoded);
        let open = || self.decoder(container, max);
        decode_all("lzma", &encoded, max, open).map(Cow::Owned)
    }

    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>> {
        let mut coder = self.encoder()?;
        let mut out = Vec::with_capacity(decoded.len() / 2 + 1024);
        loop {
            let used = memory_length(coder.total_in());
            let input = decoded.get(used..).unwrap_or_default();
            let status = coder
                .process_vec(input, &mut out, Action::Finish)
                .map_err(|error| Error::invalid("lzma", error))?;
            if matches!(status, Status::StreamEnd) {
                return Ok(Cow::Owned(out));
            }
            out.reserve(decoded.len() / 2 + 1024);
        }
    }
}

type Setter = fn(&mut LzmaOptions, u32) -> &mut LzmaOptions;

/// A filter of a raw or xz stream, as Python's `lzma` configures it ("Specifying custom filter chains"). liblzma checks
/// all filters when an array is opened, so invalid filters are an error of the array, not of every chunk.
#[derive(Debug)]
enum Filter {
    Lzma1(LzmaParameters),
    Lzma2(LzmaParameters),
    /// Delta filter, which stores the difference of each byte to an earlier byte. The number is the distance between
    /// the two bytes, minus one.
    Delta(u8),
    /// Branch filter for machine code of processor `id` that begins at offset `start` of the program.
    Bcj {
        id: i64,
        start: u32,
    },
}

/// Options of LZMA1 or LZMA2; options that are `None` have the values of the preset.
#[derive(Debug, Default)]
struct LzmaParameters {
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

/// Reads the filter chain from `filters`, or from GDAL's `delta`. It is empty if the configuration has neither.
fn filters(config: Configuration<'_>, preset: u32) -> Result<Vec<Filter>> {
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

fn is_valid_chain(filters: &[Filter]) -> bool {
    let mut chain = Filters::new();
    let added = filters
        .iter()
        .all(|filter| filter.add_to(&mut chain, Some(0)).is_ok());
    added && Stream::new_raw_decoder(&chain).is_ok()
}

impl Filter {
    fn read(value: &Value) -> Result<Filter> {
        let spec = CodecSpec::new("lzma", value.clone());
        let config = Configuration::of(&spec);
        match config.integer("id", 0..=i64::MAX)? {
            // The numbers of LZMA1 and LZMA2 in liblzma.
            Some(0x4000_0000_0000_0001) => Ok(Filter::Lzma1(LzmaParameters::read(config)?)),
            Some(0x21) => Ok(Filter::Lzma2(LzmaParameters::read(config)?)),
            Some(3) => Ok(delta(config, "dist")?.unwrap_or(Filter::Delta(0))),
            Some(id @ 4..=11) => {
                let start = config.unsigned("start_offset", 0..=u32::MAX)?;
                let start = start.unwrap_or(0);
                Ok(Filter::Bcj { id, start })
            }
            _ => Err(config.unexpected("id", "the number of a filter")),
        }
    }

    /// Appends the filter to a filter chain of liblzma. For a decoder, `max` is the upper bound of the decoded bytes;
    /// for an encoder it is `None`.
    fn add_to(&self, chain: &mut Filters, max: Option<usize>) -> Result<()> {
        let added = match self {
            Filter::Lzma1(_) => Ok(chain.lzma1(&self.lzma_options(max)?)),
            Filter::Lzma2(_) => Ok(chain.lzma2(&self.lzma_options(max)?)),
            Filter::Delta(distance) => chain.delta_properties(&[*distance]),
            Filter::Bcj { id, start } => add_bcj(chain, *id, *start),
        };
        added
            .map(|_| ())
            .map_err(|error| Error::corrupt("lzma", error))
    }

    /// Returns the options of an LZMA1 or LZMA2 filter; fails with `Invalid` for any other filter.
    fn lzma_options(&self, max: Option<usize>) -> Result<LzmaOptions> {
        match self {
            Filter::Lzma1(parameters) | Filter::Lzma2(parameters) => parameters.options(max),
            Filter::Delta(_) | Filter::Bcj { .. } => Err(Error::invalid(
                "lzma",
                "the last filter must be LZMA1 or LZMA2",
            )),
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
            .map_err(|_| Error::corrupt("lzma", format!("unknown preset {}", self.preset)))?;
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

    /// Returns the size of the LZMA dictionary in bytes. A decoder needs no larger dictionary than the bytes that it
    /// can decode.
    fn dictionary_for(&self, max: Option<usize>) -> Option<u32> {
        let Some(max) = max else {
            return self.dictionary;
        };
        let max = u32::try_from(max).unwrap_or(u32::MAX);
        let dictionary = self.dictionary.unwrap_or(u32::MAX);
        // liblzma refuses dictionaries below 4096 bytes.
        Some(dictionary.min(max.max(4096)))
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

#[cfg(test)]
pub(in crate::codec::compress) mod tests {
    use serde_json::{Value, json};

    use crate::codec::Pipeline;
    use crate::codec::tests::{assert_corrupt, pipeline, sample};
    use crate::error::Result;

    fn lzma(length: u64, configuration: Value) -> Result<Pipeline> {
        let codec = json!({ "name": "numcodecs.lzma", "configuration": configuration });
        pipeline("uint8", &[length], json!(["bytes", codec]))
    }

    pub(in crate::codec::compress) fn configurations() -> Vec<Value> {
        let delta = json!({ "id": 3, "dist": 4 });
        let lzma1 =
            json!({ "id": 0x4000_0000_0000_0001_u64, "preset": 1, "lc": 0, "lp": 2, "pb": 0 });
        let lzma2 =
            json!({ "id": 33, "dict_size": 8192, "mode": 1, "nice_len": 32, "mf": 4, "depth": 9 });
        let x86 = json!({ "id": 4, "start_offset": 0 });
        vec![
            json!({}),
            json!({ "format": 1, "check": 0, "preset": 0, "filters": null }),
            json!({ "format": 1, "check": 10, "filters": [delta, lzma2] }),
            json!({ "format": 1, "preset": 1, "delta": 2 }),
            json!({ "format": 2, "preset": 1 }),
            json!({ "format": 2, "filters": [lzma1] }),
            json!({ "format": 3, "filters": [{ "id": 33, "preset": 1 }] }),
            json!({ "format": 3, "filters": [delta, lzma2] }),
            json!({ "format": 3, "filters": [x86, delta, lzma2] }),
            json!({ "format": 3, "filters": [lzma1] }),
        ]
    }

    #[test]
    fn all_formats_and_filters_round_trip() {
        let data = sample(100_000);
        for configuration in configurations() {
            let pipeline = lzma(100_000, configuration.clone()).unwrap();
            let encoded = pipeline.encode(&data).unwrap();
            assert!(encoded.len() < 60_000, "{configuration}");
            assert!(pipeline.decode(encoded).unwrap() == data, "{configuration}");
        }
    }

    #[test]
    fn concatenated_streams_are_one_chunk_and_junk_is_ignored() {
        let data = sample(3000);
        for configuration in configurations() {
            let one = lzma(1000, configuration.clone()).unwrap();
            let all = lzma(3000, configuration.clone()).unwrap();
            let streams = data.chunks(1000).map(|part| one.encode(part).unwrap());
            let mut streams = streams.collect::<Vec<_>>().concat();
            assert_eq!(
                all.decode(streams.clone()).unwrap(),
                data,
                "{configuration}"
            );
            assert_corrupt(&one, streams.clone());
            streams.extend_from_slice(&[0xff; 7]);
            assert_eq!(all.decode(streams).unwrap(), data, "{configuration}");
        }
    }

    #[test]
    fn a_dictionary_of_gigabytes_is_refused() {
        let pipeline = lzma(1000, json!({ "format": 2 })).unwrap();
        let mut encoded = pipeline.encode(&sample(1000)).unwrap();
        encoded[1..5].copy_from_slice(&0xf000_0000_u32.to_le_bytes());
        assert_corrupt(&pipeline, encoded);
    }
}
