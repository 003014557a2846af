//! `--cache-dir`: a store whose bytes are kept on disk, for this process and others.
//!
//! Objects and ranges are kept as they were asked for, never more: who reads shards and archives asks for the
//! same ranges again, and a block around each would fetch and hold what nobody reads. A kept range is given out
//! only under the version that the store says the key has, or said no longer ago than its answers stay true;
//! who does not know it asks for the version, not for the bytes. `shelf` holds the size, `entry` the checksums.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;
use std::time::Instant;

use lru::LruCache;

use self::reader::DiskReader;
use crate::error::Result;
use crate::store::ByteRange;
use crate::store::EntryKind;
use crate::store::Key;
use crate::store::Listing;
use crate::store::Meta;
use crate::store::Object;
use crate::store::Reader;
use crate::store::RemoteConfig;
use crate::store::Store;
use crate::store::Version;
use crate::store::Walk;

mod entry;
mod folder;
mod ledger;
mod reader;
mod shelf;

pub use entry::Facts;
pub use entry::Label;
pub use shelf::Drawer;
pub use shelf::Shelf;

/// Of how many keys the version is remembered that the store said last.
const SAID: NonZeroUsize = NonZeroUsize::new(1 << 14).unwrap();

/// A store over a store.
pub struct Disk {
    inner: Arc<dyn Store>,
    drawer: Arc<Drawer>,
    /// What the store said, and until when that is true.
    said: Mutex<LruCache<Key, (Option<Version>, Instant)>>,
}

impl Disk {
    /// Wraps a store whose bytes are kept in `drawer`.
    pub fn new(inner: Arc<dyn Store>, drawer: Drawer) -> Disk {
        Disk {
            inner,
            drawer: Arc::new(drawer),
            said: Mutex::new(LruCache::new(SAID)),
        }
    }

    fn said(&self) -> MutexGuard<'_, LruCache<Key, (Option<Version>, Instant)>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, key: &Key, version: Option<Version>) {
        let until = Instant::now().checked_add(self.inner.freshness());
        if let Some(until) = until {
            self.said().put(key.clone(), (version, until));
        }
    }

    /// Returns the version that the key has, of which bytes with these facts are kept.
    fn current(&self, key: &Key, facts: &Facts) -> Result<Option<Version>> {
        let said = self.said().get(key).copied();
        match said {
            Some((version, until)) if Instant::now() < until => return Ok(version),
            None if facts.is_fresh(self.inner.freshness()) => return Ok(Some(facts.version)),
            _ => {}
        }
        self.version(key)
    }

    /// Returns a part of an object that is kept and current.
    fn kept(&self, key: &Key, label: &Label, cut: Cut) -> Result<Option<Object>> {
        let Some(entry) = self.drawer.find(label) else {
            return Ok(None);
        };
        let facts = *entry.facts();
        let (part, limit) = match cut {
            Cut::All(limit) => (0..entry.len(), limit),
            Cut::Part(range) => (range.within(entry.len()), u64::MAX),
        };
        if facts.size > limit || self.current(key, &facts)? != Some(facts.version) {
            return Ok(None);
        }
        let object = self.drawer.read(label, &entry, part).map(|bytes| Object {
            bytes,
            size: facts.size,
            version: facts.version,
            modified: None,
        });
        if let Some(object) = &object {
            let stats = self.drawer.stats();
            stats.disk_hit_requests.add(1);
            stats.disk_hit_bytes.add(object.bytes.len() as u64);
        }
        Ok(object)
    }

    /// Keeps what the store answered.
    fn keep(&self, key: &Key, label: &Label, answer: Option<&Object>) {
        self.drawer.stats().disk_miss_requests.add(1);
        self.note(key, answer.map(|object| object.version));
        match answer {
            Some(object) if !object.bytes.is_empty() => {
                let facts = Facts::now(object.version, object.size);
                self.drawer.put(label, &facts, &object.bytes);
            }
            _ => {}
        }
    }
}

