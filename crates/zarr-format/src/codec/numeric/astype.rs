//! Codec `numcodecs.astype`: casts each element to another type, as numpy casts.
//!
//! Lossless only if the encoded type can represent every decoded value.

use serde_json::Value;

use crate::codec::config::Configuration;
use crate::codec::kind::{ChainPosition, Codec};
use crate::error::{Error, Result};

use super::element::cast_all;
use super::number::{Dtype, Number};
use super::{Kernel, Numeric, decoded_dtype};

/// The decoded and the encoded type.
#[derive(Debug)]
struct AsType {
    decoded: Number,
    encoded: Number,
}

/// Reads the configuration: `encode_dtype` and `decode_dtype`.
pub(crate) fn build(config: Configuration<'_>, position: &ChainPosition<'_>) -> Result<Codec> {
    let decoded = decoded_dtype(config, "decode_dtype", position)?;
    let encoded = Dtype::member(config, "encode_dtype")?
        .ok_or_else(|| config.unexpected("encode_dtype", "a type string of numpy, such as <f4"))?;
    if decoded.parts != encoded.parts || names_dates(config) {
        let what = "astype does not convert between complex and other numbers, or dates";
        return Err(Error::unsupported("codecs", what));
    }
    let cast = AsType {
        decoded: decoded.number,
        encoded: encoded.number,
    };
    Numeric::new("astype", decoded, encoded, cast).at(position)
}

/// Whether one of the types is a date or duration, whose units numpy would convert.
fn names_dates(config: Configuration<'_>) -> bool {
    ["encode_dtype", "decode_dtype"].iter().any(|name| {
        let text = config.get(name).and_then(Value::as_str).unwrap_or_default();
        text.contains("M8") || text.contains("m8")
    })
}

impl Kernel for AsType {
    fn decode(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        cast_all(self.encoded, encoded, self.decoded, decoded);
        Ok(())
    }

    fn encode(&self, decoded: &[u8], encoded: &mut [u8]) -> Result<()> {
        cast_all(self.decoded, decoded, self.encoded, encoded);
        Ok(())
    }

    fn is_lossy(&self) -> bool {
        !self.decoded.fits(self.encoded)
    }
}

#[cfg(test)]
mod tests {
    use crate::codec::Pipeline;
    use crate::codec::tests::pipeline;
    use serde_json::json;

    fn astype(data_type: &str, encoded: &str) -> Pipeline {
        let configuration = json!({ "encode_dtype": encoded });
        let astype = json!({ "name": "numcodecs.astype", "configuration": configuration });
        let big = json!({ "name": "bytes", "configuration": { "endian": "big" } });
        pipeline(data_type, &[2], json!([astype, big])).unwrap()
    }

    #[test]
    fn narrower_numbers_are_stored() {
        let pipeline = astype("int32", "<i2");
        let encoded = pipeline
            .encode(&[1, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff])
            .unwrap();
        assert_eq!(encoded, [0, 1, 0xff, 0xfe]);
        assert_eq!(
            pipeline.decode(encoded).unwrap(),
            [1, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff]
        );
        assert!(pipeline.is_lossy());
        assert!(!astype("float32", "<f8").is_lossy());
        assert!(astype("int32", "<f4").is_lossy());
    }
}
