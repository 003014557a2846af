//! Opens a store by path or URL: the backend and the layers over it.
//!
//! ```text
//!      store view                     hierarchy and arrays
//!          |                             |           |
//!      readahead (network, unchanged)    |      consolidated   below groups that have such metadata
//!          |                             |           |
//!          +------------------+----------+-----------+
//!                             |
//!                          overlay            with --cow or --write-through
//!                             |
//!          +------------------+------------------+
//!          |                  |                  |
//!         zip                 |                  |           an archive, wherever it is
//!          |                  |                  |
//!          +--------+---------+                  |
//!                   |                            |
//!            synthetic listings                  |           changed stores that list nothing: nodes and documents
//!                   |                            |
//!             metadata_cache                     |           network: kinds, versions, names, documents
//!                   |                            |
//!              disk_cache                        |           with --cache-dir: objects and ranges
//!                   |                            |
//!               liveness                         |           network: a store that is gone has no missing keys
//!                   |                            |
//!               counting                     counting        `stats.json`
//!                   |                            |
//!             bucket, http                 local, memory
//! ```
//!
//! All layers of a stack share one change log, except the overlay: a write to its upper folder does not invalidate the
//! answers of the layers below. `mount/open.rs` inserts the overlay, since this crate does not know upper folders, and
//! the listings synthesized from metadata (`view/synthetic_store.rs`); `hierarchy` reads consolidated metadata.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{local, memory, remote_url, zip};
use crate::layer::liveness::LivenessStore;
use crate::layer::readahead::{ReadaheadConfig, ReadaheadStore};
use crate::layer::{counting, disk_cache, metadata_cache};
use crate::location::{local_folder, normalized, redacted, scheme};
use crate::request_context::RequestContext;
use crate::stats::Stats;
use crate::sync::budget::MemoryBudget;
use crate::{Hints, Key, NoHints, Store, Tree};
use zarr_format::error::{Error, Kind, Result};

/// Options for opening a store.
#[derive(Clone, Debug, Default)]
pub struct StoreConfig {
    /// Whether to follow symbolic links that leave a local store.
    pub follow_symlinks: bool,
    /// Options for stores on the network.
    pub remote: RemoteConfig,
    /// The disk cache for stores on the network, if there is one.
    pub disk_cache: Option<Arc<disk_cache::CacheDir>>,
    /// The budget for cached metadata of stores on the network; by default they have their own.
    pub memory: Option<Arc<MemoryBudget>>,
}

/// Options for a store on the network.
#[derive(Clone)]
pub struct RemoteConfig {
    /// Names and values of `--option`; some values are secret.
    pub options: Vec<(String, String)>,
    /// Whether to send requests without credentials.
    pub anonymous: bool,
    /// Whether a bucket or prefix without keys opens as a store, which the program is about to create.
    pub may_be_empty: bool,
    /// URL of the server, unless the cloud's default applies.
    pub endpoint: Option<String>,
    /// Region of the bucket.
    pub region: Option<String>,
    /// HTTP status for a missing key, in addition to 404.
    pub missing_is: Option<u16>,
    /// Time limit of a response, and of each piece of its body.
    pub timeout: Duration,
    /// Maximum number of concurrent requests.
    pub concurrency: usize,
    /// TTL of metadata.
    pub metadata_ttl: Duration,
    /// Folder of the disk cache.
    pub cache_dir: Option<PathBuf>,
    /// Limit of the disk cache in bytes.
    pub cache_size: u64,
}

