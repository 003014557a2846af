//! Codec `transpose`: the dimensions of a chunk in another order (`F` of v2 among them).
//!
//! Dimension `i` of the encoded array is dimension `order[i]` of the decoded one. An order that moves no
//! byte costs nothing. The moving itself is `permute.rs`; of elements without a fixed length it moves their
//! places, and the elements follow.

use std::borrow::Cow;

use serde_json::Value;

use crate::error::Result;
use crate::sync::buffer;

use super::permute::Permutation;
use crate::codec::config::Members;
use crate::codec::kind::{ArrayToArray, ChainPosition, Codec, Data, Form, Length};
use crate::codec::records;

const NAME: &str = "transpose";

/// The permutation there and the one back.
#[derive(Debug)]
struct Transpose {
    form: Form,
    there: Permutation,
    back: Permutation,
}

/// Reads the configuration (codec `transpose`, "Configuration parameters"; before ZEP 1 also `C` and `F`).
pub(crate) fn build(members: Members<'_>, place: &ChainPosition<'_>) -> Result<Codec> {
    let rank = place.form.shape.len();
    let order = order(members, rank)?;
    let wrong = || members.wrong("order", format!("a permutation of the {rank} dimensions"));
    let mut inverse = vec![0; rank];
    for (place, &axis) in order.iter().enumerate() {
        *inverse.get_mut(axis).ok_or_else(wrong)? = place;
    }
    let element = match place.form.data_type.is_variable() {
        true => PLACE,
        false => place.form.element()?,
    };
    let there = Permutation::new(&place.form.shape, &order, element).ok_or_else(wrong)?;
    let shape: Vec<u64> = order.iter().map(|&axis| place.form.shape[axis]).collect();
    let back = Permutation::new(&shape, &inverse, element).ok_or_else(wrong)?;
    let form = Form {
        shape,
        ..place.form.clone()
    };
    Ok(Codec::ArrayToArray(Box::new(Transpose {
        form,
        there,
        back,
    })))
}

/// Returns the order as a list; whether it is a permutation is still open.
fn order(members: Members<'_>, rank: usize) -> Result<Vec<usize>> {
    match members.get("order").and_then(Value::as_str) {
        Some("C") => Ok((0..rank).collect()),
        Some("F") => Ok((0..rank).rev().collect()),
        _ => {
            let order = members.integers("order")?;
            Ok(order
                .into_iter()
                .map(|axis| usize::try_from(axis).unwrap_or(usize::MAX))
                .collect())
        }
    }
}

/// Bytes of the place of an element in a chunk.
const PLACE: usize = size_of::<u64>();

/// Moves elements without a fixed length.
fn apply_ragged<'a>(permutation: &Permutation, data: Data<'a>) -> Result<Data<'a>> {
    if permutation.is_identity() {
        return Ok(data);
    }
    let mut places = Vec::with_capacity(permutation.length());
    let mut at = 0_u64;
    for record in records::split(&data, (permutation.length() / PLACE) as u64)? {
        places.extend(at.to_le_bytes());
        at += record.len() as u64;
    }
    let mut moved = vec![0; places.len()];
    permutation.apply(&places, &mut moved);
    let mut out = Vec::with_capacity(data.len());
    for place in moved.as_chunks::<PLACE>().0 {
        let rest = data.get(u64::from_le_bytes(*place) as usize..);
        out.extend(
            rest.and_then(records::split_first)
                .map_or(&[][..], |(record, _)| record),
        );
    }
    Ok(Cow::Owned(out))
}

fn apply<'a>(permutation: &Permutation, data: Data<'a>) -> Result<Data<'a>> {
    Length::Exact(permutation.length()).check(NAME, data.len())?;
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

impl ArrayToArray for Transpose {
    fn encoded_form(&self) -> &Form {
        &self.form
    }

    fn is_identity(&self) -> bool {
        self.there.is_identity()
    }

    fn decode<'a>(&self, encoded: Data<'a>) -> Result<Data<'a>> {
        match self.form.data_type.is_variable() {
            true => apply_ragged(&self.back, encoded),
            false => apply(&self.back, encoded),
        }
    }

    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>> {
        match self.form.data_type.is_variable() {
            true => apply_ragged(&self.there, decoded),
            false => apply(&self.there, decoded),
        }
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
