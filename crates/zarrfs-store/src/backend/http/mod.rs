//! Opens a directory of a web server as a store: plain HTTP and WebDAV.
//!
//! An object is the content of exactly its URL. A directory is never an object, whatever page the server shows for it.
//! Names come from WebDAV or from index pages; some servers list no names. A refusal (401, 403) is an error, never
//! "missing", except 403 on servers that list nothing and refuse missing keys.
//!
//! `endpoint` sends requests and reads bodies, and `response` interprets status and headers. `object_client` looks up
//! and fetches objects, `lister` lists directories, `writer` changes objects, and `root_probe` finds out what the
//! server supports.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::UNIX_EPOCH;

use parking_lot::Mutex;

use crate::backend::remote::retry::once_ready;
use crate::backend::remote::{OPEN_TIME_LIMIT, RETRIES};
use crate::backend::{changed, is_a_directory, not_a_directory, slice, too_long};
use crate::request_context::{RequestContext, UNLIMITED};
use crate::stats::Stats;
use crate::{
    ByteRange, Condition, ETag, Key, Listing, Meta, Object, Presence, PutBody, Reader,
    RemoteConfig, Store, StoreInfo, Version, check_length,
};
use endpoint::{HttpEndpoint, RequestSpec, wrong_range};
use lister::FolderLister;
use object_client::{LookupResult, ObjectClient};
use response::ResponseKind;
use root_probe::{RootDocuments, RootProbe};
use urls::UrlSpace;
use writer::HttpWriter;
use zarr_format::error::{Error, Result};

mod endpoint;
mod etag_watch;
mod index_page;
mod lister;
mod object_client;
mod response;
mod root_probe;
mod urls;
mod webdav;
mod writer;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListingMethod {
    /// The server answers PROPFIND requests.
    WebDav,
    /// The server sends index pages.
    IndexPages,
    /// The server cannot list names.
    None,
}

/// A Zarr store in a directory of a web server.
pub(super) struct HttpStore {
    objects: Arc<ObjectClient>,
    lister: FolderLister,
    writer: HttpWriter,
    root_documents: RootDocuments,
    info: StoreInfo,
}

impl HttpStore {
    /// Opens a directory of a web server as a store; messages call it `display_name`. For a store in an archive file,
    /// `only` is the archive's key, and the directory itself need not exist.
    ///
    /// Fails within seconds with `Denied`, `NotFound`, `Invalid` or `Unavailable` if there is nothing to read.
    pub(crate) fn open(
        url: &str,
        display_name: &str,
        only: Option<&Key>,
        config: &RemoteConfig,
        stats: &Arc<Stats>,
    ) -> Result<HttpStore> {
        let endpoint = HttpEndpoint::connect(UrlSpace::parse(url, display_name)?, config, stats)?;
        let info = StoreInfo::new(config.metadata_ttl);
        let mut probe = RootProbe {
            objects: ObjectClient::new(endpoint),
            documents: RootDocuments::default(),
            clock: info.clock.clone(),
        };
        let probed = once_ready(config.timeout.min(OPEN_TIME_LIMIT), || match only {
            Some(key) => match probe.objects.head_object(&UNLIMITED, key)? {
                LookupResult::Missing | LookupResult::Folder => Err(Error::not_found(display_name)),
                LookupResult::Object(_) => Ok(()),
            },
            None => probe.run(display_name),
        });
        probed.map_err(|error| Error::new(error.kind(), display_name, error.detail()))?;
        let RootProbe {
            mut objects,
            documents,
            ..
        } = probe;
        if let Some(endpoint) = Arc::get_mut(&mut objects.endpoint) {
            (endpoint.retries, endpoint.limits.time) = (RETRIES, config.timeout);
        }
        let objects = Arc::new(objects);
        Ok(HttpStore {
            info: StoreInfo {
                lists: objects.listing_method != ListingMethod::None,
                concurrency: config.concurrency,
                sends_parts: objects.endpoint.sends_parts.clone(),
                server: objects.endpoint.login_identity.clone(),
                ..info
            },
            lister: FolderLister::new(objects.clone()),
            writer: HttpWriter::new(objects.clone()),
            root_documents: documents,
            objects,
        })
    }

