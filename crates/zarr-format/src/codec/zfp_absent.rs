//! Rejects codecs `zfpy` and `zfp` in programs built without feature `zfp`.

use crate::error::{Error, Result};

use super::config::Configuration;
use super::kind::{ChainPosition, Codec};

/// Fails with `Unsupported` for codec `zfp`, and says how to build the program with it.
pub(super) fn build(_members: Configuration<'_>, _place: &ChainPosition<'_>) -> Result<Codec> {
    let why = "codec zfp: this program is built without the zfp library, which `cargo install --features zfp` adds";
    Err(Error::unsupported("codecs", why))
}

/// Fails with `Unsupported` for codec `zfpy` in the same way.
pub(super) fn zfpy(config: Configuration<'_>, position: &ChainPosition<'_>) -> Result<Codec> {
    build(config, position)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::codec::tests::pipeline;
    use crate::error::Kind;

    #[test]
    fn every_name_is_refused_with_the_feature_that_is_missing() {
        for name in ["zfp", "zfpy", "numcodecs.zfpy"] {
            let error = pipeline("float32", &[4], json!([name])).unwrap_err();
            assert_eq!(error.kind(), Kind::Unsupported);
            assert!(error.detail().contains("--features zfp"), "{error}");
        }
    }
}
