//! Codecs that compress, and the helpers that they share.

pub(super) mod base64;
pub(super) mod blosc;
pub(super) mod bz2;
pub(super) mod deflate;
pub(super) mod leniency;
pub(super) mod lz4;
pub(super) mod lz4_java;
pub(super) mod lzma;
pub(super) mod n5_default;
pub(super) mod pcodec;
pub(super) mod shuffle;
mod streams;
pub(super) mod zstd;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::lzma;
    use crate::codec::Pipeline;
    use crate::codec::tests::{assert_corrupt, assert_round_trip, pipeline, sample};

    /// Returns compressors with parameters of all kinds.
    fn compressors() -> Vec<Value> {
        let with = |name: &str, member: &str, value: i32| json!({ "name": name, "configuration": { member: value } });
        let mut all = vec![json!("blosc"), json!("numcodecs.lz4")];
        for level in -1..=9 {
            let names = ["gzip", "numcodecs.gzip", "zlib", "numcodecs.zlib"];
            all.extend(names.map(|name| with(name, "level", level)));
        }
        all.extend([1, 5, 9].map(|level| with("numcodecs.bz2", "level", level)));
        for (level, checksum) in [(-5, false), (0, true), (1, true), (22, false)] {
            let configuration = json!({ "level": level, "checksum": checksum });
            all.push(json!({ "name": "zstd", "configuration": configuration }));
        }
        let lzma = lzma::tests::configurations().into_iter();
        all.extend(
            lzma.map(|members| json!({ "name": "numcodecs.lzma", "configuration": members })),
        );
        all
    }

    fn compressed(length: u64, compressor: &Value) -> Pipeline {
        pipeline("uint8", &[length], json!(["bytes", compressor])).unwrap()
    }

    #[test]
    fn compressed_data_come_back() {
        for compressor in compressors() {
            // More than a block of bz2, which has up to 900 kB.
            let length = if compressor.to_string().contains("bz2") {
                1_000_000
            } else {
                5000
            };
            assert_round_trip(&compressed(length, &compressor), &sample(length as usize));
        }
    }

    #[test]
    fn short_streams_and_streams_of_other_lengths_are_corrupt() {
        for compressor in compressors() {
            let pipeline = compressed(1000, &compressor);
            let encoded = pipeline.encode(&sample(1000)).unwrap();
            for end in 0..encoded.len() {
                assert_corrupt(&pipeline, &encoded[..end]);
            }
            for length in [1, 999, 1001, 5000] {
                assert_corrupt(&compressed(length, &compressor), &encoded[..]);
            }
        }
    }
}
