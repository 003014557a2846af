//! Codecs `zfpy` and `zfp`, which are refused.
//!
//! The bindings of the zfp library need cmake and libclang to build, which the project does not ask for. The
//! names are known so that a person hears why.

use crate::error::Error;
use crate::error::Result;

use super::config::Members;
use super::kind::Codec;
use super::kind::Place;

/// Says that there is no such codec, and why.
pub(super) fn build(_members: Members<'_>, _place: &Place<'_>) -> Result<Codec> {
    let why = "codec zfp: this program is built without the zfp library";
    Err(Error::unsupported("codecs", why))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::codec::tests::pipeline;
    use crate::error::Kind;

    #[test]
    fn every_name_is_refused_with_a_reason() {
        for name in ["zfp", "zfpy", "numcodecs.zfpy"] {
            let error = pipeline("float32", &[4], json!([name])).unwrap_err();
            assert_eq!(error.kind(), Kind::Unsupported);
            assert!(error.detail().contains("zfp library"), "{error}");
        }
    }
}
