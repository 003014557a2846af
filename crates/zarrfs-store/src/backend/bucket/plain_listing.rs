//! Removes keys from listings that are not valid paths.
//!
//! A bucket may have keys with empty parts (`a//b`), with `.` or `..` as parts, or with control characters. No Zarr
//! writer makes them, no file can have such a name, and object_store fails on the whole page that lists one. Such keys
//! are removed from each page before object_store parses it, and counted as not shown. This module also turns the
//! status that means "missing" on this server (`--missing-is`) into 404.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::{Method, StatusCode, Uri};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use object_store::path::Path;

use super::metadata_service;
use super::page_token::{self, ListingSigner};
use crate::HiddenEntries;
use crate::backend::remote::connector::Connector;
use crate::backend::remote::headers::retry_after;
use crate::backend::remote::runtime::record_arrival;

/// The elements of a page that describe a key or a prefix, each with the element that holds the name: first for S3 and
/// Google, then for Azure.
const ENTRIES: [(&str, &str); 4] = [
    ("Contents", "Key"),
    ("CommonPrefixes", "Prefix"),
    ("Blob", "Name"),
    ("BlobPrefix", "Name"),
];

/// Whether object_store can request an object or prefix by exactly this name.
pub(super) fn is_plain(name: &str) -> bool {
    let name = name.strip_suffix('/').unwrap_or(name);
    Path::parse(name).is_ok_and(|path| !name.is_empty() && path.as_ref() == name)
}

/// Makes HTTP clients that filter listings.
#[derive(Clone)]
pub(super) struct PlainListingConnector {
    below: Connector,
    not_shown: Arc<HiddenEntries>,
    pub(super) signer: Arc<OnceLock<ListingSigner>>,
    /// The status besides 404 that means that an object is missing.
    missing_is: Option<u16>,
    /// Maximum `Retry-After` of a busy server that is obeyed.
    patience: Duration,
}

impl PlainListingConnector {
    /// Wraps another connector. Hidden names are added to `not_shown`.
    pub(super) fn over(below: &Connector, not_shown: &Arc<HiddenEntries>) -> PlainListingConnector {
        PlainListingConnector {
            below: below.clone(),
            not_shown: not_shown.clone(),
            signer: Arc::default(),
            missing_is: None,
            patience: Duration::ZERO,
        }
    }

    /// Treats a status in responses to reads as 404.
    pub(super) fn with_missing_status(self, missing_is: Option<u16>) -> PlainListingConnector {
        PlainListingConnector { missing_is, ..self }
    }

    /// Waits for busy servers as long as they ask for, if that is less than `patience`.
    pub(super) fn with_patience(self, patience: Duration) -> PlainListingConnector {
        PlainListingConnector { patience, ..self }
    }
}

impl fmt::Debug for PlainListingConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlainListingConnector")
    }
}

impl HttpConnector for PlainListingConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(PlainListingClient {
            below: self.below.connect(options)?,
            not_shown: self.not_shown.clone(),
            signer: self.signer.clone(),
            missing_is: self.missing_is,
            patience: self.patience,
        }))
    }
}

struct PlainListingClient {
    below: HttpClient,
    not_shown: Arc<HiddenEntries>,
    /// Signs rewritten requests of version 1; empty if requests are not signed.
    signer: Arc<OnceLock<ListingSigner>>,
    missing_is: Option<u16>,
    patience: Duration,
}

impl PlainListingClient {
    /// Waits as long as a busy server asks for, before object_store retries the request. If that is too long, returns
    /// an error that object_store does not retry.
    async fn leave_alone(&self, response: &HttpResponse) -> Result<(), HttpError> {
        let Some(pause) = retry_after(response.status(), response.headers()) else {
            return Ok(());
        };
        if pause >= self.patience {
            let text = format!("it is to be asked again in {} s", pause.as_secs());
            return Err(HttpError::new(
                HttpErrorKind::Unknown,
                std::io::Error::other(text),
            ));
        }
        record_arrival();
        tokio::time::sleep(pause).await;
        Ok(())
    }
}

impl fmt::Debug for PlainListingClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlainListingClient")
    }
}

#[async_trait::async_trait]
impl HttpService for PlainListingClient {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let is_listing = is_listing(request.uri());
        if let Some(by_marker) = page_token::by_marker(request.uri()) {
            *request.uri_mut() = by_marker;
            if let Some(signer) = self.signer.get() {
                signer.sign(&mut request).await?;
            }
        }
        let is_read = [Method::GET, Method::HEAD].contains(request.method());
        let mut response = metadata_service::execute(&self.below, request).await?;
        self.leave_alone(&response).await?;
        if is_read && !is_listing && Some(response.status().as_u16()) == self.missing_is {
            *response.status_mut() = StatusCode::NOT_FOUND;
        }
        if !is_listing || !response.status().is_success() {
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        let page = body.bytes().await?;
        let note = |name: &str| self.not_shown.record(name);
        let body = match str::from_utf8(&page) {
            Ok(page) => {
                let leading_on = page_token::leading_on(page);
                HttpResponseBody::from(plain_page(&leading_on, note).into_owned())
            }
            Err(_) => HttpResponseBody::from(page),
        };
        Ok(HttpResponse::from_parts(head, body))
    }
}

