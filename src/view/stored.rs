//! The store view: keys exactly as stored, byte for byte.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::error::Kind;
use crate::error::Result;
use crate::store::EntryKind;
use crate::store::Key;
use crate::store::Listing;
use crate::store::Meta;
use crate::store::Reader;
use crate::store::Store;
use crate::view::Attr;
use crate::view::Bytes;
use crate::view::File;
use crate::view::Opened;
use crate::view::View;

/// A store as a tree of files.
pub struct Stored {
    store: Arc<dyn Store>,
}

impl Stored {
    /// Builds the view of a store.
    pub fn new(store: Arc<dyn Store>) -> Stored {
        Stored { store }
    }
}

/// Returns what `stat` shows of something stored.
pub(crate) fn attr_of(meta: &Meta, fresh: Duration) -> Attr {
    Attr {
        kind: meta.kind,
        size: meta.size,
        stored: meta.stored,
        modified: meta.modified,
        fresh,
    }
}

impl View for Stored {
    fn lookup(&self, path: &Key) -> Result<Option<Attr>> {
        let fresh = self.store.freshness();
        Ok(self.store.head(path)?.map(|meta| attr_of(&meta, fresh)))
    }

    fn lookup_now(&self, _path: &Key) -> Option<Option<Attr>> {
        None
    }

    fn list(&self, path: &Key) -> Result<Box<dyn Listing>> {
        self.store.list(path)
    }

    fn open(&self, path: &Key) -> Result<Opened> {
        let reader = self.store.open(path)?;
        let meta = reader.meta()?;
        if meta.kind != EntryKind::File {
            return Err(Error::new(Kind::IsADirectory, path, "is a directory"));
        }
        let file = Arc::new(StoredFile {
            reader,
            version: meta.version.0,
        });
        Ok(Opened {
            file,
            version: Some(meta.version.0),
            direct: false,
        })
    }

    fn read_link(&self, path: &Key) -> Result<Vec<u8>> {
        self.store.read_link(path)
    }
}

struct StoredFile {
    reader: Arc<dyn Reader>,
    version: u64,
}

impl File for StoredFile {
    fn read_now(&self, _offset: u64, _len: usize) -> Option<Bytes> {
        None
    }

    fn read_at(&self, offset: u64, len: usize) -> Result<Bytes> {
        self.reader
            .read_at(offset, len)
            .map(|bytes| Bytes::Own(bytes.into()))
    }

    fn version(&self) -> Option<u64> {
        Some(self.version)
    }
}
