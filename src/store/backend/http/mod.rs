//! A folder of a web server as a store: plain HTTP and WebDAV.
//!
//! An object is what the server returns for exactly its URL; a folder is never an object, whatever page the server
//! shows for it. Names come from WebDAV, from index pages, or not at all (`StoreInfo::lists`). A refusal (401, 403)
//! is an error, never "missing". The exception are servers that refused some documents when the store was opened
//! and returned others (S3 without permission to list answers so for missing keys): there a refused document is
//! missing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::UNIX_EPOCH;

use crate::error::{Error, Kind, Result};
use crate::model::document;
use crate::store::backend::remote::condition_probe::ConditionProbe;
use crate::store::{
    ByteRange, Condition, ETag, FlatListing, Key, Listing, Meta, Object, PutBody, Reader, Store,
    StoreInfo, Version, not_a_link,
};
use endpoint::{HttpEndpoint, RequestSpec, RequestedRange, refused};
use reader::{HttpReader, MAX_WHOLE_OBJECT};
use response::{ResponseHead, ResponseKind, ResponseOrigin};
use webdav::Resource;

mod endpoint;
mod index_page;
mod listing;
mod probe;
mod reader;
mod response;
mod urls;
mod webdav;
mod writer;

/// How names are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListingMethod {
    /// By PROPFIND.
    Dav,
    /// By index pages.
    Pages,
    /// Not at all.
    Bare,
}

/// A folder of a web server as a store.
pub(super) struct HttpStore {
    endpoint: Arc<HttpEndpoint>,
    listing_method: ListingMethod,
    /// Whether the server answers 401 or 403 for missing documents.
    hides_missing: bool,
    /// Whether the server has refused HEAD where GET is allowed, as for signed URLs.
    refuses_heads: AtomicBool,
    /// Whether the server has redirected a folder's URL to the one with a slash.
    redirects: AtomicBool,
    /// Whether an index page has had a name that begins with a dot.
    shows_hidden: AtomicBool,
    /// Whether the server enforces conditions.
    conditions: ConditionProbe,
    info: StoreInfo,
}

/// What a request has found under a key.
enum ProbeResult {
    Object(Meta),
    Folder,
    Missing,
}

/// Builds a PROPFIND of a key, with depth `1` also of its direct children.
fn propfind(key: &Key, as_folder: bool, depth: char) -> RequestSpec<'_> {
    RequestSpec {
        // The name is a valid one.
        method: http::Method::from_bytes(b"PROPFIND").unwrap_or(http::Method::OPTIONS),
        as_folder,
        header: Some(("depth", depth.to_string())),
        body: webdav::WANTED,
        ..RequestSpec::get(key)
    }
}

impl HttpStore {
    /// Returns what an answer about an object means, requesting more where the answer is ambiguous.
    async fn response_kind(&self, key: &Key, answer: &ResponseHead) -> Result<ResponseKind> {
        let standing = match answer.response_kind(key) {
            Err(error) if error.kind() == Kind::Denied && self.may_be_missing(key) => {
                return Ok(ResponseKind::Missing);
            }
            standing => standing?,
        };
        match standing {
            ResponseKind::Folder => {
                self.redirects.store(true, Ordering::Relaxed);
                Ok(ResponseKind::Folder)
            }
            ResponseKind::Page if self.is_shown_folder(key).await? => Ok(ResponseKind::Folder),
            ResponseKind::Page => Ok(ResponseKind::There),
            other => Ok(other),
        }
    }

    /// Whether a refusal of a key may mean that it is missing.
    fn may_be_missing(&self, key: &Key) -> bool {
        self.hides_missing && document::is_document(key.name())
    }

    /// Whether the page that came for a key is the index of a folder; an error where the server has no listings and
    /// the key's name is not that of a page.
    async fn is_shown_folder(&self, key: &Key) -> Result<bool> {
        match self.listing_method {
            ListingMethod::Dav => {
                Ok(matches!(self.resource(key).await?, Some(one) if one.is_folder))
            }
            ListingMethod::Pages => Ok(self.index(key).await?.1.is_some()),
            ListingMethod::Bare
                if key.name().ends_with(b".html") || key.name().ends_with(b".htm") =>
            {
                Ok(false)
            }
            ListingMethod::Bare => {
                let text = "the server answered with a web page where an object is due";
                Err(Error::unavailable(key, text))
            }
        }
    }

