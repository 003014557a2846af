//! Compares the codecs with the zarrs crate, and feeds them hostile input.
//!
//! The hostile input is in this file, the comparison in `codecs/reference.rs`. The test process has a limited address
//! space, so that a codec that trusts the length in a frame aborts the test.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that panics has failed, and its numbers are small"
)]
#![allow(unreachable_pub, reason = "functions that tests call")]

mod fixture;
mod reference;
#[cfg(feature = "zfp")]
mod reference_zfp;
mod speed;

use serde_json::{Value, json};

use zarr_format::codec::Pipeline;
use zarr_format::error::Kind;

use fixture::{Random, RandomChunk, codec};

/// Limits the address space of the test process, far above the largest chunk of the tests.
fn limit_memory() {
    use rustix::process::{Resource, Rlimit};
    let limit = Rlimit {
        current: Some(3 << 30),
        maximum: Some(3 << 30),
    };
    rustix::process::setrlimit(Resource::As, limit).unwrap();
}

/// Decodes arbitrary bytes, which must give the right length or be `Corrupt`. Returns whether the bytes decode.
fn decodes_or_is_corrupt(pipeline: &Pipeline, encoded: Vec<u8>) -> bool {
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

fn mutate(random: &mut Random, encoded: &[u8]) -> Vec<u8> {
    let mut out = encoded.to_vec();
    let place = |random: &mut Random, end: usize| random.below(end.max(1) as u64) as usize;
    match random.below(6) {
        0 => out.truncate(place(random, encoded.len())),
        1 => out.extend((0..=random.below(20)).map(|_| random.next() as u8)),
        2 => (0..4).for_each(|_| {
            if let Some(byte) = out.get_mut(place(random, 32)) {
                *byte = random.next() as u8
            }
        }),
        3 => {
            let at = place(random, encoded.len());
            let wild = random
                .pick(&[u64::MAX, u64::MAX - 8, 1 << 40, i32::MAX as u64, 1 << 31, 0])
                .to_le_bytes();
            out.iter_mut()
                .skip(at)
                .zip(wild)
                .for_each(|(byte, wild)| *byte = wild);
        }
        _ => {
            let at = place(random, encoded.len());
            out.iter_mut()
                .skip(at)
                .take(1)
                .for_each(|byte| *byte ^= 1 << random.below(8));
        }
    }
    out
}

/// Invariant (reading): A decode returns exactly the promised number of bytes, or fails with `Corrupt`.
#[test]
fn mutated_chunks_are_decoded_or_refused() {
    limit_memory();
    let mut random = Random(16);
    for _ in 0..800 {
        let chunk = RandomChunk::new(&mut random, 1);
        let mut codecs = vec![codec(
            "transpose",
            json!({ "order": Vec::from_iter(0..chunk.shape.len()) }),
        )];
        match random.below(5) {
            0 => codecs.push(chunk.sharding(&mut random, &chunk.shape, 0)),
            3 => codecs.extend([chunk.bytes(&mut random), chunk.unshared(&mut random)]),
            4 => codecs.extend([
                chunk.bytes(&mut random),
                chunk.unshared(&mut random),
                chunk.unshared(&mut random),
            ]),
            1 => codecs.extend([chunk.bytes(&mut random), chunk.compressor(&mut random)]),
            _ => codecs.extend([
                chunk.bytes(&mut random),
                chunk.compressor(&mut random),
                chunk.compressor(&mut random),
            ]),
        }
        let pipeline = chunk.pipeline(&codecs);
        let encoded = pipeline.encode(&chunk.data).unwrap();
        for _ in 0..50 {
            decodes_or_is_corrupt(&pipeline, mutate(&mut random, &encoded));
        }
        assert!(
            !decodes_or_is_corrupt(&pipeline, Vec::new()),
            "{}",
            json!(codecs)
        );
    }
}

/// Decoders of numeric codecs must accept or refuse arbitrary bytes, but not panic.
#[test]
fn numeric_codecs_decode_or_refuse_any_bytes() {
    limit_memory();
    let mut random = Random(17);
    let mut built = 0;
    for _ in 0..2000 {
        let chunk = RandomChunk::new(&mut random, 1).with_numbers(&mut random);
        let little = codec("bytes", json!({ "endian": "little" }));
        let mut codecs: Vec<Value> = (0..=random.below(2))
            .map(|_| chunk.calculation(&mut random))
            .collect();
        codecs.push(little);
        // Many of the random codec chains are invalid, and building them must fail.
        let Ok(pipeline) = chunk.try_pipeline(&codecs) else {
            continue;
        };
        built += 1;
        let Ok(encoded) = pipeline.encode(&chunk.data) else {
            continue;
        };
        if !pipeline.is_lossy() {
            assert!(
                pipeline.decode(encoded.clone()).unwrap() == chunk.data,
                "{}",
                json!(codecs)
            );
        }
        for _ in 0..20 {
            decodes_or_is_corrupt(&pipeline, mutate(&mut random, &encoded));
        }
    }
    assert!(built > 500, "{built}");
}

#[test]
fn mutated_blocks_of_n5_are_decoded_or_refused() {
    limit_memory();
    let mut random = Random(18);
    for _ in 0..200 {
        let chunk = RandomChunk::new(&mut random, 1);
        let order: Vec<usize> = (0..chunk.shape.len()).rev().collect();
        let mut codecs = vec![
            codec("transpose", json!({ "order": order })),
            codec("bytes", json!({ "endian": "big" })),
        ];
        codecs.extend((random.below(2) == 0).then(|| chunk.compressor(&mut random)));
        let pipeline = chunk.pipeline(&[codec("n5_default", json!({ "codecs": codecs }))]);
        let encoded = pipeline.encode(&chunk.data).unwrap();
        assert!(pipeline.decode(encoded.clone()).unwrap() == chunk.data);
        for _ in 0..50 {
            decodes_or_is_corrupt(&pipeline, mutate(&mut random, &encoded));
        }
    }
}

fn kilobyte_pipeline(codecs: &[Value]) -> Pipeline {
    let chunk = RandomChunk {
        data_type: "uint8",
        element: 1,
        shape: vec![1024],
        fill: vec![0],
        data: Vec::new(),
    };
    chunk.pipeline(codecs)
}

#[test]
fn frames_that_state_too_large_a_length_are_refused() {
    limit_memory();
    let bytes = codec("bytes", json!({}));
    for claimed in [1_u64 << 40, 1 << 62, u64::MAX, 1025] {
        let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0xe0];
        frame.extend_from_slice(&claimed.to_le_bytes());
        frame.extend_from_slice(&[1, 0, 0]);
        assert!(!decodes_or_is_corrupt(
            &kilobyte_pipeline(&[bytes.clone(), codec("zstd", json!({}))]),
            frame.clone()
        ));
        assert!(!decodes_or_is_corrupt(
            &kilobyte_pipeline(&[
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
            assert!(!decodes_or_is_corrupt(
                &kilobyte_pipeline(&[bytes.clone(), blosc.clone()]),
                frame.clone()
            ));
            assert!(!decodes_or_is_corrupt(
                &kilobyte_pipeline(&[bytes.clone(), codec("gzip", json!({})), blosc]),
                frame
            ));
        }
    }
}

/// Invariant of `mutated_chunks_are_decoded_or_refused`.
#[test]
fn decoding_a_bomb_stops_at_the_promised_length() {
    limit_memory();
    let bytes = codec("bytes", json!({}));
    let large = RandomChunk {
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
        // bzip2 decodes whole blocks; with level 1 several blocks fit into a quarter of the chunk.
        ("numcodecs.bz2", json!({ "level": 1 })),
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
        let exact = [bytes.clone(), compressor.clone()];
        let inner = [
            bytes.clone(),
            codec("crc32c", json!({})),
            codec("zstd", json!({})),
            compressor,
        ];
        for codecs in [&exact[..], &inner] {
            let pipeline = kilobyte_pipeline(codecs);
            assert!(!decodes_or_is_corrupt(&pipeline, bomb.clone()));
            assert_eq!(
                refusal(&pipeline, bomb.clone()),
                refusal(&pipeline, damaged_behind_the_first_quarter(&bomb)),
                "{name}"
            );
        }
    }
}

fn refusal(pipeline: &Pipeline, encoded: Vec<u8>) -> String {
    pipeline.decode(encoded).unwrap_err().to_string()
}

/// Returns `encoded` with all bytes after the first quarter inverted. A decoder that reports the same error for
/// `encoded` and for the result has read at most the first quarter.
fn damaged_behind_the_first_quarter(encoded: &[u8]) -> Vec<u8> {
    let mut damaged = encoded.to_vec();
    let rest = damaged.iter_mut().skip(encoded.len() / 4);
    rest.for_each(|byte| *byte = !*byte);
    damaged
}
