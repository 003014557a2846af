//! Which inode a name has, by what was found behind it.
//!
//! A name keeps its inode as long as its content stays. Else it gets another one, and the old one lives on without a
//! name: programs that have it open keep their pages and their length. A content that is open has the inode on which it
//! is open.

use crate::grid::NumberedName;
use crate::store::EntryKind;
use crate::store::tree::Posix;
use crate::vfs::inode::table::InodeTable;
use crate::vfs::inode::{Ino, Inodes};
use crate::view::{Attr, ChildName};

/// The inode of a name.
enum InodeChoice {
    /// This one.
    Known(u64),
    /// A new one: the name has none.
    New,
    /// A new one: that of the name has another content.
    Split,
}

/// Whether a file has several names.
fn is_linked(posix: &Posix, kind: EntryKind) -> bool {
    posix.links > 1 && kind != EntryKind::Directory
}

impl InodeTable {
    fn choose(&self, parent: Ino, name: &[u8], computed: Option<u64>, attr: &Attr) -> InodeChoice {
        let links = &self.entries.links;
        let identity = attr.posix.map(|posix| posix.identity);
        let known = self.entries.named(parent.0, name).or(computed);
        let is_same = |ino: &u64| identity.is_some() && links.identity(*ino) == identity;
        if let Some(ino) = known.filter(is_same) {
            return InodeChoice::Known(ino);
        }
        let linked = attr.posix.filter(|posix| is_linked(posix, attr.kind));
        let linked = linked.and_then(|posix| links.with_identity(posix.identity));
        if let Some(ino) = linked.or_else(|| self.open_as(parent, name, attr.content)) {
            return InodeChoice::Known(ino);
        }
        match known {
            Some(ino) if self.differs(ino, attr.content) => InodeChoice::Split,
            // It was one of several names of another file.
            Some(ino) if !links.names(ino).is_empty() => InodeChoice::New,
            Some(ino) => InodeChoice::Known(ino),
            None => InodeChoice::New,
        }
    }

    /// Returns the inode on which a content is open whose first or last name this is.
    fn open_as(&self, parent: Ino, name: &[u8], content: Option<u64>) -> Option<u64> {
        let mut open = self.open.with_content(content?).iter();
        let has_name = |ino: &&u64| {
            let last = self.last_name(Ino(**ino));
            last.is_ok_and(|last| (last.0, last.1.as_ref()) == (parent.0, name))
        };
        open.find(has_name).copied()
    }

    /// Whether a content is open as another inode with the first or last name of this one.
    pub(super) fn is_open_elsewhere(&self, ino: Ino, content: Option<u64>) -> bool {
        let Ok((parent, name)) = self.last_name(ino) else {
            return false;
        };
        let other = self.open_as(Ino(parent), &name, content);
        other.is_some_and(|other| other != ino.0)
    }

    /// Gives a name the inode `ino`, and counts a lookup of the kernel.
    fn count_lookup(&mut self, ino: u64, parent: Ino, name: &[u8], attr: &Attr) {
        self.give(ino, parent, name);
        if let Some(entry) = self.entries.get_mut(ino) {
            entry.lookups += 1;
            entry.is_directory = attr.kind == EntryKind::Directory;
        }
        match attr.posix.filter(|posix| is_linked(posix, attr.kind)) {
            Some(posix) => {
                // Its identity tells it from other files, under each of its names.
                self.note_content(ino, None);
                self.entries.links.identify(ino, posix.identity);
            }
            None => {
                self.note_content(ino, attr.content);
                self.keep_one(ino, parent, name);
                self.entries.links.forget_identity(ino);
            }
        }
    }
}

impl Inodes {
    /// Returns the number of a name for a listing; nothing is held.
    pub fn peek(&self, parent: Ino, name: &[u8], kind: EntryKind) -> Ino {
        let numbered = self.computes.then(|| NumberedName::parse(name)).flatten();
        let mut state = self.lock();
        let known = state.entries.named(parent.0, name);
        let known = known.or_else(|| state.computed(parent, numbered.as_ref(), kind));
        Ino(known.unwrap_or_else(|| state.free_number(parent, name)))
    }

    /// Returns the inode of a name behind which `attr` was found, and counts a lookup of the kernel.
    pub fn look_up(&self, parent: Ino, name: &ChildName<'_>, attr: &Attr) -> Ino {
        let mut state = self.lock();
        let ino = match self.choose(&mut state, parent, name, attr) {
            InodeChoice::Known(ino) => ino,
            InodeChoice::New | InodeChoice::Split => state.free_number(parent, name.bytes),
        };
        state.count_lookup(ino, parent, name.bytes, attr);
        Ino(ino)
    }

    /// Like `look_up`; nothing if the inode of the name has another content.
    pub fn look_up_same(&self, parent: Ino, name: &ChildName<'_>, attr: &Attr) -> Option<Ino> {
        let mut state = self.lock();
        let ino = match self.choose(&mut state, parent, name, attr) {
            InodeChoice::Known(ino) => ino,
            InodeChoice::New => state.free_number(parent, name.bytes),
            InodeChoice::Split => return None,
        };
        state.count_lookup(ino, parent, name.bytes, attr);
        Some(Ino(ino))
    }

    fn choose(
        &self,
        state: &mut InodeTable,
        parent: Ino,
        name: &ChildName<'_>,
        attr: &Attr,
    ) -> InodeChoice {
        let numbered = name.numbered.as_ref().filter(|_| self.computes);
        let computed = state.computed(parent, numbered, attr.kind);
        state.choose(parent, name.bytes, computed, attr)
    }
}
