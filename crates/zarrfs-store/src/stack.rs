//! Opens a store by path or URL: the backend and the layers over it.
//!
//! ```text
//!      store view                     hierarchy and arrays
//!          |                             |           |
//!      readahead (network, unchanged)    |      consolidated   reads the consolidated metadata of groups
//!          |                             |           |
//!          +------------------+----------+-----------+
//!                             |
//!                          overlay            with --cow or --write-through
//!                             |
//!                     synthetic listings                     changed stores that cannot list: names of nodes
//!                             |
//!          +------------------+------------------+
//!          |                  |                  |
//!   zip, references           |                  |           an archive or reference file, wherever it is
//!          |                  |                  |
//!          +--------+---------+                  |
//!                   |                            |
//!             metadata_cache                     |           network: kinds, versions, names, documents
//!                   |                            |
//!              disk_cache                        |           with --cache-dir: objects and ranges
//!                   |                            |
//!               liveness                         |           network: errors for missing keys of a deleted store
//!                   |                            |
//!               counting                     counting        `stats.json`
//!                   |                            |
//!             bucket, http                 local, memory
//! ```
//!
//! All layers of a stack share one change log, except the overlay: a write to its upper folder does not invalidate the
//! answers of the layers below. `mount/open.rs` inserts the overlay, since this crate does not know upper folders. It
//! also inserts listings whose names come from metadata (`view/synthetic_store.rs`). `hierarchy` reads consolidated
//! metadata.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::backend::reference::icechunk::{Icechunk, RepositoryStores, Revision, is_repository};
use crate::backend::reference::kerchunk::{
    self, HEAD, JsonContent, ReferenceLocation, ReferenceOptions, json_content,
};
use crate::backend::reference::targets::{Targets, VirtualPrefix};
use crate::backend::zip::location::ArchiveLocation;
use crate::backend::{local, memory, remote_url, zip};
use crate::layer::ImmutableStore;
use crate::layer::liveness::LivenessStore;
use crate::layer::readahead::{ReadaheadConfig, ReadaheadStore};
use crate::layer::{counting, disk_cache, metadata_cache};
use crate::location::{local_folder, normalized, redacted, scheme, split_revision};
use crate::request_context::RequestContext;
use crate::stats::Stats;
use crate::sync::budget::MemoryBudget;
use crate::{ByteRange, Hints, Key, Login, NoHints, Store, Tree};
use zarr_format::error::{Error, Kind, Result};

/// Configuration for opening a store.
#[derive(Clone, Debug, Default)]
pub struct StoreConfig {
    /// Whether symbolic links of a local store are followed out of the store's folder.
    pub follow_symlinks: bool,
    /// Configuration of stores on the network.
    pub remote: RemoteConfig,
    /// The disk cache for stores on the network, if there is one.
    pub disk_cache: Option<Arc<disk_cache::CacheDir>>,
    /// The memory budget for cached data and metadata of stores; by default each store has a budget of its own.
    pub memory: Option<Arc<MemoryBudget>>,
    /// The prefixes of URLs below which the chunks named by an Icechunk repository or a reference file may be read.
    pub virtual_chunks: Vec<VirtualPrefix>,
}

impl StoreConfig {
    /// Whether the store at a location, and all objects that it may refer to, are on this machine.
    pub fn is_local(&self, location: &str) -> bool {
        let prefixes = self.virtual_chunks.iter().map(VirtualPrefix::prefix);
        let mut places = prefixes.chain([location]);
        places.all(|place| local_folder(place).is_some())
    }

    /// Returns the configured memory budget, or a new one of 512 MiB.
    fn budget(&self) -> Arc<MemoryBudget> {
        let own = || MemoryBudget::new(512 << 20, Arc::new(Stats::default()));
        self.memory.clone().unwrap_or_else(own)
    }
}