    /// Returns the WebDAV properties of a key; nothing if it is missing.
    async fn resource(&self, key: &Key) -> Result<Option<Resource>> {
        let spec = propfind(key, false, '0');
        let (answer, bytes) = self
            .endpoint
            .fetch_document(&spec, probe::MAX_LISTING)
            .await?;
        match answer.status {
            404 | 410 => return Ok(None),
            207 => {}
            _ => return Err(refused(key, &answer)),
        }
        let found = webdav::resources(&bytes).map_err(|error| error.about(key))?;
        let one = found.into_iter().next();
        let one = one.ok_or_else(|| Error::corrupt(key, "the server's WebDAV answer is empty"))?;
        match one.status {
            None => Ok(Some(one)),
            Some(404 | 410) => Ok(None),
            Some(status) => Err(response::refusal(key, status)),
        }
    }

    /// Requests the metadata of a key's object and waits for it.
    fn head_object(&self, key: &Key) -> Result<ProbeResult> {
        self.endpoint.wait(key, self.probe_object(key))
    }

    async fn probe_object(&self, key: &Key) -> Result<ProbeResult> {
        Ok(self.probe_object_with_tag(key).await?.0)
    }

    /// Requests the metadata of a key's object, and its ETag as the server spells it. Uses a GET of one byte where
    /// HEAD is refused.
    async fn probe_object_with_tag(&self, key: &Key) -> Result<(ProbeResult, Option<String>)> {
        if !self.refuses_heads.load(Ordering::Relaxed) {
            let answer = self.endpoint.send(&RequestSpec::head(key)).await?;
            let tells = match answer.status {
                // The answer may concern only HEAD, or leave out the length of a generated body.
                400 | 401 | 403 | 405 | 501 => answer.origin == ResponseOrigin::Folder,
                200..=299 => answer.length().is_some() || answer.origin == ResponseOrigin::Folder,
                _ => true,
            };
            if tells {
                let found = self.found(key, &answer, answer.length()).await?;
                return Ok((found, answer.tag()));
            }
        }
        let answer = self
            .endpoint
            .send(&RequestSpec::part(key, "bytes=0-0".to_string()))
            .await?;
        if answer.status < 300 && answer.origin != ResponseOrigin::Folder {
            self.refuses_heads.store(true, Ordering::Relaxed);
        }
        let size = match answer.status {
            206 => answer.part().map(|(.., size)| size),
            416 => answer.size_beside_range(),
            _ => answer.length(),
        };
        Ok((self.found(key, &answer, size).await?, answer.tag()))
    }

    /// Converts an answer to its result; an object has `size` bytes.
    async fn found(
        &self,
        key: &Key,
        answer: &ResponseHead,
        size: Option<u64>,
    ) -> Result<ProbeResult> {
        match (self.response_kind(key, answer).await?, size) {
            (ResponseKind::There | ResponseKind::OutOfRange, Some(size)) => {
                Ok(ProbeResult::Object(answer.meta(size)))
            }
            (ResponseKind::There | ResponseKind::OutOfRange, None) => {
                let text = "the server does not say how long it is";
                Err(Error::unavailable(key, text))
            }
            (ResponseKind::Folder, _) => Ok(ProbeResult::Folder),
            (ResponseKind::Missing, _) => Ok(ProbeResult::Missing),
            (ResponseKind::Page, _) => Ok(ProbeResult::Missing),
        }
    }

    /// Fetches an object, or the part that a value of the header `Range` names, of at most `most` bytes.
    async fn fetch(&self, key: &Key, range: Option<String>, most: u64) -> Result<Fetched> {
        let spec = match range {
            Some(range) => RequestSpec::part(key, range),
            None => RequestSpec::get(key),
        };
        let answer = self.endpoint.send(&spec).await?;
        match self.response_kind(key, &answer).await? {
            // Some servers answer like this for a suffix of an empty object.
            ResponseKind::There if answer.is_of_no_part() => return Ok(Fetched::OutOfRange),
            ResponseKind::There => {}
            ResponseKind::OutOfRange => return Ok(Fetched::OutOfRange),
            ResponseKind::Folder | ResponseKind::Missing | ResponseKind::Page => {
                return Ok(Fetched::Nothing);
            }
        }
        self.endpoint
            .read_body(key, answer, most)
            .await
            .map(Fetched::Piece)
    }

