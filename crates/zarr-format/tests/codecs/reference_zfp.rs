//! Compares `zfp` and `zfpy` with zarrs, and damages their streams (feature `zfp`).

use serde_json::{Value, json};

use crate::decodes_or_is_corrupt;
use crate::fixture::{Random, RandomChunk, codec};
use crate::limit_memory;
use crate::mutate;
use crate::reference::{agree, compare_among, for_each_chunk};

const TYPES: [&str; 10] = [
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64",
];

/// Data types that zfp encodes without a cast.
const OWN: [&str; 4] = ["int32", "int64", "float32", "float64"];

const TOLERANCES: [f64; 6] = [0.0, 1e-9, 0.01, 0.25, 7.0, 1e9];

fn random_rate(random: &mut Random) -> f64 {
    random.below(130) as f64 / 2.0 + 1.0
}

/// Returns codec `zfp` with any mode except a fixed rate. zarrs supports a tolerance for floats only.
fn zfp(chunk: &RandomChunk, random: &mut Random) -> Value {
    let precision = random.below(64) + 1;
    let tolerance = *random.pick(&TOLERANCES);
    let minbits = random.below(300);
    codec(
        "zfp",
        match random.below(4) {
            0 => json!({ "mode": "reversible" }),
            1 => json!({ "mode": "fixed_precision", "precision": precision }),
            2 if chunk.data_type.starts_with("float") => {
                json!({ "mode": "fixed_accuracy", "tolerance": tolerance })
            }
            _ => json!({
                "mode": "expert", "minbits": minbits, "maxbits": minbits + 1 + random.below(9000),
                "maxprec": precision, "minexp": random.below(60) as i64 - 40,
            }),
        },
    )
}

/// Returns codec `zfpy` with the mode numbers of numcodecs.
fn zfpy(chunk: &RandomChunk, random: &mut Random) -> Value {
    let precision = random.below(64) + 1;
    let tolerance = *random.pick(&TOLERANCES);
    codec(
        "numcodecs.zfpy",
        match random.below(2) {
            0 if chunk.data_type.starts_with("float") => {
                json!({ "mode": 4, "tolerance": tolerance, "rate": -1, "precision": -1 })
            }
            _ => json!({ "mode": 3, "tolerance": -1, "rate": -1, "precision": precision }),
        },
    )
}

#[test]
fn every_mode_of_zfp() {
    agree(60, 1, &TYPES, |chunk, random| vec![zfp(chunk, random)]);
}

#[test]
fn every_mode_of_zfpy() {
    agree(61, 1, &OWN, |chunk, random| vec![zfpy(chunk, random)]);
}

/// zarrs assumes three dimensions in every zfp block, but reads the right number from a header. Without a header, zarrs
/// decodes only three-dimensional arrays as specified.
#[test]
fn fixed_rates() {
    let chunks = |random: &mut Random| RandomChunk::among(random, 1, &OWN).with_numbers(random);
    let chain = |_: &RandomChunk, random: &mut Random| {
        let rate = random_rate(random);
        let zfpy = json!({ "mode": 2, "tolerance": -1, "rate": rate, "precision": -1 });
        vec![match random.below(2) {
            0 => codec("numcodecs.zfpy", zfpy),
            _ => codec("zfp", json!({ "mode": "fixed_rate", "rate": rate })),
        }]
    };
    for_each_chunk(64, chunks, chain, |chunk, ours, theirs, context| {
        let stored = theirs.encode(&chunk.data);
        assert!(
            ours.decode(stored.clone()).unwrap() == theirs.decode(&stored),
            "{context}"
        );
        if context.contains("zfpy") || chunk.shape.len() == 3 {
            let stored = ours.encode(&chunk.data).unwrap();
            assert!(
                theirs.decode(&stored) == ours.decode(stored).unwrap(),
                "{context}"
            );
        }
    });
}

#[test]
fn reversible_streams_of_random_bits() {
    compare_among(62, 1, &OWN, |_, random| {
        let modes = [
            codec("zfp", json!({ "mode": "reversible" })),
            codec("numcodecs.zfpy", json!({ "mode": 5 })),
        ];
        vec![random.pick(&modes).clone()]
    });
}

#[test]
fn mutated_streams_are_decoded_or_refused() {
    limit_memory();
    let mut random = Random(63);
    for _ in 0..200 {
        let chunk = RandomChunk::among(&mut random, 1, &OWN);
        let rate = random_rate(&mut random);
        let chosen = match random.below(3) {
            0 => zfp(&chunk, &mut random),
            1 => zfpy(&chunk, &mut random),
            _ => codec("zfp", json!({ "mode": "fixed_rate", "rate": rate })),
        };
        let pipeline = chunk.pipeline(&[chosen]);
        let encoded = pipeline.encode(&chunk.data).unwrap();
        for _ in 0..50 {
            decodes_or_is_corrupt(&pipeline, mutate(&mut random, &encoded));
        }
    }
}
