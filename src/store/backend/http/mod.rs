//! Folders on the web: plain HTTP and WebDAV.
//!
//! An object is what the server gives for exactly its URL; a folder is never one, whatever page is shown of it.
//! Names come from WebDAV, or from index pages, or not at all (`lists`). A refusal (401, 403) is an error, never
//! "missing"; only where documents are there and other documents are refused, a refused document is none, since
//! such servers (S3 without permission to list) say so of missing keys.

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
use reader::{HttpReader, LONGEST_WHOLE};
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
    site: Arc<HttpEndpoint>,
    shape: ListingMethod,
    /// Whether the server refuses documents that are missing.
    hides_missing: bool,
    /// Whether the server was seen to refuse HEAD where GET is allowed, as for signed URLs.
    refuses_heads: AtomicBool,
    /// Whether the server was seen to send from a folder's name to the name with a slash.
    redirects: AtomicBool,
    /// Whether an index page was seen to have a name that begins with a dot.
    shows_hidden: AtomicBool,
    /// Whether the server holds to conditions, once that was tried.
    conditions: ConditionProbe,
    info: StoreInfo,
}

/// What lies under a key.
enum ProbeResult {
    Object(Meta),
    Folder,
    Missing,
}

/// Asks what WebDAV knows of a key, and with depth `1` of all directly in it.
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
    /// Says what an answer to a question about an object means.
    async fn standing(&self, key: &Key, answer: &ResponseHead) -> Result<ResponseKind> {
        let standing = match answer.standing(key) {
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

    /// Whether the page that came for a key is one that is shown of a folder; an error where nobody can tell and
    /// the key does not look like a page.
    async fn is_shown_folder(&self, key: &Key) -> Result<bool> {
        match self.shape {
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

    /// Returns what WebDAV says of a key; nothing if there is nothing.
    async fn resource(&self, key: &Key) -> Result<Option<Resource>> {
        let question = propfind(key, false, '0');
        let (answer, bytes) = self.site.document(&question, probe::LONGEST_LIST).await?;
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

    /// Asks about the object of a key.
    fn ask_object(&self, key: &Key) -> Result<ProbeResult> {
        self.site.wait(key, self.described(key))
    }

    async fn described(&self, key: &Key) -> Result<ProbeResult> {
        Ok(self.described_with_tag(key).await?.0)
    }

    /// Asks about the object of a key; returns its ETag as well.
    async fn described_with_tag(&self, key: &Key) -> Result<(ProbeResult, Option<String>)> {
        if !self.refuses_heads.load(Ordering::Relaxed) {
            let answer = self.site.ask(&RequestSpec::head(key)).await?;
            let tells = match answer.status {
                // Such an answer may be about the method, or the length is not known beforehand.
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
            .site
            .ask(&RequestSpec::part(key, "bytes=0-0".to_string()))
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

    /// Returns what an answer says lies there, an object of `size` bytes if it is one.
    async fn found(
        &self,
        key: &Key,
        answer: &ResponseHead,
        size: Option<u64>,
    ) -> Result<ProbeResult> {
        match (self.standing(key, answer).await?, size) {
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

    /// Asks for an object, or the part of it that a header names; nothing if there is none, an error of kind
    /// `Corrupt` never.
    async fn fetch(&self, key: &Key, range: Option<String>, most: u64) -> Result<Fetched> {
        let question = match range {
            Some(range) => RequestSpec::part(key, range),
            None => RequestSpec::get(key),
        };
        let answer = self.site.ask(&question).await?;
        match self.standing(key, &answer).await? {
            // So some servers answer about an end of nothing.
            ResponseKind::There if answer.is_of_no_part() => return Ok(Fetched::OutOfRange),
            ResponseKind::There => {}
            ResponseKind::OutOfRange => return Ok(Fetched::OutOfRange),
            ResponseKind::Folder | ResponseKind::Missing | ResponseKind::Page => {
                return Ok(Fetched::Nothing);
            }
        }
        self.site.piece(key, answer, most).await.map(Fetched::Piece)
    }

    /// Fetches a part that is not empty, as far as anybody can tell beforehand; nothing in it if it is.
    fn part(&self, key: &Key, range: &ByteRange) -> Result<Fetched> {
        let header = match range {
            ByteRange::Span(span) => format!("bytes={}-{}", span.start, span.end.saturating_sub(1)),
            ByteRange::Suffix(length) => format!("bytes=-{length}"),
        };
        let most = match range {
            ByteRange::Span(span) => span.end.saturating_sub(span.start),
            ByteRange::Suffix(length) => *length,
        };
        self.site
            .wait(key, self.fetch(key, Some(header), most.max(LONGEST_WHOLE)))
    }

    /// The same where the part has to be cut to an object of known length first.
    fn part_within(&self, key: &Key, range: &ByteRange) -> Result<Option<Object>> {
        let ProbeResult::Object(meta) = self.ask_object(key)? else {
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

    /// Notes a change, also one that failed: it may have been made.
    fn changed<T>(&self, key: &Key, done: Result<T>) -> Result<T> {
        self.info.changes.note(key);
        done
    }

    /// Whether a folder is there that no redirection has told.
    fn has_folder(&self, key: &Key) -> Result<bool> {
        if self.redirects.load(Ordering::Relaxed) {
            return Ok(false);
        }
        self.site
            .wait(key, async { Ok(self.index(key).await?.1.is_some()) })
    }
}

/// An answer to a question for bytes.
enum Fetched {
    Piece(RequestedRange),
    OutOfRange,
    Nothing,
}

/// Cuts what came to what was asked for.
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
        match start == 0 && end == piece.bytes.len() {
            true => Some(piece.bytes),
            false => piece.bytes.get(start..end).map(<[u8]>::to_vec),
        }
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

/// Lengths and places up to here are understood by every server.
const FARTHEST: u64 = 1 << 53;

impl Store for HttpStore {
    fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>> {
        if key.is_root() {
            return Ok(None);
        }
        match self.site.wait(key, self.fetch(key, None, limit))? {
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
            ByteRange::Span(span) => span.start < span.end && span.end < FARTHEST,
            ByteRange::Suffix(length) => (1..FARTHEST).contains(length),
        };
        if !is_plain {
            return self.part_within(key, &range);
        }
        match self.part(key, &range)? {
            Fetched::Nothing => Ok(None),
            Fetched::Piece(piece) => cut(key, piece, &range).map(Some),
            Fetched::OutOfRange => self.part_within(key, &range),
        }
    }

    fn head(&self, key: &Key) -> Result<Option<Meta>> {
        if key.is_root() {
            return Ok(Some(Meta::prefix()));
        }
        if self.shape == ListingMethod::Dav {
            match self.site.wait(key, self.resource(key))? {
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
        match self.ask_object(key)? {
            ProbeResult::Object(meta) => Ok(Some(meta)),
            ProbeResult::Folder => Ok(Some(Meta::prefix())),
            ProbeResult::Missing
                if self.shape == ListingMethod::Pages && self.has_folder(key)? =>
            {
                Ok(Some(Meta::prefix()))
            }
            ProbeResult::Missing => Ok(None),
        }
    }

    fn version(&self, key: &Key) -> Result<Option<Version>> {
        match key.is_root() {
            true => Ok(None),
            false => Ok(match self.ask_object(key)? {
                ProbeResult::Object(meta) => Some(meta.version),
                ProbeResult::Folder | ProbeResult::Missing => None,
            }),
        }
    }

    fn open(&self, key: &Key, known: Option<&Meta>) -> Result<Arc<dyn Reader>> {
        let is_folder = || Error::new(Kind::IsADirectory, key, "is a directory");
        let meta = match known {
            Some(meta) => *meta,
            None if key.is_root() => return Err(is_folder()),
            None => match self.ask_object(key)? {
                ProbeResult::Object(meta) => meta,
                ProbeResult::Folder => return Err(is_folder()),
                ProbeResult::Missing => return Err(Error::not_found(key)),
            },
        };
        let (site, key) = (self.site.clone(), key.clone());
        Ok(Arc::new(HttpReader::new(site, key, meta)))
    }

    fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>> {
        let names = match self.shape {
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
            None => match self.ask_object(prefix)? {
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
        self.stamp_now(key)
    }

    /// Puts an object in one request. `ReadOnly` where the server takes no changes.
    fn put(&self, key: &Key, body: PutBody<'_>, condition: &Condition) -> Result<ETag> {
        self.changed(key, self.put_now(key, body, condition))
    }

    fn erase(&self, key: &Key, condition: &Condition) -> Result<()> {
        self.changed(key, self.erase_now(key, condition))
    }

    /// Removes a folder in which nothing was seen just before: WebDAV has no other way.
    fn erase_folder(&self, prefix: &Key) -> Result<()> {
        self.changed(prefix, self.erase_folder_now(prefix))
    }

    fn info(&self) -> &StoreInfo {
        &self.info
    }
}
