//! Opens a store with its hierarchy and arrays, and finds chunks by their keys.
//!
//! Mounts and commands open stores here, each within one memory budget. The root may lack metadata. The key of a chunk
//! is below the folder of its array; in Zarr v3 drafts it is below `data/`, away from the documents of the array.

use std::sync::Arc;
use std::time::Duration;

use zarr_format::error::{Error, Kind, Result};
use zarr_format::grid::{Coordinates, Selection};
use zarrfs_array::array::{Arrays, Engine, EngineDisk, Limits, OpenArray, SpillConfig};
use zarrfs_array::hierarchy::{Hierarchy, HierarchyConfig, NodeEntry};
use zarrfs_store::layer::disk_cache;
use zarrfs_store::layer::disk_cache::CacheNamespace;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::stats::Stats;
use zarrfs_store::sync::budget::MemoryBudget;
use zarrfs_store::{EntryKind, Key, StoreConfig, StoreInfo, StoreStack};

/// The location of a store, its access options, and its limits.
#[derive(Clone, Debug)]
pub struct AccessConfig {
    /// Path or URL of the store.
    pub source: String,
    /// Memory budget in bytes, for decoded chunks and chunks that are being read.
    pub memory: u64,
    /// Maximum size of a decoded chunk in bytes.
    pub max_chunk: u64,
    /// Where decoded chunks that do not fit in memory are written on disk.
    pub spill: SpillConfig,
    /// Maximum duration of a request to the store.
    pub timeout: Duration,
    /// How the store is opened.
    pub store: StoreConfig,
    /// How metadata are read from the store.
    pub hierarchy: HierarchyConfig,
    /// Whether chunks are also written if encoding and decoding would change their elements.
    pub lossy: bool,
}

impl AccessConfig {
    /// Returns the error to show for a store that cannot be opened: if the location is a file of a known format, an
    /// error that says which format, or else `error`.
    pub fn explained(&self, context: &RequestContext, error: Error, stats: &Arc<Stats>) -> Error {
        if error.kind() != Kind::NotFound {
            return error;
        }
        let found = zarrfs_store::error_of_file(context, &self.source, &self.store, stats);
        found.unwrap_or(error)
    }

    /// Whether all bytes of the store are on the local machine: its location is a local folder, and so are all places
    /// outside to which an Icechunk repository or a reference file may point.
    pub fn is_local(&self) -> bool {
        self.store.is_local(&self.source)
    }

    /// Returns the maximum number of parallel requests to the store.
    pub fn concurrency(&self) -> usize {
        if self.is_local() {
            std::thread::available_parallelism().map_or(2, usize::from)
        } else {
            self.store.remote.concurrency
        }
    }

    fn limits(&self) -> Limits {
        Limits {
            memory: self.memory,
            max_chunk: self.max_chunk,
            timeout: self.timeout,
            fetches: if self.is_local() {
                0
            } else {
                self.store.remote.concurrency
            },
            lossy: self.lossy,
        }
    }
}

/// An open store with its hierarchy and its arrays.
pub struct OpenedStore {
    /// The store and the layers above it, such as caches.
    pub stack: StoreStack,
    /// The groups and arrays of the store.
    pub hierarchy: Arc<Hierarchy>,
    /// The opened arrays of the store.
    pub arrays: Arc<Arrays>,
    /// The memory budget that the store, the hierarchy and the arrays share.
    pub memory: Arc<MemoryBudget>,
}

