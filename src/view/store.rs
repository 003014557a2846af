//! The store view: keys exactly as stored, byte for byte.
//!
//! In an object store, a key may be both an object and the prefix of other keys. Then the view shows a directory with
//! the key's name, which contains the object under the name `.zarrfs-object`. Listings omit that name.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::view::control::CONTROL;
use crate::view::{Attr, File, OpenedFile, PathInTree, ReadAt, ReadBytes, View, fact_of};
use zarr_format::error::{Error, Kind, Result};
use zarrfs_array::array::{Arrays, WrittenKey};
use zarrfs_array::hierarchy::Hierarchy;
use zarrfs_export::inspect::entry_facts;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::tree::{OpenMode, Stat, TreeFile};
use zarrfs_store::{EntryKind, Key, Listing, Meta, Reader, Store, Tree};

/// A view of a store as directories and files.
pub struct StoreView {
    store: Arc<dyn Store>,
    /// The tree that changes the store, or `None` if it is read-only.
    tree: Option<Arc<dyn Tree>>,
    /// The arrays whose decoded files programs may have written. Their modified chunks are stored before the view shows
    /// keys.
    arrays: Option<Arc<Arrays>>,
    /// The nodes that extended attributes of keys describe.
    hierarchy: Option<Arc<Hierarchy>>,
}

impl StoreView {
    /// Creates the read-only view of a store.
    pub fn new(store: Arc<dyn Store>) -> StoreView {
        StoreView {
            store,
            tree: None,
            arrays: None,
            hierarchy: None,
        }
    }

    /// Makes the view writable if there is a tree, which then stores the changes.
    pub fn with_tree(mut self, tree: Option<Arc<dyn Tree>>) -> StoreView {
        self.tree = tree;
        self
    }

    /// Sets the arrays whose modified chunks are stored before the view shows keys.
    pub fn with_arrays(mut self, arrays: Arc<Arrays>) -> StoreView {
        self.arrays = Some(arrays);
        self
    }

    /// Adds extended attributes that describe the node or the chunk of a key.
    pub fn with_hierarchy(mut self, hierarchy: Arc<Hierarchy>) -> StoreView {
        self.hierarchy = Some(hierarchy);
        self
    }

    /// Stores the modified chunks of decoded files, so that the view shows the new bytes. Errors are returned when the
    /// decoded file is closed.
    fn flush_arrays(&self, context: &RequestContext, path: &Key) -> Result<()> {
        // Paths in the control directory are excluded, because programs write decoded files through them.
        let arrays = self
            .arrays
            .as_ref()
            .filter(|arrays| arrays.has_dirty_chunks());
        let Some(arrays) = arrays.filter(|_| path.names().next() != Some(CONTROL)) else {
            return Ok(());
        };
        context.check_may_wait()?;
        if let Err(error) = arrays.flush_below(context, &Key::root()) {
            log::debug!("writes to decoded files are not stored yet: {error}");
        }
        Ok(())
    }

    /// Returns the metadata of a key, or of the object that is shown as `.zarrfs-object` because its key is also a
    /// prefix. In a writable view, the caller has already looked up the key in the tree.
    fn meta(&self, context: &RequestContext, path: &Key) -> Result<Option<Meta>> {
        if self.tree.is_none()
            && let Some(meta) = self.store.head(context, path)?
        {
            return Ok(Some(meta));
        }
        let hidden = self.open_hidden(context, path)?;
        hidden.map(|object| object.meta(context)).transpose()
    }

