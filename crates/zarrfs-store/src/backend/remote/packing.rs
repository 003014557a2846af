//! Rejects objects that a server compresses without being asked (RFC 9110, section 8.4).

use std::fmt::Display;

use zarr_format::error::{Error, Result};

/// Codings that change the bytes. Others, such as `identity` and `aws-chunked`, leave a body as it is.
const PACKING: [&str; 7] = [
    "br",
    "compress",
    "deflate",
    "gzip",
    "x-compress",
    "x-gzip",
    "zstd",
];

/// Returns the error `Unsupported`, about `subject`, if the value of `Content-Encoding` means a compressed body.
pub(crate) fn check(coding: &str, subject: impl Display) -> Result<()> {
    let mut codings = coding.split(',').map(str::trim);
    let packing = codings.find(|one| PACKING.iter().any(|known| one.eq_ignore_ascii_case(known)));
    match packing {
        Some(packing) => {
            let text = format!(
                "the server gives it out packed (Content-Encoding: {packing}), which is not undone here"
            );
            Err(Error::unsupported(subject.to_string(), text))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zarr_format::error::Kind;

    #[test]
    fn packed_bodies_are_refused() {
        for packed in ["gzip", "GZip", "aws-chunked, gzip", "br"] {
            let error = check(packed, "a").unwrap_err();
            assert_eq!(error.kind(), Kind::Unsupported);
            assert!(error.to_string().contains("Content-Encoding"), "{error}");
        }
        for plain in ["", "identity", "aws-chunked"] {
            check(plain, "a").unwrap();
        }
    }
}
