//! Checks endpoints and regions that the user gave, and names their source in errors.
//!
//! object_store accepts any text, and panics at the first request if the text makes no valid URL.

use std::fmt::Display;

use url::Url;

use zarr_format::error::{Error, Result};

/// Parses the address of a server. If it is not one, the error is `Invalid`. `from` is the option that gave it, with
/// the text between the option and the address.
pub(super) fn check_endpoint(from: impl Display, text: &str) -> Result<Url> {
    let url = Url::parse(text).ok();
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    url.ok_or_else(|| {
        let shown = crate::redacted(text.split('?').next().unwrap_or_default());
        // An invalid URL can contain a password too.
        let shown = shown.rsplit('@').next().unwrap_or_default();
        Error::invalid(
            format!("{from}{shown}"),
            "expected http://HOST or https://HOST",
        )
    })
}

/// Checks the name of a region, which becomes part of a host name. The error is `Invalid` if it cannot be one.
pub(super) fn check_region(from: impl Display, text: &str) -> Result<()> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    if text.chars().all(is_plain) {
        return Ok(());
    }
    let why = "expected the name of a region, such as eu-west-1";
    Err(Error::invalid(format!("{from}{text}"), why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "http://localhost:9000",
            "HTTPS://h",
            "https://h/path",
            "http://[::1]:9",
        ] {
            assert!(check_endpoint("", text).is_ok(), "{text}");
        }
        for (text, shown) in [
            ("localhost:9000", "localhost:9000"),
            ("notaurl", "notaurl"),
            ("", ""),
            ("http://", "http://"),
            ("http://a b", "http://a b"),
            ("ftp://h", "ftp://h"),
            ("me:hush@h?key=hush", "h"),
            ("ftp://me:hush@h?key=hush", "ftp://h"),
        ] {
            let error = check_endpoint("--endpoint ", text).unwrap_err().to_string();
            let expected = format!("--endpoint {shown}: expected http://HOST or https://HOST");
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn what_is_no_region_is_refused() {
        for text in ["eu-west-1", "auto", "Region_1"] {
            assert!(check_region("", text).is_ok(), "{text}");
        }
        let error = check_region("--region ", "a b").unwrap_err().to_string();
        let expected = "--region a b: expected the name of a region, such as eu-west-1";
        assert_eq!(error, expected);
    }
}
