//! Codecs `zfp` and `zfpy` against zarrs, both ways, and damaged streams of them (feature `zfp`).

use serde_json::{Value, json};

use crate::case::{Case, Dice, codec};
use crate::limit_memory;
use crate::mutate;
use crate::peer::{compare_among, for_each_case};
use crate::peer_numbers::agree;
use crate::survive;

const TYPES: [&str; 10] = [
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64",
];

/// The types that are not cast for zfp.
const OWN: [&str; 4] = ["int32", "int64", "float32", "float64"];

const TOLERANCES: [f64; 6] = [0.0, 1e-9, 0.01, 0.25, 7.0, 1e9];

fn a_rate(dice: &mut Dice) -> f64 {
    dice.below(130) as f64 / 2.0 + 1.0
}

/// Any mode with any parameters but a fixed rate; zarrs takes a tolerance of floats alone.
fn zfp(case: &Case, dice: &mut Dice) -> Value {
    let precision = dice.below(64) + 1;
    let tolerance = *dice.pick(&TOLERANCES);
    let minbits = dice.below(300);
    codec(
        "zfp",
        match dice.below(4) {
            0 => json!({ "mode": "reversible" }),
            1 => json!({ "mode": "fixed_precision", "precision": precision }),
            2 if case.data_type.starts_with("float") => {
                json!({ "mode": "fixed_accuracy", "tolerance": tolerance })
            }
            _ => json!({
                "mode": "expert", "minbits": minbits, "maxbits": minbits + 1 + dice.below(9000),
                "maxprec": precision, "minexp": dice.below(60) as i64 - 40,
            }),
        },
    )
}

/// The same as numcodecs numbers modes.
fn zfpy(case: &Case, dice: &mut Dice) -> Value {
    let precision = dice.below(64) + 1;
    let tolerance = *dice.pick(&TOLERANCES);
    codec(
        "numcodecs.zfpy",
        match dice.below(2) {
            0 if case.data_type.starts_with("float") => {
                json!({ "mode": 4, "tolerance": tolerance, "rate": -1, "precision": -1 })
            }
            _ => json!({ "mode": 3, "tolerance": -1, "rate": -1, "precision": precision }),
        },
    )
}

#[test]
fn every_mode_of_zfp() {
    agree(60, 1, &TYPES, |case, dice| vec![zfp(case, dice)]);
}

#[test]
fn every_mode_of_zfpy() {
    agree(61, 1, &OWN, |case, dice| vec![zfpy(case, dice)]);
}

/// zarrs counts three dimensions in every block, and a header says what was counted. Without one zarrs reads
/// only arrays of three dimensions by the text.
#[test]
fn fixed_rates() {
    let cases = |dice: &mut Dice| Case::among(dice, 1, &OWN).with_numbers(dice);
    let chain = |_: &Case, dice: &mut Dice| {
        let rate = a_rate(dice);
        let zfpy = json!({ "mode": 2, "tolerance": -1, "rate": rate, "precision": -1 });
        vec![match dice.below(2) {
            0 => codec("numcodecs.zfpy", zfpy),
            _ => codec("zfp", json!({ "mode": "fixed_rate", "rate": rate })),
        }]
    };
    for_each_case(64, cases, chain, |case, ours, theirs, context| {
        let stored = theirs.encode(&case.data);
        assert!(
            ours.decode(stored.clone()).unwrap() == theirs.decode(&stored),
            "{context}"
        );
        if context.contains("zfpy") || case.shape.len() == 3 {
            let stored = ours.encode(&case.data).unwrap();
            assert!(
                theirs.decode(&stored) == ours.decode(stored).unwrap(),
                "{context}"
            );
        }
    });
}

#[test]
fn reversible_streams_of_any_bits() {
    compare_among(62, 1, &OWN, |_, dice| {
        let modes = [
            codec("zfp", json!({ "mode": "reversible" })),
            codec("numcodecs.zfpy", json!({ "mode": 5 })),
        ];
        vec![dice.pick(&modes).clone()]
    });
}

#[test]
fn mutated_streams_are_decoded_or_refused() {
    limit_memory();
    let mut dice = Dice(63);
    for _ in 0..200 {
        let case = Case::among(&mut dice, 1, &OWN);
        let rate = a_rate(&mut dice);
        let chosen = match dice.below(3) {
            0 => zfp(&case, &mut dice),
            1 => zfpy(&case, &mut dice),
            _ => codec("zfp", json!({ "mode": "fixed_rate", "rate": rate })),
        };
        let pipeline = case.pipeline(&[chosen]);
        let encoded = pipeline.encode(&case.data).unwrap();
        for _ in 0..50 {
            survive(&pipeline, mutate(&mut dice, &encoded));
        }
    }
}