    /// Opens the object that `path`, which ends with `.zarrfs-object`, names because its key is also a prefix. Returns
    /// `None` if there is no such object.
    fn open_hidden(&self, context: &RequestContext, path: &Key) -> Result<Option<Arc<dyn Reader>>> {
        // A stored key with the name `.zarrfs-object` takes precedence.
        let is_hidden = path.name() == b".zarrfs-object";
        let Some(key) = path.parent().filter(|_| is_hidden) else {
            return Ok(None);
        };
        let meta = self.store.head(context, &key)?;
        if meta.is_none_or(|meta| meta.kind != EntryKind::Directory) {
            return Ok(None);
        }
        match self.store.open(context, &key, None) {
            Ok(reader) => Ok(Some(reader)),
            Err(error) if matches!(error.kind(), Kind::NotFound | Kind::IsADirectory) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Returns the attributes of a file or directory for the metadata of an object or prefix.
pub(crate) fn attr_of(meta: &Meta, ttl: Duration) -> Attr {
    let is_directory = meta.kind == EntryKind::Directory;
    Attr {
        kind: meta.kind,
        stored: if is_directory { 0 } else { meta.stored },
        content: (meta.kind == EntryKind::File).then_some(meta.version.number()),
        ..Attr::of_file(if is_directory { 0 } else { meta.size }, meta.modified, ttl)
    }
}

impl View for StoreView {
    fn lookup(&self, context: &RequestContext, path: &Key) -> Result<Option<Attr>> {
        self.flush_arrays(context, path)?;
        if let Some(tree) = &self.tree
            && let Some(stat) = tree.stat(context, path)?
        {
            return Ok(Some(attr_of_stat(&stat)));
        }
        let info = self.store.info();
        let (meta, stamp) = info.ask(context, |context| self.meta(context, path));
        let ttl = info.time_left(stamp.request_time);
        Ok(meta?.map(|meta| attr_of(&meta, ttl)))
    }

    fn attribute(
        &self,
        context: &RequestContext,
        path: &Key,
        name: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        let (Some(hierarchy), Some(arrays)) = (&self.hierarchy, &self.arrays) else {
            return Ok(None);
        };
        let Some(name) = fact_of(name) else {
            return Ok(None);
        };
        let fact = entry_facts::of_key(context, hierarchy, arrays, path, name)?;
        Ok(fact.map(String::into_bytes))
    }

    fn list(&self, context: &RequestContext, path: &Key) -> Result<Box<dyn Listing>> {
        self.flush_arrays(context, path)?;
        self.store.list(context, path)
    }

    fn open(&self, context: &RequestContext, path: &Key) -> Result<OpenedFile> {
        self.flush_arrays(context, path)?;
        if let Some(tree) = &self.tree
            && let Some(stat) = tree.stat(context, path)?
            && stat.meta.kind == EntryKind::File
        {
            let file = tree.open(context, path, OpenMode::Read)?;
            let stat = file.stat(context)?;
            return Ok(OpenedFile {
                file: Arc::new(ChangingFile(file.clone())),
                content: Some(stat.content),
                version: Some(stat.meta.version.number()),
                direct: false,
                tree_file: Some(file),
            });
        }
        let reader = match self.store.open(context, path, None) {
            Err(error) if error.kind() == Kind::NotFound => {
                self.open_hidden(context, path)?.ok_or(error)?
            }
            answer => answer?,
        };
        let meta = reader.meta(context)?;
        if meta.kind != EntryKind::File {
            return Err(Error::new(Kind::IsADirectory, path, "is a directory"));
        }
        let ttl = self.store.info().freshness;
        let version = Some(meta.version.number());
        Ok(OpenedFile {
            file: Arc::new(StoredFile {
                path: path.clone(),
                reader,
                meta,
                ttl,
            }),
            content: version,
            version,
            direct: false,
            tree_file: None,
        })
    }

    fn read_link(&self, context: &RequestContext, path: &Key) -> Result<Vec<u8>> {
        self.store.read_link(context, path)
    }

    fn begin_writing(&self, path: &Key) -> Result<Option<WrittenKey>> {
        let arrays = self.arrays.as_ref();
        arrays
            .map(|arrays| arrays.begin_writing_key(path))
            .transpose()
    }

    fn tree(&self, context: &RequestContext, path: &Key) -> Result<Option<PathInTree>> {
        self.flush_arrays(context, path)?;
        let tree = self.tree.clone();
        let at = path.clone();
        Ok(tree.map(|tree| PathInTree { tree, at }))
    }
}

/// Returns the attributes of a file or directory of a writable store, which the kernel must not cache.
pub(crate) fn attr_of_stat(stat: &Stat) -> Attr {
    Attr {
        posix: stat.posix,
        content: (stat.meta.kind == EntryKind::File).then_some(stat.content),
        ..attr_of(&stat.meta, Duration::ZERO)
    }
}

/// A file of a writable store, which programs may write while others read it.
pub(crate) struct ChangingFile(pub(crate) Arc<dyn TreeFile>);

impl ReadAt for ChangingFile {
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<ReadBytes> {
        context.check_may_wait()?;
        let bytes = self.0.read_at(context, offset, len)?;
        Ok(ReadBytes::Own(bytes.into()))
    }
}

impl File for ChangingFile {
    /// The version of the bytes is unknown, but the kernel sees all writes to the file, so its pages are current.
    fn version(&self) -> Option<u64> {
        None
    }

    fn attr(&self, context: &RequestContext) -> Option<Attr> {
        Some(attr_of_stat(&self.0.stat(context).ok()?))
    }
}

/// A file that reads the object of the time of the open. Reads fail with `Changed` after the object was overwritten in
/// place.
struct StoredFile {
    path: Key,
    reader: Arc<dyn Reader>,
    meta: Meta,
    ttl: Duration,
}

impl StoredFile {
    /// Fails with `Changed` if the object was written since it was opened. Size and time are compared instead of the
    /// version, because the version of a local file also changes when it is unlinked.
    fn check_unchanged(&self, context: &RequestContext) -> Result<()> {
        let now = self.reader.meta(context)?;
        if (now.size, now.modified) == (self.meta.size, self.meta.modified) {
            return Ok(());
        }
        let why = "was changed while it was open; open the file again";
        Err(Error::new(Kind::Changed, &self.path, why))
    }
}

impl ReadAt for StoredFile {
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<ReadBytes> {
        context.check_may_wait()?;
        let bytes = self.reader.read_at(context, offset, len)?;
        self.check_unchanged(context)?;
        Ok(ReadBytes::Own(bytes.into()))
    }
}

impl File for StoredFile {
    fn version(&self) -> Option<u64> {
        Some(self.meta.version.number())
    }

    fn attr(&self, _context: &RequestContext) -> Option<Attr> {
        Some(attr_of(&self.meta, self.ttl))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.reader.descriptor()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zarrfs_store::backend::memory::MemoryStore;
    use zarrfs_store::request_context::UNLIMITED;

    #[test]
    fn an_object_that_is_also_a_prefix_is_in_its_directory() {
        let memory = MemoryStore::default();
        for (key, text) in [
            ("a", "object"),
            ("a/b", "below"),
            ("c", "alone"),
            ("d/e", ""),
        ] {
            memory.set(Key::new(key).unwrap(), text.into());
        }
        let view = StoreView::new(Arc::new(memory));
        let key = |path: &str| Key::new(path).unwrap();
        let kind = |path| {
            view.lookup(&UNLIMITED, &key(path))
                .unwrap()
                .map(|attr| (attr.kind, attr.size))
        };
        assert_eq!(kind("a"), Some((EntryKind::Directory, 0)));
        assert_eq!(kind("a/b"), Some((EntryKind::File, 5)));
        assert_eq!(kind("a/.zarrfs-object"), Some((EntryKind::File, 6)));
        let open = view.open(&UNLIMITED, &key("a/.zarrfs-object")).unwrap();
        assert_eq!(
            &open.file.read_at(&UNLIMITED, 0, 10).unwrap()[..],
            b"object"
        );
        let mut listing = view.list(&UNLIMITED, &key("a")).unwrap();
        assert_eq!(listing.next(&UNLIMITED).unwrap().unwrap().name, b"b");
        assert_eq!(listing.next(&UNLIMITED).unwrap(), None);
        for none in [
            "c/.zarrfs-object",
            "d/.zarrfs-object",
            ".zarrfs-object",
            "none/.zarrfs-object",
        ] {
            assert_eq!(kind(none), None, "{none}");
            assert_eq!(
                view.open(&UNLIMITED, &key(none)).err().unwrap().kind(),
                Kind::NotFound
            );
        }
    }
}
