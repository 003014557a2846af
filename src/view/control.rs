//! Adds the control directory `.zarrfs` to the root of a mount.
//!
//! A lookup finds the directory, but no listing shows it, so that `ls -a`, `find`, `cp -r` and Zarr libraries ignore
//! it. It contains every view, the counters, the last failures and the mount options. A key of the same name takes
//! precedence if the store has it at mount time. The generated files need no request to the store, so that `errors`
//! opens even while the store does not answer. The resolution of any path begins at the root of a view, so the
//! attributes of roots come from memory as well (`ViewRoot`).
//!
//! Extended attributes of the root describe the mount, even if a key of the store hides the control directory. Reading
//! them never queries the store.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use crate::view::{
    Attr, ChildName, File, GeneratedFile, OpenedFile, PathInTree, ReadAt, ReadBytes, View, ViewDir,
};
use zarr_format::error::{Error, Kind, Result};
use zarrfs_array::array::WrittenKey;
use zarrfs_store::listing::NameList;
use zarrfs_store::request_context::{RequestContext, WITHOUT_WAITING};
use zarrfs_store::stats::Stats;
use zarrfs_store::{EntryKind, Icechunk, Key, Listing};

/// The name of the control directory.
pub const CONTROL: &[u8] = b".zarrfs";

/// The generated files that every control directory has.
const CONTROL_FILES: [&[u8]; 3] = [b"stats.json", b"mount.json", b"errors"];

/// The file in the control directory that shows the history of an Icechunk repository.
const LOG: &[u8] = b"log";

/// Extended attribute of the mount's root whose value is the text of `mount.json`.
pub const MOUNT_ATTRIBUTE: &[u8] = b"user.zarrfs.mount";

/// Extended attribute of the mount's root whose value is the counters in JSON.
pub const STATS_ATTRIBUTE: &[u8] = b"user.zarrfs.stats";

/// Extended attribute of the mount's root whose value is the number of failures that were recorded.
pub const FAILURES_ATTRIBUTE: &[u8] = b"user.zarrfs.failures";

/// Extended attribute of the mount's root that is `shown` if the root has the control directory, and `HIDDEN` if a key
/// of the store has the same name.
pub const CONTROL_ATTRIBUTE: &[u8] = b"user.zarrfs.control";

/// The value of `CONTROL_ATTRIBUTE` if a key of the store has the control directory's name.
pub const HIDDEN: &[u8] = b"hidden";

/// How long the kernel caches attributes of the root that may be stale.
const STALE_TTL: Duration = Duration::from_secs(1);

/// A view with the last known attributes of its root, so that the root is a directory even if the store fails.
struct ViewRoot {
    view: Arc<dyn View>,
    /// The attributes of the root that the store returned last, or those of a new directory before the first answer.
    last: Mutex<Attr>,
}

impl ViewRoot {
    fn new(view: Arc<dyn View>, started: SystemTime) -> ViewRoot {
        ViewRoot {
            view,
            last: Mutex::new(Attr::of_directory(started, STALE_TTL)),
        }
    }

    /// Requests the attributes of the root from the store, so that they are current at mount time.
    fn refresh(&self, context: &RequestContext) {
        if let Ok(Some(attr)) = self.view.lookup(context, &Key::root()) {
            *self.last.lock() = attr;
        }
    }

    /// Returns the attributes of the root from memory, without a request to the store.
    fn attr(&self, context: &RequestContext) -> Attr {
        let current = self.view.lookup(&context.without_waiting(), &Key::root());
        let mut last = self.last.lock();
        match current.ok().flatten() {
            Some(attr) => {
                *last = attr;
                attr
            }
            None => Attr {
                ttl: STALE_TTL,
                ..*last
            },
        }
    }
}

