//! Opens all views of a store over one cache, for the root and `.zarrfs`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, json};

use super::summary::StoreSummary;
use crate::view::View;
use crate::view::control::{CONTROL, Control, ControlDirView};
use crate::view::files::{FilesView, ListedFormat};
use crate::view::plain::{PlainView, TARGETS};
use crate::view::store::StoreView;
use crate::view::store_without_listing::StoreWithoutListing;
use crate::view::synthetic_store::SyntheticStore;
use zarr_format::error::{Error, Result};
use zarr_format::json_text::render;
use zarrfs_array::array::{Arrays, SpillConfig};
use zarrfs_array::hierarchy::{Hierarchy, HierarchyConfig};
use zarrfs_export::inspect::locate::root_name;
use zarrfs_export::inspect::opened_store::{AccessConfig, OpenedStore};
use zarrfs_overlay::{Overlay, OverlayConfig};
use zarrfs_store::Presence;
use zarrfs_store::layer::readahead::ReadaheadConfig;
use zarrfs_store::request_context::UNLIMITED;
use zarrfs_store::stats::Stats;
use zarrfs_store::sync::budget::MemoryBudget;
use zarrfs_store::{Key, Store, StoreConfig, StoreStack};

/// A view: a way to show the store as files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ViewKind {
    /// The store view: keys, exactly as they are stored.
    #[default]
    Store,
    /// The files view: groups and arrays as directories with decoded files.
    Files,
    /// The v3 view: a plain store in the final version of Zarr v3.
    V3,
    /// The v2 view: a plain store in Zarr v2.
    V2,
}

impl ViewKind {
    /// All views.
    pub const ALL: [ViewKind; 4] = [ViewKind::Store, ViewKind::Files, ViewKind::V3, ViewKind::V2];

    /// Returns the name of the view in options and below `.zarrfs`.
    pub fn name(self) -> &'static str {
        match self {
            ViewKind::Store => "store",
            ViewKind::Files => "files",
            ViewKind::V3 => "v3",
            ViewKind::V2 => "v2",
        }
    }
}

impl FromStr for ViewKind {
    type Err = Error;

    fn from_str(name: &str) -> Result<ViewKind> {
        let name = match name {
            "arrays" => "files",
            "keys" => "store",
            name => name,
        };
        let mut views = ViewKind::ALL.into_iter();
        let view = views.find(|view| view.name() == name);
        view.ok_or_else(|| {
            Error::invalid(name, "unknown view; choose one of files, store, v3 and v2")
        })
    }
}

impl fmt::Display for ViewKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The configuration of a mount's store and views.
#[derive(Clone, Debug)]
pub struct ViewsConfig {
    /// Path or URL of the store.
    pub source: String,
    /// File formats that the files view lists in addition to the default format of each array.
    pub list: Vec<ListedFormat>,
    /// Memory limit of decoded chunks and of chunks that are being read or written, in bytes.
    pub memory: u64,
    /// Maximum decoded size of one chunk in bytes.
    pub max_chunk: u64,
    /// Disk storage for decoded chunks that do not fit into memory.
    pub spill: SpillConfig,
    /// Time limit of a request to the store.
    pub timeout: Duration,
    /// Configuration of the store.
    pub store: StoreConfig,
    /// The changes directory and its configuration; `None` for a read-only mount.
    pub overlay: Option<(PathBuf, OverlayConfig)>,
    /// Whether to use the changes directory although it belongs to a store at another path or URL.
    pub rebind: bool,
    /// Whether elements of arrays with lossy codecs may be written.
    pub lossy: bool,
    /// Configuration for finding and reading groups and arrays.
    pub hierarchy: HierarchyConfig,
    /// The options of the mount and their values for `mount.json`, without secrets.
    pub options: Vec<(String, String)>,
}

impl ViewsConfig {
    fn access(&self) -> AccessConfig {
        AccessConfig {
            source: self.source.clone(),
            memory: self.memory,
            max_chunk: self.max_chunk,
            spill: self.spill.clone(),
            timeout: self.timeout,
            store: self.store.clone(),
            hierarchy: self.hierarchy.clone(),
            lossy: self.lossy,
        }
    }
}

/// All views of one store.
pub struct Views {
    store: Arc<dyn Store>,
    overlay: Option<Overlay>,
    stored: Arc<dyn View>,
    files: Arc<dyn View>,
    /// The plain views, in the order of `TARGETS`.
    plain: [Arc<dyn View>; 2],
    control: Arc<Control>,
    hierarchy: Arc<Hierarchy>,
    arrays: Arc<Arrays>,
    memory: Arc<MemoryBudget>,
    is_local: bool,
}

/// What `zarrfs mount` prints about the store when the mount is ready.
pub struct Description {
    /// The dialect, and the number of arrays and groups: `Zarr v3, 7 arrays in 2 groups`.
    pub summary: String,
    /// Path of an array's file in the files view, as an example; `None` if no array below the root is known.
    pub example: Option<String>,
    /// Whether the store has Zarr metadata.
    pub is_zarr: bool,
}

