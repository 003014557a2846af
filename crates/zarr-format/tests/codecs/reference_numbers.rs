//! Compares codecs of numcodecs and of the v3 extensions with zarrs.
//!
//! For lossless codecs the decoded bytes must match, for lossy ones the encoded bytes, too. Codecs that zarrs does not
//! have are compared with numcodecs in `tests/python/test_numcodecs.py`.

use serde_json::{Value, json};

use crate::fixture::{Random, RandomChunk, TYPES, codec};
use crate::reference::{compare, compare_among, for_each_chunk};

/// Checks that both implementations encode the same numbers to the same bytes, and decode these bytes to the same
/// numbers.
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

/// Even lengths only: zarrs 0.23.14 fails with odd ones.
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

/// Without `padding_encoding`, which zarrs 0.23.14 ignores when all bits of whole bytes are stored.
#[test]
fn packbits() {
    compare_among(25, 0, &TYPES[..14], |_, _| {
        vec![codec("packbits", json!({}))]
    });
}

#[test]
fn packbits_of_truth() {
    compare_among(29, 0, &["bool"], |_, random| {
        let padding = random.pick(&["none", "first_byte", "last_byte"]);
        vec![codec("packbits", json!({ "padding_encoding": padding }))]
    });
}

/// Unsigned numbers only: zarrs 0.23.14 extends the sign just to the end of its byte.
#[test]
fn packbits_of_some_bits() {
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

/// float64 only: zarrs 0.23.14 calculates in the decoded type, numpy in the wider type.
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
