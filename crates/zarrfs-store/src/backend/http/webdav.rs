//! Parses responses to PROPFIND (WebDAV, RFC 4918), which list a directory.
//!
//! A truncated response is the error `Corrupt`, and a name that the server could not read is an error too. No listing
//! silently lacks names.

use std::time::{SystemTime, UNIX_EPOCH};

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, Event};

use super::etag_watch::ETagWatch;
use super::response::Validators;
use crate::Meta;
use crate::backend::remote::headers::opaque_tag;
use zarr_format::error::{Error, Result};

/// The body of a PROPFIND request. It asks only for the properties that zarrfs uses, since some servers open each file
/// for others.
pub(super) const PROPFIND_BODY: &str = r#"<?xml version="1.0" encoding="utf-8"?><D:propfind xmlns:D="DAV:"><D:prop><D:resourcetype/><D:getcontentlength/><D:getlastmodified/><D:getetag/></D:prop></D:propfind>"#;

/// The WebDAV properties of one key.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Resource {
    /// The URL or path of the key, as the server writes it.
    pub(super) href: String,
    pub(super) is_folder: bool,
    pub(super) size: Option<u64>,
    pub(super) modified: Option<SystemTime>,
    pub(super) tag: Option<String>,
    /// The error status for the key, if the server could not read its properties.
    pub(super) status: Option<u16>,
}

impl Resource {
    /// Returns the metadata of the key, or `None` if the listing lacks some. Some servers list objects without the ETag
    /// that they send with the object itself; a version made without the ETag would differ.
    pub(super) fn meta(&self, tags: &ETagWatch) -> Option<Meta> {
        if self.is_folder {
            return Some(Meta {
                modified: self.modified.unwrap_or(UNIX_EPOCH),
                ..Meta::prefix()
            });
        }
        let validators = Validators {
            tag: Some(self.tag.clone()?),
            modified: Some(self.modified?),
        };
        Some(tags.usable(validators).meta(self.size?))
    }
}

/// Parses a WebDAV multistatus document (RFC 4918, section 13).
pub(super) fn resources(document: &[u8]) -> Result<Vec<Resource>> {
    let mut reading = MultistatusParser::default();
    let mut reader = Reader::from_reader(document);
    reader.config_mut().expand_empty_elements = true;
    loop {
        match reader.read_event().map_err(broken)? {
            Event::Start(element) => {
                reading.enter(element.local_name().as_ref());
            }
            Event::Text(text) => reading.text.push_str(&text.decode().map_err(broken)?),
            Event::CData(text) => reading.text.push_str(&text.decode().map_err(broken)?),
            Event::GeneralRef(entity) => reading.text.push_str(&resolved(&entity)?),
            Event::End(element) if reading.leave(element.local_name().as_ref()) => {
                return Ok(reading.resources);
            }
            Event::Eof => return Err(broken("the response is cut off")),
            _ => {}
        }
    }
}

fn broken(fault: impl std::fmt::Display) -> Error {
    Error::corrupt("", format!("invalid WebDAV response: {fault}"))
}

/// Resolves a character or entity reference in XML, such as `&amp;` or `&#38;`.
fn resolved(entity: &BytesRef<'_>) -> Result<String> {
    if let Some(letter) = entity.resolve_char_ref().map_err(broken)? {
        return Ok(letter.to_string());
    }
    let name = entity.decode().map_err(broken)?;
    let known = resolve_predefined_entity(&name).map(str::to_string);
    known.ok_or_else(|| broken("unknown entity"))
}

#[derive(Default)]
struct MultistatusParser {
    /// Nesting depth of the current XML element.
    depth: usize,
    resources: Vec<Resource>,
    now: Resource,
    /// The current `propstat` group of properties, used only if the group's status is a success.
    properties: Resource,
    status: Option<u16>,
    in_properties: bool,
    text: String,
}

