//! Set-user-ID and set-group-ID bits, which a regular file loses when its content or its owner changes.
//!
//! The kernel leaves that to the mount, so it does not look at a file before each write to it. A handle
//! knows whether its file may have such bits, so that only a write to such a file looks at them. Who may write and keep
//! them is decided by the kernel or, where it does not say, in `fuse`; the tree clears them (`AttrChange`).

use std::sync::atomic::Ordering;

use crate::error::Result;
use crate::store::tree::{AttrChange, Stat};
use crate::vfs::{Fh, Ino, Vfs};

/// Both bits.
const SET_ID: u32 = 0o6000;

/// The change that clears both bits.
const CLEARED: AttrChange = AttrChange {
    mode: None,
    uid: None,
    gid: None,
    size: None,
    accessed: None,
    modified: None,
    clears_set_id: true,
};

/// Whether a file has one of the bits.
pub(super) fn has_any(stat: &Stat) -> bool {
    stat.posix.is_some_and(|posix| posix.mode & SET_ID != 0)
}

impl Vfs {
    /// Whether an open file may have one of the bits.
    pub fn may_have_set_id(&self, fh: Fh) -> bool {
        let open = self.file(fh);
        open.is_ok_and(|open| open.may_have_set_id.load(Ordering::Relaxed))
    }

    /// Clears the bits of a file that is open for writing.
    pub fn clear_set_id(&self, fh: Fh) -> Result<()> {
        let open = self.file(fh)?;
        if !open.may_have_set_id.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let done = open.writer()?.change(&CLEARED);
        done.inspect_err(|_| open.may_have_set_id.store(true, Ordering::Relaxed))
    }

    /// Notes attributes that were set of an inode: its open files may have the bits now.
    pub(super) fn note_set_id(&self, ino: Ino, change: &AttrChange) {
        if change.mode.is_none_or(|mode| mode & SET_ID == 0) {
            return;
        }
        let files = self.files.read();
        for open in self
            .inodes
            .handles(ino)
            .iter()
            .filter_map(|fh| files.get(fh))
        {
            open.may_have_set_id.store(true, Ordering::Relaxed);
        }
    }
}
