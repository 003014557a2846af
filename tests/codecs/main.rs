//! The codecs against another implementation (the zarrs crate), and against input made to break them.
//!
//! Here is the hostile input; `codecs/peer.rs` and `codecs/peer_numbers.rs` compare. The address space is
//! limited for the whole process, so a codec that allocates by what a frame claims aborts the test.

// clippy.toml lets #[test] functions unwrap, not what they call.
#![allow(clippy::unwrap_used, unreachable_pub)]

mod case;
mod peer;
mod peer_numbers;
#[cfg(feature = "zfp")]
mod peer_zfp;
mod speed;

use std::time::Instant;

use serde_json::{Value, json};

use zarrfs::codec::Pipeline;
use zarrfs::error::Kind;

use case::{Case, Dice, codec};

/// Limits the address space of this process; the largest chunk of these tests is far below.
fn limit_memory() {
    use rustix::process::{Resource, Rlimit};
    let limit = Rlimit {
        current: Some(3 << 30),
        maximum: Some(3 << 30),
    };
    rustix::process::setrlimit(Resource::As, limit).unwrap();
}

/// Decodes what may be anything: right length or `Corrupt`, nothing else.
fn survive(pipeline: &Pipeline, encoded: Vec<u8>) -> bool {
    match pipeline.decode(encoded) {
        Ok(decoded) => {
            assert_eq!(decoded.len(), pipeline.chunk_bytes());
            true
        }
        Err(error) => {
            assert_eq!(error.kind(), Kind::Corrupt, "{error}");
            false
        }
    }
}

fn mutate(dice: &mut Dice, encoded: &[u8]) -> Vec<u8> {
    let mut out = encoded.to_vec();
    let place = |dice: &mut Dice, end: usize| dice.below(end.max(1) as u64) as usize;
    match dice.below(6) {
        0 => out.truncate(place(dice, encoded.len())),
        1 => out.extend((0..=dice.below(20)).map(|_| dice.next() as u8)),
        2 => (0..4).for_each(|_| {
            if let Some(byte) = out.get_mut(place(dice, 32)) {
                *byte = dice.next() as u8
            }
        }),
        3 => {
            let at = place(dice, encoded.len());
            let wild = dice
                .pick(&[u64::MAX, u64::MAX - 8, 1 << 40, i32::MAX as u64, 1 << 31, 0])
                .to_le_bytes();
            out.iter_mut()
                .skip(at)
                .zip(wild)
                .for_each(|(byte, wild)| *byte = wild);
        }
        _ => {
            let at = place(dice, encoded.len());
            out.iter_mut()
                .skip(at)
                .take(1)
                .for_each(|byte| *byte ^= 1 << dice.below(8));
        }
    }
    out
}

#[test]
fn mutated_chunks_are_decoded_or_refused() {
    limit_memory();
    let mut dice = Dice(16);
    for _ in 0..800 {
        let case = Case::new(&mut dice, 1);
        let mut codecs = vec![codec(
            "transpose",
            json!({ "order": Vec::from_iter(0..case.shape.len()) }),
        )];
        match dice.below(5) {
            0 => codecs.push(case.sharding(&mut dice, &case.shape, 0)),
            3 => codecs.extend([case.bytes(&mut dice), case.unshared(&mut dice)]),
            4 => codecs.extend([
                case.bytes(&mut dice),
                case.unshared(&mut dice),
                case.unshared(&mut dice),
            ]),
            1 => codecs.extend([case.bytes(&mut dice), case.compressor(&mut dice)]),
            _ => codecs.extend([
                case.bytes(&mut dice),
                case.compressor(&mut dice),
                case.compressor(&mut dice),
            ]),
        }
        let pipeline = case.pipeline(&codecs);
        let encoded = pipeline.encode(&case.data).unwrap();
        for _ in 0..50 {
            survive(&pipeline, mutate(&mut dice, &encoded));
        }
        assert!(!survive(&pipeline, Vec::new()), "{}", json!(codecs));
    }
}

/// Numbers that were never encoded: every decode gives its bytes or is refused, whatever is calculated.
#[test]
fn calculations_take_any_bytes() {
    limit_memory();
    let mut dice = Dice(17);
    let mut built = 0;
    for _ in 0..2000 {
        let case = Case::new(&mut dice, 1).with_numbers(&mut dice);
        let little = codec("bytes", json!({ "endian": "little" }));
        let mut codecs: Vec<Value> = (0..=dice.below(2))
            .map(|_| case.calculation(&mut dice))
            .collect();
        codecs.push(little);
        // Many of these make no sense together, and have to be refused at once.
        let Ok(pipeline) = case.try_pipeline(&codecs) else {
            continue;
        };
        built += 1;
        let Ok(encoded) = pipeline.encode(&case.data) else {
            continue;
        };
        if !pipeline.is_lossy() {
            assert!(
                pipeline.decode(encoded.clone()).unwrap() == case.data,
                "{}",
                json!(codecs)
            );
        }
        for _ in 0..20 {
            survive(&pipeline, mutate(&mut dice, &encoded));
        }
    }
    assert!(built > 500, "{built}");
}

