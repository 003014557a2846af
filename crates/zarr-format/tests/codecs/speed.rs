//! Compares decode speeds with zarrs.

use std::time::Instant;

use serde_json::json;

use crate::fixture::{RandomChunk, codec};
use crate::reference::Zarrs;

/// Run with `cargo test --release -p zarr-format --test codecs speed -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn speed() {
    let shape = vec![64, 64, 64];
    let values = (0..64 * 64 * 64_u32).map(|n| {
        let noise = (n.wrapping_mul(2_654_435_761) >> 20) as f32 / 4096.0;
        let value = (n as f32 / 900.0).sin() + noise * 0.03;
        f32::from_bits(value.to_bits() & 0xffff_f800)
    });
    let data: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
    let chunk = RandomChunk {
        data_type: "float32",
        element: 4,
        shape,
        fill: vec![0; 4],
        data,
    };
    let bytes = |endian| codec("bytes", json!({ "endian": endian }));
    let blosc = |cname, shuffle| {
        codec(
            "blosc",
            json!({ "cname": cname, "clevel": 5, "shuffle": shuffle, "typesize": 4, "blocksize": 0 }),
        )
    };
    let zstd = codec("zstd", json!({ "level": 1, "checksum": false }));
    let fortran = codec("transpose", json!({ "order": [2, 1, 0] }));
    let still = codec("transpose", json!({ "order": [0, 1, 2] }));
    let shards = codec(
        "sharding_indexed",
        json!({
            "chunk_shape": [16, 16, 16], "codecs": [bytes("little"), zstd],
            "index_codecs": [bytes("little"), codec("crc32c", json!({}))], "index_location": "end",
        }),
    );
    let chains = [
        vec![bytes("little")],
        vec![bytes("big")],
        vec![fortran.clone(), bytes("little")],
        vec![
            codec("transpose", json!({ "order": [1, 2, 0] })),
            bytes("little"),
        ],
        vec![bytes("little"), codec("crc32c", json!({}))],
        vec![bytes("little"), zstd],
        vec![bytes("little"), codec("gzip", json!({ "level": 1 }))],
        vec![
            bytes("little"),
            codec("numcodecs.zlib", json!({ "level": 1 })),
        ],
        vec![bytes("little"), blosc("lz4", "shuffle")],
        vec![bytes("little"), blosc("zstd", "bitshuffle")],
        vec![bytes("little"), blosc("snappy", "shuffle")],
        vec![bytes("little"), blosc("snappy", "bitshuffle")],
        vec![fortran, bytes("big"), blosc("lz4", "shuffle")],
        vec![still, shards],
    ];
    for codecs in chains {
        let (ours, theirs) = (chunk.pipeline(&codecs), Zarrs::new(&chunk, &codecs));
        let stored = theirs.encode(&chunk.data);
        let best = |decode: &dyn Fn()| {
            let rate = (0..40).map(|_| {
                let started = Instant::now();
                decode();
                chunk.data.len() as f64 / started.elapsed().as_secs_f64() / 1e6
            });
            rate.fold(0.0, f64::max)
        };
        // Each decoder gets a copy of the encoded chunk, so that both times include the copying.
        let ours = best(&|| drop(ours.decode(stored.clone()).unwrap()));
        let theirs = best(&|| drop(theirs.decode(&stored)));
        let names: Vec<String> = codecs
            .iter()
            .map(|codec| format!("{} {}", codec["name"], codec["configuration"]["cname"]))
            .collect();
        println!(
            "{ours:8.0} MB/s here, {theirs:8.0} zarrs, ratio {:5.2}  {}",
            ours / theirs,
            names.join(" ")
        );
    }
}
