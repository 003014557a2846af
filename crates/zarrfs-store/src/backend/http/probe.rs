//! Opens a web folder: detects its kind and the server's abilities.
//!
//! Listing is tried with WebDAV and then with an index page, without messages. A server that supports neither is
//! accepted if it has a document or a folder at the URL. Otherwise there is one error.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use futures_util::future::join_all;
use object_store::ClientOptions;
use object_store::client::HttpConnector;

use super::endpoint::{HttpEndpoint, RequestSpec};
use super::first_documents::FirstDocuments;
use super::lookup::ProbeResult;
use super::missing_answer::MissingAnswer;
use super::node_folders::NodeFolders;
use super::response::{ResponseOrigin, refusal};
use super::tags::TagWatch;
use super::urls::UrlSpace;
use super::{HttpStore, ListingMethod, index_page, webdav};
use crate::backend::remote::condition_probe::ConditionProbe;
use crate::backend::remote::connector::Connector;
use crate::backend::remote::limits::RequestLimits;
use crate::backend::remote::refusal_probe::RefusalProbe;
use crate::backend::remote::retry::once_ready;
use crate::backend::remote::{OPEN_RETRIES, OPEN_TIME_LIMIT, RETRIES, http_client};
use crate::request_context::UNLIMITED;
use crate::stats::Stats;
use crate::{Key, RemoteConfig, StoreInfo};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::document;

impl HttpStore {
    /// Opens a folder of a web server, called `shown` in messages. For an archive, `only` is its key, and the folder
    /// itself need not exist.
    ///
    /// Fails within seconds with `Denied`, `NotFound`, `Invalid` or `Unavailable` if there is nothing to read.
    pub(crate) fn open(
        url: &str,
        shown: &str,
        only: Option<&Key>,
        config: &RemoteConfig,
        stats: &Arc<Stats>,
    ) -> Result<HttpStore> {
        let mut store = HttpStore::build(UrlSpace::read(url, shown)?, config, stats)?;
        let about_shown = |error: Error| Error::new(error.kind(), shown, error.detail());
        let probed = once_ready(config.timeout.min(OPEN_TIME_LIMIT), || match only {
            Some(key) => match store.head_object(&UNLIMITED, key)? {
                ProbeResult::Missing | ProbeResult::Folder => Err(Error::not_found(shown)),
                ProbeResult::Object(_) => Ok(()),
            },
            None => store.probe(shown),
        });
        probed.map_err(about_shown)?;
        if let Some(endpoint) = Arc::get_mut(&mut store.endpoint) {
            (endpoint.repeats, endpoint.limits.time) = (RETRIES, config.timeout);
        }
        Ok(store)
    }

    fn build(urls: UrlSpace, config: &RemoteConfig, stats: &Arc<Stats>) -> Result<HttpStore> {
        let mut options = ClientOptions::new().with_allow_http(urls.is_plain());
        for (key, value) in http_client::defaults(config) {
            options = options.with_config(key, value);
        }
        for (name, value) in &config.options {
            http_client::check_option(name)?;
            let key = name.to_ascii_lowercase().parse();
            let key =
                key.map_err(|_| Error::invalid(format!("--option {name}"), "no such option"))?;
            options = options.with_config(key, value);
        }
        let connector = Connector::new(stats.clone(), config.timeout);
        // The text of the error may contain the value of an option.
        let http = connector.connect(&options).map_err(|_| {
            Error::invalid("--option", "the HTTP client cannot work with these options")
        })?;
        let endpoint = HttpEndpoint {
            urls,
            http,
            limits: RequestLimits::new(config.timeout.min(OPEN_TIME_LIMIT), config.concurrency),
            repeats: OPEN_RETRIES,
            sends_parts: Arc::default(),
            missing_is: config.missing_is,
            absence: None,
            tags: TagWatch::new(stats.clone()),
        };
        Ok(HttpStore {
            listing_method: ListingMethod::None,
            missing_answer: MissingAnswer::default(),
            first_documents: FirstDocuments::default(),
            refuses_heads: AtomicBool::new(false),
            knows_heads: AtomicBool::new(false),
            redirects: AtomicBool::new(false),
            shows_hidden: AtomicBool::new(false),
            node_folders: NodeFolders::default(),
            conditions: ConditionProbe::default(),
            info: StoreInfo {
                lists: false,
                concurrency: config.concurrency,
                sends_parts: endpoint.sends_parts.clone(),
                ..StoreInfo::new(config.metadata_ttl)
            },
            endpoint: Arc::new(endpoint),
        })
    }