/// Which bytes of a kept file are wanted.
enum Cut<'a> {
    /// All, unless the object is longer than so many bytes.
    All(u64),
    /// A range of the object that the file holds.
    Part(&'a ByteRange),
}

#[deny(clippy::missing_trait_methods)]
impl Store for Disk {
    fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>> {
        let label = Label::whole(key);
        if let Some(object) = self.kept(key, &label, Cut::All(limit))? {
            return Ok(Some(object));
        }
        let answer = self.inner.get(key, limit)?;
        self.keep(key, &label, answer.as_ref());
        Ok(answer)
    }

    fn get_range(&self, key: &Key, range: ByteRange) -> Result<Option<Object>> {
        let label = Label::range(key, &range);
        if let Some(object) = self.kept(key, &label, Cut::All(u64::MAX))? {
            return Ok(Some(object));
        }
        if let Some(object) = self.kept(key, &Label::whole(key), Cut::Part(&range))? {
            return Ok(Some(object));
        }
        let answer = self.inner.get_range(key, range)?;
        self.keep(key, &label, answer.as_ref());
        Ok(answer)
    }

    fn head(&self, key: &Key) -> Result<Option<Meta>> {
        let meta = self.inner.head(key)?;
        if let Some(meta) = meta.filter(|meta| meta.kind == EntryKind::File) {
            self.note(key, Some(meta.version));
        }
        Ok(meta)
    }

    fn version(&self, key: &Key) -> Result<Option<Version>> {
        let version = self.inner.version(key)?;
        self.note(key, version);
        Ok(version)
    }

    fn open(&self, key: &Key) -> Result<Arc<dyn Reader>> {
        Ok(self.reader(key, self.inner.open(key)?))
    }

    fn open_known(&self, key: &Key, meta: &Meta) -> Result<Arc<dyn Reader>> {
        Ok(self.reader(key, self.inner.open_known(key, meta)?))
    }

    fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>> {
        self.inner.list(prefix)
    }

    fn walk(&self, prefix: &Key, from: &Key) -> Result<Option<Box<dyn Walk>>> {
        self.inner.walk(prefix, from)
    }

    fn head_now(&self, key: &Key) -> Option<Option<Meta>> {
        self.inner.head_now(key)
    }

    fn ask_ahead(&self, keys: &[Key]) {
        self.inner.ask_ahead(keys);
    }

    fn lists(&self) -> bool {
        self.inner.lists()
    }

    fn read_link(&self, key: &Key) -> Result<Vec<u8>> {
        self.inner.read_link(key)
    }

    fn freshness(&self) -> Duration {
        self.inner.freshness()
    }

    fn folder(&self) -> Option<&Path> {
        self.inner.folder()
    }
}

impl Disk {
    fn reader(&self, key: &Key, inner: Arc<dyn Reader>) -> Arc<dyn Reader> {
        Arc::new(DiskReader {
            inner,
            drawer: self.drawer.clone(),
            key: key.clone(),
        })
    }
}

/// Returns what tells a store from others: its name as it may be shown, and what says at which server it is.
pub fn identity(shown: &str, remote: &RemoteConfig) -> String {
    let is_place = |name: &str| {
        let name = name.to_ascii_lowercase();
        name.contains("endpoint") || name.contains("account_name") || name.contains("emulator")
    };
    let mut parts = vec![shown.trim_end_matches('/').to_string()];
    parts.extend(remote.endpoint.clone());
    let options = remote.options.iter().cloned();
    let clouds = ["AWS_", "AZURE_", "GOOGLE_"];
    let from_outside = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        let is_ours = clouds.iter().any(|cloud| name.starts_with(cloud));
        is_ours.then(|| (name, value.to_string_lossy().into_owned()))
    });
    let mut places: Vec<String> = options
        .chain(from_outside)
        .filter(|(name, _)| is_place(name))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    places.sort_unstable();
    parts.extend(places);
    parts.join("\n")
}
