//! Lets the kernel read local stored files itself (FUSE_PASSTHROUGH), for `--passthrough`.
//!
//! While an inode is open, the kernel uses one backing file for all of its handles or for none: the first handle
//! decides. So handles are counted from the reply to their open to their release. Only read-only mounts use
//! passthrough, since the daemon does not see the kernel's own reads and writes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fuser::{BackingId, FileHandle, FopenFlags, InitFlags, KernelConfig, ReplyOpen};
use parking_lot::Mutex;

use super::convert;
use super::reply::Output;
use crate::vfs::{Ino, OpenReply, Vfs};
use crate::view::File;
use zarrfs_store::request_context::RequestContext;

/// The backing files, which the kernel reads itself, of the open inodes of one mount.
pub(super) struct BackingFiles {
    is_enabled: AtomicBool,
    by_ino: Mutex<HashMap<Ino, BackedInode>>,
}

/// An open inode, with the number of its handles.
struct BackedInode {
    /// The kernel's number of the backing file; `None` if the daemon answers the reads of this inode.
    id: Option<Arc<BackingId>>,
    handles: usize,
}

impl BackingFiles {
    pub(super) fn new(is_enabled: bool) -> BackingFiles {
        BackingFiles {
            is_enabled: AtomicBool::new(is_enabled),
            by_ino: Mutex::default(),
        }
    }

    /// Requests FUSE_PASSTHROUGH from the kernel at the start of the mount.
    pub(super) fn negotiate(&self, config: &mut KernelConfig) {
        if !self.is_enabled.load(Ordering::Relaxed) {
            return;
        }
        let added = config.add_capabilities(InitFlags::FUSE_PASSTHROUGH);
        // Stack depth 1: backing files may not be on an overlayfs, but the mount itself may be a layer of an overlayfs.
        if added.is_err() || config.set_max_stack_depth(1).is_err() {
            log::warn!(
                "--passthrough has no effect: the kernel has no FUSE passthrough (Linux 6.9 or later)"
            );
            self.is_enabled.store(false, Ordering::Relaxed);
        }
    }

    /// Replies to an open, with a backing file if there is one.
    fn reply_to_open(&self, reply: ReplyOpen, vfs: &Vfs, ino: Ino, opened: OpenReply) {
        let handle = FileHandle(opened.fh.0);
        if !self.is_enabled.load(Ordering::Relaxed) {
            return reply.opened(handle, convert::open_flags(&opened));
        }
        match self.add_handle(&reply, vfs, ino, opened) {
            // The kernel caches no pages of a file with passthrough, so it refuses FOPEN_KEEP_CACHE.
            Some(id) if !opened.direct => {
                reply.opened_passthrough(handle, FopenFlags::FOPEN_NOFLUSH, &id);
            }
            _ => reply.opened(handle, convert::open_flags(&opened)),
        }
    }

    /// Counts a new handle of an inode. Returns the kernel's number of the backing file, or `None` if the daemon
    /// answers the reads.
    fn add_handle(
        &self,
        reply: &ReplyOpen,
        vfs: &Vfs,
        ino: Ino,
        opened: OpenReply,
    ) -> Option<Arc<BackingId>> {
        let mut by_ino = self.by_ino.lock();
        let inode = by_ino.entry(ino).or_insert_with(|| {
            let file = vfs.unchanging_local_file(opened.fh);
            BackedInode {
                id: file.and_then(|file| register(reply, &*file)).map(Arc::new),
                handles: 0,
            }
        });
        inode.handles += 1;
        inode.id.clone()
    }

    /// Counts the release of a handle of an inode.
    pub(super) fn release(&self, ino: Ino) {
        if !self.is_enabled.load(Ordering::Relaxed) {
            return;
        }
        let mut by_ino = self.by_ino.lock();
        if let Some(inode) = by_ino.get_mut(&ino) {
            inode.handles -= 1;
            if inode.handles == 0 {
                by_ino.remove(&ino);
            }
        }
    }
}

/// Registers a local file as backing file. Returns `None` if its file system does not support passthrough.
fn register(reply: &ReplyOpen, file: &dyn File) -> Option<BackingId> {
    let id = reply.open_backing(file.descriptor()?);
    id.inspect_err(|error| log::debug!("no passthrough for a file: {error}"))
        .ok()
}

pub(super) struct FileOpening {
    pub(super) ino: Ino,
    pub(super) opened: OpenReply,
    pub(super) backing: Arc<BackingFiles>,
}

impl Output for FileOpening {
    type Reply = ReplyOpen;

    fn send(self, reply: ReplyOpen, vfs: &Vfs) {
        self.backing
            .reply_to_open(reply, vfs, self.ino, self.opened);
    }

    fn undo(self, context: &RequestContext, vfs: &Vfs) {
        vfs.release(context, self.opened.fh);
    }
}
