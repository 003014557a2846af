//! Codec `pcodec`: numbers compressed by pco, in its standalone format.
//!
//! Decoding allocates a buffer for exactly the elements of the chunk, whatever number of elements the stream claims. As
//! in numcodecs, arrays of raw bytes (`r*`) are unsupported.

use std::borrow::Cow;

use half::f16;
use pco::data_types::Number;
use pco::{ChunkConfig, DeltaSpec, ModeSpec, PagingSpec, standalone};

use crate::codec::config::Configuration;
use crate::codec::traits::{ArrayToBytes, ChainPosition, Codec, Data, Length};
use crate::error::{Error, Result};
use crate::model::DataType;

#[derive(Clone, Copy, Debug)]
struct NumberCodec {
    decode: fn(&[u8], usize) -> Result<Vec<u8>>,
    encode: fn(&[u8], &ChunkConfig) -> Result<Vec<u8>>,
}

/// Codec `pcodec` for chunks of `count` numbers.
#[derive(Debug)]
struct Pcodec {
    numbers: NumberCodec,
    count: usize,
    bytes: usize,
    chunk_config: ChunkConfig,
    pages: usize,
}

/// Builds `pcodec` from the configuration of numcodecs' `PCodec`.
pub(crate) fn build(config: Configuration<'_>, position: &ChainPosition<'_>) -> Result<Codec> {
    let repr = position.repr;
    let bytes = position.bytes()?;
    let count = bytes / repr.element_size()?.max(1);
    let page = config.unsigned("equal_pages_up_to", 1..=1 << 24)?;
    let page = page.map_or(1 << 18, |page| page as usize);
    Ok(Codec::ArrayToBytes(Box::new(Pcodec {
        numbers: numbers(&repr.data_type)?,
        count,
        bytes,
        chunk_config: chunk_config(config)?.with_paging_spec(PagingSpec::EqualPagesUpTo(page)),
        pages: count.div_ceil(page),
    })))
}

/// Builds the `NumberCodec` of a Rust number type.
macro_rules! number_codec {
    ($number:ty) => {
        NumberCodec {
            decode: |encoded, count| {
                let numbers = decode::<$number>(encoded, count)?;
                Ok(numbers
                    .into_iter()
                    .flat_map(<$number>::to_le_bytes)
                    .collect())
            },
            encode: |decoded, chunk_config| {
                let (words, _) = decoded.as_chunks();
                let numbers: Vec<$number> = words
                    .iter()
                    .map(|word| <$number>::from_le_bytes(*word))
                    .collect();
                standalone::simple_compress(&numbers, chunk_config)
                    .map_err(|error| Error::invalid("pcodec", error))
            },
        }
    };
}

/// Returns the pco functions for a data type; fails with `Unsupported` if pco has no such number type.
fn numbers(data_type: &DataType) -> Result<NumberCodec> {
    Ok(match data_type {
        DataType::Int(1) => number_codec!(i8),
        DataType::Int(2) => number_codec!(i16),
        DataType::Int(4) => number_codec!(i32),
        DataType::Int(8) => number_codec!(i64),
        DataType::UInt(1) => number_codec!(u8),
        DataType::UInt(2) => number_codec!(u16),
        DataType::UInt(4) => number_codec!(u32),
        DataType::UInt(8) => number_codec!(u64),
        DataType::Float(2) => number_codec!(f16),
        DataType::Float(4) => number_codec!(f32),
        DataType::Float(8) => number_codec!(f64),
        other => {
            let why = format!("pcodec supports integers and floats, not {other}");
            return Err(Error::unsupported("codecs", why));
        }
    })
}

/// Decodes exactly `count` numbers; fails with `Corrupt` if the stream has more or fewer.
fn decode<T: Number + Default>(encoded: &[u8], count: usize) -> Result<Vec<T>> {
    let mut numbers = vec![T::default(); count];
    let progress = standalone::simple_decompress_into(encoded, &mut numbers)
        .map_err(|error| Error::corrupt("pcodec", error))?;
    if progress.n_processed != count || !progress.finished {
        let more = if progress.finished { "" } else { " or more" };
        let found = format!(
            "expected {count} numbers, found {}{more}",
            progress.n_processed
        );
        return Err(Error::corrupt("pcodec", found));
    }
    Ok(numbers)
}

