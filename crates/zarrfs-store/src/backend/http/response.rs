//! Interprets a response's status and headers: object or not, version, and range.

use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

use http::HeaderMap;
use http::header::CONTENT_RANGE;
use object_store::client::{HttpResponse, HttpResponseBody};
use url::Url;

use super::index_page;
use super::urls::{UrlSpace, too_long};
use crate::backend::remote::errors::ANSWERED;
use crate::backend::remote::headers;
use crate::backend::remote::headers::opaque_tag;
use crate::backend::remote::login::{LOGIN_OPTIONS, SentLogin};
use crate::backend::remote::redirect::FinalUrl;
use crate::{EntryKind, Key, Meta, Version};
use zarr_format::error::{Error, Kind, Result};

/// Which URL a response came from, after all redirects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseOrigin {
    /// The requested URL: the response is about an object.
    Object,
    /// The requested URL with a slash at the end, so the key is a directory.
    Folder,
    /// A URL that ends with the key, in another directory or on another server.
    Moved,
    /// Another URL on the store's server, such as a page for missing objects or for a login.
    Elsewhere,
    /// A URL on another server that does not end with the key, because that server stores the object under another
    /// name.
    OtherServer,
}

/// What a response says about the requested key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseKind {
    There,
    /// The response is an HTML page, which may be a directory's index page.
    Page,
    Folder,
    Missing,
    /// The requested range is outside the object.
    OutOfRange,
}

/// The header Content-Range. In a refusal (416) it states only the object's size, and some servers state only the
/// range.
struct ContentRange {
    range: Option<Range<u64>>,
    size: Option<u64>,
}

/// A range of an object, and the length of the whole object.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SizedRange {
    pub(super) range: Range<u64>,
    pub(super) size: u64,
}

/// A response whose body is not read yet.
pub(super) struct ResponseHead {
    pub(super) status: u16,
    pub(super) origin: ResponseOrigin,
    /// The host that sent the response, if it is not the store's server.
    other_host: Option<String>,
    /// The credentials that the request contained.
    login: SentLogin,
    pub(super) headers: HeaderMap,
    pub(super) body: HttpResponseBody,
}