impl Views {
    /// Returns a view, with the control directory `.zarrfs` in its root.
    pub fn view(&self, name: ViewKind) -> Arc<dyn View> {
        let view = match name {
            ViewKind::Store => &self.stored,
            ViewKind::Files => &self.files,
            ViewKind::V3 => &self.plain[0],
            ViewKind::V2 => &self.plain[1],
        };
        let (view, control) = (view.clone(), self.control.clone());
        if self.lists_control() {
            return Arc::new(ControlDirView::new(&UNLIMITED, view, control));
        }
        let is_taken = self.has_copies_of_control();
        Arc::new(ControlDirView::for_store_without_listing(
            view, control, is_taken,
        ))
    }

    /// Whether the store is local.
    pub fn is_local(&self) -> bool {
        self.is_local
    }

    /// Whether the store has a key `.zarrfs`, which hides the control directory in the store view.
    pub fn hides_control(&self) -> bool {
        if !self.lists_control() {
            return self.has_copies_of_control();
        }
        let name = Key::root().child(CONTROL);
        let entry = name.and_then(|name| self.stored.lookup(&UNLIMITED, &name));
        matches!(entry, Ok(Some(_)))
    }

    /// Whether a listing of the root would show a node `.zarrfs`. Some servers do not list names that begin with a dot.
    fn lists_control(&self) -> bool {
        let root = || self.store.list(&UNLIMITED, &Key::root());
        let is_hidden = || root().is_ok_and(|names| names.left_out().may_have(CONTROL));
        self.store.info().lists && !is_hidden()
    }

    /// Whether consolidated metadata contain a node `.zarrfs`. The store is not queried, because it does not list such
    /// a name.
    fn has_copies_of_control(&self) -> bool {
        let root = self.hierarchy.root(&UNLIMITED).ok().flatten();
        let name = Key::root().child(CONTROL);
        let (Some(root), Ok(name)) = (root, name) else {
            return false;
        };
        matches!(root.consolidated_entry(&name), Presence::Is(_))
    }

    /// Returns the overlay with the changes, or `None` for a read-only mount.
    pub fn overlay(&self) -> Option<&Overlay> {
        self.overlay.as_ref()
    }

    /// Returns the arrays that all views share.
    pub fn arrays(&self) -> &Arc<Arrays> {
        &self.arrays
    }

    /// Returns the memory budget to which all data of the mount are charged.
    pub fn memory(&self) -> &Arc<MemoryBudget> {
        &self.memory
    }

    /// Describes the contents of the store as far as they can be read quickly; warns if it is not a Zarr hierarchy.
    pub fn describe(&self, source: &str) -> Result<Description> {
        let summary = {
            // A local kerchunk reference file contains all metadata, even if its chunks are remote.
            let has_local_metadata = zarrfs_store::local_folder(source).is_some();
            StoreSummary::read(&self.hierarchy, has_local_metadata)?
        };
        let warning = summary.warning();
        if let Some(warning) = &warning {
            log::warn!("{source}: {warning}");
        }
        Ok(Description {
            summary: summary.to_string(),
            example: summary.example().map(str::to_string),
            is_zarr: warning.is_none(),
        })
    }

    /// Returns the store that the views show.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }
}

/// Opens a store with all its views, and reads its root, so that errors are reported before the mount.
pub fn open_views(config: &ViewsConfig, stats: &Arc<Stats>) -> Result<Views> {
    let name = zarrfs_store::redacted(&config.source);
    let opened = open_store(config, &name, stats);
    let explained = |error| config.access().explained(&UNLIMITED, error, stats);
    let (opened, overlay) = opened.map_err(explained)?;
    let OpenedStore {
        stack,
        hierarchy,
        arrays,
        memory,
    } = opened;
    check_root(&hierarchy, &name)?;
    let lists = stack.store.info().lists;
    if !lists {
        log::warn!("{name}: {UNLISTED}");
    }
    let readahead = stack.reading_ahead(readahead(config, memory.clone()));
    let stored = store_view(&stack, readahead, &hierarchy, &arrays);
    let plain = TARGETS.map(|target| -> Arc<dyn View> {
        Arc::new(PlainView::new(hierarchy.clone(), arrays.clone(), target))
    });
    let files = FilesView::new(
        hierarchy.clone(),
        arrays.clone(),
        &root_name(&name),
        &config.list,
    );
    let in_control: Arc<dyn View> = Arc::new(files.for_mount_dir(".zarrfs/files/"));
    let mut views = vec![
        (ViewKind::Store.name(), stored.clone()),
        (ViewKind::Files.name(), in_control),
        (ViewKind::V3.name(), plain[0].clone()),
        (ViewKind::V2.name(), plain[1].clone()),
    ];
    if let Some(repository) = &stack.repository {
        views.push(("refs", Arc::new(StoreView::new(repository.refs()))));
    }
    let control = Control::new(views, stats.clone(), mount_json(config, lists))
        .with_repository(stack.repository.clone());
    Ok(Views {
        store: stack.store,
        overlay,
        stored,
        files: Arc::new(files),
        plain,
        control: Arc::new(control),
        hierarchy,
        arrays,
        memory,
        is_local: config.access().is_local(),
    })
}

