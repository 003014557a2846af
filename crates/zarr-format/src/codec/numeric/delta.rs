//! Codec `numcodecs.delta`: stores the difference of each element to the previous element.
//!
//! The chunk is flattened first. Sums and differences are computed in the decoded type (`dtype`) as in numpy, and
//! integers wrap. So integers are restored exactly, and sums of floats are rounded. If the encoded type (`astype`)
//! cannot represent a difference, encoding fails, where numcodecs would store another number.

use crate::codec::config::Configuration;
use crate::codec::traits::{ChainPosition, Codec};
use crate::error::{Error, Result};

use super::element::{Element, Wide, with_element};
use super::number::{Dtype, Number};
use super::{Kernel, Numeric, decoded_dtype};

/// Codec `numcodecs.delta`: the number types of the decoded sums and of the encoded differences.
#[derive(Debug)]
struct Delta {
    sums: Number,
    differences: Number,
    /// How many numbers an element has: 2 if it is complex, each with sums of its own, else 1.
    parts: usize,
}

/// Builds `numcodecs.delta` from `dtype`, and from `astype` if the encoded type differs.
pub(crate) fn build(config: Configuration<'_>, position: &ChainPosition<'_>) -> Result<Codec> {
    let decoded = decoded_dtype(config, "dtype", position)?;
    let encoded = Dtype::member(config, "astype")?.unwrap_or(decoded);
    if decoded.parts != encoded.parts {
        let what = "delta does not convert between complex and other numbers";
        return Err(Error::unsupported("codecs", what));
    }
    let delta = Delta {
        sums: decoded.number,
        differences: encoded.number,
        parts: decoded.parts,
    };
    Numeric::new("delta", decoded, encoded, delta).at(position)
}

impl Kernel for Delta {
    fn decode(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        with_element!(self.sums, Sum => with_element!(self.differences, Difference => {
            add::<Sum, Difference>(self.parts, encoded, decoded);
        }));
        Ok(())
    }

    fn encode(&self, decoded: &[u8], encoded: &mut [u8]) -> Result<()> {
        let fits = with_element!(self.sums, Sum => with_element!(self.differences, Difference => {
            subtract::<Sum, Difference>(self.parts, decoded, encoded)
        }));
        let unfit = || Error::invalid("delta", "a difference is out of range of the encoded type");
        fits.then_some(()).ok_or_else(unfit)
    }

    fn is_lossy(&self) -> bool {
        let exact = |number: Number| !number.is_float() && number != Number::Bool;
        !exact(self.sums) || !exact(self.differences)
    }
}

/// Decodes differences: writes their running sums.
fn add<Sum: Element, Difference: Element>(parts: usize, encoded: &[u8], decoded: &mut [u8]) {
    let mut sums = [None; 2];
    let encoded = encoded.chunks_exact(Difference::WIDTH);
    for (n, (from, to)) in encoded
        .zip(decoded.chunks_exact_mut(Sum::WIDTH))
        .enumerate()
    {
        let difference = Sum::cast(Difference::read(from).wide());
        let slot = &mut sums[n % parts];
        let sum = slot.map_or(difference, |sum: Sum| sum.plus(difference));
        sum.write(to);
        *slot = Some(sum);
    }
}

/// Encodes numbers: writes the difference of each number to the previous one. Returns whether all integer differences
/// fit the encoded type; float differences are rounded.
fn subtract<Sum: Element, Difference: Element>(
    parts: usize,
    decoded: &[u8],
    encoded: &mut [u8],
) -> bool {
    let mut last = [None; 2];
    let mut fits = true;
    let decoded = decoded.chunks_exact(Sum::WIDTH);
    for (n, (from, to)) in decoded
        .zip(encoded.chunks_exact_mut(Difference::WIDTH))
        .enumerate()
    {
        let value = Sum::read(from);
        let slot = &mut last[n % parts];
        let difference = slot.map_or(value, |last: Sum| value.minus(last));
        let cast = Difference::cast(difference.wide());
        fits &=
            !is_integer(difference.wide()) || Sum::cast(cast.wide()).wide() == difference.wide();
        cast.write(to);
        *slot = Some(value);
    }
    fits
}

fn is_integer(wide: Wide) -> bool {
    !matches!(wide, Wide::Float(_))
}

#[cfg(test)]
mod tests {
    use crate::codec::Pipeline;
    use crate::codec::tests::pipeline;
    use crate::error::Kind;
    use serde_json::{Value, json};

    fn delta(data_type: &str, configuration: Value) -> Pipeline {
        let delta = json!({ "name": "numcodecs.delta", "configuration": configuration });
        pipeline(data_type, &[2, 2], json!([delta, "bytes"])).unwrap()
    }

    #[test]
    fn differences_of_integers_wrap() {
        let pipeline = delta("uint8", json!({ "dtype": "|u1" }));
        assert_eq!(pipeline.encode(&[5, 3, 255, 0]).unwrap(), [5, 254, 252, 1]);
        assert_eq!(
            pipeline.decode(vec![5, 254, 252, 1]).unwrap(),
            [5, 3, 255, 0]
        );
        assert!(!pipeline.is_lossy());
    }

    #[test]
    fn differences_may_be_narrower_but_must_fit() {
        let pipeline = delta("int16", json!({ "dtype": "<i2", "astype": "|i1" }));
        let data: Vec<u8> = [100_i16, 102, -20, -21]
            .iter()
            .flat_map(|n| n.to_le_bytes())
            .collect();
        let encoded = pipeline.encode(&data).unwrap();
        assert_eq!(encoded, [100, 2, 0x86, 0xff]);
        assert_eq!(pipeline.decode(encoded).unwrap(), data);
        let wide: Vec<u8> = [100_i16, 302, 0, 0]
            .iter()
            .flat_map(|n| n.to_le_bytes())
            .collect();
        assert_eq!(pipeline.encode(&wide).unwrap_err().kind(), Kind::Invalid);
    }

    #[test]
    fn bools_are_subtracted_and_summed_like_in_numpy() {
        let pipeline = delta("bool", json!({ "dtype": "|b1" }));
        assert_eq!(pipeline.encode(&[1, 1, 0, 1]).unwrap(), [1, 0, 1, 1]);
        assert_eq!(pipeline.decode(vec![0, 1, 0, 1]).unwrap(), [0, 1, 1, 1]);
        assert!(pipeline.is_lossy());
    }

    #[test]
    fn delta_after_bytes_uses_the_stored_byte_order() {
        let codecs =
            json!(["bytes", { "name": "numcodecs.delta", "configuration": { "dtype": ">i2" } }]);
        let pipeline = pipeline("uint8", &[4], codecs).unwrap();
        assert_eq!(pipeline.decode(vec![1, 0, 0, 2]).unwrap(), [1, 0, 1, 2]);
        assert_eq!(pipeline.encode(&[1, 0, 1, 2]).unwrap(), [1, 0, 0, 2]);
    }
}