/// The files and views in the directory `.zarrfs` of a mount.
pub struct Control {
    views: Vec<(&'static str, ViewRoot)>,
    stats: Arc<Stats>,
    /// The text of `mount.json`, which describes the mount.
    mount: Vec<u8>,
    /// The Icechunk repository whose revision the mount shows, or `None` for any other store.
    repository: Option<Arc<Icechunk>>,
    started: SystemTime,
}

impl Control {
    /// Creates the control directory of a mount. `views` has each view by its name, and `mount` is the text of
    /// `mount.json`.
    pub fn new(
        views: Vec<(&'static str, Arc<dyn View>)>,
        stats: Arc<Stats>,
        mount: Vec<u8>,
    ) -> Control {
        let started = SystemTime::now();
        let views = views.into_iter();
        Control {
            views: views
                .map(|(name, view)| (name, ViewRoot::new(view, started)))
                .collect(),
            stats,
            mount,
            repository: None,
            started,
        }
    }

    /// Adds the history of an Icechunk repository as a file, if there is one.
    pub fn with_repository(self, repository: Option<Arc<Icechunk>>) -> Control {
        Control { repository, ..self }
    }

    fn view(&self, name: &[u8]) -> Option<&ViewRoot> {
        self.views
            .iter()
            .find(|(known, _)| known.as_bytes() == name)
            .map(|(_, view)| view)
    }

    fn file(&self, context: &RequestContext, name: &[u8]) -> Result<Option<Arc<dyn File>>> {
        if name == LOG
            && let Some(repository) = &self.repository
        {
            let text = repository.log(context)?;
            return Ok(Some(self.text(text.into_bytes())));
        }
        Ok(self.own_file(name))
    }

    /// Returns a generated file of the control directory, or `None` if no file has the name.
    fn own_file(&self, name: &[u8]) -> Option<Arc<dyn File>> {
        match name {
            b"stats.json" => Some(Arc::new(Counters {
                stats: self.stats.clone(),
            })),
            b"mount.json" => Some(self.text(self.mount.clone())),
            b"errors" => Some(self.text(self.stats.failures.to_text().into_bytes())),
            _ => None,
        }
    }

    /// Returns a file with the given text, which does not change while it is open, so that a reader sees whole lines.
    fn text(&self, bytes: Vec<u8>) -> Arc<dyn File> {
        Arc::new(GeneratedFile {
            bytes: bytes.into(),
            version: 0,
            modified: self.started,
        })
    }

    fn names(&self) -> NameList {
        let views = self
            .views
            .iter()
            .map(|(name, _)| (name.as_bytes().to_vec(), EntryKind::Directory));
        let log = self.repository.iter().map(|_| LOG);
        let files = CONTROL_FILES.into_iter().chain(log);
        NameList::new(views.chain(files.map(|name| (name.to_vec(), EntryKind::File))))
    }

    /// Returns an extended attribute of the root that describes the mount, or `None` for other names.
    fn attribute(&self, name: &[u8], is_hidden: bool) -> Option<Vec<u8>> {
        match name {
            MOUNT_ATTRIBUTE => Some(self.mount.clone()),
            STATS_ATTRIBUTE => Some(self.stats.to_json().into_bytes()),
            FAILURES_ATTRIBUTE => Some(self.stats.failures.count().to_string().into_bytes()),
            CONTROL_ATTRIBUTE if is_hidden => Some(HIDDEN.to_vec()),
            CONTROL_ATTRIBUTE => Some(b"shown".to_vec()),
            _ => None,
        }
    }
}

/// The file `stats.json`, whose every read returns the current values of the counters.
struct Counters {
    stats: Arc<Stats>,
}

impl ReadAt for Counters {
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<ReadBytes> {
        GeneratedFile {
            bytes: self.stats.to_json().into(),
            version: 0,
            modified: SystemTime::now(),
        }
        .read_at(context, offset, len)
    }
}

impl File for Counters {
    fn version(&self) -> Option<u64> {
        None
    }
}

/// A view whose root also contains the control directory.
pub struct ControlDirView {
    top: ViewRoot,
    control: Arc<Control>,
    /// Whether a key of the store has the control directory's name, so that the view has no control directory.
    is_taken: bool,
}

/// The file or directory at a path of a view with a control directory.
enum ControlTarget<'a> {
    View(&'a ViewRoot, Key),
    Control,
    File(Arc<dyn File>),
    Nothing,
}

impl ControlDirView {
    /// Adds the control directory to a view, unless the view's root has an entry of the same name. If the root cannot
    /// be read, the control directory is added, so that the other views are reachable through it.
    pub fn new(
        context: &RequestContext,
        view: Arc<dyn View>,
        control: Arc<Control>,
    ) -> ControlDirView {
        let name = Key::root().child(CONTROL);
        let attr = name.and_then(|name| view.lookup(context, &name));
        let is_taken = matches!(attr, Ok(Some(_)));
        let view = ControlDirView::for_store_without_listing(view, control, is_taken);
        view.top.refresh(context);
        view
    }

