//! A folder of a web server as a store: plain HTTP and WebDAV.
//!
//! An object is what the server returns for exactly its URL; a folder is never an object, whatever page the server
//! shows for it. Names come from WebDAV, from index pages, or not at all (`StoreInfo::lists`). A refusal (401, 403)
//! is an error, never "missing". The exception are servers that list nothing and refuse what they do not have (`Absence`).

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::backend::remote::condition_probe::ConditionProbe;
use crate::known::Known;
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

/// How names are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListingMethod {
    /// By PROPFIND.
    WebDav,
    /// By index pages.
    IndexPages,
    /// Not at all.
    None,
}

/// A folder of a web server as a store.
pub(super) struct HttpStore {
    endpoint: Arc<HttpEndpoint>,
    listing_method: ListingMethod,
    /// How the server answers for keys that it does not have.
    missing_answer: MissingAnswer,
    /// The documents that were asked for when the store was opened.
    first_documents: FirstDocuments,
    /// Whether the server has refused HEAD where GET is allowed, as for signed URLs.
    refuses_heads: AtomicBool,
    /// Whether the server has answered a HEAD by an object or a folder: until then its 404 may concern HEAD alone.
    knows_heads: AtomicBool,
    /// Whether the server has redirected a folder's URL to the one with a slash.
    redirects: AtomicBool,
    /// Whether an index page has had a name that begins with a dot.
    shows_hidden: AtomicBool,
    /// The folders of nodes, as far as they are known.
    node_folders: NodeFolders,
    /// Whether the server enforces conditions.
    conditions: ConditionProbe,
    info: StoreInfo,
}

impl HttpStore {
    /// Notes a change, also a failed one: it may have been made.
    fn changed<T>(&self, key: &Key, done: Result<T>) -> Result<T> {
        self.first_documents.forget(key);
        self.node_folders.forget_document(key);
        self.info.changes.note(key);
        done
    }
}

impl Store for HttpStore {
    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        if key.is_root() {
            return Ok(None);
        }
        let found = match self.first_documents.take(context, &self.info, key) {
            Known::Is(document) => Some(within_limit(key, document, limit)?),
            Known::Missing => None,
            Known::Unknown => self.get_whole(context, key, limit)?,
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

    /// Puts an object in one request. `ReadOnly` where the server takes no changes.
    fn put(
        &self,
        context: &RequestContext,
        key: &Key,
        body: PutBody<'_>,
        condition: &Condition,
    ) -> Result<ETag> {
        let condition = condition.in_words(key, || self.fetch_etag(&UNLIMITED, key));
        let put = condition.and_then(|condition| self.put_object(context, key, body, &condition));
        self.changed(key, put)
    }

    /// Removes an object. The request carries the condition where the server enforces that, and the key is checked just
    /// before in any case.
    fn erase(&self, context: &RequestContext, key: &Key, condition: &Condition) -> Result<()> {
        let condition = condition.in_words(key, || self.fetch_etag(&UNLIMITED, key));
        let erased = condition.and_then(|condition| self.erase_object(context, key, &condition));
        self.changed(key, erased)
    }

    /// Removes a folder that was empty just before: WebDAV cannot remove a folder only if it is empty.
    fn erase_folder(&self, context: &RequestContext, prefix: &Key) -> Result<()> {
        self.changed(prefix, self.erase_webdav_folder(context, prefix))
    }

    fn info(&self) -> &StoreInfo {
        &self.info
    }
}
