//! What a place on the web is and can do, asked once when it is opened.
//!
//! Whether names can be listed is tried in silence: WebDAV, then an index page. A server that can neither is
//! good enough if a document is there, or a folder; what is not is told in one sentence.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use futures_util::future::join_all;
use object_store::ClientOptions;
use object_store::client::HttpConnector;
use tokio::sync::Semaphore;

use super::Found;
use super::Shape;
use super::Web;
use super::answer::Origin;
use super::answer::refusal;
use super::dav;
use super::page;
use super::place::Place;
use super::propfind;
use super::site::Question;
use super::site::Site;
use crate::error::Error;
use crate::error::Kind;
use crate::error::Result;
use crate::stats::Stats;
use crate::store::Key;
use crate::store::RemoteConfig;
use crate::store::object::FIRST_LIMIT;
use crate::store::object::FIRST_RETRIES;
use crate::store::object::RETRIES;
use crate::store::object::connector::Connector;
use crate::store::object::names;
use crate::store::object::settings;

/// Documents of which one stands at the root of a store, as far as names tell.
pub(super) const DOCUMENTS: [&str; 6] = [
    "zarr.json",
    ".zgroup",
    ".zarray",
    ".zmetadata",
    ".zattrs",
    "attributes.json",
];

/// The longest answer about names that is read.
pub(super) const LONGEST_LIST: u64 = 256 << 20;

impl Web {
    /// Opens a folder on the web, said of as `shown`. Of an archive, `only` is the object that counts: the folder
    /// around it need not be there.
    ///
    /// `Denied`, `NotFound`, `Invalid` or `Unavailable` within seconds if there is nothing to read.
    pub(in crate::store::object) fn open(
        url: &str,
        (shown, only): (&str, Option<&Key>),
        config: &RemoteConfig,
        stats: &Arc<Stats>,
    ) -> Result<Web> {
        let mut web = Web::build(Place::read(url, shown)?, config, stats)?;
        let said_here = |error: Error| Error::new(error.kind(), shown, error.detail());
        match only {
            Some(key) => {
                if let Found::Missing | Found::Folder = web.ask_object(key).map_err(said_here)? {
                    return Err(Error::not_found(shown));
                }
            }
            None => web.probe(shown).map_err(said_here)?,
        }
        if let Some(site) = Arc::get_mut(&mut web.site) {
            (site.repeats, site.limit) = (RETRIES, config.timeout);
        }
        Ok(web)
    }

    fn build(place: Place, config: &RemoteConfig, stats: &Arc<Stats>) -> Result<Web> {
        let mut options = ClientOptions::new().with_allow_http(place.is_plain());
        for (key, value) in settings::common(config) {
            options = options.with_config(key, value);
        }
        for (name, value) in &config.options {
            names::check_client(name)?;
            let key = name.to_ascii_lowercase().parse();
            let key =
                key.map_err(|_| Error::invalid(format!("--option {name}"), "no such option"))?;
            options = options.with_config(key, value);
        }
        let connector = Connector::new(stats.clone());
        // The text of the error may hold an option's value.
        let http = connector.connect(&options).map_err(|_| {
            Error::invalid("--option", "the HTTP client cannot work with these options")
        })?;
        let site = Site {
            place,
            http,
            limit: config.timeout.min(FIRST_LIMIT),
            repeats: FIRST_RETRIES,
            permits: Semaphore::new(config.concurrency.max(1)),
        };
        Ok(Web {
            site: Arc::new(site),
            shape: Shape::Bare,
            hides_missing: false,
            refuses_heads: AtomicBool::new(false),
            redirects: AtomicBool::new(false),
            shows_hidden: AtomicBool::new(false),
            freshness: config.metadata_ttl,
            honours: Mutex::default(),
            changes: AtomicU64::new(0),
        })
    }

    /// Finds out how names can be listed, if they can.
    fn probe(&mut self, shown: &str) -> Result<()> {
        if self.speaks_dav()? {
            self.shape = Shape::Dav;
            return Ok(());
        }
        let root = Key::root();
        let question = Question {
            as_folder: true,
            header: Some(("accept", page::ACCEPTED.to_string())),
            ..Question::get(&root)
        };
        let (answer, bytes) = self
            .site
            .wait(&shown, self.site.document(&question, LONGEST_LIST))?;
        let names = page::names(&self.site.place, &root, answer.content_type(), &bytes);
        if answer.status == 200 && matches!(names, Ok(Some(_))) {
            self.shape = Shape::Pages;
            return Ok(());
        }
        self.probe_documents(answer.status, answer.origin)
    }

    /// Whether the server answers PROPFIND with XML. One name is asked for, since a root may have many.
    fn speaks_dav(&self) -> Result<bool> {
        let root = Key::root();
        let question = propfind(&root, true, '0');
        let started = Instant::now();
        let asked = self.site.document(&question, LONGEST_LIST);
        let (answer, bytes) = match self.site.wait(&root, asked) {
            // Some firewalls cut off what they do not know; a server that does not answer at all is not asked twice.
            Err(_) if started.elapsed() < self.site.limit / 2 => return Ok(false),
            answer => answer?,
        };
        let resources = dav::resources(&bytes);
        Ok(answer.status == 207
            && resources.is_ok_and(|found| found.iter().any(|one| one.is_folder)))
    }

    /// Looks for a document; `status` and `origin` are those of the folder's own answer.
    fn probe_documents(&mut self, status: u16, origin: Origin) -> Result<()> {
        let keys: Vec<Key> = DOCUMENTS
            .iter()
            .map(|name| Key::new(*name))
            .collect::<Result<_>>()?;
        let answers = self.site.wait(&Key::root(), async {
            let asked = keys.iter().map(|key| self.described(key));
            Ok(join_all(asked).await)
        })?;
        let is_there = |answer: &Result<Found>| matches!(answer, Ok(Found::Object(_)));
        let is_refused =
            |answer: &Result<Found>| matches!(answer, Err(error) if error.kind() == Kind::Denied);
        let has_refused = answers.iter().any(is_refused);
        if answers.iter().any(is_there) {
            // So servers answer that do not tell a missing key from a secret one.
            self.hides_missing = has_refused;
            return Ok(());
        }
        if let Some(Err(error)) = answers.into_iter().find(Result::is_err) {
            return Err(error);
        }
        match (status, origin) {
            // A folder that may not be listed, and has no document.
            (403, Origin::Folder) => Ok(()),
            (401 | 403 | 407, _) => Err(refusal(&Key::root(), status)),
            (404 | 410, _) => Err(Error::not_found("")),
            (200..=299, _) => {
                let text = "no Zarr metadata there, and no list of names";
                Err(Error::new(Kind::NotFound, "", text))
            }
            _ => Err(refusal(&Key::root(), status)),
        }
    }
}