impl ResponseHead {
    pub(super) fn new(response: HttpResponse, urls: &UrlSpace, key: &Key) -> ResponseHead {
        let url = response.extensions().get().map(|FinalUrl(url)| url);
        let other = url.filter(|url| !urls.is_of_server(url));
        let other_host = other.and_then(Url::host_str).map(str::to_string);
        let login = response.extensions().get().copied().unwrap_or_default();
        let origin = match url {
            Some(url) if urls.is_of_elsewhere(key, url) => ResponseOrigin::Moved,
            Some(url) if !urls.is_of(key, url) && urls.is_of_server(url) => {
                ResponseOrigin::Elsewhere
            }
            Some(url) if !urls.is_of(key, url) => ResponseOrigin::OtherServer,
            Some(url) if url.path().ends_with('/') => ResponseOrigin::Folder,
            Some(_) | None => ResponseOrigin::Object,
        };
        let (parts, body) = response.into_parts();
        ResponseHead {
            status: parts.status.as_u16(),
            origin,
            other_host,
            login,
            headers: parts.headers,
            body,
        }
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub(super) fn content_type(&self) -> &str {
        self.text("content-type").unwrap_or_default()
    }

    /// Returns the error `Unsupported` if the body is compressed (Content-Encoding), since its bytes are not the
    /// object's.
    pub(super) fn check_encoding(&self, key: &Key) -> Result<()> {
        match self.text("content-encoding") {
            Some(coding) => headers::check_content_encoding(coding, key),
            None => Ok(()),
        }
    }

    /// Returns the length of the body, or `None` if the headers do not state it.
    pub(super) fn length(&self) -> Option<u64> {
        self.text("content-length")?.trim().parse().ok()
    }

    /// Whether the header `Accept-Ranges` says that the server supports ranges.
    pub(super) fn accepts_ranges(&self) -> bool {
        self.text("accept-ranges")
            .is_some_and(|unit| unit.trim() == "bytes")
    }

    /// Returns the range of the object that the body contains, and the length of the whole object.
    pub(super) fn sized_range(&self) -> Option<SizedRange> {
        let ContentRange { range, size } = self.content_range()?;
        let (range, size) = (range?, size?);
        (range.end <= size).then_some(SizedRange { range, size })
    }

    /// Whether the response is a range of an object, but does not state the object's length.
    pub(super) fn is_range_without_size(&self) -> bool {
        let range = self.content_range();
        self.status == 206
            && range.is_some_and(|range| range.range.is_some() && range.size.is_none())
    }

    /// Adds the length of the whole object to the headers of a range response that does not state it.
    pub(super) fn set_size(&mut self, size: u64) {
        if self.is_range_without_size()
            && let Some(Range { start, end }) = self.content_range().and_then(|range| range.range)
            && let Ok(range) = format!("bytes {start}-{}/{size}", end - 1).parse()
        {
            self.headers.insert(CONTENT_RANGE, range);
        }
    }

    /// Whether the response states an invalid range, together with the length of the object.
    pub(super) fn is_invalid_range(&self) -> bool {
        self.status == 206 && self.sized_range().is_none() && self.object_size().is_some()
    }

    /// Returns the length of the whole object, if the header Content-Range states it. A refusal of a range (416) may
    /// too.
    pub(super) fn object_size(&self) -> Option<u64> {
        self.content_range()?.size
    }

    fn content_range(&self) -> Option<ContentRange> {
        let value = self.text("content-range")?.trim().strip_prefix("bytes")?;
        let (span, size) = value.split_once('/')?;
        let range = span.trim().split_once('-').and_then(|(first, last)| {
            let start: u64 = first.trim().parse().ok()?;
            let last: u64 = last.trim().parse().ok()?;
            Some(start..last.checked_add(1)?)
        });
        Some(ContentRange {
            range: range.filter(|range| !range.is_empty()),
            size: size.trim().parse().ok(),
        })
    }

    pub(super) fn validators(&self) -> Validators {
        let tag = self.text("etag").filter(|tag| opaque_tag(tag).is_some());
        let time = self.text("last-modified");
        Validators {
            tag: tag.map(|tag| tag.trim().to_string()),
            modified: time.and_then(|time| httpdate::parse_http_date(time).ok()),
        }
    }

    /// Returns what the response says about `key`. If the server refused access, the error is `Denied`, `Unavailable`
    /// or another kind.
    pub(super) fn response_kind(&self, key: &Key) -> Result<ResponseKind> {
        match (self.origin, self.status) {
            // A redirect to the URL with a slash proves that the key is a directory, even if the server refuses to list
            // it.
            (ResponseOrigin::Folder, 200..=299 | 401 | 403 | 404) => Ok(ResponseKind::Folder),
            // The store's server knows the key and redirects to another server, which has lost the object. That is an
            // error, since a missing key would read as the fill value.
            (ResponseOrigin::OtherServer, 404) => {
                let text =
                    "the server redirects to another server, which does not have the object (404)";
                Err(Error::unavailable(key, text))
            }
            (_, 404) => Ok(ResponseKind::Missing),
            (_, 416) => Ok(ResponseKind::OutOfRange),
            (
                ResponseOrigin::Elsewhere | ResponseOrigin::OtherServer | ResponseOrigin::Moved,
                200..=299,
            ) if index_page::is_html(self.content_type()) => {
                let host = self.other_host.as_ref();
                let host = host.map_or_else(String::new, |host| format!(" at {host}"));
                let text = format!(
                    "the server redirects to a web page{host}, probably for a login; use {LOGIN_OPTIONS}"
                );
                Err(Error::new(Kind::Denied, key, text))
            }
            // The status "No content" does not mean an empty object.
            (_, 204 | 205) => Err(refusal(key, self.status)),
            (_, 200..=299) if index_page::is_html(self.content_type()) => Ok(ResponseKind::Page),
            (_, 200..=299) => Ok(ResponseKind::There),
            _ => Err(self.refusal(key)),
        }
    }

    /// Returns the error for the response's status. For a refusal (401, 403), the error says what the user can do.
    pub(super) fn refusal(&self, key: &Key) -> Error {
        let status = self.status;
        let error = refusal(key, status);
        if !matches!(status, 401 | 403) {
            return error;
        }
        let detail = match &self.other_host {
            Some(host) if status == 401 => {
                format!("the server redirects to {host}, which wants a login ({status})")
            }
            Some(host) => {
                format!("the server redirects to {host}, which refused access ({status})")
            }
            None => error.detail().to_string(),
        };
        Error::new(error.kind(), key, self.with_login_hint(&detail))
    }

    /// Adds to the text of a refusal what the user can do about it.
    pub(super) fn with_login_hint(&self, detail: &str) -> String {
        let hint = match (&self.other_host, self.login) {
            (Some(_), SentLogin::Nothing) if self.status == 401 => format!("use {LOGIN_OPTIONS}"),
            (_, login) => login.hint(self.status),
        };
        format!("{detail}; {hint}")
    }
}

/// The values that distinguish versions of an object (RFC 9110, section 8.8).
pub(super) struct Validators {
    /// The ETag as the server spells it, or `None` if the response has no valid ETag.
    pub(super) tag: Option<String>,
    /// When the object was last changed, from the header Last-Modified.
    pub(super) modified: Option<SystemTime>,
}

impl Validators {
    /// Returns the ETag without its quotes and without the `W/` of a weak ETag, or `None` if there is no usable ETag.
    pub(super) fn opaque_tag(&self) -> Option<&str> {
        opaque_tag(self.tag.as_deref()?)
    }

