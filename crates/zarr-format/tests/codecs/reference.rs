//! Compares the codecs with the zarrs crate, in both directions, on random chunks.
//!
//! What one implementation encodes, the other must decode to the same bytes. Shards are read in full and by inner
//! chunk. For lossy codecs the encoded bytes must match, too. gzip with several members is not compared, since zarrs
//! 0.23.14 decodes it wrongly. `tests/python/test_numcodecs.py` compares the codecs that zarrs does not have with
//! numcodecs.

use std::num::NonZeroU64;
use std::ops::Range;

use serde_json::{Value, json};
use zarrs::array::{ArrayBytes, ArrayToBytesCodecTraits, CodecChain, CodecOptions};
use zarrs::metadata::v3::MetadataV3;

use zarr_format::codec::Pipeline;

use crate::fixture::{ROUNDS, Random, RandomChunk, TYPES, codec};

pub struct Zarrs {
    chain: CodecChain,
    shape: Vec<NonZeroU64>,
    data_type: zarrs::array::DataType,
    fill: zarrs::array::FillValue,
    options: CodecOptions,
}

impl Zarrs {
    pub fn new(chunk: &RandomChunk, codecs: &[Value]) -> Zarrs {
        let metadata: Vec<MetadataV3> = codecs
            .iter()
            .map(|codec| serde_json::from_value(codec.clone()).unwrap())
            .collect();
        let data_type: MetadataV3 = serde_json::from_value(json!(chunk.data_type)).unwrap();
        Zarrs {
            chain: CodecChain::from_metadata(&metadata).unwrap(),
            shape: chunk
                .shape
                .iter()
                .map(|&length| NonZeroU64::new(length).unwrap())
                .collect(),
            data_type: zarrs::array::DataType::from_metadata(&data_type).unwrap(),
            fill: zarrs::array::FillValue::new(chunk.fill.clone()),
            options: CodecOptions::default().with_concurrent_target(1),
        }
    }

    pub fn encode(&self, data: &[u8]) -> Vec<u8> {
        let bytes = ArrayBytes::from(data);
        self.chain
            .encode(
                bytes,
                &self.shape,
                &self.data_type,
                &self.fill,
                &self.options,
            )
            .unwrap()
            .into_owned()
    }

    pub fn decode(&self, encoded: &[u8]) -> Vec<u8> {
        let decoded = self.chain.decode(
            encoded.into(),
            &self.shape,
            &self.data_type,
            &self.fill,
            &self.options,
        );
        decoded.unwrap().into_fixed().unwrap().into_owned()
    }
}

/// Calls `visit` for each contiguous row of box `n` of shape `inner`, with the range of the row in the whole array and
/// in the box.
fn for_each_row(
    shape: &[u64],
    inner: &[u64],
    n: usize,
    element: usize,
    visit: &mut impl FnMut(Range<usize>, Range<usize>),
) {
    let mut rest = n as u64;
    let mut origin = vec![0; shape.len()];
    for d in (0..shape.len()).rev() {
        let count = shape[d] / inner[d];
        origin[d] = rest % count * inner[d];
        rest /= count;
    }
    for k in 0..inner.iter().product::<u64>() {
        let (mut rest, mut place, mut distance) = (k, 0, 1);
        for d in (0..shape.len()).rev() {
            place += (origin[d] + rest % inner[d]) * distance;
            rest /= inner[d];
            distance *= shape[d];
        }
        let (place, k) = (place as usize * element, k as usize * element);
        visit(place..place + element, k..k + element);
    }
}

/// Decodes a shard one inner chunk at a time, as a program that fetches byte ranges does.
fn open(
    pipeline: &Pipeline,
    level: usize,
    chunk: &RandomChunk,
    shape: &[u64],
    stored: &[u8],
) -> Vec<u8> {
    let Some(shard) = pipeline.shards().get(level) else {
        return pipeline.decode(stored.to_vec()).unwrap();
    };
    let start = if shard.index_at_end() {
        stored.len() - shard.index_bytes()
    } else {
        0
    };
    let index = shard
        .decode_index(
            &stored[start..start + shard.index_bytes()],
            stored.len() as u64,
        )
        .unwrap();
    let mut out = chunk.fill.repeat(shape.iter().product::<u64>() as usize);
    for n in 0..shard.count() {
        let Some(range) = index.range(n).unwrap() else {
            continue;
        };
        let inner = &stored[range.start as usize..range.end as usize];
        let inner = open(pipeline, level + 1, chunk, shard.inner_shape(), inner);
        for_each_row(
            shape,
            shard.inner_shape(),
            n,
            chunk.element,
            &mut |whole, part| {
                out[whole].copy_from_slice(&inner[part]);
            },
        );
    }
    out
}