/// Configuration of a store on the network.
#[derive(Clone)]
pub struct RemoteConfig {
    /// Names and values of `--storage-option`. Some values are secret.
    pub options: Vec<(String, String)>,
    /// Whether requests are sent without credentials.
    pub anonymous: bool,
    /// Credentials for web servers.
    pub login: Login,
    /// Whether a bucket or prefix without keys can be opened: the program is about to create a store there.
    pub may_be_empty: bool,
    /// URL of the bucket's server, if it is not the cloud's default.
    pub endpoint: Option<String>,
    /// Region of the bucket.
    pub region: Option<String>,
    /// HTTP status for a missing key, in addition to 404.
    pub missing_is: Option<u16>,
    /// Time limit for a response to begin, and for each further part of its body to arrive.
    pub timeout: Duration,
    /// Maximum number of concurrent requests to the store.
    pub concurrency: usize,
    /// How long cached metadata are used.
    pub metadata_ttl: Duration,
    /// Folder of the disk cache, or `None` for no disk cache.
    pub cache_dir: Option<PathBuf>,
    /// Maximum size of the disk cache, in bytes.
    pub cache_size: u64,
}

impl Default for RemoteConfig {
    fn default() -> RemoteConfig {
        RemoteConfig {
            options: Vec::new(),
            anonymous: false,
            login: Login::default(),
            may_be_empty: false,
            endpoint: None,
            region: None,
            missing_is: None,
            timeout: Duration::from_secs(60),
            concurrency: 32,
            metadata_ttl: Duration::from_secs(60),
            cache_dir: None,
            cache_size: 10 << 30,
        }
    }
}

impl fmt::Debug for RemoteConfig {
    /// Shows the names of the storage options, but not their values, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.options.iter().map(|(name, _)| name).collect();
        f.debug_struct("RemoteConfig")
            .field("options", &names)
            .finish_non_exhaustive()
    }
}

/// Opens the store at a path or URL. The error is `Unsupported` for an unknown scheme, or the store's `NotFound` or
/// `Denied`.
///
/// A file in the middle of a path, or a component of a URL that ends in `.zip`, is a zip archive; the rest is a folder
/// in the archive. The counters count requests for the archive, not for its entries. A file that contains kerchunk
/// references, and a component of a URL that ends in `.json`, is a reference file.
pub fn open(
    context: &RequestContext,
    location: &str,
    config: &StoreConfig,
    stats: &Arc<Stats>,
) -> Result<Arc<dyn Store>> {
    StoreStack::open(context, location, config, stats).map(|stack| stack.store)
}

/// An open store, wrapped in its caches and other layers.
pub struct StoreStack {
    /// The outermost layer, which all reads and changes go through.
    pub store: Arc<dyn Store>,
    /// Receives hints about future reads, to prefetch.
    pub hints: Arc<dyn Hints>,
    /// The store as a writable file tree, or `None` if the store has no files and folders.
    pub tree: Option<Arc<dyn Tree>>,
    /// The Icechunk repository of which the store is a snapshot, or `None`.
    pub repository: Option<Arc<Icechunk>>,
}

impl StoreStack {
    /// Opens the store at a path or URL, wrapped in its caches and other layers, as [`open`] does.
    pub fn open(
        context: &RequestContext,
        location: &str,
        config: &StoreConfig,
        stats: &Arc<Stats>,
    ) -> Result<StoreStack> {
        let name = redacted(location);
        let (location, revision) = split_revision(location)?;
        let location = &normalized(&location);
        let opening = Opening {
            context,
            location,
            config,
            stats,
        };
        let Some(path) = local_folder(location) else {
            return match zip::location::in_url(location).map_err(|error| error.about(&name))? {
                Some(zipped) => {
                    let base = open_remote(
                        context,
                        &zipped.folder,
                        Some(&zipped.archive),
                        config,
                        stats,
                    )?;
                    let zip = zip::ZipStore::open(
                        context,
                        base.store,
                        &zipped.archive,
                        &zipped.inner,
                        &name,
                    )?;
                    Ok(StoreStack::plain(Arc::new(zip)))
                }
                None => match opening.remote_reference_file()? {
                    Some(stack) => Ok(stack),
                    None => opening.remote_store(revision),
                },
            };
        };
        match zip::location::in_path(Path::new(&path)).map_err(|error| error.about(&name))? {
            Some(zipped) => {
                let local = local::LocalStore::open(&zipped.folder, config)?;
                let base = counted(Arc::new(local), stats);
                if let Some(stack) = opening.local_reference_file(&base, &zipped)? {
                    return Ok(stack);
                }
                match zip::ZipStore::open(context, base, &zipped.archive, &zipped.inner, &name) {
                    Err(error) if error.kind() == Kind::Corrupt && !zipped.is_named_zip() => Err(
                        match first_bytes(Path::new(&path)).as_deref().and_then(what_is) {
                            Some(what) => not_a_store(&name, what),
                            None => {
                                let why =
                                    "not a Zarr store: zarrfs opens directories and zip archives";
                                Error::new(Kind::NotADirectory, name, why)
                            }
                        },
                    ),
                    zip => Ok(StoreStack::plain(Arc::new(zip?))),
                }
            }
            None => {
                let local = local::LocalStore::open(Path::new(&path), config)?;
                let store = counted(Arc::new(local), stats);
                match opening.revision_of(&*store, revision)? {
                    Some(revision) => opening.icechunk(store, revision),
                    None => match opening.reference_folder(&store)? {
                        Some(stack) => Ok(stack),
                        None => Ok(StoreStack::plain(store)),
                    },
                }
            }
        }
    }