    /// Adds the control directory to the view of a store that cannot list keys, unless `is_taken` says that a key has
    /// its name.
    pub fn for_store_without_listing(
        view: Arc<dyn View>,
        control: Arc<Control>,
        is_taken: bool,
    ) -> ControlDirView {
        ControlDirView {
            top: ViewRoot::new(view, control.started),
            control,
            is_taken,
        }
    }

    fn target(&self, context: &RequestContext, path: &Key) -> Result<ControlTarget<'_>> {
        let mut names = path.names();
        if names.next() != Some(CONTROL) || self.is_taken {
            return Ok(ControlTarget::View(&self.top, path.clone()));
        }
        let Some(name) = names.next() else {
            return Ok(ControlTarget::Control);
        };
        if let Some(view) = self.control.view(name) {
            let top = Key::root().child(CONTROL)?.child(name)?;
            return Ok(ControlTarget::View(
                view,
                path.below(&top).unwrap_or_default(),
            ));
        }
        // The view `shards` of earlier versions, which showed shards as directories, was removed.
        if name == b"shards" {
            let why = "removed; use 'zarrfs info STORE/KEY' for the index of a shard, and 'zarrfs cat STORE/KEY@N' for \
                       an inner chunk";
            return Err(Error::new(Kind::Removed, path, why));
        }
        match (self.control.file(context, name)?, names.next()) {
            (Some(file), None) => Ok(ControlTarget::File(file)),
            _ => Ok(ControlTarget::Nothing),
        }
    }
}

/// Whether a path, or its child `child`, is the control directory or a generated file in it, which describe the mount
/// and not the store.
pub fn is_own(path: &Key, child: Option<&[u8]>) -> bool {
    let mut names = path.names().chain(child);
    if names.next() != Some(CONTROL) {
        return false;
    }
    match names.next() {
        None => true,
        Some(name) => CONTROL_FILES.contains(&name) && names.next().is_none(),
    }
}

/// Whether a path is the control directory or inside it.
fn is_control(path: &Key) -> bool {
    path.names().next() == Some(CONTROL)
}

impl View for ControlDirView {
    fn lookup(&self, context: &RequestContext, path: &Key) -> Result<Option<Attr>> {
        match self.target(context, path)? {
            ControlTarget::View(top, path) if path.is_root() => Ok(Some(top.attr(context))),
            ControlTarget::View(top, path) => top.view.lookup(context, &path),
            ControlTarget::Control => Ok(Some(Attr::of_directory(
                self.control.started,
                Duration::from_secs(1),
            ))),
            ControlTarget::File(file) => {
                let size = file.read_at(context, 0, usize::MAX)?.len() as u64;
                Ok(Some(Attr::of_file(
                    size,
                    self.control.started,
                    Duration::ZERO,
                )))
            }
            ControlTarget::Nothing => Ok(None),
        }
    }

    fn measure(&self, context: &RequestContext, path: &Key) -> Result<Option<Attr>> {
        match self.target(context, path)? {
            ControlTarget::View(top, path) if !path.is_root() => top.view.measure(context, &path),
            _ => self.lookup(context, path),
        }
    }