    /// Removes a WebDAV directory if its listing is empty.
    fn erase_empty_folder(&self, context: &RequestContext, prefix: &Key) -> Result<()> {
        if prefix.is_root() || !self.writer.is_folder(prefix)? {
            return Ok(());
        }
        let Some(mut names) = self.lister.names(&UNLIMITED, prefix)? else {
            return Ok(());
        };
        match names.next(context)? {
            Some(_) => Ok(()),
            None => self.writer.erase_folder(prefix),
        }
    }

    /// Records that a key has changed. A failed put or removal is recorded too, since the server may have carried it
    /// out.
    fn changed<T>(&self, key: &Key, done: Result<T>) -> Result<T> {
        self.root_documents.forget(key);
        self.lister.node_folders.forget_document(key);
        self.info.changes.record(key);
        done
    }
}

impl Store for HttpStore {
    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        if key.is_root() {
            return Ok(None);
        }
        let object = match self.root_documents.take(context, &self.info, key) {
            Presence::Is(document) if document.size > limit => {
                return Err(too_long(key, document.size, limit));
            }
            Presence::Is(document) => Some(document),
            Presence::Missing => None,
            Presence::Unknown => self.objects.get(context, key, limit)?,
        };
        if object.is_some() {
            self.lister.node_folders.record_document(key);
        }
        Ok(object)
    }

    fn get_range(
        &self,
        context: &RequestContext,
        key: &Key,
        range: ByteRange,
    ) -> Result<Option<Object>> {
        if key.is_root() {
            return Ok(None);
        }
        self.objects.get_range(context, key, &range)
    }

    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        if key.is_root() {
            return Ok(Some(Meta::prefix()));
        }
        match self.root_documents.meta(context, &self.info, key) {
            Some(meta) => Ok(Some(meta)),
            None => self.objects.head(context, key),
        }
    }

    fn version(&self, context: &RequestContext, key: &Key) -> Result<Option<Version>> {
        if key.is_root() {
            return Ok(None);
        }
        if let Some(meta) = self.root_documents.meta(context, &self.info, key) {
            return Ok(Some(meta.version));
        }
        Ok(match self.objects.head_object(context, key)? {
            LookupResult::Object(meta) => Some(meta.version),
            LookupResult::Folder | LookupResult::Missing => None,
        })
    }

    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>> {
        let meta = match known {
            Some(meta) => *meta,
            None if key.is_root() => return Err(is_a_directory(key)),
            None => match self.objects.head_object(context, key)? {
                LookupResult::Object(meta) => meta,
                LookupResult::Folder => return Err(is_a_directory(key)),
                LookupResult::Missing => return Err(Error::not_found(key)),
            },
        };
        let (endpoint, key) = (self.objects.endpoint.clone(), key.clone());
        Ok(Arc::new(HttpReader::new(endpoint, key, meta)))
    }

    fn list(&self, context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>> {
        match self.lister.names(context, prefix)? {
            Some(names) => Ok(Box::new(names)),
            None if prefix.is_root() => Err(Error::not_found(prefix)),
            None => match self.objects.head_object(context, prefix)? {
                LookupResult::Object(_) => Err(not_a_directory(prefix)),
                LookupResult::Folder => Err(Error::unsupported(
                    prefix,
                    "the server does not list this directory",
                )),
                LookupResult::Missing => Err(Error::not_found(prefix)),
            },
        }
    }

    fn etag(&self, context: &RequestContext, key: &Key) -> Result<Option<ETag>> {
        self.writer.etag(context, key)
    }

    /// Puts an object in one request. The error is `ReadOnly` if the server accepts no changes.
    fn put(
        &self,
        context: &RequestContext,
        key: &Key,
        body: PutBody<'_>,
        condition: &Condition,
    ) -> Result<ETag> {
        let condition = condition.for_server(key, || self.writer.etag(&UNLIMITED, key));
        let put = condition.and_then(|condition| self.writer.put(context, key, body, &condition));
        self.changed(key, put)
    }

    /// Removes an object. The condition is checked just before the request, and sent too if the server enforces it.
    fn erase(&self, context: &RequestContext, key: &Key, condition: &Condition) -> Result<()> {
        let condition = condition.for_server(key, || self.writer.etag(&UNLIMITED, key));
        let erased = condition.and_then(|condition| self.writer.erase(context, key, &condition));
        self.changed(key, erased)
    }

    /// Removes a directory if its listing is empty. WebDAV's own removal would also remove a directory with contents.
    fn erase_folder(&self, context: &RequestContext, prefix: &Key) -> Result<()> {
        let erased = self.erase_empty_folder(context, prefix);
        self.changed(prefix, erased)
    }

    fn info(&self) -> &StoreInfo {
        &self.info
    }
}

