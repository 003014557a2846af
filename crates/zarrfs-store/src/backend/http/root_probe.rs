//! Detects how a web server lists names, and fetches the root's metadata documents.
//!
//! Listing is tried with WebDAV and then with an index page; a failure of these attempts is not reported. A server that
//! supports neither is accepted if it has a metadata document or a directory at the URL. Otherwise the open fails.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join_all;
use parking_lot::Mutex;

use super::endpoint::RequestSpec;
use super::object_client::ObjectClient;
use super::response::{ResponseHead, ResponseOrigin};
use super::{ListingMethod, index_page, webdav};
use crate::Presence;
use crate::backend::remote::probes::RefusalProbe;
use crate::request_context::{RequestContext, UNLIMITED};
use crate::sync::clock::Clock;
use crate::{EntryKind, Key, Meta, Object, StoreInfo};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::document;

/// The root's metadata documents that were fetched to open the store. Each is given to its first reader, which then
/// sends no request.
#[derive(Default)]
pub(super) struct RootDocuments {
    answers: Mutex<HashMap<Key, RootAnswer>>,
}

/// A metadata document, or `None` if it is missing, and the time of the request for it.
struct RootAnswer {
    document: Option<Object>,
    requested: Instant,
}

impl RootDocuments {
    /// Stores a metadata document that was requested at `requested`; `None` if it is missing.
    pub(super) fn put(&self, key: &Key, document: Option<Object>, requested: Instant) {
        let answer = RootAnswer {
            document,
            requested,
        };
        self.answers.lock().insert(key.clone(), answer);
    }

    /// Removes and returns a metadata document, if it is still fresh.
    pub(super) fn take(
        &self,
        context: &RequestContext,
        info: &StoreInfo,
        key: &Key,
    ) -> Presence<Object> {
        match self.answers.lock().remove(key) {
            Some(answer) if info.is_fresh(answer.requested) => {
                context.record_age(answer.requested);
                answer.document.into()
            }
            _ => Presence::Unknown,
        }
    }

    /// Returns the metadata of a document, or `None` if the document was not fetched or is no longer fresh.
    pub(super) fn meta(
        &self,
        context: &RequestContext,
        info: &StoreInfo,
        key: &Key,
    ) -> Option<Meta> {
        let answers = self.answers.lock();
        let answer = answers.get(key)?;
        let (document, requested) = (answer.document.as_ref()?, answer.requested);
        let meta = Meta {
            kind: EntryKind::File,
            size: document.size,
            stored: document.size,
            modified: document.modified?,
            version: document.version,
        };
        drop(answers);
        info.is_fresh(requested).then(|| {
            context.record_age(requested);
            meta
        })
    }

    /// Removes a metadata document, because it may have changed.
    pub(super) fn forget(&self, key: &Key) {
        self.answers.lock().remove(key);
    }
}

/// Finds out how a web server lists names and which metadata documents are at the store's root.
pub(super) struct RootProbe {
    pub(super) objects: ObjectClient,
    pub(super) documents: RootDocuments,
    pub(super) clock: Clock,
}

impl RootProbe {
    /// Detects how names are listed. If they cannot be listed, checks that the store exists.
    pub(super) fn run(&mut self, display_name: &str) -> Result<()> {
        if self.speaks_webdav()? {
            self.objects.listing_method = ListingMethod::WebDav;
            return Ok(());
        }
        let root = Key::root();
        let endpoint = &self.objects.endpoint;
        let index = self.objects.fetch_index(&root);
        let (response, bytes) = endpoint.wait(&UNLIMITED, &display_name, index)?;
        let names = index_page::names(&endpoint.urls, &root, response.content_type(), &bytes);
        if response.status == 200 && matches!(names, Ok(Some(_))) {
            self.objects.listing_method = ListingMethod::IndexPages;
            return Ok(());
        }
        self.probe_documents(&response)
    }

    /// Whether the server supports WebDAV. The PROPFIND request asks for the root alone, since a root may have many
    /// names.
    fn speaks_webdav(&self) -> Result<bool> {
        let root = Key::root();
        let spec = RequestSpec::propfind(&root, true, '0');
        let started = Instant::now();
        let endpoint = &self.objects.endpoint;
        let request = endpoint.fetch_document(&spec);
        let (response, bytes) = match endpoint.wait(&UNLIMITED, &root, request) {
            // Some firewalls cut the connection on an unknown method, so an early failure means that there is no
            // WebDAV. A late failure means that the server does not respond at all.
            Err(_) if started.elapsed() < endpoint.limits.time / 2 => return Ok(false),
            response => response?,
        };
        let resources = webdav::resources(&bytes);
        Ok(response.status == 207
            && resources.is_ok_and(|found| found.iter().any(|one| one.is_folder)))
    }

    /// Requests the metadata documents of the root until one is found; `folder` is the response for the root itself.
    fn probe_documents(&mut self, folder: &ResponseHead) -> Result<()> {
        let keys: Vec<Key> = document::at_root().map(Key::new).collect::<Result<_>>()?;
        let (likely, others): (Vec<Key>, Vec<Key>) = keys.into_iter().partition(is_likely);
        let endpoint = &self.objects.endpoint;
        let exists = |answer: &Result<bool>| matches!(answer, Ok(true));
        let mut answers = Vec::new();
        for key in &likely {
            if !answers.iter().any(exists) {
                let document = self.fetch_document(key, 64 << 20);
                answers.push(endpoint.wait(&UNLIMITED, key, document));
            }
        }
        if !answers.iter().any(exists) {
            let documents = others.iter().map(|key| self.fetch_document(key, 1 << 20));
            let documents = async { Ok(join_all(documents).await) };
            answers.extend(endpoint.wait(&UNLIMITED, &Key::root(), documents)?);
        }
        if answers.iter().any(exists) {
            if let Some(endpoint) = Arc::get_mut(&mut self.objects.endpoint) {
                endpoint.refusals = Some(RefusalProbe::default());
            }
            return Ok(());
        }
        if let Some(Err(error)) = answers.into_iter().find(Result::is_err) {
            return Err(error);
        }
        match (folder.status, folder.origin) {
            // A refusal (403) from the URL with a slash proves that the directory exists, so it is accepted without
            // metadata.
            (403, ResponseOrigin::Folder) => Ok(()),
            (404, _) => {
                let text = "nothing is stored here (404): check the URL";
                Err(Error::new(Kind::NotFound, "", text))
            }
            (200..=299, _) => {
                let text = "no Zarr metadata found, and the server lists no names: check the URL";
                Err(Error::new(Kind::NotFound, "", text))
            }
            _ => Err(folder.refusal(&Key::root())),
        }
    }

    /// Requests a metadata document of the root, and stores it for its first reader. Returns whether the document
    /// exists.
    async fn fetch_document(&self, key: &Key, limit: u64) -> Result<bool> {
        let requested = self.clock.now();
        let document = match self.objects.fetch_whole(key, limit).await {
            // The metadata document exists but cannot be read; its reader will report the error.
            Err(error) if matches!(error.kind(), Kind::TooLarge | Kind::Unsupported) => {
                return Ok(true);
            }
            answer => answer?,
        };
        let exists = document.is_some();
        self.documents.put(key, document, requested);
        Ok(exists)
    }
}

/// Whether a store that cannot list its names most likely has this metadata document at the root. Other documents are
/// requested only if none of the likely ones exists.
fn is_likely(key: &Key) -> bool {
    [document::ZARR_JSON, document::ZMETADATA]
        .iter()
        .any(|name| name.as_bytes() == key.name())
}