    fn attribute(
        &self,
        context: &RequestContext,
        path: &Key,
        name: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        let own = path
            .is_root()
            .then(|| self.control.attribute(name, self.is_taken));
        if let Some(value) = own.flatten() {
            return Ok(Some(value));
        }
        match self.target(context, path)? {
            ControlTarget::View(top, path) => top.view.attribute(context, &path, name),
            _ => Ok(None),
        }
    }

    fn dir(&self, context: &RequestContext, path: &Key) -> Result<ViewDir> {
        if is_control(path) {
            return Ok(ViewDir::Path(path.clone()));
        }
        self.top.view.dir(context, path)
    }

    fn child(
        &self,
        context: &RequestContext,
        dir: &ViewDir,
        name: &ChildName<'_>,
    ) -> Result<Option<Attr>> {
        if is_control(dir.path()) || name.bytes == CONTROL {
            return self.lookup(context, &dir.path().child(name.bytes)?);
        }
        self.top.view.child(context, dir, name)
    }

    fn list(&self, context: &RequestContext, path: &Key) -> Result<Box<dyn Listing>> {
        match self.target(context, path)? {
            ControlTarget::View(top, path) => top.view.list(context, &path),
            ControlTarget::Control => Ok(Box::new(self.control.names())),
            ControlTarget::File(_) => {
                Err(Error::new(Kind::NotADirectory, path, "is not a directory"))
            }
            ControlTarget::Nothing => Err(Error::not_found(path)),
        }
    }

    fn open(&self, context: &RequestContext, path: &Key) -> Result<OpenedFile> {
        match self.target(context, path)? {
            ControlTarget::View(top, path) => top.view.open(context, &path),
            ControlTarget::Control => Err(Error::new(Kind::IsADirectory, path, "is a directory")),
            // The counters change without a write to the file, so the kernel must not cache pages of it.
            ControlTarget::File(file) => Ok(OpenedFile {
                file,
                content: None,
                version: None,
                direct: true,
                tree_file: None,
            }),
            ControlTarget::Nothing => Err(Error::not_found(path)),
        }
    }

    fn read_link(&self, context: &RequestContext, path: &Key) -> Result<Vec<u8>> {
        match self.target(context, path)? {
            ControlTarget::View(top, path) => top.view.read_link(context, &path),
            _ => Err(Error::invalid(path, "not a symbolic link")),
        }
    }

    fn begin_writing(&self, path: &Key) -> Result<Option<WrittenKey>> {
        // Generated files of the control directory are read-only, so no write has to be registered.
        match self.target(&WITHOUT_WAITING, path)? {
            ControlTarget::View(top, path) => top.view.begin_writing(&path),
            _ => Ok(None),
        }
    }

    fn tree(&self, context: &RequestContext, path: &Key) -> Result<Option<PathInTree>> {
        match self.target(context, path)? {
            ControlTarget::View(top, path) => top.view.tree(context, &path),
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::mount::open::{ViewKind, ViewsConfig, open_views};
    use zarrfs_store::request_context::UNLIMITED;

    #[test]
    fn an_unreadable_root_hides_no_documents_or_control_files() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("zarr.json"), "{").unwrap();
        let config = ViewsConfig {
            source: folder.path().display().to_string(),
            list: Vec::new(),
            memory: 1 << 20,
            max_chunk: 1 << 20,
            spill: zarrfs_array::array::SpillConfig::default(),
            timeout: Duration::from_secs(60),
            hierarchy: zarrfs_array::hierarchy::HierarchyConfig::default(),
            store: zarrfs_store::StoreConfig::default(),
            overlay: None,
            rebind: false,
            lossy: false,
            options: Vec::new(),
        };
        let faces = open_views(&config, &Arc::default()).unwrap();
        let view = faces.view(ViewKind::Files);
        let found = |path: &str| view.lookup(&UNLIMITED, &Key::new(path).unwrap());
        assert!(found("a").unwrap().is_none());
        for path in [
            "stored.zarr.json",
            "ERROR.txt",
            ".zarrfs",
            ".zarrfs/stats.json",
            ".zarrfs/store/zarr.json",
        ] {
            assert!(found(path).unwrap().is_some(), "{path}");
        }
    }
}