    fn plain(store: Arc<dyn Store>) -> StoreStack {
        StoreStack {
            store,
            hints: Arc::new(NoHints),
            tree: None,
            repository: None,
        }
    }

    /// Returns the outermost store, which prefetches if `config` is given.
    pub fn reading_ahead(&self, config: Option<ReadaheadConfig>) -> Arc<dyn Store> {
        let store = self.store.clone();
        match config {
            None => store,
            Some(config) => Arc::new(ReadaheadStore::new(store, &config)),
        }
    }
}

fn counted(store: Arc<dyn Store>, stats: &Arc<Stats>) -> Arc<dyn Store> {
    Arc::new(counting::CountingStore::new(store, stats.clone()))
}

/// Opens the disk cache of `--cache-dir`, if it is configured and the store is not local. The error is `NotADirectory`
/// or `Denied`.
pub fn open_cache_dir(
    location: &str,
    config: &StoreConfig,
    stats: &Arc<Stats>,
) -> Result<Option<Arc<disk_cache::CacheDir>>> {
    let remote = &config.remote;
    match (&remote.cache_dir, config.is_local(location)) {
        (None, _) => Ok(None),
        (Some(path), false) => disk_cache::CacheDir::open(path, remote.cache_size, stats).map(Some),
        (Some(_), true) => {
            log::warn!("--cache-dir is not used, since the store is local");
            Ok(None)
        }
    }
}

fn with_disk_cache(store: Arc<dyn Store>, location: &str, config: &StoreConfig) -> Arc<dyn Store> {
    let Some(cache_dir) = &config.disk_cache else {
        return store;
    };
    let identity = disk_cache::identity(location, store.info());
    let namespace = disk_cache::CacheNamespace::open(cache_dir, &identity);
    Arc::new(disk_cache::DiskCache::new(store, namespace))
}

fn with_metadata_cache(
    context: &RequestContext,
    store: Arc<dyn Store>,
    config: &StoreConfig,
) -> StoreStack {
    let bounds = match &config.memory {
        Some(memory) => metadata_cache::MetadataCacheConfig::within(memory.clone()),
        None => metadata_cache::MetadataCacheConfig::default(),
    };
    let cache_config = metadata_cache::MetadataCacheConfig {
        ttl: config.remote.metadata_ttl,
        concurrency: config.remote.concurrency,
        ..bounds
    };
    let cache = Arc::new(metadata_cache::MetadataCache::new(store, &cache_config));
    cache.list_root(context);
    StoreStack {
        store: cache.clone(),
        hints: cache,
        tree: None,
        repository: None,
    }
}

/// Opens a store on the network, or in memory, and wraps it in the disk cache and the metadata cache. For a zip
/// archive, `only` is its key, and no other key needs to exist.
fn open_remote(
    context: &RequestContext,
    location: &str,
    only: Option<&Key>,
    config: &StoreConfig,
    stats: &Arc<Stats>,
) -> Result<StoreStack> {
    let store = open_url(location, only, config, stats)?;
    if scheme(location).is_some_and(|(scheme, _)| scheme == "memory") {
        return Ok(StoreStack::plain(store));
    }
    let store = match only {
        // An archive has no root document to watch; its absence is an error anyway.
        Some(_) => store,
        None => Arc::new(LivenessStore::new(store)),
    };
    let store = with_disk_cache(store, location, config);
    Ok(with_metadata_cache(context, store, config))
}