/// Opens the store of a mount, with an overlay if it is writable; `name` stands for the store in messages.
fn open_store(
    config: &ViewsConfig,
    name: &str,
    stats: &Arc<Stats>,
) -> Result<(OpenedStore, Option<Overlay>)> {
    let access = config.access();
    let mut overlay = None;
    let opened = OpenedStore::open(&UNLIMITED, &access, stats, |stack, memory| {
        let Some((upper, how)) = &config.overlay else {
            return Ok(stack);
        };
        let stack = with_synthetic_listings(stack, &config.hierarchy, memory);
        let opened = if config.rebind {
            let moved = Overlay::open_moved(&UNLIMITED, upper, stack.store, name, how.clone())?;
            moved.rebind()?;
            moved
        } else {
            Overlay::open(upper, stack.store, name, how.clone())?
        };
        let opened = overlay.insert(opened);
        Ok(StoreStack {
            repository: stack.repository,
            ..opened.stack(stack.hints)
        })
    })?;
    Ok((opened, overlay))
}

/// If the store cannot list its keys, adds a layer that derives listings from the metadata.
fn with_synthetic_listings(
    stack: StoreStack,
    config: &HierarchyConfig,
    memory: &Arc<MemoryBudget>,
) -> StoreStack {
    if stack.store.info().lists {
        return stack;
    }
    let hierarchy = Hierarchy::configured(stack.store, config.clone())
        .with_hints(stack.hints.clone())
        .within(memory)
        .below_changes();
    let store = Arc::new(SyntheticStore::new(Arc::new(hierarchy), stack.hints));
    StoreStack {
        store: store.clone(),
        hints: store,
        tree: stack.tree,
        repository: stack.repository,
    }
}

/// Returns the configuration of the store view's read-ahead: only for a remote store on a read-only mount.
fn readahead(config: &ViewsConfig, memory: Arc<MemoryBudget>) -> Option<ReadaheadConfig> {
    let reads_ahead = !config.access().is_local() && config.overlay.is_none();
    reads_ahead.then(|| ReadaheadConfig {
        memory,
        concurrency: config.store.remote.concurrency,
        timeout: config.timeout,
    })
}

/// Builds the store view. `readahead` is the same store as in `stack`, if configured with a read-ahead layer.
fn store_view(
    stack: &StoreStack,
    readahead: Arc<dyn Store>,
    hierarchy: &Arc<Hierarchy>,
    arrays: &Arc<Arrays>,
) -> Arc<dyn View> {
    let tree = stack.tree.clone();
    if !stack.store.info().lists {
        let view = StoreWithoutListing::new(readahead, tree, hierarchy.clone());
        return Arc::new(view.with_arrays(arrays.clone()));
    }
    let view = StoreView::new(readahead);
    let view = view.with_tree(tree).with_arrays(arrays.clone());
    Arc::new(view.with_hierarchy(hierarchy.clone()))
}

/// Warning about a store that cannot list its keys.
const UNLISTED: &str = "the server does not list names: directories show only known arrays, groups and metadata; \
    chunks open by name, and the files view has all values";

/// Fails if the store has no root. A root with broken metadata is mounted, with a warning.
fn check_root(hierarchy: &Hierarchy, source: &str) -> Result<()> {
    let root = hierarchy.node(&UNLIMITED, &Key::root())?;
    let root = root.ok_or_else(|| Error::not_found(source))?;
    if let Err(error) = &root.node {
        log::warn!("{source}: {error}; only the keys can be read");
    }
    Ok(())
}

fn mount_json(config: &ViewsConfig, lists: bool) -> Vec<u8> {
    let options: Map<_, _> = config
        .options
        .iter()
        .map(|(name, value)| (name.clone(), json!(value)))
        .collect();
    let mut members = json!({
        "source": zarrfs_store::redacted(&config.source),
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "options": options,
    });
    if let (false, Some(members)) = (lists, members.as_object_mut()) {
        members.insert("listings".to_string(), json!(UNLISTED));
    }
    render(&members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_json_and_errors_contain_no_secrets() {
        let config = ViewsConfig {
            source: "https://me:pw@host/a.zarr?sig=x".to_string(),
            list: Vec::new(),
            memory: 0,
            max_chunk: 0,
            spill: SpillConfig::default(),
            timeout: Duration::ZERO,
            hierarchy: HierarchyConfig::default(),
            store: StoreConfig::default(),
            overlay: None,
            rebind: false,
            lossy: false,
            options: Vec::new(),
        };
        let text = String::from_utf8(mount_json(&config, false)).unwrap();
        assert!(text.contains("https://host/a.zarr"), "{text}");
        assert!(!text.contains("pw") && !text.contains("sig"), "{text}");
        assert!(text.contains("does not list names"), "{text}");
        let error = open_views(&config, &Arc::new(Stats::default()));
        let text = error.err().unwrap().to_string();
        assert!(!text.contains("pw") && !text.contains("sig"), "{text}");
    }
}
