//! Opens files as inodes, which have one content each.
//!
//! The view opens the name's current content. If the inode is open with another content, the name was replaced: the
//! kernel must walk the path again and finds another inode. If the kernel has just done so, the open content was the
//! content of the name at that time, and the new handle shares it. So a name that is replaced all the time can still be
//! opened.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::vfs::files::Handle;
use crate::vfs::inode::Binding;
use crate::vfs::{Caller, Fh, Ino, OpenReply, Vfs};
use crate::view::store::ChangingFile;
use zarr_format::error::Result;
use zarrfs_store::Key;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::tree::{AttrChange, OpenMode, TreeFile};

/// The mode of an open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Whether it is opened for writing.
    pub writes: bool,
    /// Whether all writes are appended, whatever offset the kernel sends.
    pub appends: bool,
    /// Whether it is truncated first.
    pub truncates: bool,
    /// Whether the create fails if it exists (O_EXCL).
    pub is_new: bool,
}

/// How often an open is retried if the file is replaced at the same time.
const MAX_OPEN_ATTEMPTS: usize = 64;

impl Vfs {
    /// Opens a file for reading.
    pub fn open(&self, context: &RequestContext, ino: Ino, caller: Caller) -> Result<OpenReply> {
        self.stats.open_requests.add(1);
        self.open_inode(context, ino, caller, OpenOptions::default(), |path| {
            let opened = self.view.open(context, path)?;
            Ok(Handle {
                ino,
                path: path.clone(),
                file: opened.file,
                content: opened.content,
                version: opened.version,
                direct: opened.direct,
                tree_file: opened.tree_file,
                writes: false,
                written: None,
                is_open: AtomicBool::new(false),
                appends: false,
            })
        })
    }

    /// Opens a file for writing, and truncates it first if `mode.truncates`.
    pub fn open_for_writing(
        &self,
        context: &RequestContext,
        ino: Ino,
        mode: OpenOptions,
        caller: Caller,
    ) -> Result<OpenReply> {
        self.stats.open_requests.add(1);
        let reply = self.open_inode(context, ino, caller, mode, |path| {
            let opened = self.tree(context, path)?;
            let file = opened.tree.open(context, &opened.at, OpenMode::Write)?;
            self.writer(context, ino, path, file)
        })?;
        // Truncate only now, when it is certain that this is the content of the inode.
        if mode.truncates
            && let Err(error) = self.empty(context, reply.fh)
        {
            self.release(context, reply.fh);
            return Err(error);
        }
        Ok(reply)
    }

    fn empty(&self, context: &RequestContext, fh: Fh) -> Result<()> {
        let change = AttrChange {
            size: Some(0),
            ..AttrChange::default()
        };
        self.file(fh)?.writer()?.change(context, &change)
    }

    /// Returns a handle for writing a file; `Busy` if another file of its array is open for writing.
    pub(super) fn writer(
        &self,
        context: &RequestContext,
        ino: Ino,
        path: &Key,
        file: Arc<dyn TreeFile>,
    ) -> Result<Handle> {
        let written = self.view.begin_writing(path)?.map(Arc::new);
        let stat = file.stat(context)?;
        Ok(Handle {
            ino,
            path: path.clone(),
            content: Some(stat.content),
            file: Arc::new(ChangingFile(file.clone())),
            version: None,
            direct: false,
            tree_file: Some(file),
            writes: true,
            written,
            is_open: AtomicBool::new(false),
            appends: false,
        })
    }

    /// Opens an inode by calling `open` with its path.
    fn open_inode(
        &self,
        context: &RequestContext,
        ino: Ino,
        caller: Caller,
        mode: OpenOptions,
        open: impl Fn(&Key) -> Result<Handle>,
    ) -> Result<OpenReply> {
        let fh = self.new_handle();
        let mut shared = None;
        for _ in 0..MAX_OPEN_ATTEMPTS {
            let handle = match shared.take() {
                Some(handle) => handle,
                None => {
                    let path = || self.path_for(ino, caller, || self.inodes.last_path(ino));
                    let opened = self.ask(path, &open);
                    opened.map_err(|error| self.gone(error, ino, caller))?.0
                }
            };
            match self.bind(fh, handle, mode, caller) {
                Binding::Added => {
                    self.end_walk(caller);
                    return self.open_reply(fh);
                }
                Binding::Different => shared = self.share(context, ino, caller, mode)?,
                Binding::Replaced | Binding::Elsewhere => return Err(self.walk_again(ino, caller)),
            }
        }
        Err(self.walk_again(ino, caller))
    }

    /// Adds a handle to its inode. If walking the path again did not help, the content may differ from the one that the
    /// lookup found, or be open as another inode of the name. Then the new handle bypasses the kernel's pages, since
    /// the kernel has the length of the other content, and appends at the end that is known here.
    fn bind(&self, fh: Fh, handle: Handle, mode: OpenOptions, caller: Caller) -> Binding {
        let (ino, content) = (handle.ino, handle.content);
        // The inode's handles must always be in `files`.
        let handle = self.add_file(fh, handle);
        let mut binding = self.inodes.bind(ino, fh, content);
        let is_refused = matches!(binding, Binding::Replaced | Binding::Elsewhere);
        if is_refused && self.walks_again(caller) {
            binding = self.inodes.bind_anyhow(ino, fh, content);
        }
        if binding != Binding::Added {
            self.files.write().remove(&fh);
        } else if self.inodes.is_mixed(ino) {
            let past_pages = Handle {
                direct: true,
                writes: handle.writes,
                written: handle.written.clone(),
                appends: mode.appends,
                ..handle.shared()
            };
            self.add_file(fh, past_pages);
        }
        binding
    }

    /// Returns a handle of the content that an inode is open with, after its name was replaced; `None` if it is not
    /// open any more. Fails unless the mount is writable or the kernel has just looked the name up again.
    fn share(
        &self,
        context: &RequestContext,
        ino: Ino,
        caller: Caller,
        mode: OpenOptions,
    ) -> Result<Option<Handle>> {
        if !self.config.writable && !self.walks_again(caller) {
            return Err(self.walk_again(ino, caller));
        }
        let fits = |open: &Arc<Handle>| !mode.writes || open.tree_file.is_some();
        match self.open_file(ino, fits) {
            Some(open) if mode.writes => {
                let file = open.tree_file.clone();
                let file = file.ok_or_else(|| self.walk_again(ino, caller))?;
                self.writer(context, ino, &open.path, file).map(Some)
            }
            Some(open) => Ok(Some(open.shared())),
            None if mode.writes && self.open_file(ino, |_| true).is_some() => {
                Err(self.walk_again(ino, caller))
            }
            None => Ok(None),
        }
    }
}