/// Maximum length, in bytes, of an object that is read into memory as a whole because the server supports no ranges.
const MAX_WHOLE_OBJECT: u64 = 256 << 20;

/// Reads ranges of an object, in the version that it had when it was opened. If a response has another version, the
/// error is `Changed`.
struct HttpReader {
    endpoint: Arc<HttpEndpoint>,
    key: Key,
    meta: Meta,
    /// The object's metadata without the ETag, for use once the server's ETags are found to be unreliable.
    untagged: OnceLock<Meta>,
    /// Whether the server has answered a range request for the object with a range.
    has_ranges: AtomicBool,
    whole: Mutex<Option<Whole>>,
}

type Whole = Arc<Vec<u8>>;

impl HttpReader {
    fn new(endpoint: Arc<HttpEndpoint>, key: Key, meta: Meta) -> HttpReader {
        HttpReader {
            endpoint,
            key,
            meta,
            untagged: OnceLock::new(),
            has_ranges: AtomicBool::new(false),
            whole: Mutex::new(None),
        }
    }

    /// Fetches a range of the object. Also returns the whole object if the server ignored the range and sent that.
    fn fetch(
        &self,
        context: &RequestContext,
        start: u64,
        end: u64,
    ) -> Result<(Vec<u8>, Option<Whole>)> {
        let range = ByteRange::Span(start..end);
        let piece = self.endpoint.read(context, &self.key, async {
            let spec = RequestSpec::range(&self.key, &range);
            let mut response = self.endpoint.send(&spec).await?;
            match response.response_kind(&self.key) {
                Ok(ResponseKind::There | ResponseKind::Page) => {}
                Ok(_) => return Err(changed(&self.key)),
                Err(error)
                    if self
                        .endpoint
                        .is_refused_as_missing(&error, response.status)
                        .await =>
                {
                    return Err(changed(&self.key));
                }
                Err(error) => return Err(error),
            }
            let most = if response.status == 206 {
                end - start
            } else {
                MAX_WHOLE_OBJECT
            };
            response.set_size(self.meta.size);
            self.endpoint.read_body(&self.key, response, most).await
        })?;
        check_length(&self.key, piece.meta.content(), self.meta.content())?;
        if !piece.meta.may_be_of(&self.meta) {
            return Err(changed(&self.key));
        }
        if piece.is_whole {
            let whole = Arc::new(piece.bytes);
            return Ok((slice(&whole, start, end), Some(whole)));
        }
        if (piece.start, piece.bytes.len() as u64) != (start, end - start) {
            return Err(wrong_range(&self.key));
        }
        Ok((piece.bytes, None))
    }
}

impl Reader for HttpReader {
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>> {
        let end = offset.saturating_add(len as u64).min(self.meta.size);
        if offset >= end {
            return Ok(Vec::new());
        }
        if self.has_ranges.load(Ordering::Relaxed) {
            return Ok(self.fetch(context, offset, end)?.0);
        }
        // Until the server has sent a range, one request at a time is sent: its response may be the whole object, which
        // then serves all reads.
        let mut cached = self.whole.lock();
        if let Some(whole) = &*cached {
            return Ok(slice(whole, offset, end));
        }
        if self.has_ranges.load(Ordering::Relaxed) {
            drop(cached);
            return Ok(self.fetch(context, offset, end)?.0);
        }
        let (bytes, whole) = self.fetch(context, offset, end)?;
        self.has_ranges.store(whole.is_none(), Ordering::Relaxed);
        *cached = whole;
        Ok(bytes)
    }

    fn meta(&self, _context: &RequestContext) -> Result<Meta> {
        if !self.meta.version.is_lasting() || !self.endpoint.etags.are_ignored() {
            return Ok(self.meta);
        }
        // The server's ETags may have been found unreliable after the object was opened, so the version leaves out the
        // ETag.
        let untagged = || {
            let modified = Some(self.meta.modified).filter(|time| *time != UNIX_EPOCH);
            let version = Version::transient(self.meta.size, modified);
            Meta {
                version,
                ..self.meta
            }
        };
        Ok(*self.untagged.get_or_init(untagged))
    }
}