    /// Returns the metadata of an object of `size` bytes, with its version and time from the validators.
    pub(super) fn meta(&self, size: u64) -> Meta {
        Meta {
            kind: EntryKind::File,
            size,
            stored: size,
            modified: self.modified.unwrap_or(UNIX_EPOCH),
            version: version(self.tag.as_deref(), self.modified, size),
        }
    }
}

/// Returns the error for an HTTP status, without advice to the user.
pub(super) fn refusal(key: &Key, status: u16) -> Error {
    let kind = match status {
        401 | 403 | 407 => Kind::Denied,
        404 => Kind::NotFound,
        400 => Kind::Invalid,
        412 => Kind::Changed,
        414 => return too_long(key),
        _ => Kind::Unavailable,
    };
    let text = match kind {
        Kind::Denied => format!("the server refused access ({status})"),
        // Status 410 ("Gone") is not taken for a missing key: lost data must not read as the fill value.
        _ if status == 410 => format!("the object was deleted from the server ({status})"),
        _ => format!("{ANSWERED}{status}"),
    };
    Error::new(kind, key, text)
}

/// Returns the version of an object: a hash of its ETag, or of its size and time if it has no ETag.
pub(super) fn version(tag: Option<&str>, modified: Option<SystemTime>, size: u64) -> Version {
    match tag.and_then(opaque_tag) {
        Some(name) => Version::of(name.as_bytes()),
        None => Version::transient(size, modified),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head_of(status: u16, origin: ResponseOrigin, headers: &[(&str, &str)]) -> ResponseHead {
        let mut response = http::Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        let body = String::new().into();
        let urls = UrlSpace::parse("http://host/", "").unwrap();
        let response = response.body(body).unwrap();
        ResponseHead {
            origin,
            ..ResponseHead::new(response, &urls, &Key::root())
        }
    }

    #[test]
    fn a_response_is_classified_by_status_origin_and_type() {
        let key = Key::new("a").unwrap();
        let html = [("content-type", "Text/HTML; charset=utf-8")];
        let kind_of = |status, origin, headers: &[(&str, &str)]| {
            head_of(status, origin, headers).response_kind(&key)
        };
        use ResponseOrigin::*;
        assert_eq!(kind_of(200, Object, &[]).unwrap(), ResponseKind::There);
        assert_eq!(kind_of(200, Object, &html).unwrap(), ResponseKind::Page);
        assert_eq!(kind_of(200, Folder, &html).unwrap(), ResponseKind::Folder);
        assert_eq!(kind_of(403, Folder, &html).unwrap(), ResponseKind::Folder);
        assert_eq!(kind_of(404, Object, &html).unwrap(), ResponseKind::Missing);
        for origin in [Moved, Elsewhere] {
            assert_eq!(kind_of(404, origin, &html).unwrap(), ResponseKind::Missing);
        }
        let refused = |status, origin| kind_of(status, origin, &html).unwrap_err().kind();
        assert_eq!(refused(200, Elsewhere), Kind::Denied);
        assert_eq!(refused(200, Moved), Kind::Denied);
        assert_eq!(refused(200, OtherServer), Kind::Denied);
        assert_eq!(refused(404, OtherServer), Kind::Unavailable);
        assert_eq!(refused(410, Object), Kind::Unavailable);
        assert_eq!(refused(405, Object), Kind::Unavailable);
        assert_eq!(refused(403, Object), Kind::Denied);
        assert_eq!(refused(503, Folder), Kind::Unavailable);
    }

    #[test]
    fn only_a_complete_content_range_is_accepted() {
        let part =
            |range| head_of(206, ResponseOrigin::Object, &[("content-range", range)]).sized_range();
        let expected = SizedRange {
            range: 2..6,
            size: 10,
        };
        assert_eq!(part("bytes 2-5/10"), Some(expected));
        for bad in [
            "bytes 2-5/*",
            "bytes 5-2/10",
            "bytes 2-10/10",
            "2-5/10",
            "bytes */10",
        ] {
            assert_eq!(part(bad), None, "{bad}");
        }
        assert_eq!(
            part("bytes 0-18446744073709551615/18446744073709551615"),
            None
        );
    }

    #[test]
    fn a_content_range_without_size_gets_the_known_size() {
        for (range, expected) in [
            ("bytes 2-5/*", Some((2..6, 10))),
            ("bytes 2-10/*", None),
            ("bytes 5-2/*", None),
            ("bytes 2-5/20", Some((2..6, 20))),
        ] {
            let headers = [("content-range", range)];
            let mut head = head_of(206, ResponseOrigin::Object, &headers);
            head.set_size(10);
            let found = head.sized_range().map(|sized| (sized.range, sized.size));
            assert_eq!(found, expected, "{range}");
        }
    }

    #[test]
    fn a_version_is_the_etag_or_time_and_size() {
        let time = UNIX_EPOCH.checked_add(std::time::Duration::from_secs(7));
        assert_eq!(
            version(Some("W/\"a\""), time, 1),
            version(Some("a"), None, 2)
        );
        assert_ne!(version(None, time, 1), version(None, time, 2));
        assert_ne!(version(None, time, 1), version(None, None, 1));
    }

    #[test]
    fn a_response_without_validators_has_a_transient_version() {
        let head = head_of(200, ResponseOrigin::Object, &[]);
        let (first, other) = (head.validators().meta(7), head.validators().meta(8));
        assert!(!first.version.is_lasting());
        std::thread::sleep(std::time::Duration::from_millis(110));
        let later = head.validators().meta(7);
        assert_ne!(first.version, later.version);
        assert!(first.may_be_of(&later) && !first.may_be_of(&other));
        let tagged = head_of(200, ResponseOrigin::Object, &[("etag", "a")]);
        let tagged = tagged.validators().meta(7);
        assert!(tagged.version.is_lasting() && !first.may_be_of(&tagged));
    }
}
