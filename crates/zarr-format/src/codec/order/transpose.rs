//! Codec `transpose`: permutes the dimensions of a chunk (including `F` of v2).
//!
//! Dimension `i` of the encoded array is dimension `order[i]` of the decoded one. An order that moves no byte costs
//! nothing. `permutation.rs` copies the elements. For elements without a fixed length it permutes their offsets, and the
//! elements are then copied by offset.

use std::borrow::Cow;

use serde_json::Value;

use crate::buffer;
use crate::codec::config::Configuration;
use crate::codec::kind::{ArrayRepr, ArrayToArray, ChainPosition, Codec, Data, Length};
use crate::codec::records;
use crate::error::Result;

use super::permutation::Permutation;

/// The permutations for encoding and for decoding.
#[derive(Debug)]
struct Transpose {
    repr: ArrayRepr,
    encode: Permutation,
    decode: Permutation,
}

/// Reads the configuration (codec `transpose`, "Configuration parameters"; before ZEP 1 also `C` and `F`).
pub(crate) fn build(config: Configuration<'_>, position: &ChainPosition<'_>) -> Result<Codec> {
    let rank = position.repr.shape.len();
    let order = order(config, rank)?;
    let wrong = || config.unexpected("order", format!("a permutation of the {rank} dimensions"));
    let mut inverse = vec![0; rank];
    for (n, &axis) in order.iter().enumerate() {
        *inverse.get_mut(axis).ok_or_else(wrong)? = n;
    }
    let element = if position.repr.data_type.is_variable() {
        OFFSET_BYTES
    } else {
        position.repr.element_size()?
    };
    let encode = Permutation::new(&position.repr.shape, &order, element).ok_or_else(wrong)?;
    let shape: Vec<u64> = order
        .iter()
        .map(|&axis| position.repr.shape[axis])
        .collect();
    let decode = Permutation::new(&shape, &inverse, element).ok_or_else(wrong)?;
    let repr = ArrayRepr {
        shape,
        ..position.repr.clone()
    };
    Ok(Codec::ArrayToArray(Box::new(Transpose {
        repr,
        encode,
        decode,
    })))
}

/// Returns the order as a list, which may not be a permutation.
fn order(config: Configuration<'_>, rank: usize) -> Result<Vec<usize>> {
    match config.get("order").and_then(Value::as_str) {
        Some("C") => Ok((0..rank).collect()),
        Some("F") => Ok((0..rank).rev().collect()),
        _ => {
            let order = config.integers("order")?;
            Ok(order
                .into_iter()
                .map(|axis| usize::try_from(axis).unwrap_or(usize::MAX))
                .collect())
        }
    }
}

/// Length in bytes of an element's offset in a chunk.
const OFFSET_BYTES: usize = size_of::<usize>();

/// Permutes elements without a fixed length.
fn apply_variable<'a>(permutation: &Permutation, data: Data<'a>) -> Result<Data<'a>> {
    if permutation.is_identity() {
        return Ok(data);
    }
    let mut offsets = Vec::with_capacity(permutation.length());
    let mut offset = 0_usize;
    for record in records::split(&data, (permutation.length() / OFFSET_BYTES) as u64)? {
        offsets.extend(offset.to_ne_bytes());
        offset += record.len();
    }
    let mut moved = vec![0; offsets.len()];
    permutation.apply(&offsets, &mut moved);
    let mut out = Vec::with_capacity(data.len());
    for offset in moved.as_chunks::<OFFSET_BYTES>().0 {
        let rest = data.get(usize::from_ne_bytes(*offset)..);
        let record = rest.and_then(records::split_first);
        out.extend_from_slice(record.map_or(&[], |(record, _)| record));
    }
    Ok(Cow::Owned(out))
}

fn apply<'a>(permutation: &Permutation, data: Data<'a>) -> Result<Data<'a>> {
    Length::Exact(permutation.length()).check("transpose", data.len())?;
    if permutation.is_identity() {
        return Ok(data);
    }
    let mut out = buffer::of_length(data.len());
    permutation.apply(&data, &mut out);
    if let Cow::Owned(data) = data {
        buffer::recycle(data);
    }
    Ok(Cow::Owned(out))
}