impl OpenedStore {
    /// Opens a store with its hierarchy and arrays. `put_over` adds layers between the store and the hierarchy; the
    /// layers may use the memory budget.
    ///
    /// Fails as `zarrfs_store::open` does, and with `Invalid` if the root is not a directory.
    pub fn open(
        context: &RequestContext,
        config: &AccessConfig,
        stats: &Arc<Stats>,
        put_over: impl FnOnce(StoreStack, &Arc<MemoryBudget>) -> Result<StoreStack>,
    ) -> Result<OpenedStore> {
        let memory = MemoryBudget::beside_buffers(config.memory, stats.clone());
        let opening = StoreConfig {
            disk_cache: zarrfs_store::open_cache_dir(&config.source, &config.store, stats)?,
            memory: Some(memory.clone()),
            ..config.store.clone()
        };
        let stack = StoreStack::open(context, &config.source, &opening, stats)?;
        check_is_directory(context, &stack, &config.source)?;
        let decoded = decoded_namespace(&opening, &config.source, stack.store.info());
        let stack = put_over(stack, &memory)?;
        let mut hierarchy = Hierarchy::configured(stack.store.clone(), config.hierarchy.clone())
            .with_hints(stack.hints.clone())
            .within(&memory);
        if stack.tree.is_some() {
            hierarchy = hierarchy.of_tree();
        }
        let hierarchy = Arc::new(hierarchy);
        let disk = EngineDisk {
            cache: decoded,
            spill: config.spill.clone(),
        };
        let engine = Engine::within(memory.clone(), config.limits(), stats.clone(), disk);
        Ok(OpenedStore {
            arrays: Arc::new(Arrays::new(hierarchy.clone(), engine)),
            stack,
            hierarchy,
            memory,
        })
    }
}

fn check_is_directory(context: &RequestContext, stack: &StoreStack, source: &str) -> Result<()> {
    match stack.store.head(context, &Key::root())? {
        Some(meta) if meta.kind == EntryKind::Directory => Ok(()),
        _ => {
            let why = "not a store: use the path of a directory";
            Err(Error::invalid(zarrfs_store::redacted(source), why))
        }
    }
}

/// Returns the part of the disk cache for the lengths of exported files that depend on elements; `None` without a cache
/// directory.
fn decoded_namespace(
    opening: &StoreConfig,
    source: &str,
    store: &StoreInfo,
) -> Option<CacheNamespace> {
    let cache_dir = opening.disk_cache.as_ref()?;
    let identity = disk_cache::identity(source, store);
    let namespace = CacheNamespace::open(cache_dir, &format!("decoded\n{identity}"));
    Some(namespace)
}

/// Returns the array at the longest prefix of a path, or `None` if no prefix is an array.
fn find_array_above(
    context: &RequestContext,
    hierarchy: &Hierarchy,
    path: &Key,
) -> Result<Option<Arc<NodeEntry>>> {
    let mut found = hierarchy.root(context)?;
    for name in path.names() {
        match &found {
            Some(parent) if parent.array().is_none() => {
                found = hierarchy.child(context, parent, name)?
            }
            _ => break,
        }
    }
    Ok(found.filter(|found| found.array().is_some()))
}

/// Returns the array and the chunk indices that a key belongs to, or `None` if the key is not that of a chunk.
pub(crate) fn find_chunk(
    context: &RequestContext,
    hierarchy: &Hierarchy,
    arrays: &Arrays,
    key: &Key,
) -> Result<Option<(Arc<OpenArray>, Coordinates)>> {
    let below = |folder| Key::new(folder).ok().and_then(|folder| key.below(&folder));
    let in_drafts = ["data/root", "data"].into_iter().filter_map(below);
    for path in std::iter::once(key.clone()).chain(in_drafts) {
        let Some(entry) = find_array_above(context, hierarchy, &path)? else {
            continue;
        };
        let open = arrays.open(&entry)?;
        if let Some(indices) = indices_of(&open, key)? {
            return Ok(Some((open, indices)));
        }
    }
    Ok(None)
}

/// Returns the indices of the chunk with a key, or `None` if the array has no such chunk.
fn indices_of(open: &OpenArray, key: &Key) -> Result<Option<Coordinates>> {
    let (grid, array) = (open.stored_grid()?, open.array());
    let indices = array.keys.chunk_of(key.as_bytes(), array.shape.len());
    let indices = indices.filter(|indices| grid.index(indices).is_some());
    Ok(indices.map(Coordinates::from))
}

/// Returns the array of the chunk with a key, and the range of its elements inside the array. Fails with `Invalid` if
/// the key is not that of a chunk.
pub fn chunk_of(
    context: &RequestContext,
    opened: &OpenedStore,
    key: &Key,
) -> Result<(Arc<OpenArray>, Selection)> {
    let found = find_chunk(context, &opened.hierarchy, &opened.arrays, key)?;
    let no_chunk = || Error::invalid(key, "not the key of a chunk in the grid of an array");
    let (open, indices) = found.ok_or_else(no_chunk)?;
    let region = open.stored_grid()?.region(&indices);
    Ok((open, Selection::of_region(&region)))
}
