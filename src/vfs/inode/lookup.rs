//! Which inode a name has, by what was found behind it.
//!
//! A name keeps its inode as long as its content stays. Else it gets another one, and the old one lives on without a
//! name: programs that have it open keep their pages and their length. A content that is open has the inode on which it
//! is open.

use crate::vfs::inode::table::InodeTable;
use crate::vfs::inode::{Ino, Inodes};
use crate::view::Attr;

/// The inode of a name.
enum InodeChoice {
    /// This one.
    Known(u64),
    /// A new one: the name has none.
    New,
    /// A new one: that of the name has another content.
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

    /// Returns the inode on which a content is open whose name, or last name, this is.
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

    /// Gives a name the inode `ino`, and counts a lookup of the kernel.
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
    /// Returns the number of a name for a listing; nothing is held.
    ///
    /// It is the number that a lookup at this moment would give the name. Two names that the kernel does not know may
    /// have the same hash: then `stat` of the one that is looked up second shows the next number, and not the one that
    /// the listing showed. That takes a directory of tens of thousands of names, and happens to 1 in 4,000 in one of a
    /// million. To tell it apart, each listed name would have to be held.
    pub fn peek(&self, parent: Ino, name: &[u8]) -> Ino {
        let state = self.lock();
        let known = state.entries.named(parent.0, name);
        Ino(known.unwrap_or_else(|| state.free_number(parent, name)))
    }

    /// Returns the inode of a name behind which `attr` was found, and counts a lookup of the kernel.
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
