//! A tree in memory whose files are replaced without the mount's knowledge.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::tree::{
    AttrChange, Credentials, FreeSpace, OpenMode, RenameMode, Stat, TreeFile,
};
use zarrfs_store::{EntryKind, Key, Meta, Tree, Version};

/// A tree with one directory of files.
#[derive(Default)]
pub(crate) struct SwappedTree {
    files: Mutex<BTreeMap<Key, Arc<SwappedFile>>>,
    last: AtomicU64,
}

struct SwappedFile {
    number: u64,
    bytes: Mutex<Vec<u8>>,
    modified: SystemTime,
}

impl SwappedTree {
    /// Replaces a file by a new one with these bytes, as another program would.
    pub(crate) fn put(&self, path: &str, bytes: &[u8]) {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let file = SwappedFile {
            number,
            bytes: Mutex::new(bytes.to_vec()),
            modified: SystemTime::now(),
        };
        let mut files = self.files.lock().unwrap();
        files.insert(Key::new(path).unwrap(), Arc::new(file));
    }

    fn file(&self, path: &Key) -> Option<Arc<SwappedFile>> {
        self.files.lock().unwrap().get(path).cloned()
    }
}

fn refused<T>(path: &Key) -> Result<T> {
    Err(Error::new(Kind::NotPermitted, path, "is not tested"))
}

impl TreeFile for SwappedFile {
    fn read_at(&self, _context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>> {
        let bytes = self.bytes.lock().unwrap();
        let start = bytes.len().min(offset as usize);
        Ok(bytes[start..bytes.len().min(start + len)].to_vec())
    }

    fn write_at(&self, _context: &RequestContext, offset: u64, new: &[u8]) -> Result<()> {
        let mut bytes = self.bytes.lock().unwrap();
        let end = offset as usize + new.len();
        let length = bytes.len().max(end);
        bytes.resize(length, 0);
        bytes[offset as usize..end].copy_from_slice(new);
        Ok(())
    }

    fn flush(&self, _context: &RequestContext) -> Result<()> {
        Ok(())
    }

    fn sync(&self, _context: &RequestContext) -> Result<()> {
        Ok(())
    }

    fn stat(&self, _context: &RequestContext) -> Result<Stat> {
        let size = self.bytes.lock().unwrap().len() as u64;
        Ok(Stat {
            meta: Meta {
                kind: EntryKind::File,
                size,
                stored: size,
                modified: self.modified,
                version: Version::numbered(self.number),
            },
            posix: None,
            content: self.number,
        })
    }

    fn change(&self, _context: &RequestContext, change: &AttrChange) -> Result<()> {
        if let Some(size) = change.size {
            self.bytes.lock().unwrap().resize(size as usize, 0);
        }
        Ok(())
    }
}

impl Tree for SwappedTree {
    fn identity(&self) -> usize {
        0
    }

    fn stat(&self, context: &RequestContext, path: &Key) -> Result<Option<Stat>> {
        if path.is_root() {
            let (meta, content) = (Meta::prefix(), 0);
            let posix = None;
            return Ok(Some(Stat {
                meta,
                posix,
                content,
            }));
        }
        self.file(path).map(|file| file.stat(context)).transpose()
    }

    fn create(
        &self,
        context: &RequestContext,
        path: &Key,
        _maker: &Credentials,
    ) -> Result<Arc<dyn TreeFile>> {
        if self.file(path).is_some() {
            return Err(Error::new(Kind::Exists, path, "is there already"));
        }
        self.put(&path.to_string(), b"");
        self.open(context, path, OpenMode::Write)
    }

    fn open(
        &self,
        _context: &RequestContext,
        path: &Key,
        _mode: OpenMode,
    ) -> Result<Arc<dyn TreeFile>> {
        let file = self.file(path).ok_or_else(|| Error::not_found(path))?;
        Ok(file)
    }

    fn change(&self, context: &RequestContext, path: &Key, change: &AttrChange) -> Result<()> {
        self.open(context, path, OpenMode::Write)?
            .change(context, change)
    }

    fn make_folder(
        &self,
        _context: &RequestContext,
        path: &Key,
        _maker: &Credentials,
    ) -> Result<()> {
        refused(path)
    }

    fn unlink(&self, _context: &RequestContext, path: &Key) -> Result<()> {
        refused(path)
    }

    fn remove_folder(&self, _context: &RequestContext, path: &Key) -> Result<()> {
        refused(path)
    }

    fn rename(
        &self,
        _context: &RequestContext,
        from: &Key,
        _to: &Key,
        _onto: RenameMode,
    ) -> Result<()> {
        refused(from)
    }

    fn free_space(&self) -> Result<FreeSpace> {
        refused(&Key::root())
    }
}
