//! Codec `n5_default`: decodes and encodes blocks of N5, which state their shape.
//!
//! The header (mode, number of dimensions, lengths) is big-endian. The elements of the block follow, encoded by a codec
//! chain of their own. At the edge of an array some writers store blocks smaller than the chunk; the rest of the chunk
//! is then the fill value. A block larger than the chunk is an error. Encoding writes blocks as large as the chunk. A
//! block of mode 1 (varlength) also states its number of elements, which must equal the product of its shape.

use std::borrow::Cow;

use crate::codec::chain::Chain;
use crate::codec::config::Configuration;
use crate::codec::traits::{
    ArrayRepr, ArrayToBytes, ChainContext, ChainPosition, Codec, Data, Length,
};
use crate::error::{Error, Result};
use crate::grid::{Layout, Region, Runs};
use crate::model::CodecSpec;

use super::leniency;

/// Codec `n5_default`: the codec chain for blocks as large as the chunk, and the data to build a chain for a smaller
/// block.
#[derive(Debug)]
struct N5Default {
    repr: ArrayRepr,
    bytes: usize,
    codecs: Vec<CodecSpec>,
    chain: Chain,
    context: ChainContext,
    /// Encoded header of an N5 block as large as the chunk.
    header: Vec<u8>,
}

/// Builds codec `n5_default` (specification, "Configuration parameters").
pub(crate) fn build(config: Configuration<'_>, position: &ChainPosition<'_>) -> Result<Codec> {
    let codecs = config.codecs("codecs")?;
    let repr = position.repr.clone();
    let context = position.context.nested();
    let chain = Chain::new(&codecs, &repr, context)?;
    let header = header(&repr.shape).ok_or_else(|| {
        let what = format!("N5 cannot store blocks of shape {:?}", repr.shape);
        Error::unsupported("chunk_shape", what)
    })?;
    Ok(Codec::ArrayToBytes(Box::new(N5Default {
        bytes: position.bytes()?,
        repr,
        codecs,
        chain,
        context,
        header,
    })))
}

/// Encodes the header of an N5 block of mode 0. Returns `None` if the shape does not fit the fields of the header.
fn header(shape: &[u64]) -> Option<Vec<u8>> {
    let mut header = vec![0; 2];
    header.extend(u16::try_from(shape.len()).ok()?.to_be_bytes());
    for &length in shape {
        header.extend(u32::try_from(length).ok()?.to_be_bytes());
    }
    Some(header)
}

/// Returns the encoded elements of an N5 block of mode 1, which follow the number of elements. Fails if that number is
/// not the product of the shape.
fn after_count<'b>(shape: &[u64], rest: &'b [u8]) -> std::result::Result<&'b [u8], String> {
    let (count, elements) = rest
        .split_first_chunk()
        .ok_or("a block of mode 1 ends before its number of elements")?;
    let count = u64::from(u32::from_be_bytes(*count));
    let product = shape
        .iter()
        .try_fold(1, |product: u64, length| product.checked_mul(*length));
    if product != Some(count) {
        return Err(format!(
            "a block of mode 1 has {count} elements, but the shape {shape:?}"
        ));
    }
    Ok(elements)
}

impl N5Default {
    /// Splits an N5 block into the shape in its header and its encoded elements.
    fn split<'b>(&self, encoded: &'b [u8]) -> Result<(Vec<u64>, &'b [u8])> {
        let wrong = |what: String| Error::corrupt("n5_default", what);
        let rank = self.repr.shape.len();
        let (header, elements) = encoded.split_at_checked(self.header.len()).ok_or_else(|| {
            wrong(format!(
                "{} bytes are too short for a header",
                encoded.len()
            ))
        })?;
        let words = header.as_chunks::<2>().0;
        let mode = u16::from_be_bytes(words[0]);
        if mode > 1 {
            return Err(wrong(format!(
                "expected a block of mode 0 or 1, found {mode}"
            )));
        }
        let found = u16::from_be_bytes(words[1]);
        if usize::from(found) != rank {
            return Err(wrong(format!("expected {rank} dimensions, found {found}")));
        }
        let lengths = header[4..].as_chunks::<4>().0.iter();
        let shape: Vec<u64> = lengths
            .map(|length| u32::from_be_bytes(*length).into())
            .collect();
        if shape.contains(&0) {
            return Err(wrong(format!("a block has the shape {shape:?}")));
        }
        if mode == 1 {
            let elements = after_count(&shape, elements).map_err(wrong)?;
            return Ok((shape, elements));
        }
        Ok((shape, elements))
    }

    /// Decodes an N5 block that is smaller than the chunk, and pads it with the fill value to the shape of the chunk.
    fn decode_smaller(&self, shape: Vec<u64>, elements: &[u8]) -> Result<Vec<u8>> {
        let whole = &self.repr.shape;
        if shape.iter().zip(whole).any(|(length, most)| length > most) {
            let what =
                format!("a block of shape {shape:?} is larger than the block size {whole:?}");
            return Err(Error::corrupt("n5_default", what));
        }
        leniency::record_block(&shape);
        let repr = ArrayRepr {
            shape,
            ..self.repr.clone()
        };
        let corrupt = |error: Error| Error::corrupt("n5_default", error);
        let chain = Chain::new(&self.codecs, &repr, self.context).map_err(corrupt)?;
        let block = chain.decode(Cow::Borrowed(elements))?;
        let element = self.repr.element_size()?;
        let mut out = self.repr.fill.repeat(self.bytes / element.max(1));
        let part = Region::whole(&repr.shape);
        let layout = |shape| Layout {
            start: &part.start,
            shape,
            skipped: 0,
        };
        Runs::new(
            &part,
            layout(&repr.shape),
            layout(&self.repr.shape),
            element,
        )
        .copy(&block, &mut out);
        Ok(out)
    }
}