impl Default for RemoteConfig {
    fn default() -> RemoteConfig {
        RemoteConfig {
            options: Vec::new(),
            anonymous: false,
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
    /// Shows the names of the options, but not their values, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.options.iter().map(|(name, _)| name).collect();
        f.debug_struct("RemoteConfig")
            .field("options", &names)
            .finish_non_exhaustive()
    }
}

/// Opens the store at a path or URL. `Unsupported` for an unknown scheme; `NotFound` or `Denied` from the store.
///
/// A file in the middle of a path, or a component of a URL that ends in `.zip`, is a zip archive; the rest is a folder
/// in the archive. The counters count requests for the archive, not for its entries.
pub fn open(
    context: &RequestContext,
    location: &str,
    config: &StoreConfig,
    stats: &Arc<Stats>,
) -> Result<Arc<dyn Store>> {
    StoreStack::open(context, location, config, stats).map(|stack| stack.store)
}

/// A store with its layers and the interfaces of the top layer.
pub struct StoreStack {
    /// The top layer, for reads and changes.
    pub store: Arc<dyn Store>,
    /// Receives hints about reads.
    pub hints: Arc<dyn Hints>,
    /// The store as a writable file tree, if it is one.
    pub tree: Option<Arc<dyn Tree>>,
}

impl StoreStack {
    /// Opens the store at a path or URL like [`open`].
    pub fn open(
        context: &RequestContext,
        location: &str,
        config: &StoreConfig,
        stats: &Arc<Stats>,
    ) -> Result<StoreStack> {
        let location = &normalized(location);
        let name = redacted(location);
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
                None => open_remote(context, location, None, config, stats),
            };
        };
        match zip::location::in_path(Path::new(&path)).map_err(|error| error.about(&name))? {
            Some(zipped) => {
                let local = local::LocalStore::open(&zipped.folder, config)?;
                let base = counted(Arc::new(local), stats);
                match zip::ZipStore::open(context, base, &zipped.archive, &zipped.inner, &name) {
                    Err(error) if error.kind() == Kind::Corrupt && !zipped.is_named_zip() => {
                        let text = match what_is(Path::new(&path)) {
                            Some(what) => format!("not a Zarr store, but {what}"),
                            None => "not a Zarr store: zarrfs opens directories and zip archives"
                                .to_string(),
                        };
                        Err(Error::new(Kind::NotADirectory, name, text))
                    }
                    zip => Ok(StoreStack::plain(Arc::new(zip?))),
                }
            }
            None => {
                let local = local::LocalStore::open(Path::new(&path), config)?;
                Ok(StoreStack::plain(counted(Arc::new(local), stats)))
            }
        }
    }

    /// Builds a stack without hints.
    fn plain(store: Arc<dyn Store>) -> StoreStack {
        StoreStack {
            store,
            hints: Arc::new(NoHints),
            tree: None,
        }
    }

    /// Returns the store, with read-ahead if a configuration is given.
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

/// Opens the disk cache if `--cache-dir` names its folder; `NotADirectory` or `Denied` if that fails. A local store has
/// no disk cache.
pub fn open_cache_dir(
    location: &str,
    remote: &RemoteConfig,
    stats: &Arc<Stats>,
) -> Result<Option<Arc<disk_cache::CacheDir>>> {
    match (&remote.cache_dir, local_folder(location)) {
        (None, _) => Ok(None),
        (Some(path), None) => disk_cache::CacheDir::open(path, remote.cache_size, stats).map(Some),
        (Some(_), Some(_)) => {
            log::warn!("--cache-dir is not used, since the store is local");
            Ok(None)
        }
    }
}

/// Puts the disk cache over a store, if it is configured.
fn with_disk_cache(store: Arc<dyn Store>, location: &str, config: &StoreConfig) -> Arc<dyn Store> {
    let Some(cache_dir) = &config.disk_cache else {
        return store;
    };
    let identity = disk_cache::identity(location, store.info());
    let namespace = disk_cache::CacheNamespace::open(cache_dir, &identity);
    Arc::new(disk_cache::DiskCache::new(store, namespace))
}

/// Puts the metadata cache over a store on the network.
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
    }
}

/// Opens a store that is not a local folder, with its layers: the disk cache and the metadata cache for stores on the
/// network. For an archive, `only` is its key, and no other key need exist.
fn open_remote(
    context: &RequestContext,
    location: &str,
    only: Option<&Key>,
    config: &StoreConfig,
    stats: &Arc<Stats>,
) -> Result<StoreStack> {
    match scheme(location) {
        Some(("memory", _)) => {
            let memory = Arc::new(memory::MemoryStore::default());
            Ok(StoreStack::plain(counted(memory, stats)))
        }
        Some((scheme, rest)) if remote_url::has_scheme(scheme) => {
            let shown = &redacted(location);
            let url = remote_url::RemoteUrl {
                scheme,
                rest,
                display_name: shown,
                only,
            };
            let store = remote_url::open(url, &config.remote, stats)?;
            let store = counted(store, stats);
            let store = match only {
                // An archive is one object, and its absence is an error already.
                Some(_) => store,
                None => Arc::new(LivenessStore::new(store)),
            };
            let store = with_disk_cache(store, location, config);
            Ok(with_metadata_cache(context, store, config))
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

/// Describes a file that was given in place of a store, for the error message.
fn what_is(path: &Path) -> Option<&'static str> {
    let mut head = Vec::new();
    let file = File::open(path).ok()?;
    file.take(4096).read_to_end(&mut head).ok()?;
    let begins = |start: &[u8]| head.starts_with(start);
    let text = String::from_utf8_lossy(&head);
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
        text if text.starts_with('{') && text.contains("\"refs\"") => {
            "a kerchunk reference file: use fsspec"
        }
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
