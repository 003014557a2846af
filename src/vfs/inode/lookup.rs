//! Assigns inodes to names by the content that was found.
//!
//! A name keeps its inode as long as its content stays. Otherwise it gets another inode, and the old one lives on
//! without a name: programs that have it open keep their pages and their length. An open content keeps the inode with
//! which it is open.

use crate::vfs::inode::table::InodeTable;
use crate::vfs::inode::{Ino, Inodes};
use crate::view::Attr;

/// The inode for a name.
enum InodeChoice {
    /// An existing inode.
    Known(u64),
    /// A new inode: the name has none.
    New,
    /// A new inode: the current one has another content.
    Split,
}

impl InodeTable {
    fn choose(&self, parent: Ino, name: &[u8], attr: &Attr) -> InodeChoice {
        if let Some(ino) = self.open_as(parent, name, attr.content) {
            return InodeChoice::Known(ino);
        }
        match self.entries.named(parent.0, name) {
            Some(ino) if self.differs(ino, attr.content) || !self.is_a(ino, attr.kind) => {
                InodeChoice::Split
            }
            Some(ino) => InodeChoice::Known(ino),
            None => InodeChoice::New,
        }
    }

    /// Returns the inode with which a content is open, if it has this name or last name.
    fn open_as(&self, parent: Ino, name: &[u8], content: Option<u64>) -> Option<u64> {
        let mut open = self.open.with_content(content?).iter();
        let has_name = |ino: &&u64| {
            let last = self.last_name(Ino(**ino));
            last.is_ok_and(|last| last == (parent.0, name))
        };
        open.find(has_name).copied()
    }

    /// Whether a content is open as another inode with the name, or last name, of this one.
    pub(super) fn is_open_elsewhere(&self, ino: Ino, content: Option<u64>) -> bool {
        let Ok((parent, name)) = self.last_name(ino) else {
            return false;
        };
        let other = self.open_as(Ino(parent), name, content);
        other.is_some_and(|other| other != ino.0)
    }

    /// Assigns the inode `ino` to a name, and counts a lookup.
    fn count_lookup(&mut self, ino: u64, parent: Ino, name: &[u8], attr: &Attr) {
        self.give(ino, parent, name);
        if let Some(entry) = self.entries.get_mut(ino) {
            entry.lookups += 1;
            entry.kind = attr.kind;
        }
        self.note_content(ino, attr.content);
    }
}

impl Inodes {
    /// Returns the inode number of a name for a listing, without adding an entry.
    ///
    /// A lookup at this moment would assign the same number. Two names that the kernel does not know may have the same
    /// hash: then `stat` of the name that is looked up second returns the next number, and not the listed one. That
    /// takes a directory of tens of thousands of names, and affects 1 in 4,000 names in a directory of a million. To
    /// avoid it, each listed name would need an entry.
    pub fn peek(&self, parent: Ino, name: &[u8]) -> Ino {
        let state = self.lock();
        let known = state.entries.named(parent.0, name);
        Ino(known.unwrap_or_else(|| state.free_number(parent, name)))
    }

    /// Returns the inode of a name that has the attributes `attr`, and counts a lookup.
    pub fn look_up(&self, parent: Ino, name: &[u8], attr: &Attr) -> Ino {
        let mut state = self.lock();
        let ino = match state.choose(parent, name, attr) {
            InodeChoice::Known(ino) => ino,
            InodeChoice::New | InodeChoice::Split => state.free_number(parent, name),
        };
        state.count_lookup(ino, parent, name, attr);
        Ino(ino)
    }

    /// Like `look_up`; `None` if the inode of the name has another content.
    pub fn look_up_same(&self, parent: Ino, name: &[u8], attr: &Attr) -> Option<Ino> {
        let mut state = self.lock();
        let ino = match state.choose(parent, name, attr) {
            InodeChoice::Known(ino) => ino,
            InodeChoice::New => state.free_number(parent, name),
            InodeChoice::Split => return None,
        };
        state.count_lookup(ino, parent, name, attr);
        Some(Ino(ino))
    }
}
