//! The inodes that are open, and of which content.
//!
//! All handles of an inode have one content, since the kernel's pages belong to the inode: a handle of another one is
//! not added. While a file is being opened, what lookups have said of its inode meanwhile is kept, so that no handle
//! of an older content than that is added afterwards.

use std::collections::HashMap;

use smallvec::SmallVec;

use crate::vfs::Fh;
use crate::vfs::inode::entries::is_sparse;

/// The open inodes.
#[derive(Default)]
pub(super) struct OpenInodes {
    by_ino: HashMap<u64, OpenInode>,
    /// Inodes by the content of their handles; mostly one.
    by_content: HashMap<u64, SmallVec<[u64; 2]>>,
}

/// An inode that has handles, or for which a file is being opened.
#[derive(Default)]
struct OpenInode {
    /// The content of all handles; nothing if it is unknown.
    content: Option<u64>,
    handles: SmallVec<[Fh; 2]>,
    /// Number of files that are being opened.
    opening: u32,
    /// What the last lookup found, and how many lookups there were while files were being opened.
    found: Option<u64>,
    lookups: u32,
}

impl OpenInode {
    fn is_open(&self) -> bool {
        !self.handles.is_empty()
    }

    /// Whether handles are known to have another content.
    fn differs(&self, content: Option<u64>) -> bool {
        let is_known = self.content.is_some() && content.is_some();
        self.is_open() && is_known && self.content != content
    }
}

/// The number of lookups that were made of an inode.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LookupCount(u32);

impl OpenInodes {
    /// Whether anything is known of an inode.
    pub(super) fn contains(&self, ino: u64) -> bool {
        self.by_ino.contains_key(&ino)
    }

    /// Whether an inode has handles.
    pub(super) fn is_open(&self, ino: u64) -> bool {
        self.by_ino.get(&ino).is_some_and(OpenInode::is_open)
    }

    /// Returns the content of the handles of an inode.
    pub(super) fn content(&self, ino: u64) -> Option<u64> {
        let open = self.by_ino.get(&ino).filter(|open| open.is_open());
        open.and_then(|open| open.content)
    }

    /// Whether an inode has handles of another content.
    pub(super) fn differs(&self, ino: u64, content: Option<u64>) -> bool {
        let open = self.by_ino.get(&ino);
        open.is_some_and(|open| open.differs(content))
    }

    /// Returns the inodes that have handles of a content.
    pub(super) fn with_content(&self, content: u64) -> &[u64] {
        self.by_content.get(&content).map_or(&[], |inos| inos)
    }

    /// Returns the handles of an inode.
    pub(super) fn handles(&self, ino: u64) -> SmallVec<[Fh; 2]> {
        let open = self.by_ino.get(&ino);
        open.map(|open| open.handles.clone()).unwrap_or_default()
    }

    /// Notes which content a lookup of an inode has found.
    pub(super) fn note_lookup(&mut self, ino: u64, content: Option<u64>) {
        if let Some(open) = self.by_ino.get_mut(&ino).filter(|open| open.opening > 0) {
            open.found = content;
            open.lookups = open.lookups.wrapping_add(1);
        }
    }

    /// Notes that a file is being opened.
    pub(super) fn begin(&mut self, ino: u64) {
        self.by_ino.entry(ino).or_default().opening += 1;
    }

    /// Notes that it was opened, or not.
    pub(super) fn end(&mut self, ino: u64) {
        if let Some(open) = self.by_ino.get_mut(&ino) {
            open.opening = open.opening.saturating_sub(1);
        }
        self.prune(ino);
    }

    /// Returns the number of lookups so far.
    pub(super) fn lookups(&self, ino: u64) -> LookupCount {
        let open = self.by_ino.get(&ino);
        LookupCount(open.map_or(0, |open| open.lookups))
    }

    /// Whether a lookup since `before` has found another content.
    pub(super) fn found_another(
        &self,
        ino: u64,
        content: Option<u64>,
        before: LookupCount,
    ) -> bool {
        let is_another = |found: u64| content.is_some_and(|content| content != found);
        let open = self.by_ino.get(&ino);
        let open = open.filter(|open| open.lookups != before.0);
        open.and_then(|open| open.found).is_some_and(is_another)
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

    /// Takes a handle away.
    pub(super) fn remove(&mut self, ino: u64, fh: Fh) {
        let Some(open) = self.by_ino.get_mut(&ino) else {
            return;
        };
        open.handles.retain(|known| *known != fh);
        if open.is_open() {
            return;
        }
        if let Some(content) = open.content.take()
            && let Some(inos) = self.by_content.get_mut(&content)
        {
            inos.retain(|known| *known != ino);
            if inos.is_empty() {
                self.by_content.remove(&content);
            }
        }
        self.prune(ino);
    }

    fn prune(&mut self, ino: u64) {
        let open = self.by_ino.get(&ino);
        if open.is_some_and(|open| !open.is_open() && open.opening == 0) {
            self.by_ino.remove(&ino);
        }
        if is_sparse(self.by_ino.len(), self.by_ino.capacity()) {
            self.by_ino.shrink_to(2 * self.by_ino.len());
            self.by_content.shrink_to(2 * self.by_content.len());
        }
    }
}