/// Encodes a shard one inner chunk at a time.
fn close(
    pipeline: &Pipeline,
    level: usize,
    chunk: &RandomChunk,
    shape: &[u64],
    data: &[u8],
) -> Vec<u8> {
    let Some(shard) = pipeline.shards().get(level) else {
        return pipeline.encode(data).unwrap();
    };
    let length = shard.inner_shape().iter().product::<u64>() as usize * chunk.element;
    let mut stored = vec![
        0;
        if shard.index_at_end() {
            0
        } else {
            shard.index_bytes()
        }
    ];
    let mut ranges = Vec::new();
    for n in 0..shard.count() {
        let mut inner = vec![0; length];
        for_each_row(
            shape,
            shard.inner_shape(),
            n,
            chunk.element,
            &mut |whole, part| {
                inner[part].copy_from_slice(&data[whole]);
            },
        );
        let start = stored.len() as u64;
        stored.extend(close(
            pipeline,
            level + 1,
            chunk,
            shard.inner_shape(),
            &inner,
        ));
        ranges.push(Some(start..stored.len() as u64));
    }
    let index = shard.encode_index(&ranges).unwrap();
    if shard.index_at_end() {
        stored.extend(index);
    } else {
        stored[..index.len()].copy_from_slice(&index);
    }
    stored
}

/// Compares encoding and decoding with zarrs on many random chunks, with codecs from `chain`.
pub fn compare(
    seed: u64,
    least_rank: u64,
    chain: impl Fn(&RandomChunk, &mut Random) -> Vec<Value>,
) {
    compare_among(seed, least_rank, &TYPES, chain);
}