impl ArrayToBytes for N5Default {
    fn encoded_length(&self) -> Length {
        let elements = self.chain.encoded_length();
        // The header of a block of mode 1 has four more bytes, for its number of elements.
        let header = self.header.len().saturating_add(4);
        let most = elements.upper_bound().saturating_add(header);
        elements.bounding(most).compressed()
    }

    fn is_identity(&self) -> bool {
        false
    }

    fn decode<'a>(&self, encoded: Data<'a>) -> Result<Data<'a>> {
        let (shape, elements) = self.split(&encoded)?;
        if shape == self.repr.shape {
            let decoded = self.chain.decode(Cow::Borrowed(elements))?;
            return Ok(Cow::Owned(decoded.into_owned()));
        }
        self.decode_smaller(shape, elements).map(Cow::Owned)
    }

    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>> {
        let mut out = self.header.clone();
        out.extend_from_slice(&self.chain.encode(decoded)?);
        Ok(Cow::Owned(out))
    }

    fn is_lossy(&self) -> bool {
        self.chain.is_lossy()
    }
}

#[cfg(test)]
mod tests {
    use crate::codec::Pipeline;
    use crate::codec::tests::{assert_corrupt, pipeline};
    use serde_json::json;

    fn block(shape: &[u64], compressor: Option<&str>) -> Pipeline {
        let order: Vec<usize> = (0..shape.len()).rev().collect();
        let mut codecs = vec![
            json!({ "name": "transpose", "configuration": { "order": order } }),
            json!({ "name": "bytes", "configuration": { "endian": "big" } }),
        ];
        codecs.extend(compressor.map(|name| json!(name)));
        let n5 = json!({ "name": "n5_default", "configuration": { "codecs": codecs } });
        pipeline("uint16", shape, json!([n5])).unwrap()
    }

    #[test]
    fn a_full_block_has_a_header_and_big_endian_elements() {
        let pipeline = block(&[2, 3], None);
        let data: Vec<u8> = (1..=6_u16).flat_map(u16::to_le_bytes).collect();
        let encoded = pipeline.encode(&data).unwrap();
        let elements = [1_u16, 4, 2, 5, 3, 6].map(u16::to_be_bytes).concat();
        assert_eq!(encoded[..12], [0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 3]);
        assert_eq!(encoded[12..], elements);
        assert_eq!(pipeline.decode(encoded).unwrap(), data);
    }

    #[test]
    fn a_smaller_block_is_padded_and_a_larger_one_is_refused() {
        let data: Vec<u8> = (1..=4_u16).flat_map(u16::to_le_bytes).collect();
        for compressor in [None, Some("gzip"), Some("zstd")] {
            let encoded = block(&[2, 2], compressor).encode(&data).unwrap();
            let decoded = block(&[2, 3], compressor).decode(encoded.clone()).unwrap();
            // All bytes of the fill value in these tests are 3.
            let expected = [1, 2, 0x0303, 3, 4, 0x0303_u16]
                .map(u16::to_le_bytes)
                .concat();
            assert_eq!(decoded, expected);
            for shape in [[1, 3], [2, 1], [1, 1]] {
                let pipeline = block(&shape, compressor);
                let error = pipeline.decode(encoded.clone()).unwrap_err();
                let message =
                    format!("a block of shape [2, 2] is larger than the block size {shape:?}");
                assert!(error.to_string().ends_with(&message), "{error}");
            }
        }
    }

    #[test]
    fn a_mode_1_block_must_count_the_elements_of_its_shape() {
        for compressor in [None, Some("gzip")] {
            let pipeline = block(&[2, 3], compressor);
            let data: Vec<u8> = (1..=6_u16).flat_map(u16::to_le_bytes).collect();
            let plain = pipeline.encode(&data).unwrap();
            let with_count = |count: u32| {
                let mut block = plain.clone();
                block[1] = 1;
                block.splice(12..12, count.to_be_bytes());
                block
            };
            assert_eq!(pipeline.decode(with_count(6)).unwrap(), data);
            for count in [0, 5, 7, u32::MAX] {
                let error = pipeline.decode(with_count(count)).unwrap_err();
                let message =
                    format!("a block of mode 1 has {count} elements, but the shape [2, 3]");
                assert!(error.to_string().ends_with(&message), "{error}");
            }
        }
    }

    #[test]
    fn truncated_blocks_and_wrong_headers_are_corrupt() {
        let pipeline = block(&[2, 3], None);
        let whole = pipeline.encode(&[0; 12]).unwrap();
        for end in 0..whole.len() {
            assert_corrupt(&pipeline, whole[..end].to_vec());
        }
        for (place, byte) in [(1, 1), (1, 2), (3, 3), (7, 0), (4, 255), (7, 3)] {
            let mut other = whole.clone();
            other[place] = byte;
            assert_corrupt(&pipeline, other);
        }
    }
}
