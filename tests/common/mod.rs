//! Helpers that several test programs share: requirements, sample stores, reads through a view.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each program of tests uses a part of it"
)]

pub mod mapped;
pub mod needs;
pub mod sample;
pub mod scripted;
pub mod tmpfs;
pub mod waiting;
pub mod zip_writer;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use zarr_format::error::{Error, Kind, Result};
use zarrfs::mount::open::{ViewKind, Views, ViewsConfig, open_views};
use zarrfs::view::View;
use zarrfs::view::control::{Control, ControlDirView};
use zarrfs::view::files::{FilesView, ListedFormat};
use zarrfs::view::store::StoreView;
use zarrfs_array::array::{Arrays, Engine, Limits, SpillConfig};
use zarrfs_array::hierarchy::Hierarchy;
use zarrfs_store::request_context::UNLIMITED;
use zarrfs_store::stats::Stats;
use zarrfs_store::{Key, Store};

/// Returns the name of a test for `--exact`, so that a child process runs it; `module` is `module_path!()` of its module.
/// A name that matches no test would let the child succeed without doing anything.
pub fn child_test(module: &str, test: &str) -> String {
    let (_, module) = module.split_once("::").unwrap();
    format!("{module}::{test}")
}

/// Unpacks every archive in the folder `corpus` (test stores) into a folder.
pub fn unpack_corpus(corpus: &Path, into: &Path) {
    for entry in std::fs::read_dir(corpus).unwrap() {
        let path = entry.unwrap().path();
        if path.to_string_lossy().ends_with(".tar.gz") {
            let done = Command::new("tar")
                .arg("xzf")
                .arg(&path)
                .arg("-C")
                .arg(into)
                .status()
                .unwrap();
            assert!(done.success(), "{}", path.display());
        }
    }
}

/// Returns the forms of decoded files that most tests read, so that listings contain them.
pub fn every_form() -> Vec<ListedFormat> {
    ["raw", "chunks"].map(|word| word.parse().unwrap()).into()
}

pub fn open(source: &Path) -> Result<(Views, Arc<Stats>)> {
    open_with(source, 256 << 20)
}

pub fn open_with(source: &Path, memory: u64) -> Result<(Views, Arc<Stats>)> {
    let stats = Arc::new(Stats::default());
    let config = ViewsConfig {
        source: source.to_string_lossy().into_owned(),
        list: every_form(),
        memory,
        max_chunk: 64 << 20,
        spill: SpillConfig::default(),
        timeout: Duration::from_secs(20),
        hierarchy: zarrfs_array::hierarchy::HierarchyConfig::default(),
        store: zarrfs_store::StoreConfig::default(),
        overlay: None,
        rebind: false,
        lossy: false,
        options: Vec::new(),
    };
    Ok((open_views(&config, &stats)?, stats))
}

/// The store view and the files view of a store that has no path, over one cache; an array at the root is named
/// `sample`.
pub struct BothViews {
    pub stored: Arc<dyn View>,
    pub files: Arc<dyn View>,
}

/// Builds both views of any store; a read that waits for another request fails after `timeout`.
pub fn views_of(store: Arc<dyn Store>, timeout: Duration) -> BothViews {
    let stats = Arc::new(Stats::default());
    let limits = Limits {
        memory: 64 << 20,
        max_chunk: 16 << 20,
        timeout,
        fetches: 0,
        lossy: false,
    };
    let hierarchy = Arc::new(Hierarchy::new(store.clone()));
    let arrays = Arrays::new(hierarchy.clone(), Engine::new(limits, stats.clone()));
    let arrays = Arc::new(arrays);
    let files = FilesView::new(hierarchy, arrays.clone(), "sample", &every_form());
    let stored: Arc<dyn View> = Arc::new(StoreView::new(store).with_arrays(arrays));
    let below: Arc<dyn View> = Arc::new(files.for_mount_dir(".zarrfs/files/"));
    let views = vec![("store", stored.clone()), ("files", below)];
    let control = Arc::new(Control::new(views, stats, b"{}\n".to_vec()));
    BothViews {
        stored: Arc::new(ControlDirView::new(&UNLIMITED, stored, control.clone())),
        files: Arc::new(ControlDirView::new(&UNLIMITED, Arc::new(files), control)),
    }
}

pub fn files(source: &Path) -> Arc<dyn View> {
    open(source).unwrap().0.view(ViewKind::Files)
}

/// Returns the error in the `ERROR.txt` of a node, or `Ok` if the node can be read.
pub fn check_node(view: &Arc<dyn View>, path: &str) -> Result<()> {
    let file = format!("{path}/ERROR.txt");
    let file = file.trim_start_matches('/');
    match view.lookup(&UNLIMITED, &Key::new(file)?)? {
        None => Ok(()),
        Some(_) => {
            let said = read(view, file)?;
            Err(Error::corrupt(path, String::from_utf8_lossy(&said)))
        }
    }
}

/// Whether a view has no file at a path: the name is missing, or the decoded file cannot be made.
pub fn is_missing(view: &Arc<dyn View>, path: &str) -> bool {
    let key = Key::new(path).unwrap();
    match view.lookup(&UNLIMITED, &key) {
        Ok(found) => found.is_none(),
        Err(error) => error.kind() == Kind::NoFile,
    }
}

pub fn read(view: &Arc<dyn View>, path: &str) -> Result<Vec<u8>> {
    let key = Key::new(path)?;
    let size = view.lookup(&UNLIMITED, &key)?.map_or(0, |attr| attr.size);
    let file = view.open(&UNLIMITED, &key)?.file;
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < size {
        // The length of a request is no power of two, so that requests begin at unaligned offsets.
        let part = file.read_at(&UNLIMITED, bytes.len() as u64, 70_000)?;
        assert!(!part.is_empty(), "{path} ends at {} of {size}", bytes.len());
        bytes.extend_from_slice(&part);
    }
    Ok(bytes)
}
