//! Parses the response headers Retry-After, Content-Encoding and ETag.

use std::fmt::Display;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode};

use zarr_format::error::{Error, Result};

/// Returns how long a busy server asks to wait (Retry-After; RFC 9110, section 10.2.3), or `None`.
pub(crate) fn retry_after(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    if !matches!(status.as_u16(), 429 | 503) {
        return None;
    }
    let value = headers.get(http::header::RETRY_AFTER)?.to_str().ok()?;
    pause(value.trim(), SystemTime::now())
}

fn pause(value: &str, now: SystemTime) -> Option<Duration> {
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = httpdate::parse_http_date(value).ok()?;
    Some(until.duration_since(now).unwrap_or_default())
}

/// Returns the error `Unsupported`, about `subject`, if the value of `Content-Encoding` means a compressed body (RFC
/// 9110, section 8.4). Other codings, such as `identity` and `aws-chunked`, leave a body as it is.
pub(crate) fn check_content_encoding(value: &str, subject: impl Display) -> Result<()> {
    let compressed = "br compress deflate gzip x-compress x-gzip zstd";
    for coding in value.split(',').map(str::trim) {
        if compressed
            .split(' ')
            .any(|known| coding.eq_ignore_ascii_case(known))
        {
            let text = format!(
                "the server sends the object with Content-Encoding: {coding}, which zarrfs does not decode"
            );
            return Err(Error::unsupported(subject.to_string(), text));
        }
    }
    Ok(())
}

/// Returns an ETag without its quotes and without the `W/` of a weak ETag (RFC 9110, section 8.8.3), or `None` if the
/// rest is blank.
///
/// Some servers quote the ETag, or mark it as weak, in one response and not in the next. An empty or blank ETag is not
/// used: the object would seem never to change.
pub(crate) fn opaque_tag(tag: &str) -> Option<&str> {
    let tag = tag.trim();
    let tag = tag.strip_prefix("W/").unwrap_or(tag);
    let name = tag.trim_matches('"');
    (!name.trim().is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zarr_format::error::Kind;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
        for (value, expected) in [
            ("0", Some(0)),
            ("120", Some(120)),
            ("Sun, 13 Sep 2020 12:27:00 GMT", Some(20)),
            ("Sun, 13 Sep 2020 12:26:00 GMT", Some(0)),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
            ("99999999999999999999999", None),
        ] {
            assert_eq!(
                pause(value, now),
                expected.map(Duration::from_secs),
                "{value}"
            );
        }
    }

    #[test]
    fn retry_after_is_ignored_unless_the_server_is_busy() {
        let mut headers = HeaderMap::new();
        assert_eq!(retry_after(StatusCode::SERVICE_UNAVAILABLE, &headers), None);
        headers.insert("retry-after", "7".parse().unwrap());
        let seven = Some(Duration::from_secs(7));
        assert_eq!(
            retry_after(StatusCode::SERVICE_UNAVAILABLE, &headers),
            seven
        );
        assert_eq!(retry_after(StatusCode::TOO_MANY_REQUESTS, &headers), seven);
        assert_eq!(retry_after(StatusCode::OK, &headers), None);
    }

    #[test]
    fn compressed_bodies_are_refused() {
        for packed in ["gzip", "GZip", "aws-chunked, gzip", "br"] {
            let error = check_content_encoding(packed, "a").unwrap_err();
            assert_eq!(error.kind(), Kind::Unsupported);
            assert!(error.to_string().contains("Content-Encoding"), "{error}");
        }
        for plain in ["", "identity", "aws-chunked"] {
            check_content_encoding(plain, "a").unwrap();
        }
    }

    #[test]
    fn an_empty_etag_is_ignored() {
        for tag in ["", " ", "\"\"", "W/\"\"", "\" \"", "W/", " \"\" ", "\"\t\""] {
            assert_eq!(opaque_tag(tag), None, "{tag:?}");
        }
        for tag in ["a", "\"a\"", "W/\"a\"", " W/a "] {
            assert_eq!(opaque_tag(tag), Some("a"), "{tag:?}");
        }
    }
}
