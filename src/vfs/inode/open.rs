//! Tracks open inodes and the content of their handles.
//!
//! All handles of an inode have one content, since the kernel's pages belong to the inode.

use std::collections::HashMap;

use smallvec::SmallVec;

use crate::vfs::Fh;
use crate::vfs::inode::entries::is_sparse;

/// The open inodes.
#[derive(Default)]
pub(super) struct OpenInodes {
    by_ino: HashMap<u64, OpenInode>,
    /// Inodes by the content of their handles; usually one.
    by_content: HashMap<u64, SmallVec<[u64; 2]>>,
}

/// An inode with handles.
#[derive(Default)]
struct OpenInode {
    /// The content of all handles; `None` if it is unknown.
    content: Option<u64>,
    /// Whether the kernel may have attributes of another content.
    is_mixed: bool,
    handles: SmallVec<[Fh; 2]>,
}

impl OpenInodes {
    /// Whether an inode has handles.
    pub(super) fn is_open(&self, ino: u64) -> bool {
        self.by_ino.contains_key(&ino)
    }

    /// Whether the kernel may have attributes of another content than the handles'.
    pub(super) fn is_mixed(&self, ino: u64) -> bool {
        self.by_ino.get(&ino).is_some_and(|open| open.is_mixed)
    }

    /// Records that the kernel may have attributes of another content than the handles'.
    pub(super) fn mark_mixed(&mut self, ino: u64) {
        if let Some(open) = self.by_ino.get_mut(&ino) {
            open.is_mixed = true;
        }
    }

    /// Returns the content of the handles of an inode, or `None` if it is unknown or the inode is not open.
    pub(super) fn content(&self, ino: u64) -> Option<u64> {
        self.by_ino.get(&ino)?.content
    }

    /// Returns the inodes that are open with a content.
    pub(super) fn with_content(&self, content: u64) -> &[u64] {
        self.by_content.get(&content).map_or(&[], |inos| inos)
    }

    /// Returns the handles of an inode.
    pub(super) fn handles(&self, ino: u64) -> SmallVec<[Fh; 2]> {
        let open = self.by_ino.get(&ino);
        open.map(|open| open.handles.clone()).unwrap_or_default()
    }

    /// Adds a handle.
    pub(super) fn add(&mut self, ino: u64, fh: Fh, content: Option<u64>) {
        let open = self.by_ino.entry(ino).or_default();
        open.handles.push(fh);
        if open.content.is_none()
            && let Some(content) = content
        {
            open.content = Some(content);
            self.by_content.entry(content).or_default().push(ino);
        }
    }

    /// Removes a handle.
    pub(super) fn remove(&mut self, ino: u64, fh: Fh) {
        let Some(open) = self.by_ino.get_mut(&ino) else {
            return;
        };
        open.handles.retain(|known| *known != fh);
        if !open.handles.is_empty() {
            return;
        }
        let content = open.content;
        self.by_ino.remove(&ino);
        if let Some(content) = content
            && let Some(inos) = self.by_content.get_mut(&content)
        {
            inos.retain(|known| *known != ino);
            if inos.is_empty() {
                self.by_content.remove(&content);
            }
        }
        if is_sparse(self.by_ino.len(), self.by_ino.capacity()) {
            self.by_ino.shrink_to(2 * self.by_ino.len());
            self.by_content.shrink_to(2 * self.by_content.len());
        }
    }
}