    /// Fetches a range that is not empty by itself.
    fn part(&self, key: &Key, range: &ByteRange) -> Result<Fetched> {
        let header = match range {
            ByteRange::Span(span) => format!("bytes={}-{}", span.start, span.end.saturating_sub(1)),
            ByteRange::Suffix(length) => format!("bytes=-{length}"),
        };
        let most = match range {
            ByteRange::Span(span) => span.end.saturating_sub(span.start),
            ByteRange::Suffix(length) => *length,
        };
        self.endpoint.wait(
            key,
            self.fetch(key, Some(header), most.max(MAX_WHOLE_OBJECT)),
        )
    }

    /// Fetches a range after limiting it to the object's length.
    fn get_sized_range(&self, key: &Key, range: &ByteRange) -> Result<Option<Object>> {
        let ProbeResult::Object(meta) = self.head_object(key)? else {
            return Ok(None);
        };
        let span = range.within(meta.size);
        if span.is_empty() {
            return Ok(Some(Object {
                bytes: Vec::new(),
                size: meta.size,
                version: meta.version,
                modified: Some(meta.modified),
            }));
        }
        let range = ByteRange::Span(span);
        match self.part(key, &range)? {
            Fetched::Nothing => Ok(None),
            Fetched::Piece(piece) => cut(key, piece, &range).map(Some),
            Fetched::OutOfRange => Err(Error::unavailable(
                key,
                "the server refuses a range that is there",
            )),
        }
    }

    /// Notes a change, also a failed one: it may have been made.
    fn changed<T>(&self, key: &Key, done: Result<T>) -> Result<T> {
        self.info.changes.note(key);
        done
    }

    /// Whether a key is a folder, for servers that do not redirect folders to their slash.
    fn has_folder(&self, key: &Key) -> Result<bool> {
        if self.redirects.load(Ordering::Relaxed) {
            return Ok(false);
        }
        self.endpoint
            .wait(key, async { Ok(self.index(key).await?.1.is_some()) })
    }
}

/// The result of a request for bytes.
enum Fetched {
    Piece(RequestedRange),
    OutOfRange,
    Nothing,
}

/// Cuts the received bytes to the requested range.
fn cut(key: &Key, piece: RequestedRange, range: &ByteRange) -> Result<Object> {
    let Meta {
        size,
        version,
        modified,
        ..
    } = piece.meta;
    let span = range.within(size);
    let start = span.start.checked_sub(piece.start);
    let length = span.end - span.start;
    let bytes = start.and_then(|start| {
        let start = usize::try_from(start).ok()?;
        let end = start.checked_add(usize::try_from(length).ok()?)?;
        if start == 0 && end == piece.bytes.len() {
            return Some(piece.bytes);
        }
        piece.bytes.get(start..end).map(<[u8]>::to_vec)
    });
    let bytes = bytes
        .ok_or_else(|| Error::unavailable(key, "the server sends another part than asked for"))?;
    Ok(Object {
        bytes,
        size,
        version,
        modified: Some(modified),
    })
}

/// Offsets and lengths below this are understood by every server.
const MAX_OFFSET: u64 = 1 << 53;

impl Store for HttpStore {
    fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>> {
        if key.is_root() {
            return Ok(None);
        }
        match self.endpoint.wait(key, self.fetch(key, None, limit))? {
            Fetched::Piece(piece) => Ok(Some(Object {
                size: piece.meta.size,
                version: piece.meta.version,
                modified: Some(piece.meta.modified),
                bytes: piece.bytes,
            })),
            Fetched::OutOfRange | Fetched::Nothing => Ok(None),
        }
    }

    fn get_range(&self, key: &Key, range: ByteRange) -> Result<Option<Object>> {
        if key.is_root() {
            return Ok(None);
        }
        let is_plain = match &range {
            ByteRange::Span(span) => span.start < span.end && span.end < MAX_OFFSET,
            ByteRange::Suffix(length) => (1..MAX_OFFSET).contains(length),
        };
        if !is_plain {
            return self.get_sized_range(key, &range);
        }
        match self.part(key, &range)? {
            Fetched::Nothing => Ok(None),
            Fetched::Piece(piece) => cut(key, piece, &range).map(Some),
            Fetched::OutOfRange => self.get_sized_range(key, &range),
        }
    }