#[test]
fn mutated_blocks_of_n5_are_decoded_or_refused() {
    limit_memory();
    let mut dice = Dice(18);
    for _ in 0..200 {
        let case = Case::new(&mut dice, 1);
        let order: Vec<usize> = (0..case.shape.len()).rev().collect();
        let mut codecs = vec![
            codec("transpose", json!({ "order": order })),
            codec("bytes", json!({ "endian": "big" })),
        ];
        codecs.extend((dice.below(2) == 0).then(|| case.compressor(&mut dice)));
        let pipeline = case.pipeline(&[codec("n5_default", json!({ "codecs": codecs }))]);
        let encoded = pipeline.encode(&case.data).unwrap();
        assert!(pipeline.decode(encoded.clone()).unwrap() == case.data);
        for _ in 0..50 {
            survive(&pipeline, mutate(&mut dice, &encoded));
        }
    }
}

fn kilobyte(codecs: &[Value]) -> Pipeline {
    let case = Case {
        data_type: "uint8",
        element: 1,
        shape: vec![1024],
        fill: vec![0],
        data: Vec::new(),
    };
    case.pipeline(codecs)
}

#[test]
fn frames_that_claim_too_much_are_refused() {
    limit_memory();
    let bytes = codec("bytes", json!({}));
    for claimed in [1_u64 << 40, 1 << 62, u64::MAX, 1025] {
        let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0xe0];
        frame.extend_from_slice(&claimed.to_le_bytes());
        frame.extend_from_slice(&[1, 0, 0]);
        assert!(!survive(
            &kilobyte(&[bytes.clone(), codec("zstd", json!({}))]),
            frame.clone()
        ));
        assert!(!survive(
            &kilobyte(&[
                bytes.clone(),
                codec("crc32c", json!({})),
                codec("gzip", json!({})),
                codec("zstd", json!({}))
            ]),
            frame
        ));
    }
    for claimed in [u32::MAX, i32::MAX as u32, 2_147_483_631, 1 << 30] {
        for flags in [0x31, 0x51, 0x91, 0x33] {
            let mut frame = vec![2, 1, flags, 4];
            for word in [claimed, claimed, 32, 20, 8, 0] {
                frame.extend_from_slice(&word.to_le_bytes());
            }
            frame.resize(32, 0);
            let blosc = codec("blosc", json!({}));
            assert!(!survive(
                &kilobyte(&[bytes.clone(), blosc.clone()]),
                frame.clone()
            ));
            assert!(!survive(
                &kilobyte(&[bytes.clone(), codec("gzip", json!({})), blosc]),
                frame
            ));
        }
    }
}

#[test]
fn bombs_end_at_the_promised_length() {
    limit_memory();
    let bytes = codec("bytes", json!({}));
    let large = Case {
        data_type: "uint8",
        element: 1,
        shape: vec![60 << 20],
        fill: vec![0],
        data: vec![0; 60 << 20],
    };
    for (name, members) in [
        ("gzip", json!({})),
        ("numcodecs.zlib", json!({})),
        ("zstd", json!({})),
        ("blosc", json!({})),
        ("numcodecs.bz2", json!({ "level": 9 })),
        ("numcodecs.lzma", json!({ "preset": 0 })),
        ("numcodecs.lzma", json!({ "format": 2, "preset": 0 })),
        (
            "numcodecs.lzma",
            json!({ "format": 3, "filters": [{ "id": 33, "preset": 0 }] }),
        ),
        ("numcodecs.lz4", json!({})),
        ("lz4", json!({})),
        ("n5.lz4", json!({ "blockSize": 1 << 25 })),
        ("conditional", json!({ "codecs": ["zstd"] })),
    ] {
        let compressor = codec(name, members);
        let bomb = large
            .pipeline(&[bytes.clone(), compressor.clone()])
            .encode(&large.data)
            .unwrap();
        let started = Instant::now();
        assert!(!survive(
            &kilobyte(&[bytes.clone(), compressor.clone()]),
            bomb.clone()
        ));
        assert!(!survive(
            &kilobyte(&[
                bytes.clone(),
                codec("crc32c", json!({})),
                codec("zstd", json!({})),
                compressor
            ]),
            bomb
        ));
        assert!(started.elapsed().as_millis() < 2000, "{name}");
    }
}