impl MultistatusParser {
    fn enter(&mut self, name: &[u8]) {
        self.depth += 1;
        self.text.clear();
        match name {
            b"response" => self.now = Resource::default(),
            b"propstat" => {
                self.in_properties = true;
                (self.properties, self.status) = Default::default();
            }
            b"collection" if self.in_properties => self.properties.is_folder = true,
            _ => {}
        }
    }

    /// Handles the end tag of an XML element. Returns true at the end of the document.
    fn leave(&mut self, name: &[u8]) -> bool {
        self.depth = self.depth.saturating_sub(1);
        let text = std::mem::take(&mut self.text);
        let text = text.trim();
        match name {
            // Only the first `href` names the resource, since an error description may contain others.
            b"href" if !self.in_properties && self.now.href.is_empty() => {
                self.now.href = text.to_string();
            }
            b"status" if self.in_properties => self.status = status(text),
            b"status" => self.now.status = status(text).filter(|status| *status >= 300),
            b"getcontentlength" => self.properties.size = text.parse().ok(),
            b"getlastmodified" => self.properties.modified = httpdate::parse_http_date(text).ok(),
            b"getetag" if opaque_tag(text).is_some() => {
                self.properties.tag = Some(text.to_string())
            }
            b"propstat" => self.close_properties(),
            b"response" => self.resources.push(std::mem::take(&mut self.now)),
            _ => {}
        }
        name == b"multistatus" && self.depth == 0
    }

    fn close_properties(&mut self) {
        self.in_properties = false;
        let group = std::mem::take(&mut self.properties);
        if self.status.is_some_and(|status| status >= 300) {
            return;
        }
        self.now.is_folder |= group.is_folder;
        self.now.size = group.size.or(self.now.size);
        self.now.modified = group.modified.or(self.now.modified);
        self.now.tag = group.tag.or(self.now.tag.take());
    }
}

/// Returns the number in an HTTP status line such as `HTTP/1.1 200 OK`.
fn status(line: &str) -> Option<u16> {
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
        <D:multistatus xmlns:D="DAV:">
        <D:response><D:href>/a/</D:href><D:propstat><D:prop>
          <D:resourcetype><D:collection/></D:resourcetype></D:prop>
          <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>
        <D:response><D:href>/a/b&amp;c%20&#100;</D:href><D:propstat><D:prop>
          <D:getcontentlength>12</D:getcontentlength>
          <D:getlastmodified>Sat, 21 Nov 2026 18:40:20 GMT</D:getlastmodified>
          <D:getetag>"1-2"</D:getetag><D:resourcetype></D:resourcetype></D:prop>
          <D:status>HTTP/1.1 200 OK</D:status></D:propstat>
          <D:propstat><D:prop><D:getcontentlength/><D:quota/></D:prop>
          <D:status>HTTP/1.1 404 Not Found</D:status></D:propstat></D:response>
        <D:response><D:href>/a/gone</D:href><D:status>HTTP/1.1 404 Not Found</D:status></D:response>
        </D:multistatus>"#;

    #[test]
    fn properties_are_read() {
        let found = resources(DOCUMENT.as_bytes()).unwrap();
        assert_eq!(found.len(), 3);
        assert_eq!((found[0].href.as_str(), found[0].is_folder), ("/a/", true));
        assert_eq!(found[1].href, "/a/b&c%20d");
        assert_eq!((found[1].size, found[1].is_folder), (Some(12), false));
        assert_eq!(found[1].tag.as_deref(), Some("\"1-2\""));
        assert!(found[1].modified.is_some());
        assert_eq!(found[2].status, Some(404));
    }

    #[test]
    fn a_truncated_or_invalid_document_is_an_error() {
        let end = DOCUMENT.len() - "</D:multistatus>".len();
        for length in 0..=end {
            assert!(
                resources(&DOCUMENT.as_bytes()[..length]).is_err(),
                "{length}"
            );
        }
        for bad in ["", "no XML", "<html><body></body></html>", "<a>&zz;</a>"] {
            assert!(resources(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