    fn head(&self, key: &Key) -> Result<Option<Meta>> {
        if key.is_root() {
            return Ok(Some(Meta::prefix()));
        }
        if self.listing_method == ListingMethod::Dav {
            match self.endpoint.wait(key, self.resource(key))? {
                None => return Ok(None),
                Some(one) if one.is_folder => {
                    let modified = one.modified.unwrap_or(UNIX_EPOCH);
                    return Ok(Some(Meta {
                        modified,
                        ..Meta::prefix()
                    }));
                }
                Some(one) => {
                    if let Some(meta) = listing::meta_of(&one) {
                        return Ok(Some(meta));
                    }
                }
            }
        }
        match self.head_object(key)? {
            ProbeResult::Object(meta) => Ok(Some(meta)),
            ProbeResult::Folder => Ok(Some(Meta::prefix())),
            ProbeResult::Missing
                if self.listing_method == ListingMethod::Pages && self.has_folder(key)? =>
            {
                Ok(Some(Meta::prefix()))
            }
            ProbeResult::Missing => Ok(None),
        }
    }

    fn version(&self, key: &Key) -> Result<Option<Version>> {
        if key.is_root() {
            return Ok(None);
        }
        Ok(match self.head_object(key)? {
            ProbeResult::Object(meta) => Some(meta.version),
            ProbeResult::Folder | ProbeResult::Missing => None,
        })
    }

    fn open(&self, key: &Key, known: Option<&Meta>) -> Result<Arc<dyn Reader>> {
        let is_folder = || Error::new(Kind::IsADirectory, key, "is a directory");
        let meta = match known {
            Some(meta) => *meta,
            None if key.is_root() => return Err(is_folder()),
            None => match self.head_object(key)? {
                ProbeResult::Object(meta) => meta,
                ProbeResult::Folder => return Err(is_folder()),
                ProbeResult::Missing => return Err(Error::not_found(key)),
            },
        };
        let (endpoint, key) = (self.endpoint.clone(), key.clone());
        Ok(Arc::new(HttpReader::new(endpoint, key, meta)))
    }

    fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>> {
        let names = match self.listing_method {
            ListingMethod::Dav => self.dav_names(prefix)?,
            ListingMethod::Pages => self.page_names(prefix)?,
            ListingMethod::Bare => {
                let text = "this store does not tell its names";
                return Err(Error::unsupported(prefix, text));
            }
        };
        match names {
            Some(names) => Ok(Box::new(names)),
            None if prefix.is_root() => Err(Error::not_found(prefix)),
            None => match self.head_object(prefix)? {
                ProbeResult::Object(_) => {
                    let text = "is an object, not a directory";
                    Err(Error::new(Kind::NotADirectory, prefix, text))
                }
                ProbeResult::Folder => Err(Error::unsupported(
                    prefix,
                    "the server does not list this folder",
                )),
                ProbeResult::Missing => Err(Error::not_found(prefix)),
            },
        }
    }

    fn list_all(&self, _prefix: &Key, _from: &Key) -> Result<Option<Box<dyn FlatListing>>> {
        Ok(None)
    }

    fn read_link(&self, key: &Key) -> Result<Vec<u8>> {
        Err(not_a_link(key))
    }

    fn etag(&self, key: &Key) -> Result<Option<ETag>> {
        self.etag_now(key)
    }

    /// Puts an object in one request. `ReadOnly` where the server takes no changes.
    fn put(&self, key: &Key, body: PutBody<'_>, condition: &Condition) -> Result<ETag> {
        let condition = condition.in_words(key, || self.etag_now(key));
        let put = condition.and_then(|condition| self.put_now(key, body, &condition));
        self.changed(key, put)
    }

    fn erase(&self, key: &Key, condition: &Condition) -> Result<()> {
        self.changed(key, self.erase_now(key, condition))
    }

    /// Removes a folder that was empty just before: WebDAV cannot remove a folder only if it is empty.
    fn erase_folder(&self, prefix: &Key) -> Result<()> {
        self.changed(prefix, self.erase_folder_now(prefix))
    }

    fn info(&self) -> &StoreInfo {
        &self.info
    }
}
