//! All views of one store, over one cache: what a mount shows at its root and in `.zarrfs`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, json};

use crate::array::{Arrays, Engine, Limits};
use crate::dialect::json::render;
use crate::error::{Error, Result};
use crate::export::format;
use crate::hierarchy::{Hierarchy, HierarchyConfig};
use crate::overlay::{Overlay, OverlayConfig};
use crate::stats::Stats;
use crate::store;
use crate::store::layer::disk_cache;
use crate::store::layer::disk_cache::CacheNamespace;
use crate::store::layer::readahead::{ReadaheadConfig, ReadaheadStore};
use crate::store::{EntryKind, Key, Store, StoreConfig};
use crate::sync::budget::MemoryBudget;
use crate::view::View;
use crate::view::control::{Control, ControlDirView};
use crate::view::files::FilesView;
use crate::view::store::StoreView;
use crate::view::unlisted::UnlistedView;

/// The name of a view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ViewKind {
    /// The keys exactly as stored.
    #[default]
    Store,
    /// Directories of nodes with decoded files.
    Files,
}

impl FromStr for ViewKind {
    type Err = Error;

    fn from_str(name: &str) -> Result<ViewKind> {
        match name {
            "store" => Ok(ViewKind::Store),
            "files" => Ok(ViewKind::Files),
            other => Err(Error::invalid(
                other,
                "not a view; there are store and files",
            )),
        }
    }
}

impl fmt::Display for ViewKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ViewKind::Store => "store",
            ViewKind::Files => "files",
        })
    }
}

/// What to open and how.
#[derive(Clone, Debug)]
pub struct ViewsConfig {
    /// Path or URL of the store.
    pub source: String,
    /// Formats that the files view lists.
    pub formats: Vec<String>,
    /// Bytes that decoded chunks and chunks in flight may hold.
    pub memory: u64,
    /// Decoded bytes of one chunk.
    pub max_chunk: u64,
    /// How long a request may take.
    pub timeout: Duration,
    /// How the store is reached.
    pub store: StoreConfig,
    /// The folder that changes go to, if the store can be changed.
    pub overlay: Option<(PathBuf, OverlayConfig)>,
    /// Write chunks although their codecs lose something each time that they encode.
    pub lossy: bool,
    /// How nodes are found and read.
    pub hierarchy: HierarchyConfig,
    /// Options in force, as `mount.json` shows them; no secrets.
    pub options: Vec<(String, String)>,
}

/// The views of a store.
pub struct Views {
    store: Arc<dyn Store>,
    overlay: Option<Overlay>,
    stored: Arc<dyn View>,
    files: Arc<dyn View>,
    control: Arc<Control>,
}

impl Views {
    /// Returns a view with the control directory in it.
    pub fn view(&self, name: ViewKind) -> Arc<dyn View> {
        let view = match name {
            ViewKind::Store => &self.stored,
            ViewKind::Files => &self.files,
        };
        Arc::new(ControlDirView::new(view.clone(), self.control.clone()))
    }

    /// Returns what keeps the changes, if the store can be changed.
    pub fn overlay(&self) -> Option<&Overlay> {
        self.overlay.as_ref()
    }

    /// Returns the store below.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }
}

/// Opens a store and reads its root, so that what is wrong is said before anything is mounted.
pub fn open_views(config: &ViewsConfig, stats: &Arc<Stats>) -> Result<Views> {
    let listed = config
        .formats
        .iter()
        .map(|name| format(name))
        .collect::<Result<Vec<_>>>()?;
    let name = store::shown(&config.source);
    let shelf = store::open_shelf(&config.source, &config.store.remote, stats)?;
    let spill = shelf.as_ref().map(|shelf| {
        let identity = disk_cache::identity(&name, &config.store.remote);
        CacheNamespace::open(shelf, &format!("decoded\n{identity}"))
    });
    let opening = StoreConfig {
        shelf,
        ..config.store.clone()
    };
    let store = store::open(&config.source, &opening, stats)?;
    match store.head(&Key::root())? {
        Some(meta) if meta.kind == EntryKind::Directory => {}
        _ => {
            return Err(Error::invalid(name, "is not a store: expected a directory"));
        }
    }
    let overlay = match &config.overlay {
        Some((path, how)) => Some(Overlay::open(path, store.clone(), &name, how.clone())?),
        None => None,
    };
    let store: Arc<dyn Store> = match &overlay {
        Some(overlay) => Arc::new(overlay.clone()),
        None => store,
    };
    let hierarchy = Arc::new(Hierarchy::configured(
        store.clone(),
        config.hierarchy.clone(),
    ));
    greet(&hierarchy, &name)?;
    let is_local = store::local_folder(&config.source).is_some();
    // What is changed is not read ahead.
    let reads_ahead = !is_local && config.overlay.is_none();
    if !store.lists() {
        log::warn!("{name}: {UNLISTED}");
    }
    let limits = Limits {
        memory: config.memory,
        max_chunk: config.max_chunk,
        timeout: config.timeout,
        fetches: match is_local {
            true => 0,
            false => config.store.remote.concurrency,
        },
        lossy: config.lossy,
    };
    let budget = MemoryBudget::new(config.memory, stats.clone());
    let engine = Engine::within(budget.clone(), limits, stats.clone(), spill);
    let arrays = Arc::new(Arrays::new(hierarchy.clone(), engine));
    let shown = if reads_ahead {
        read_ahead(store.clone(), budget, config)
    } else {
        store.clone()
    };
    let stored: Arc<dyn View> = match store.lists() {
        true => Arc::new(StoreView::new(shown).written_by(arrays.clone())),
        false => Arc::new(UnlistedView::new(shown, hierarchy.clone())),
    };
    let files: Arc<dyn View> =
        Arc::new(FilesView::new(hierarchy, arrays, &root_name(&name), listed));
    let views = vec![("store", stored.clone()), ("files", files.clone())];
    let mount = mount_json(config, store.lists());
    let control = Arc::new(Control::new(views, stats.clone(), mount));
    Ok(Views {
        store,
        overlay,
        stored,
        files,
        control,
    })
}