/// Compares encoding and decoding with zarrs on random chunks of the data types `types`.
pub fn compare_among(
    seed: u64,
    least_rank: u64,
    types: &[&'static str],
    chain: impl Fn(&RandomChunk, &mut Random) -> Vec<Value>,
) {
    let chunks = |random: &mut Random| RandomChunk::among(random, least_rank, types);
    for_each_chunk(seed, chunks, chain, |chunk, ours, theirs, context| {
        let stored = theirs.encode(&chunk.data);
        assert!(
            open(ours, 0, chunk, &chunk.shape, &stored) == chunk.data,
            "we decode, {context}"
        );
        let stored = close(ours, 0, chunk, &chunk.shape, &chunk.data);
        assert!(
            theirs.decode(&stored) == chunk.data,
            "zarrs decodes, {context}"
        );
    });
}

/// Calls `check` for many random chunks with the codecs from `chain`, built by zarr-format and by zarrs, and a
/// description of the chunk.
pub fn for_each_chunk(
    seed: u64,
    chunks: impl Fn(&mut Random) -> RandomChunk,
    chain: impl Fn(&RandomChunk, &mut Random) -> Vec<Value>,
    check: impl Fn(&RandomChunk, &Pipeline, &Zarrs, &str),
) {
    let mut random = Random(seed);
    for round in 0..ROUNDS {
        let chunk = chunks(&mut random);
        let codecs = chain(&chunk, &mut random);
        let context = format!(
            "round {round}: {} {:?} {}",
            chunk.data_type,
            chunk.shape,
            json!(codecs)
        );
        let (ours, theirs) = (chunk.pipeline(&codecs), Zarrs::new(&chunk, &codecs));
        check(&chunk, &ours, &theirs, &context);
    }
}

/// Checks that zarrs encodes the same numbers to the same bytes, and decodes these bytes to the same numbers.
pub fn agree(
    seed: u64,
    least_rank: u64,
    types: &[&'static str],
    chain: impl Fn(&RandomChunk, &mut Random) -> Vec<Value>,
) {
    let chunks =
        |random: &mut Random| RandomChunk::among(random, least_rank, types).with_numbers(random);
    for_each_chunk(seed, chunks, chain, |chunk, ours, theirs, context| {
        let stored = theirs.encode(&chunk.data);
        assert!(
            ours.encode(&chunk.data).unwrap() == stored,
            "encoding, {context}"
        );
        assert!(
            ours.decode(stored.clone()).unwrap() == theirs.decode(&stored),
            "decoding, {context}"
        );
    });
}

fn little() -> Value {
    codec("bytes", json!({ "endian": "little" }))
}

#[test]
fn bytes_in_both_byte_orders() {
    compare(1, 0, |chunk, random| vec![chunk.bytes(random)]);
}

#[test]
fn transpose() {
    compare(2, 1, |chunk, random| {
        vec![chunk.transpose(random), chunk.bytes(random)]
    });
}

#[test]
fn two_transposes() {
    compare(3, 1, |chunk, random| {
        vec![
            chunk.transpose(random),
            chunk.transpose(random),
            chunk.bytes(random),
        ]
    });
}

#[test]
fn zstd() {
    let zstd = |random: &mut Random| json!({ "level": random.below(12) as i64 - 3, "checksum": random.below(2) == 0 });
    compare(4, 0, |chunk, random| {
        vec![chunk.bytes(random), codec("zstd", zstd(random))]
    });
}

#[test]
fn gzip() {
    compare(5, 0, |chunk, random| {
        vec![
            chunk.bytes(random),
            codec("gzip", json!({ "level": random.below(10) })),
        ]
    });
}

#[test]
fn zlib() {
    compare(6, 0, |chunk, random| {
        vec![
            chunk.bytes(random),
            codec("numcodecs.zlib", json!({ "level": random.below(10) })),
        ]
    });
}

#[test]
fn crc32c() {
    compare(7, 0, |chunk, random| {
        vec![chunk.bytes(random), codec("crc32c", json!({}))]
    });
}

#[test]
fn blosc() {
    let compressors = ["lz4", "lz4hc", "blosclz", "zstd", "zlib"];
    compare(8, 0, |chunk, random| {
        vec![chunk.bytes(random), chunk.blosc(random, &compressors)]
    });
}

#[test]
fn blosc_with_snappy_blocks() {
    compare(9, 0, |chunk, random| {
        vec![chunk.bytes(random), chunk.blosc(random, &["snappy"])]
    });
}

#[test]
fn random_chains_of_codecs() {
    compare(10, 1, |chunk, random| {
        let mut codecs = vec![chunk.transpose(random), chunk.bytes(random)];
        (0..random.below(4)).for_each(|_| codecs.push(chunk.compressor(random)));
        codecs
    });
}

#[test]
fn shards() {
    compare(11, 1, |chunk, random| {
        vec![chunk.sharding(random, &chunk.shape, 0)]
    });
}

#[test]
fn nested_shards() {
    compare(12, 1, |chunk, random| {
        vec![chunk.sharding(random, &chunk.shape, 1)]
    });
    compare(13, 1, |chunk, random| {
        vec![chunk.sharding(random, &chunk.shape, 2)]
    });
}

#[test]
fn shards_between_other_codecs() {
    compare(14, 1, |chunk, random| {
        // Transpose a shard only if all its lengths are equal, so that the inner chunks divide it in any order of
        // dimensions.
        let same = chunk.shape.iter().all(|length| *length == chunk.shape[0]);
        let first = if same {
            chunk.transpose(random)
        } else {
            codec(
                "transpose",
                json!({ "order": Vec::from_iter(0..chunk.shape.len()) }),
            )
        };
        let depth = random.below(2) as usize;
        let mut codecs = vec![first, chunk.sharding(random, &chunk.shape, depth)];
        (0..random.below(3)).for_each(|_| codecs.push(chunk.compressor(random)));
        codecs
    });
}

/// Chunks large enough for several blosc blocks, and for many tiles of the transposition.
#[test]
fn large_chunks() {
    let mut random = Random(15);
    for round in 0..30 {
        let chunk = RandomChunk::of(&mut random, vec![20, 33, 70 + round as u64]);
        let cname = *["snappy", "blosclz", "lz4", "zlib", "zstd"]
            .get(round % 5)
            .unwrap();
        let codecs = [
            chunk.transpose(&mut random),
            chunk.bytes(&mut random),
            chunk.blosc(&mut random, &[cname]),
        ];
        let (ours, theirs) = (chunk.pipeline(&codecs), Zarrs::new(&chunk, &codecs));
        assert!(
            ours.decode(theirs.encode(&chunk.data)).unwrap() == chunk.data,
            "{}",
            json!(codecs)
        );
        assert!(
            theirs.decode(&ours.encode(&chunk.data).unwrap()) == chunk.data,
            "{}",
            json!(codecs)
        );
    }
}

#[test]
fn bz2() {
    compare(20, 0, |chunk, random| {
        let level = random.below(9) + 1;
        vec![
            chunk.bytes(random),
            codec("numcodecs.bz2", json!({ "level": level })),
        ]
    });
}

#[test]
fn adler32() {
    compare(21, 0, |chunk, random| {
        let location = random.pick(&["start", "end"]);
        vec![
            chunk.bytes(random),
            codec("numcodecs.adler32", json!({ "location": location })),
        ]
    });
}

/// Data types of even size only: zarrs 0.23.14 fails with data of odd length.
#[test]
fn fletcher32() {
    let types = [
        "int16",
        "uint32",
        "float32",
        "float64",
        "complex64",
        "complex128",
    ];
    compare_among(22, 0, &types, |chunk, random| {
        vec![
            chunk.bytes(random),
            codec("numcodecs.fletcher32", json!({})),
        ]
    });
}

#[test]
fn shuffle() {
    compare(23, 0, |chunk, random| {
        let shuffle = codec("numcodecs.shuffle", json!({ "elementsize": chunk.element }));
        vec![chunk.bytes(random), shuffle, chunk.compressor(random)]
    });
}

#[test]
fn reshape() {
    compare(24, 1, |chunk, random| {
        let rank = chunk.shape.len();
        let all: Vec<usize> = (0..rank).collect();
        let shape = match random.below(3) {
            0 => json!([-1]),
            1 => json!([all[..1], all[1..]]),
            _ => json!([1, -1, chunk.shape[rank - 1]]),
        };
        let rank = shape.as_array().map_or(0, Vec::len);
        let order: Vec<usize> = (0..rank).rev().collect();
        vec![
            codec("reshape", json!({ "shape": shape })),
            codec("transpose", json!({ "order": order })),
            chunk.bytes(random),
        ]
    });
}

/// Without `padding_encoding`, because zarrs 0.23.14 ignores it if all bits of whole bytes are stored.
#[test]
fn packbits() {
    compare_among(25, 0, &TYPES[..14], |_, _| {
        vec![codec("packbits", json!({}))]
    });
}

#[test]
fn packbits_of_bools() {
    compare_among(29, 0, &["bool"], |_, random| {
        let padding = random.pick(&["none", "first_byte", "last_byte"]);
        vec![codec("packbits", json!({ "padding_encoding": padding }))]
    });
}

/// Unsigned integers only, because zarrs 0.23.14 extends the sign just to the end of its byte.
#[test]
fn packbits_of_a_range_of_bits() {
    agree(
        26,
        0,
        &["uint8", "uint16", "uint32", "uint64"],
        |chunk, random| {
            let last = random.below(chunk.element as u64 * 8);
            let first = random.below(last + 1);
            vec![codec(
                "packbits",
                json!({ "first_bit": first, "last_bit": last }),
            )]
        },
    );
}

#[test]
fn bitround() {
    let types = [
        "float16", "float32", "float64", "uint8", "uint16", "uint32", "uint64", "int32",
    ];
    agree(27, 0, &types, |_, random| {
        let keepbits = random.below(8) + 1;
        vec![codec("bitround", json!({ "keepbits": keepbits })), little()]
    });
}

/// float64 only, because zarrs 0.23.14 calculates in the decoded type and numpy in the wider type.
#[test]
fn fixedscaleoffset() {
    agree(28, 0, &["float64"], |_, random| {
        let members = json!({
            "offset": random.below(50), "scale": *random.pick(&[1, 2, 10]),
            "dtype": "<f8", "astype": *random.pick(&["<i2", "<i4", "<f8"]),
        });
        vec![codec("numcodecs.fixedscaleoffset", members), little()]
    });
}
