//! A folder of a web server as a store: plain HTTP and WebDAV.
//!
//! An object is the content of exactly its URL. A folder is never an object, whatever page the server shows for it.
//! Names come from WebDAV, from index pages, or are not available (`StoreInfo::lists`). A refusal (401, 403) is an
//! error, never "missing", except on servers that list nothing and refuse missing keys (`RefusalProbe`).

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::Presence;
use crate::backend::remote::condition_probe::ConditionProbe;
use crate::request_context::{RequestContext, UNLIMITED};
use crate::{
    ByteRange, Condition, ETag, FlatListing, Key, Listing, Meta, Object, PutBody, Reader, Store,
    StoreInfo, Version, not_a_link,
};
use endpoint::HttpEndpoint;
use first_documents::{FirstDocuments, within_limit};
use lookup::ProbeResult;
use missing_answer::MissingAnswer;
use node_folders::NodeFolders;
use reader::HttpReader;
use zarr_format::error::{Error, Kind, Result};

mod body;
mod endpoint;
mod fetch;
mod first_documents;
mod index_page;
mod listing;
mod lookup;
mod missing_answer;
mod node_folders;
mod probe;
mod reader;
mod response;
mod tag_trial;
mod tags;
mod urls;
mod webdav;
mod writer;

/// The method for listing names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListingMethod {
    /// PROPFIND.
    WebDav,
    /// Index pages.
    IndexPages,
    /// Names cannot be listed.
    None,
}

/// A folder of a web server as a store.
pub(super) struct HttpStore {
    endpoint: Arc<HttpEndpoint>,
    listing_method: ListingMethod,
    /// The server's response for missing keys.
    missing_answer: MissingAnswer,
    /// Documents that were fetched when the store was opened.
    first_documents: FirstDocuments,
    /// Whether the server has refused HEAD where it permits GET, as it does for signed URLs.
    refuses_heads: AtomicBool,
    /// Whether a HEAD has ever found an object or a folder. Before that, a 404 may only mean that HEAD is not
    /// supported.
    knows_heads: AtomicBool,
    /// Whether the server has redirected a folder to its URL with a slash.
    redirects: AtomicBool,
    /// Whether an index page has had a name that starts with a dot.
    shows_hidden: AtomicBool,
    /// The known node folders.
    node_folders: NodeFolders,
    /// Probes whether the server enforces conditions.
    conditions: ConditionProbe,
    info: StoreInfo,
}

impl HttpStore {
    /// Records a change. A failed change counts too, since it may have been made.
    fn changed<T>(&self, key: &Key, done: Result<T>) -> Result<T> {
        self.first_documents.forget(key);
        self.node_folders.forget_document(key);
        self.info.changes.record(key);
        done
    }
}

impl Store for HttpStore {
    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        if key.is_root() {
            return Ok(None);
        }
        let found = match self.first_documents.take(context, &self.info, key) {
            Presence::Is(document) => Some(within_limit(key, document, limit)?),
            Presence::Missing => None,
            Presence::Unknown => self.get_whole(context, key, limit)?,
        };
        if found.is_some() {
            self.node_folders.note_document(key);
        }
        Ok(found)
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
        self.get_part(context, key, &range)
    }

    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        if key.is_root() {
            return Ok(Some(Meta::prefix()));
        }
        match self.first_documents.meta(context, &self.info, key) {
            Some(meta) => Ok(Some(meta)),
            None => self.head_entry(context, key),
        }
    }

    fn version(&self, context: &RequestContext, key: &Key) -> Result<Option<Version>> {
        if key.is_root() {
            return Ok(None);
        }
        if let Some(meta) = self.first_documents.meta(context, &self.info, key) {
            return Ok(Some(meta.version));
        }
        Ok(match self.head_object(context, key)? {
            ProbeResult::Object(meta) => Some(meta.version),
            ProbeResult::Folder | ProbeResult::Missing => None,
        })
    }

    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>> {
        let is_folder = || Error::new(Kind::IsADirectory, key, "is a directory");
        let meta = match known {
            Some(meta) => *meta,
            None if key.is_root() => return Err(is_folder()),
            None => match self.head_object(context, key)? {
                ProbeResult::Object(meta) => meta,
                ProbeResult::Folder => return Err(is_folder()),
                ProbeResult::Missing => return Err(Error::not_found(key)),
            },
        };
        let (endpoint, key) = (self.endpoint.clone(), key.clone());
        Ok(Arc::new(HttpReader::new(endpoint, key, meta)))
    }

    fn list(&self, context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>> {
        let names = match self.listing_method {
            ListingMethod::WebDav => self.webdav_names(context, prefix)?,
            ListingMethod::IndexPages => self.page_names(context, prefix)?,
            ListingMethod::None => {
                let text = "this store does not tell its names";
                return Err(Error::unsupported(prefix, text));
            }
        };
        match names {
            Some(names) => Ok(Box::new(names)),
            None if prefix.is_root() => Err(Error::not_found(prefix)),
            None => match self.head_object(context, prefix)? {
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

    fn list_all(
        &self,
        _context: &RequestContext,
        _prefix: &Key,
        _from: &Key,
    ) -> Result<Option<Box<dyn FlatListing>>> {
        Ok(None)
    }

    fn read_link(&self, _context: &RequestContext, key: &Key) -> Result<Vec<u8>> {
        Err(not_a_link(key))
    }

    fn etag(&self, context: &RequestContext, key: &Key) -> Result<Option<ETag>> {
        self.fetch_etag(context, key)
    }

    /// Puts an object in one request. The error is `ReadOnly` if the server accepts no changes.
    fn put(
        &self,
        context: &RequestContext,
        key: &Key,
        body: PutBody<'_>,
        condition: &Condition,
    ) -> Result<ETag> {
        let condition = condition.for_server(key, || self.fetch_etag(&UNLIMITED, key));
        let put = condition.and_then(|condition| self.put_object(context, key, body, &condition));
        self.changed(key, put)
    }

    /// Removes an object. The key is checked just before in any case. The request carries the condition if the server
    /// enforces it.
    fn erase(&self, context: &RequestContext, key: &Key, condition: &Condition) -> Result<()> {
        let condition = condition.for_server(key, || self.fetch_etag(&UNLIMITED, key));
        let erased = condition.and_then(|condition| self.erase_object(context, key, &condition));
        self.changed(key, erased)
    }

    /// Removes a folder that was empty just before. WebDAV has no removal that requires an empty folder.
    fn erase_folder(&self, context: &RequestContext, prefix: &Key) -> Result<()> {
        self.changed(prefix, self.erase_webdav_folder(context, prefix))
    }

    fn info(&self) -> &StoreInfo {
        &self.info
    }
}
