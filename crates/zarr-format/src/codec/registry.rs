//! Finds the constructor of a codec by its name.
//!
//! The names are those of Zarr v3, of its extensions and of numcodecs. Other dialects translate their codec names into
//! these.

use super::traits::BuildCodec;
#[cfg(feature = "zfp")]
use super::zfp;
use super::{checksum, compress, conditional, numeric, object, order, shard};

pub(super) fn find(name: &str) -> Option<BuildCodec> {
    let entry = CODECS.iter().find(|(known, _)| *known == name);
    entry.map(|(_, build)| *build)
}

const CODECS: &[(&str, BuildCodec)] = &[
    ("adler32", checksum::adler32),
    ("astype", numeric::cast::astype),
    ("base64", compress::base64::build),
    ("bitround", numeric::quantize::bitround),
    ("blosc", compress::blosc::build),
    ("bytes", order::bytes::build),
    ("bz2", compress::bz2::build),
    ("bzip2", compress::bz2::build),
    ("cast_value", numeric::cast::value),
    ("conditional", conditional::build),
    ("crc32", checksum::crc32),
    ("crc32c", checksum::crc32c),
    ("delta", numeric::delta::build),
    ("endian", order::bytes::build),
    ("fixedscaleoffset", numeric::scale_offset::fixed),
    ("fletcher32", checksum::fletcher),
    ("gzip", compress::deflate::gzip),
    ("jenkins_lookup3", checksum::jenkins_lookup3),
    ("lz4", compress::lz4::frame),
    ("lzma", compress::lzma::build),
    ("n5.lz4", compress::lz4::java),
    ("n5_default", compress::n5_default::build),
    ("numcodecs.adler32", checksum::adler32),
    ("numcodecs.astype", numeric::cast::astype),
    ("numcodecs.base64", compress::base64::build),
    ("numcodecs.bitround", numeric::quantize::bitround),
    ("numcodecs.blosc", compress::blosc::build),
    ("numcodecs.bz2", compress::bz2::build),
    ("numcodecs.categorize", object::categorize::build),
    ("numcodecs.crc32", checksum::crc32),
    ("numcodecs.crc32c", checksum::crc32c),
    ("numcodecs.delta", numeric::delta::build),
    ("numcodecs.fixedscaleoffset", numeric::scale_offset::fixed),
    ("numcodecs.fletcher32", checksum::fletcher),
    ("numcodecs.gzip", compress::deflate::gzip),
    ("numcodecs.jenkins_lookup3", checksum::jenkins_lookup3),
    ("numcodecs.json", object::json),
    ("numcodecs.json2", object::json),
    ("numcodecs.lz4", compress::lz4::block),
    ("numcodecs.lzma", compress::lzma::build),
    ("numcodecs.msgpack", object::message_pack),
    ("numcodecs.msgpack2", object::message_pack),
    ("numcodecs.packbits", numeric::packbits::booleans),
    ("numcodecs.pcodec", compress::pcodec::build),
    ("numcodecs.quantize", numeric::quantize::decimal),
    ("numcodecs.shuffle", compress::shuffle::build),
    ("numcodecs.vlen-array", object::vlen::array),
    ("numcodecs.vlen-bytes", object::vlen::bytes),
    ("numcodecs.vlen-utf8", object::vlen::utf8),
    ("numcodecs.zfpy", zfp::zfpy),
    ("numcodecs.zlib", compress::deflate::zlib),
    ("numcodecs.zstd", compress::zstd::build),
    ("packbits", numeric::packbits::build),
    ("quantize", numeric::quantize::decimal),
    ("reshape", order::reshape::build),
    ("scale_offset", numeric::scale_offset::build),
    ("sharding_indexed", shard::build),
    ("shuffle", compress::shuffle::build),
    ("transpose", order::transpose::build),
    ("vlen-array", object::vlen::array),
    ("vlen-bytes", object::vlen::bytes),
    ("vlen-utf8", object::vlen::utf8),
    ("xz", compress::lzma::build),
    ("zfp", zfp::build),
    ("zfpy", zfp::zfpy),
    ("zlib", compress::deflate::zlib),
    ("zstd", compress::zstd::build),
];

/// Stub of the codecs `zfp` and `zfpy` for programs built without feature `zfp`.
#[cfg(not(feature = "zfp"))]
mod zfp {
    use crate::codec::config::Configuration;
    use crate::codec::traits::{ChainPosition, Codec};
    use crate::error::{Error, Result};

    /// Fails with `Unsupported`, and says how to build the program with zfp.
    pub(super) fn build(_: Configuration<'_>, _: &ChainPosition<'_>) -> Result<Codec> {
        let why =
            "codec zfp is not built in: build zarrfs with `cargo install --path . --features zfp`";
        Err(Error::unsupported("codecs", why))
    }

    pub(super) use build as zfpy;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codec_names_are_unique() {
        for (n, (name, _)) in CODECS.iter().enumerate() {
            assert!(CODECS[..n].iter().all(|(other, _)| other != name), "{name}");
        }
    }

    #[cfg(not(feature = "zfp"))]
    #[test]
    fn zfp_codecs_are_refused_naming_the_missing_feature() {
        for name in ["zfp", "zfpy", "numcodecs.zfpy"] {
            let error = crate::codec::tests::pipeline("float32", &[4], serde_json::json!([name]))
                .unwrap_err();
            assert_eq!(error.kind(), crate::error::Kind::Unsupported);
            assert!(error.detail().contains("--features zfp"), "{error}");
        }
    }
}
