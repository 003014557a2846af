//! Lists a directory in pages of `getdents`, with the file system's own cursors.
//!
//! Temporary files (`atomic_file`) are left out.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{FileType, RawDir, SeekFrom};

use crate::backend::local::atomic_file;
use crate::backend::local::directory::{StoreDirectory, failed};
use crate::request_context::RequestContext;
use crate::{EntryKind, Key, Listing, Name};
use zarr_format::error::Result;

/// A listing with its open directory.
pub(super) struct LocalListing {
    fd: OwnedFd,
    key: Key,
    store: Arc<StoreDirectory>,
    page: VecDeque<Name>,
}

impl LocalListing {
    pub(super) fn new(fd: OwnedFd, key: &Key, store: Arc<StoreDirectory>) -> LocalListing {
        LocalListing {
            fd,
            key: key.clone(),
            store,
            page: VecDeque::new(),
        }
    }

    /// Reads one page of names. Returns false at the end of the directory.
    fn fill(&mut self) -> Result<bool> {
        // About a thousand names.
        let mut buffer = vec![MaybeUninit::uninit(); 32 << 10];
        let mut entries = RawDir::new(&self.fd, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(|error| failed(&self.key, error))?;
            let name = entry.file_name().to_bytes();
            if name != b"."
                && name != b".."
                && !atomic_file::is_temp_name(name)
                && let Some(kind) = self.kind_of(name, entry.file_type())
            {
                self.page.push_back(Name {
                    name: name.to_vec(),
                    kind,
                    cursor: entry.next_entry_cookie(),
                    meta: None,
                });
            }
            if entries.is_buffer_empty() && !self.page.is_empty() {
                return Ok(true);
            }
        }
        Ok(!self.page.is_empty())
    }

    /// Returns the kind of a name, or `None` for pipes, sockets and devices.
    fn kind_of(&self, name: &[u8], file_type: FileType) -> Option<EntryKind> {
        match file_type {
            FileType::RegularFile => Some(EntryKind::File),
            FileType::Directory => Some(EntryKind::Directory),
            FileType::Symlink | FileType::Unknown => {
                let key = self.key.child(name).ok()?;
                match self.store.head(&key) {
                    Ok(meta) => meta.map(|meta| meta.kind),
                    // Inside a mount, a link that leaves its store cannot be resolved.
                    Err(_) => (file_type == FileType::Symlink).then_some(EntryKind::Link),
                }
            }
            _ => None,
        }
    }
}

impl Listing for LocalListing {
    fn next(&mut self, _context: &RequestContext) -> Result<Option<Name>> {
        if self.page.is_empty() && !self.fill()? {
            return Ok(None);
        }
        Ok(self.page.pop_front())
    }

    fn seek(&mut self, _context: &RequestContext, cursor: u64) -> Result<()> {
        self.page.clear();
        rustix::fs::seek(&self.fd, SeekFrom::Start(cursor))
            .map_err(|error| failed(&self.key, error))?;
        Ok(())
    }

    fn may_wait(&self) -> bool {
        false
    }
}