    /// Detects whether and how names can be listed.
    fn probe(&mut self, shown: &str) -> Result<()> {
        if self.speaks_webdav()? {
            self.listing_method = ListingMethod::WebDav;
            self.info.lists = true;
            return Ok(());
        }
        let root = Key::root();
        let spec = RequestSpec {
            as_folder: true,
            header: Some(("accept", index_page::ACCEPTED.to_string())),
            ..RequestSpec::get(&root)
        };
        let (response, bytes) =
            self.endpoint
                .wait(&UNLIMITED, &shown, self.endpoint.fetch_document(&spec))?;
        let names = index_page::names(&self.endpoint.urls, &root, response.content_type(), &bytes);
        if response.status == 200 && matches!(names, Ok(Some(_))) {
            self.listing_method = ListingMethod::IndexPages;
            self.info.lists = true;
            return Ok(());
        }
        self.probe_documents(response.status, response.origin)
    }

    /// Whether the server responds to PROPFIND with XML. The depth is 0, since a root may have many names.
    fn speaks_webdav(&self) -> Result<bool> {
        let root = Key::root();
        let spec = RequestSpec::propfind(&root, true, '0');
        let started = Instant::now();
        let asked = self.endpoint.fetch_document(&spec);
        let (response, bytes) = match self.endpoint.wait(&UNLIMITED, &root, asked) {
            // Some firewalls cut off unknown methods. A server that used up the time does not respond at all.
            Err(_) if started.elapsed() < self.endpoint.limits.time / 2 => return Ok(false),
            response => response?,
        };
        let resources = webdav::resources(&bytes);
        Ok(response.status == 207
            && resources.is_ok_and(|found| found.iter().any(|one| one.is_folder)))
    }

    /// Requests documents of a root node until one is found; `status` and `origin` are from the response for the folder
    /// itself.
    fn probe_documents(&mut self, status: u16, origin: ResponseOrigin) -> Result<()> {
        let keys: Vec<Key> = document::at_root().map(Key::new).collect::<Result<_>>()?;
        let (likely, others): (Vec<Key>, Vec<Key>) = keys.into_iter().partition(is_likely);
        let mut found = Vec::new();
        for key in &likely {
            if !found.iter().any(is_there) {
                found.push(self.first_document(key, MAX_LIKELY));
            }
        }
        if !found.iter().any(is_there) {
            found.extend(self.other_documents(&others)?);
        }
        if found.iter().any(is_there) {
            if let Some(endpoint) = Arc::get_mut(&mut self.endpoint) {
                endpoint.absence = Some(RefusalProbe::default());
            }
            return Ok(());
        }
        if let Some(Err(error)) = found.into_iter().find(Result::is_err) {
            return Err(error);
        }
        match (status, origin) {
            // A folder that permits no listing and has no document.
            (403, ResponseOrigin::Folder) => Ok(()),
            (401 | 403 | 407, _) => Err(refusal(&Key::root(), status)),
            (404, _) => Err(Error::not_found("")),
            (200..=299, _) => {
                let text = "no Zarr metadata there, and no list of names";
                Err(Error::new(Kind::NotFound, "", text))
            }
            _ => Err(refusal(&Key::root(), status)),
        }
    }

    /// Requests a document of the root and keeps it for its first reader. Returns whether it exists.
    fn first_document(&self, key: &Key, limit: u64) -> Result<bool> {
        self.endpoint
            .wait(&UNLIMITED, key, self.keep_first(key, limit))
    }

    /// Requests documents of the root concurrently.
    fn other_documents(&self, keys: &[Key]) -> Result<Vec<Result<bool>>> {
        self.endpoint.wait(&UNLIMITED, &Key::root(), async {
            let asked = keys.iter().map(|key| self.keep_first(key, MAX_OTHER));
            Ok(join_all(asked).await)
        })
    }

    async fn keep_first(&self, key: &Key, limit: u64) -> Result<bool> {
        let asked = self.info.clock.now();
        let document = match self.fetch_whole(key, limit).await {
            // The document exists; its reader will report the error.
            Err(error) if matches!(error.kind(), Kind::TooLarge | Kind::Unsupported) => {
                return Ok(true);
            }
            answer => answer?,
        };
        let is_there = document.is_some();
        self.first_documents.put(key, document, asked);
        Ok(is_there)
    }
}

/// Maximum length in bytes of a document to keep: of one that most stores have at the root, and of the others.
const MAX_LIKELY: u64 = 64 << 20;
const MAX_OTHER: u64 = 1 << 20;

/// Whether a store that cannot list its names most likely has this document at the root. If it has, no others are
/// requested.
fn is_likely(key: &Key) -> bool {
    [document::ZARR_JSON, document::ZMETADATA]
        .iter()
        .any(|name| name.as_bytes() == key.name())
}

fn is_there(found: &Result<bool>) -> bool {
    matches!(found, Ok(true))
}