/// Opens the store at a URL, wrapped only in the layer that counts requests.
fn open_url(
    location: &str,
    only: Option<&Key>,
    config: &StoreConfig,
    stats: &Arc<Stats>,
) -> Result<Arc<dyn Store>> {
    match scheme(location) {
        Some(("memory", _)) => Ok(counted(Arc::new(memory::MemoryStore::default()), stats)),
        Some((scheme, rest)) if remote_url::has_scheme(scheme) => {
            let shown = &redacted(location);
            let url = remote_url::RemoteUrl {
                scheme,
                rest,
                display_name: shown,
                only,
            };
            let store = remote_url::open(url, &config.remote, stats)?;
            Ok(counted(store, stats))
        }
        Some((scheme, _)) => {
            let text = format!(
                "unsupported URL scheme {scheme}://; use a path, or file://, s3://, gs://, az://, abfss://, http://, \
                 https:// (for other S3 servers: s3:// and --endpoint)"
            );
            Err(Error::unsupported(redacted(location), text))
        }
        None => Err(Error::invalid(redacted(location), "not a URL")),
    }
}

struct Opening<'a> {
    context: &'a RequestContext,
    location: &'a str,
    config: &'a StoreConfig,
    stats: &'a Arc<Stats>,
}

impl Opening<'_> {
    /// Opens the store at a URL. If it is an Icechunk repository, opens the given or default revision.
    fn remote_store(&self, revision: Option<Revision>) -> Result<StoreStack> {
        if scheme(self.location).is_some_and(|(scheme, _)| scheme == "memory") {
            return open_remote(self.context, self.location, None, self.config, self.stats);
        }
        let store = match open_url(self.location, None, self.config, self.stats) {
            // A server without listings may still have the repository's files, whose names follow from the branch or
            // tag.
            Err(error) => match &revision {
                Some(revision) => self.files_of(revision).ok_or_else(|| {
                    let why = format!(
                        "neither {revision} nor anything else is here: check the URL and the name"
                    );
                    match error.kind() {
                        Kind::NotFound => Error::new(Kind::NotFound, redacted(self.location), why),
                        _ => error,
                    }
                })?,
                None => return Err(error),
            },
            store => store?,
        };
        if let Some(revision) = revision {
            return self.icechunk(store, revision);
        }
        let live = Arc::new(LivenessStore::new(store.clone()));
        let cached = with_disk_cache(live, self.location, self.config);
        let stack = with_metadata_cache(self.context, cached, self.config);
        match self.revision_of(&*stack.store, None)? {
            Some(revision) => self.icechunk(store, revision),
            // `.zmetadata` is only requested if the URL's name ends like that of a folder of Parquet references.
            None if self.is_named_parquet() => match self.reference_folder(&stack.store)? {
                Some(references) => Ok(references),
                None => Ok(stack),
            },
            None => Ok(stack),
        }
    }

    /// Opens a store for the files of a revision; no other key needs to exist. Returns `None` if the revision has no
    /// file there.
    fn files_of(&self, revision: &Revision) -> Option<Arc<dyn Store>> {
        let branch = format!("refs/{}.{}/ref.json", revision.kind(), revision.name());
        ["repo", &branch].into_iter().find_map(|key| {
            let key = Key::new(key).ok()?;
            open_url(self.location, Some(&key), self.config, self.stats).ok()
        })
    }

    /// Returns the revision to open if the store is an Icechunk repository: `wanted`, or the default one if the root
    /// has the files of a repository but no Zarr metadata.
    fn revision_of(&self, store: &dyn Store, wanted: Option<Revision>) -> Result<Option<Revision>> {
        if wanted.is_some() || !store.info().lists {
            return Ok(wanted);
        }
        for name in ["zarr.json", ".zgroup", ".zarray"] {
            let key = Key::new(name)?;
            // `head` lists names on some servers. If that fails, the object itself may still be readable.
            let found = store.head(self.context, &key).map(|meta| meta.is_some());
            let exists = || Ok(store.version(self.context, &key)?.is_some());
            match found.or_else(|_| exists()) {
                Ok(false) => {}
                Ok(true) => return Ok(None),
                // A server that hides names with a dot may refuse requests for them, which says nothing about a
                // repository.
                Err(_) if name.starts_with('.') => {}
                Err(error) => return Err(error),
            }
        }
        // An error fails the open: otherwise the repository's own files would be shown as a store.
        let is_one = is_repository(self.context, store)?;
        Ok(is_one.then(Revision::default))
    }

    /// Opens a revision of an Icechunk repository, given the store that contains the repository's files.
    fn icechunk(&self, store: Arc<dyn Store>, revision: Revision) -> Result<StoreStack> {
        let immutable = Arc::new(ImmutableStore::new(store.clone()));
        let objects = with_disk_cache(immutable, self.location, self.config);
        let targets = self.targets(Some(objects.clone()));
        let stores = RepositoryStores {
            heads: store,
            objects,
        };
        let repository = Icechunk::new(stores, revision, targets, &self.config.budget());
        let opened = repository.store(self.context);
        let store = opened.map_err(|error| error.about(redacted(self.location)))?;
        Ok(StoreStack {
            repository: Some(Arc::new(repository)),
            ..StoreStack::plain(store)
        })
    }

    /// Opens a local file as a kerchunk reference file, or returns `None` if it is no reference file.
    fn local_reference_file(
        &self,
        base: &Arc<dyn Store>,
        file: &ArchiveLocation<PathBuf>,
    ) -> Result<Option<StoreStack>> {
        let head = base.get_range(self.context, &file.archive, ByteRange::Span(0..HEAD as u64))?;
        let content = head.map_or(JsonContent::NoObject, |head| json_content(&head.bytes));
        match content {
            JsonContent::References => {}
            JsonContent::Unknown if file.is_named_json() => {}
            _ => return Ok(None),
        }
        let folder = file.folder.to_string_lossy();
        self.reference_file(base.clone(), &folder, &file.archive, &file.inner)
            .map(Some)
    }

    /// Opens the kerchunk reference file in the path of a URL, or returns `None` if there is none.
    fn remote_reference_file(&self) -> Result<Option<StoreStack>> {
        let name = redacted(self.location);
        let found = zip::location::json_in_url(self.location);
        let Some(file) = found.map_err(|error| error.about(&name))? else {
            return Ok(None);
        };
        let span = ByteRange::Span(0..HEAD as u64);
        let key = &file.archive;
        let opened = open_remote(
            self.context,
            &file.folder,
            Some(key),
            self.config,
            self.stats,
        );
        let head = opened.and_then(|stack| {
            let head = stack.store.get_range(self.context, key, span)?;
            Ok(head.map(|head| (stack.store, json_content(&head.bytes))))
        });
        let (base, content) = match head {
            Ok(Some(found)) => found,
            // The name that ends in `.json` may be a folder.
            Ok(None) => return Ok(None),
            Err(error) if error.kind() == Kind::NotFound => return Ok(None),
            Err(error) => return Err(error.about(&name)),
        };
        match content {
            JsonContent::NoObject => Ok(None),
            JsonContent::Document => Err(Error::invalid(
                name,
                "not a Zarr store, but a metadata file of Zarr: use the directory that contains the file",
            )),
            JsonContent::References | JsonContent::Unknown => self
                .reference_file(base, &file.folder, key, &file.inner)
                .map(Some),
        }
    }

    /// Opens the folder `inner` of the kerchunk reference file `key` in the store `base`, whose path or URL is
    /// `folder`.
    fn reference_file(
        &self,
        base: Arc<dyn Store>,
        folder: &str,
        key: &Key,
        inner: &Key,
    ) -> Result<StoreStack> {
        let location = ReferenceLocation {
            base,
            folder,
            inner: inner.clone(),
            display_name: &redacted(self.location),
        };
        let store = kerchunk::open_file(self.context, location, key, self.reference_options())?;
        Ok(StoreStack::plain(store))
    }

    /// Whether the last name in the URL's path ends in `.parq` or `.parquet`, as a folder of Parquet references does.
    fn is_named_parquet(&self) -> bool {
        let path = self.location.split(['?', '#']).next().unwrap_or_default();
        let name = path.trim_end_matches('/').to_ascii_lowercase();
        name.ends_with(".parq") || name.ends_with(".parquet")
    }

    /// Opens a folder of Parquet files with kerchunk references, or returns `None` if the store is an ordinary one.
    fn reference_folder(&self, store: &Arc<dyn Store>) -> Result<Option<StoreStack>> {
        let location = ReferenceLocation {
            base: store.clone(),
            folder: self.location,
            inner: Key::root(),
            display_name: &redacted(self.location),
        };
        let opened = kerchunk::open_folder(self.context, location, self.reference_options())?;
        Ok(opened.map(StoreStack::plain))
    }

    fn reference_options(&self) -> ReferenceOptions {
        ReferenceOptions {
            targets: self.targets(None),
            memory: self.config.budget(),
            concurrency: self.config.remote.concurrency,
        }
    }

    /// Returns the objects whose bytes references may name: those in `repository`, and those below the prefixes that
    /// the user allows.
    fn targets(&self, repository: Option<Arc<dyn Store>>) -> Arc<Targets> {
        let (config, stats) = (self.config.clone(), self.stats.clone());
        let open = move |context: &RequestContext, prefix: &VirtualPrefix, key: &Key| {
            if let Some(path) = local_folder(prefix.prefix()) {
                let local = local::LocalStore::open(Path::new(&path), &config)?;
                return Ok(counted(Arc::new(local), &stats));
            }
            let config = StoreConfig {
                remote: prefix.config(&config.remote),
                ..config.clone()
            };
            let stack = open_remote(context, prefix.prefix(), Some(key), &config, &stats)?;
            Ok(stack.store)
        };
        Targets::new(
            repository,
            self.config.virtual_chunks.clone(),
            Box::new(open),
        )
    }
}

