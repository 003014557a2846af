//! Codec `numcodecs.bz2`, which sci-rs calls `bzip2`: one or several bzip2 streams.
//!
//! Several streams make up one chunk. Bytes after the last stream are ignored if they do not begin another stream
//! (`decode_all`).

use std::borrow::Cow;

use bzip2::{Action, Compress, Compression, Decompress, Status};

use crate::codec::config::Configuration;
use crate::codec::traits::{BytesToBytes, ChainPosition, Codec, Data, Length};
use crate::error::{Error, Result};

use super::{StreamDecoder, decode_all, memory_length};

/// Codec `numcodecs.bz2`. The level matters only to encoding.
#[derive(Debug)]
struct Bz2 {
    level: u32,
}

/// Builds `numcodecs.bz2` from the parameter `level`, which a writer of a v3 draft calls `blockSize`.
pub(crate) fn build(config: Configuration<'_>, _: &ChainPosition<'_>) -> Result<Codec> {
    let level = match config.level("level", 1..=9)? {
        Some(level) => level.unsigned_abs(),
        None => config
            .level("blockSize", 1..=9)?
            .unwrap_or(1)
            .unsigned_abs(),
    };
    Ok(Codec::BytesToBytes(Box::new(Bz2 { level })))
}

impl StreamDecoder for Decompress {
    fn advance(&mut self, input: &[u8], output: &mut Vec<u8>) -> Result<(usize, bool)> {
        let before = self.total_in();
        let status = self
            .decompress_vec(input, output)
            .map_err(|error| Error::corrupt("bz2", error))?;
        let used = memory_length(self.total_in() - before);
        Ok((used, matches!(status, Status::StreamEnd)))
    }
}

impl BytesToBytes for Bz2 {
    fn encoded_length(&self, decoded: Length) -> Length {
        decoded.compressed()
    }

    fn decode<'a>(&self, encoded: Data<'a>, want: Length) -> Result<Data<'a>> {
        let open = || Ok(Decompress::new(false));
        decode_all("bz2", &encoded, want.upper_bound(), open).map(Cow::Owned)
    }

    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>> {
        let mut compressor = Compress::new(Compression::new(self.level), 0);
        // libbz2 documents this bound of the encoded length: one percent and 600 bytes more than the input.
        let mut out = Vec::with_capacity(decoded.len() + decoded.len() / 100 + 601);
        loop {
            let used = memory_length(compressor.total_in());
            let input = decoded.get(used..).unwrap_or_default();
            let status = compressor
                .compress_vec(input, &mut out, Action::Finish)
                .map_err(|error| Error::invalid("bz2", error))?;
            if matches!(status, Status::StreamEnd) {
                return Ok(Cow::Owned(out));
            }
            out.reserve(4096);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::codec::Pipeline;
    use crate::codec::tests::{assert_corrupt, pipeline, sample};
    use serde_json::json;

    fn bz2(length: u64, level: i64) -> Pipeline {
        let codec = json!({ "name": "numcodecs.bz2", "configuration": { "level": level } });
        pipeline("uint8", &[length], json!(["bytes", codec])).unwrap()
    }

    #[test]
    fn concatenated_streams_are_one_chunk_and_junk_is_ignored() {
        let data = sample(3000);
        let mut stream: Vec<u8> = data
            .chunks(1000)
            .flat_map(|part| bz2(1000, 1).encode(part).unwrap())
            .collect();
        assert_eq!(bz2(3000, 1).decode(stream.clone()).unwrap(), data);
        assert_corrupt(&bz2(1000, 1), stream.clone());
        stream.extend_from_slice(b"junk");
        assert_eq!(bz2(3000, 1).decode(stream).unwrap(), data);
    }
}