impl Transpose {
    fn permute<'a>(&self, permutation: &Permutation, data: Data<'a>) -> Result<Data<'a>> {
        if self.repr.data_type.is_variable() {
            apply_variable(permutation, data)
        } else {
            apply(permutation, data)
        }
    }
}

impl ArrayToArray for Transpose {
    fn encoded_repr(&self) -> &ArrayRepr {
        &self.repr
    }

    fn is_identity(&self) -> bool {
        self.encode.is_identity()
    }

    fn decode<'a>(&self, encoded: Data<'a>) -> Result<Data<'a>> {
        self.permute(&self.decode, encoded)
    }

    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>> {
        self.permute(&self.encode, decoded)
    }
}

#[cfg(test)]
mod tests {
    use crate::codec::Pipeline;
    use crate::codec::tests::pipeline;
    use crate::error::{Kind, Result};
    use serde_json::{Value, json};

    fn transpose(shape: &[u64], order: Value) -> Result<Pipeline> {
        let transpose = json!({ "name": "transpose", "configuration": { "order": order } });
        pipeline("uint8", shape, json!([transpose, "bytes"]))
    }

    #[test]
    fn f_order_of_a_matrix() {
        for order in [json!("F"), json!([1, 0])] {
            let pipeline = transpose(&[2, 3], order).unwrap();
            assert!(!pipeline.is_identity());
            assert_eq!(
                pipeline.decode(vec![1, 4, 2, 5, 3, 6]).unwrap(),
                [1, 2, 3, 4, 5, 6]
            );
            assert_eq!(
                pipeline.encode(&[1, 2, 3, 4, 5, 6]).unwrap(),
                [1, 4, 2, 5, 3, 6]
            );
        }
    }

    #[test]
    fn elements_without_a_fixed_length_move_whole() {
        let transpose = json!({ "name": "transpose", "configuration": { "order": [1, 0] } });
        let pipeline = pipeline("string", &[2, 2], json!([transpose, "vlen-utf8"])).unwrap();
        let stored = b"\x04\0\0\0\x01\0\0\0a\x02\0\0\0bc\0\0\0\0\x01\0\0\0d";
        let decoded = b"\x01\0\0\0a\0\0\0\0\x02\0\0\0bc\x01\0\0\0d";
        assert_eq!(pipeline.decode(stored.to_vec()).unwrap(), decoded);
        assert_eq!(pipeline.encode(decoded).unwrap(), stored);
        for wrong in [&decoded[..5], &[decoded.as_slice(), &[0; 4]].concat()] {
            assert!(pipeline.encode(wrong).is_err());
        }
    }

    #[test]
    fn an_order_that_is_not_its_own_inverse() {
        // B[k, i, j] = A[i, j, k], so B_shape is [3, 1, 2].
        let pipeline = transpose(&[1, 2, 3], json!([2, 0, 1])).unwrap();
        assert_eq!(
            pipeline.encode(&[1, 2, 3, 4, 5, 6]).unwrap(),
            [1, 4, 2, 5, 3, 6]
        );
        assert_eq!(
            pipeline.decode(vec![1, 4, 2, 5, 3, 6]).unwrap(),
            [1, 2, 3, 4, 5, 6]
        );
    }

    #[test]
    fn orders_that_move_nothing_are_identity() {
        assert!(transpose(&[2, 3], json!("C")).unwrap().is_identity());
        assert!(transpose(&[1, 3], json!("F")).unwrap().is_identity());
        assert!(transpose(&[], json!([])).unwrap().is_identity());
        assert!(transpose(&[], json!("F")).unwrap().is_identity());
    }

    #[test]
    fn what_is_no_permutation_is_corrupt() {
        for order in [
            json!([0, 0]),
            json!([0]),
            json!([0, 2]),
            json!([0, 1, 2]),
            json!("G"),
            json!([-1, 0]),
            json!(null),
        ] {
            let error = transpose(&[2, 3], order).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt);
            assert!(error.to_string().contains("order"), "{error}");
        }
    }
}