/// Whether a request asks for a listing.
fn is_listing(uri: &Uri) -> bool {
    let mut parts = uri.query().unwrap_or_default().split('&');
    parts.any(|part| part == "list-type=2" || part == "comp=list")
}

/// Returns a page without the entries whose names are not plain. Calls `note` with each of these names.
fn plain_page(page: &str, note: impl Fn(&str)) -> Cow<'_, str> {
    let mut plain = String::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(start) = page.get(at..).and_then(|rest| rest.find('<')) {
        let start = at + start;
        let text = page.get(start..).unwrap_or_default();
        at = start + 1;
        let Some((element, holder)) = entry_kind(text) else {
            continue;
        };
        // Without an end tag the page is malformed, and object_store reports it.
        let Some(length) = element_length(text, element) else {
            break;
        };
        at = start + length;
        let name = text.get(..length).and_then(|entry| name_in(entry, holder));
        if let Some(name) = name.filter(|name| !is_plain(name)) {
            note(&name);
            plain.push_str(page.get(copied..start).unwrap_or_default());
            copied = at;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(page);
    }
    plain.push_str(page.get(copied..).unwrap_or_default());
    Cow::Owned(plain)
}

/// Returns the row of `ENTRIES` for the element at the start of a text, or `None` if it has another name.
fn entry_kind(text: &str) -> Option<(&'static str, &'static str)> {
    let begins = |element: &str| {
        let rest = text
            .strip_prefix('<')
            .and_then(|rest| rest.strip_prefix(element));
        rest.is_some_and(|rest| rest.starts_with('>'))
    };
    ENTRIES.into_iter().find(|(element, _)| begins(element))
}

/// Returns the length of the element at the start of a text, or `None` without an end tag.
fn element_length(text: &str, element: &str) -> Option<usize> {
    let end = format!("</{element}>");
    Some(text.find(&end)? + end.len())
}

/// Returns the name in an entry.
fn name_in<'a>(entry: &'a str, holder: &str) -> Option<Cow<'a, str>> {
    let (_, rest) = entry.split_once(&format!("<{holder}>"))?;
    let (name, _) = rest.split_once('<')?;
    quick_xml::escape::unescape(name).ok()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Returns the rest of a page, and the names that were removed.
    fn read(page: &str) -> (String, Vec<String>) {
        let names = RefCell::default();
        let note = |name: &str| RefCell::<Vec<String>>::borrow_mut(&names).push(name.to_string());
        let plain = plain_page(page, note).into_owned();
        (plain, names.into_inner())
    }

    #[test]
    fn plain_names_are_those_of_one_path() {
        for name in ["a", "a/b/", "...", "a/..b", "caf\u{e9} \u{ff0f}", "%2F"] {
            assert!(is_plain(name), "{name}");
        }
        for name in [
            "", "/", "/a", "a//", "a//b", "a/./b", "..", "../a", "a\nb", "a\u{7f}",
        ] {
            assert!(!is_plain(name), "{name}");
        }
    }

    #[test]
    fn names_that_are_no_paths_are_taken_out_of_a_page() {
        let contents = |name: &str| format!("<Contents><Size>3</Size><Key>{name}</Key></Contents>");
        let prefix =
            |name: &str| format!("<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>");
        let blob = |name: &str| format!("<Blob><Name>{name}</Name><Properties/></Blob>");
        let blob_prefix = |name: &str| format!("<BlobPrefix><Name>{name}</Name></BlobPrefix>");
        for entry in [
            &contents as &dyn Fn(&str) -> String,
            &prefix,
            &blob,
            &blob_prefix,
        ] {
            let page = |names: &[&str]| {
                let entries: String = names.iter().map(|name| entry(name)).collect();
                format!("<R><Prefix>a//</Prefix><Blobs>{entries}</Blobs><Token>t</Token></R>")
            };
            let (plain, names) = read(&page(&["a//b", "a/c&amp;d", "x/../y", "&#10;", "z"]));
            assert_eq!(plain, page(&["a/c&amp;d", "z"]));
            assert_eq!(names, ["a//b", "x/../y", "\n"]);
        }
        let page = "<R><Contents><Key>a</Key></Contents></R>";
        assert!(matches!(plain_page(page, |_| panic!()), Cow::Borrowed(_)));
    }

    #[test]
    fn a_page_that_is_no_page_stays_as_it_is() {
        for page in [
            "",
            "<",
            "<Contents>",
            "<Contents><Key>a//b",
            "<Contents></Contents>",
            "<Blob><Name><",
        ] {
            assert_eq!(read(page), (page.to_string(), Vec::new()));
        }
    }
}