/// What the directories of a store are that cannot tell its names.
const UNLISTED: &str = "the server does not list names; directories show what consolidated metadata and chunk \
    grids name and what was asked for, and every path can be opened by its name";

/// Reads the root's metadata; a root that is broken or has none is mounted all the same, with a warning.
fn greet(hierarchy: &Hierarchy, source: &str) -> Result<()> {
    match hierarchy.node(&Key::root())? {
        Some(found) => match &found.node {
            Err(error) => log::warn!("{source}: {error}; its keys can be read all the same"),
            Ok(_) if found.version == 0 => {
                log::warn!(
                    "{source}: no Zarr metadata at the root; each folder is shown as a group"
                );
            }
            Ok(_) => {}
        },
        None => return Err(Error::not_found(source)),
    }
    Ok(())
}

/// Returns the store as its files are read on a network: the next ones are fetched ahead.
fn read_ahead(
    store: Arc<dyn Store>,
    memory: Arc<MemoryBudget>,
    config: &ViewsConfig,
) -> Arc<dyn Store> {
    let ahead = ReadaheadConfig {
        memory,
        concurrency: config.store.remote.concurrency,
        timeout: config.timeout,
    };
    Arc::new(ReadaheadStore::new(store, &ahead))
}

/// Returns the name of the root's own files: the store's, less what says that it is a store.
fn root_name(source: &str) -> String {
    let folder = store::local_folder(source).and_then(|folder| std::fs::canonicalize(folder).ok());
    let path = folder.map_or_else(
        || source.to_string(),
        |folder| folder.to_string_lossy().into_owned(),
    );
    let name = path
        .trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or_default();
    let bare = [".zip", ".zarr", ".n5"]
        .iter()
        .fold(name, |name, end| without_ending(name, end));
    if bare.is_empty() {
        "root".to_string()
    } else {
        bare.to_string()
    }
}

/// Takes an ending away, however it is written.
fn without_ending<'a>(name: &'a str, ending: &str) -> &'a str {
    let parts = name
        .len()
        .checked_sub(ending.len())
        .and_then(|length| name.split_at_checked(length));
    match parts {
        Some((bare, end)) if end.eq_ignore_ascii_case(ending) => bare,
        _ => name,
    }
}

fn mount_json(config: &ViewsConfig, lists: bool) -> Vec<u8> {
    let options: Map<_, _> = config
        .options
        .iter()
        .map(|(name, value)| (name.clone(), json!(value)))
        .collect();
    let mut members = json!({
        "source": store::shown(&config.source),
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
    fn what_a_mount_says_of_itself_holds_no_secret() {
        let config = ViewsConfig {
            source: "https://me:pw@host/a.zarr?sig=x".to_string(),
            formats: Vec::new(),
            memory: 0,
            max_chunk: 0,
            timeout: Duration::ZERO,
            hierarchy: HierarchyConfig::default(),
            store: StoreConfig::default(),
            overlay: None,
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

    #[test]
    fn the_root_is_named_after_the_store() {
        assert_eq!(root_name("s3://bucket/a/data.zarr/"), "data");
        assert_eq!(root_name("s3://bucket/data.zarr.zip"), "data");
        assert_eq!(root_name("s3://bucket/data.zarr.ZIP"), "data");
        assert_eq!(root_name("s3://bucket/data.zarr.zip/in/ner"), "ner");
        assert_eq!(root_name("s3://bucket/\u{e4}ip"), "\u{e4}ip");
        assert_eq!(root_name("/no/such/.zarr"), "root");
    }
}
