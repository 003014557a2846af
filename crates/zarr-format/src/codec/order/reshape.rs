//! Codec `reshape`: changes the shape of a chunk, not the order of its elements.
//!
//! No byte moves. The new shape matters to `transpose` and sharding, if they follow.

use serde_json::Value;

use crate::codec::config::Configuration;
use crate::codec::traits::{ArrayRepr, ArrayToArray, ChainPosition, Codec, Data};
use crate::error::Result;

#[derive(Debug)]
struct Reshape {
    repr: ArrayRepr,
}

/// A dimension of the new shape (codec `reshape`, "shape").
enum ReshapeDimension {
    Length(u64),
    /// A dimension whose length is the product of the listed dimensions of the input.
    Product(Vec<usize>),
    /// A dimension written as -1, whose length follows from the number of elements.
    Rest,
}

/// Builds codec `reshape` (specification, "Configuration parameters").
pub(crate) fn build(config: Configuration<'_>, position: &ChainPosition<'_>) -> Result<Codec> {
    let input = &position.repr.shape;
    let rank = input.len();
    let wrong = || {
        let expected =
            format!("lengths, lists of the {rank} dimensions in order, and at most one -1");
        config.unexpected("shape", expected)
    };
    let list = config.get("shape").and_then(Value::as_array);
    let lengths: Option<Vec<ReshapeDimension>> =
        list.and_then(|list| list.iter().map(parse_dimension).collect());
    let lengths = lengths.ok_or_else(wrong)?;
    let shape = resolve(&lengths, input).ok_or_else(wrong)?;
    let consistent = are_consistent(&lengths, input, &shape);
    consistent.ok_or_else(|| {
        let expected =
            format!("a shape with the elements of {input:?} in each group of dimensions");
        config.unexpected("shape", expected)
    })?;
    let repr = ArrayRepr {
        shape,
        ..position.repr.clone()
    };
    Ok(Codec::ArrayToArray(Box::new(Reshape { repr })))
}

fn parse_dimension(value: &Value) -> Option<ReshapeDimension> {
    match value {
        Value::Array(list) => {
            let dimension = |value: &Value| usize::try_from(value.as_u64()?).ok();
            list.iter()
                .map(dimension)
                .collect::<Option<_>>()
                .map(ReshapeDimension::Product)
        }
        _ if value.as_i64() == Some(-1) => Some(ReshapeDimension::Rest),
        _ => value
            .as_u64()
            .filter(|&length| length > 0)
            .map(ReshapeDimension::Length),
    }
}

/// Returns the shape after `reshape`, or `None` if the configuration does not determine it.
fn resolve(lengths: &[ReshapeDimension], input: &[u64]) -> Option<Vec<u64>> {
    let mut known = 1_u64;
    let mut shape = Vec::with_capacity(lengths.len());
    for length in lengths {
        let length = match length {
            ReshapeDimension::Length(length) => Some(*length),
            ReshapeDimension::Product(dimensions) => {
                let lengths = dimensions
                    .iter()
                    .map(|&dimension| input.get(dimension).copied());
                Some(product(&lengths.collect::<Option<Vec<u64>>>()?)?)
            }
            ReshapeDimension::Rest => None,
        };
        known = known.checked_mul(length.unwrap_or(1))?;
        shape.push(length);
    }
    let all = product(input)?;
    let unknown = shape.iter().filter(|length| length.is_none()).count();
    let rest = all.checked_div(known)?;
    (unknown <= 1).then(|| {
        shape
            .into_iter()
            .map(|length| length.unwrap_or(rest))
            .collect()
    })
}

fn product(lengths: &[u64]) -> Option<u64> {
    lengths
        .iter()
        .try_fold(1_u64, |product, &length| product.checked_mul(length))
}

/// Checks that the new shape has as many elements as the input, and that dimensions given as products keep their
/// positions.
fn are_consistent(lengths: &[ReshapeDimension], input: &[u64], shape: &[u64]) -> Option<()> {
    let mut next = 0;
    let mut consistent = product(shape) == product(input);
    for (n, length) in lengths.iter().enumerate() {
        let ReshapeDimension::Product(dimensions) = length else {
            continue;
        };
        for &dimension in dimensions {
            consistent &= dimension >= next;
            next = dimension + 1;
        }
        if let (Some(&first), Some(&last)) = (dimensions.first(), dimensions.last()) {
            consistent &= product(&shape[..n]) == product(&input[..first]);
            consistent &= product(&shape[n + 1..]) == product(&input[last + 1..]);
        }
    }
    consistent.then_some(())
}

impl ArrayToArray for Reshape {
    fn encoded_repr(&self) -> &ArrayRepr {
        &self.repr
    }

    fn is_identity(&self) -> bool {
        true
    }

    fn decode<'a>(&self, encoded: Data<'a>) -> Result<Data<'a>> {
        Ok(encoded)
    }

    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>> {
        Ok(decoded)
    }
}

#[cfg(test)]
mod tests {
    use crate::codec::Pipeline;
    use crate::codec::tests::pipeline;
    use crate::error::{Kind, Result};
    use serde_json::{Value, json};

    /// Returns codecs that reshape a chunk and then reverse its dimensions, so that the encoded bytes depend on the new
    /// shape.
    fn reshaped(input: &[u64], shape: Value) -> Result<Pipeline> {
        let rank = shape.as_array().map_or(0, Vec::len);
        let order: Vec<usize> = (0..rank).rev().collect();
        let reshape = json!({ "name": "reshape", "configuration": { "shape": shape } });
        let transpose = json!({ "name": "transpose", "configuration": { "order": order } });
        pipeline("uint8", input, json!([reshape, transpose, "bytes"]))
    }

    #[test]
    fn lengths_merged_dimensions_and_minus_one_are_read() {
        let data: Vec<u8> = (0..12).collect();
        let expected = [0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11];
        for shape in [
            json!([4, 3]),
            json!([-1, 3]),
            json!([[0, 1], 3]),
            json!([[0, 1], [2]]),
        ] {
            let pipeline = reshaped(&[2, 2, 3], shape.clone()).unwrap();
            assert_eq!(pipeline.encode(&data).unwrap(), expected, "{shape}");
            assert_eq!(pipeline.decode(expected.to_vec()).unwrap(), data, "{shape}");
        }
    }

    #[test]
    fn reshape_alone_is_the_identity() {
        let reshape = json!({ "name": "reshape", "configuration": { "shape": [-1] } });
        let pipeline = pipeline("uint8", &[2, 3], json!([reshape, "bytes"])).unwrap();
        assert!(pipeline.is_identity());
    }

    #[test]
    fn invalid_shapes_are_corrupt() {
        for shape in [
            json!(null),
            json!([5]),
            json!([-1, -1]),
            json!([-1, 5]),
            json!([0, 12]),
            json!([[1], [0], [2]]),
            json!([[2], 2, 2]),
            json!([[0, 3], 3]),
            json!([[0], [1]]),
            json!([3, [0, 1]]),
            json!([18_446_744_073_709_551_615_u64, 2]),
        ] {
            let error = reshaped(&[2, 2, 3], shape.clone()).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt, "{shape}");
        }
    }
}