fn chunk_config(config: Configuration<'_>) -> Result<ChunkConfig> {
    let level = config.level("level", 0..=12)?.unwrap_or(8);
    let order = config.unsigned("delta_encoding_order", 0..=7)?;
    let specs = ["auto", "none", "try_consecutive", "try_lookback"];
    let delta = match (config.keyword("delta_spec", &specs)?, order) {
        (Some("none"), _) => DeltaSpec::NoOp,
        (Some("try_lookback"), _) => DeltaSpec::TryLookback,
        (Some("try_consecutive"), None) => DeltaSpec::TryConsecutive(1),
        (_, Some(order)) => DeltaSpec::TryConsecutive(order as usize),
        (_, None) => DeltaSpec::Auto,
    };
    let mode = match config.keyword("mode_spec", &["auto", "classic"])? {
        Some("classic") => ModeSpec::Classic,
        _ => ModeSpec::Auto,
    };
    config.keyword("paging_spec", &["equal_pages_up_to"])?;
    Ok(ChunkConfig::default()
        .with_compression_level(level.unsigned_abs() as usize)
        .with_delta_spec(delta)
        .with_mode_spec(mode)
        .with_enable_8_bit(true))
}

impl ArrayToBytes for Pcodec {
    fn encoded_length(&self) -> Length {
        // A page has an overhead of at most 64 bytes. In pco's standalone format each page is a separate pco chunk.
        let pages = self.pages.saturating_mul(64);
        Length::Exact(self.bytes).plus(pages).compressed()
    }

    fn is_identity(&self) -> bool {
        false
    }

    fn decode<'a>(&self, encoded: Data<'a>) -> Result<Data<'a>> {
        (self.numbers.decode)(&encoded, self.count).map(Cow::Owned)
    }

    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>> {
        (self.numbers.encode)(&decoded, &self.chunk_config).map(Cow::Owned)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::codec::tests::{assert_corrupt, assert_round_trip, pipeline, sample};

    #[test]
    fn every_number_type_round_trips() {
        for (data_type, width) in [
            ("int8", 1),
            ("uint8", 1),
            ("int16", 2),
            ("uint16", 2),
            ("float16", 2),
            ("int32", 4),
            ("uint32", 4),
            ("float32", 4),
            ("int64", 8),
            ("uint64", 8),
            ("float64", 8),
        ] {
            for count in [1, 255, 256, 3000] {
                let pipeline = pipeline(data_type, &[count], json!(["numcodecs.pcodec"])).unwrap();
                let decoded = sample(count as usize * width);
                let encoded = pipeline.encode(&decoded).unwrap();
                assert_eq!(pipeline.decode(encoded).unwrap(), decoded, "{data_type}");
            }
        }
    }

    #[test]
    fn every_configuration_round_trips() {
        for configuration in [
            json!({ "level": 0, "mode_spec": "classic", "delta_spec": "none" }),
            json!({ "level": 12, "delta_spec": "try_lookback", "delta_encoding_order": null }),
            json!({ "delta_spec": "try_consecutive", "delta_encoding_order": 3 }),
            json!({ "delta_encoding_order": 0, "equal_pages_up_to": 300 }),
        ] {
            let codec = json!({ "name": "numcodecs.pcodec", "configuration": configuration });
            let pipeline = pipeline("int32", &[1000], json!([codec])).unwrap();
            let decoded = sample(4000);
            assert_round_trip(&pipeline, &decoded);
        }
    }

    #[test]
    fn pages_of_one_number_round_trip_through_zlib() {
        let pages =
            json!({ "name": "numcodecs.pcodec", "configuration": { "equal_pages_up_to": 1 } });
        let pipeline = pipeline("int64", &[100_000], json!([pages, "numcodecs.zlib"])).unwrap();
        let decoded = sample(800_000);
        assert_round_trip(&pipeline, &decoded);
    }

    #[test]
    fn another_element_count_or_data_type_is_corrupt() {
        let of =
            |data_type, count| pipeline(data_type, &[count], json!(["numcodecs.pcodec"])).unwrap();
        let encoded = of("int32", 1000).encode(&sample(4000)).unwrap();
        for other in [
            of("int32", 999),
            of("int32", 1),
            of("int32", 1001),
            of("int32", 1 << 20),
            of("float32", 1000),
            of("int64", 500),
        ] {
            assert_corrupt(&other, encoded.clone());
        }
    }

    #[test]
    fn damaged_streams_are_decoded_or_refused() {
        let pipeline = pipeline("int32", &[1000], json!(["numcodecs.pcodec"])).unwrap();
        let encoded = pipeline.encode(&sample(4000)).unwrap();
        for place in 0..encoded.len().min(400) {
            for change in [0xff, 0x80, 1] {
                let mut damaged = encoded.clone();
                damaged[place] ^= change;
                if let Ok(decoded) = pipeline.decode(damaged) {
                    assert_eq!(decoded.len(), 4000);
                }
            }
            assert!(pipeline.decode(encoded[..place].to_vec()).is_err());
        }
    }
}
