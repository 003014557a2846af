//! `--passthrough`: stored files that the kernel reads from the file system below, without asking (FUSE_PASSTHROUGH).
//!
//! The kernel has one file behind an inode, for all of its handles or for none, while any of them is open: the first
//! handle decides, the others follow. So each handle is counted here from the answer to its opening to its release.
//! Only mounts that take no changes are served so: nothing that the kernel reads itself is seen here.

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

/// How many file systems may lie between a file and its disk: the mount itself can still be the lower one of an overlay.
const STACK_DEPTH: u32 = 1;

/// The files behind the open inodes of one mount.
pub(super) struct BackingFiles {
    is_wanted: AtomicBool,
    by_ino: Mutex<HashMap<Ino, BackedInode>>,
}

/// An inode that has handles.
struct BackedInode {
    /// What the kernel calls the file behind it; nothing if its reads are answered here.
    id: Option<Arc<BackingId>>,
    handles: usize,
}

impl BackingFiles {
    /// Has the kernel read files itself if that is wanted and possible.
    pub(super) fn new(is_wanted: bool) -> BackingFiles {
        BackingFiles {
            is_wanted: AtomicBool::new(is_wanted),
            by_ino: Mutex::default(),
        }
    }

    /// Asks the kernel for the ability when a mount begins.
    pub(super) fn ask_for(&self, config: &mut KernelConfig) {
        if !self.is_wanted.load(Ordering::Relaxed) {
            return;
        }
        let asked = config.add_capabilities(InitFlags::FUSE_PASSTHROUGH);
        if asked.is_err() || config.set_max_stack_depth(STACK_DEPTH).is_err() {
            log::warn!("the kernel has no FUSE_PASSTHROUGH: --passthrough changes nothing");
            self.is_wanted.store(false, Ordering::Relaxed);
        }
    }

    /// Answers an opening.
    fn answer(&self, reply: ReplyOpen, vfs: &Vfs, ino: Ino, opened: OpenReply) {
        let handle = FileHandle(opened.fh.0);
        if !self.is_wanted.load(Ordering::Relaxed) {
            return reply.opened(handle, convert::open_flags(&opened));
        }
        match self.count(&reply, vfs, ino, opened) {
            // The kernel takes no other flag, and has no pages of its own.
            Some(id) if !opened.direct => {
                reply.opened_passthrough(handle, FopenFlags::FOPEN_NOFLUSH, &id);
            }
            _ => reply.opened(handle, convert::open_flags(&opened)),
        }
    }

    /// Counts a handle; returns what the kernel calls the file behind its inode, if it reads that itself.
    fn count(
        &self,
        reply: &ReplyOpen,
        vfs: &Vfs,
        ino: Ino,
        opened: OpenReply,
    ) -> Option<Arc<BackingId>> {
        let mut by_ino = self.by_ino.lock();
        let inode = by_ino.entry(ino).or_insert_with(|| {
            let file = vfs.shown_as_stored(opened.fh);
            BackedInode {
                id: file.and_then(|file| backing(reply, &*file)).map(Arc::new),
                handles: 0,
            }
        });
        inode.handles += 1;
        inode.id.clone()
    }

    /// Notes that a handle was released.
    pub(super) fn release(&self, ino: Ino) {
        if !self.is_wanted.load(Ordering::Relaxed) {
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

/// Has the kernel know a file; nothing if it is on a file system that the kernel does not read in this way.
fn backing(reply: &ReplyOpen, file: &dyn File) -> Option<BackingId> {
    let known = reply.open_backing(file.descriptor()?);
    known
        .inspect_err(|error| log::debug!("a file is not read by the kernel itself: {error}"))
        .ok()
}

/// A file that was opened for reading.
pub(super) struct FileOpening {
    pub(super) ino: Ino,
    pub(super) opened: OpenReply,
    pub(super) backing: Arc<BackingFiles>,
}

impl Output for FileOpening {
    type Reply = ReplyOpen;

    fn send(self, reply: ReplyOpen, vfs: &Vfs) {
        self.backing.answer(reply, vfs, self.ino, self.opened);
    }

    fn undo(self, context: &RequestContext, vfs: &Vfs) {
        vfs.release(context, self.opened.fh);
    }
}