/// Returns the error for a URL at which no store was found, if there is a file whose format its first bytes tell. Sends
/// requests, so it is only called when the open has failed.
pub fn error_of_file(
    context: &RequestContext,
    location: &str,
    config: &StoreConfig,
    stats: &Arc<Stats>,
) -> Option<Error> {
    if local_folder(location).is_some() || location.contains('?') {
        return None;
    }
    let (folder, name) = location.trim_end_matches('/').rsplit_once('/')?;
    let key = Key::new(name).ok()?;
    let store = open_url(&normalized(folder), Some(&key), config, stats).ok()?;
    let span = ByteRange::Span(0..HEAD as u64);
    let head = store.get_range(context, &key, span).ok()??;
    what_is(&head.bytes).map(|what| not_a_store(&redacted(location), what))
}

fn first_bytes(path: &Path) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    let file = File::open(path).ok()?;
    file.take(HEAD as u64).read_to_end(&mut head).ok()?;
    Some(head)
}

/// Returns the error for a location that is not a store but the file `what`.
fn not_a_store(name: &str, what: &str) -> Error {
    Error::new(
        Kind::NotADirectory,
        name,
        format!("not a Zarr store, but {what}"),
    )
}

/// Names the format of a file that was given in place of a store, by its first bytes.
fn what_is(head: &[u8]) -> Option<&'static str> {
    let begins = |start: &[u8]| head.starts_with(start);
    let text = String::from_utf8_lossy(head);
    Some(match text.trim_start() {
        _ if begins(b"\x89HDF\r\n\x1a\n") => {
            "an HDF5 or netCDF-4 file: convert the file to Zarr, or use h5py or netCDF4"
        }
        _ if begins(b"CDF") => "a netCDF file: convert the file to Zarr, or use netCDF4",
        _ if begins(b"II*\0") || begins(b"MM\0*") || begins(b"II+\0") => {
            "a TIFF file: convert the file to Zarr, or use tifffile or GDAL"
        }
        _ if begins(b"\x1f\x8b") => "a gzip file, such as .tar.gz: unpack it",
        _ if head.get(257..262) == Some(b"ustar".as_slice()) => "a tar archive: unpack it",
        text if text.starts_with('{') && text.contains("\"zarr_format\"") => {
            "a metadata file of Zarr: use the directory that contains the file"
        }
        text if text.starts_with("version https://git-lfs") => {
            "a git-lfs pointer: run 'git lfs pull'"
        }
        text if text.starts_with("<!") || text.starts_with("<html") => {
            "an HTML page: check the download"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_with_chunks_on_a_network_is_not_local() {
        let is_local = |location: &str, prefixes: &[&str]| {
            let prefixes = prefixes.iter().map(|text| VirtualPrefix::parse(text));
            let config = StoreConfig {
                virtual_chunks: prefixes.collect::<Result<_>>().unwrap(),
                ..StoreConfig::default()
            };
            config.is_local(location)
        };
        assert!(is_local("/a/refs.json", &[]) && is_local("/a/refs.json", &["/data"]));
        assert!(is_local("/a/repo?tag=v1", &[]));
        assert!(!is_local("/a/refs.json", &["/data", "s3://bucket/a"]));
        assert!(!is_local("s3://bucket/repo", &["/data"]));
    }
}
