//! The names of inodes as a tree: paths, names that come and go, and entries that nothing holds any more.
//!
//! An entry is held by the kernel's lookups and by the entries below it.

use std::collections::HashMap;
use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::Arc;

use lru::LruCache;

use crate::error::{Error, Kind, Result};
use crate::grid::NumberedName;
use crate::store::{EntryKind, Key};
use crate::vfs::computed::{COMPUTED, MAX_DIRECTORIES, code_of, computed_name, number_of};
use crate::vfs::inode::Ino;
use crate::vfs::inode::entries::{EntryTable, InodeEntry, hash_of, is_sparse};
use crate::vfs::inode::open::OpenInodes;
use crate::view::ViewDir;

/// Number of resolved directories that are kept.
const MAX_DIRS: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// The most computed numbers of which the content is known. Nothing more is held of a chunk file.
const MAX_COMPUTED: usize = 1 << 16;

/// The content of an inode of which the kernel has attributes of several contents: no content is the same.
pub(super) const MIXED: u64 = u64::MAX;

/// The state of `Inodes`.
pub(super) struct InodeTable {
    pub(super) entries: EntryTable,
    pub(super) open: OpenInodes,
    /// The contents that were found behind names with computed numbers, as `InodeEntry::content`.
    computed: HashMap<u64, NonZeroU64>,
    /// Directories by the small number that is part of computed numbers.
    directories: HashMap<u32, u64>,
    last_directory: u32,
    /// Directories as the view resolved them.
    pub(super) dirs: LruCache<u64, Arc<ViewDir>>,
    /// Counts names that were taken from inodes: a directory may have another path since.
    pub(super) changes: u64,
}

impl InodeTable {
    /// Builds a table with the root in it.
    pub(super) fn new() -> InodeTable {
        let mut entries = EntryTable::default();
        entries.add_root(Ino::ROOT.0);
        if let Some(root) = entries.get_mut(Ino::ROOT.0) {
            (root.lookups, root.is_directory) = (1, true);
        }
        InodeTable {
            entries,
            open: OpenInodes::default(),
            computed: HashMap::new(),
            directories: HashMap::new(),
            last_directory: 0,
            dirs: LruCache::new(MAX_DIRS),
            changes: 0,
        }
    }

    /// Returns the path of an inode; `Changed` if it or a directory above it has no name.
    pub(super) fn path(&self, ino: Ino) -> Result<Key> {
        if self.is_named(ino) {
            self.last_path(ino)
        } else {
            Err(nameless(ino))
        }
    }

    /// Returns the path of an inode, by its last name if it has none. `Changed` if it is not known, or if a directory
    /// above it has no name.
    pub(super) fn last_path(&self, ino: Ino) -> Result<Key> {
        self.path_through(ino, InodeEntry::is_named)
    }

    /// Returns the path of an inode by the last names of it and of the directories above it, whether they have them
    /// still or not. `Changed` if one is not known.
    pub(super) fn walked_path(&self, ino: Ino) -> Result<Key> {
        self.path_through(ino, |_| true)
    }

    /// Returns the path of an inode by its last name and those of the directories above it; `Changed` if one of these is
    /// not known or does not `count`.
    fn path_through(&self, ino: Ino, count: impl Fn(&InodeEntry) -> bool) -> Result<Key> {
        if ino == Ino::ROOT {
            return Ok(Key::root());
        }
        let (mut at, name) = self.last_name(ino)?;
        let mut names = vec![name.as_ref()];
        while at != Ino::ROOT.0 {
            let entry = self.entries.get(at).filter(|entry| count(entry));
            let (parent, name) = entry.ok_or_else(|| nameless(Ino(at)))?.last_name();
            names.push(name);
            at = parent;
        }
        names.reverse();
        Key::new(names.join(&b'/'))
    }

    /// Returns the directory of an inode and its first name, or the last ones that it had.
    pub(super) fn last_name(&self, ino: Ino) -> Result<(u64, std::borrow::Cow<'_, [u8]>)> {
        if let Some((directory, name)) = computed_name(ino.0) {
            let parent = self.directories.get(&directory).ok_or_else(|| gone(ino))?;
            return Ok((*parent, name.into_bytes().into()));
        }
        let entry = self.entries.get(ino.0).ok_or_else(|| gone(ino))?;
        let (parent, name) = entry.last_name();
        Ok((parent, name.into()))
    }

    /// Whether an inode has a name. A computed one has lost its name once that has an entry.
    pub(super) fn is_named(&self, ino: Ino) -> bool {
        match (ino.0 & COMPUTED, self.last_name(ino)) {
            (_, Err(_)) => false,
            (0, Ok(_)) => self
                .entries
                .get(ino.0)
                .is_some_and(|entry| entry.is_named()),
            (_, Ok((parent, name))) => self.entries.named(parent, &name).is_none(),
        }
    }

    /// Whether an inode is a directory.
    pub(super) fn is_directory(&self, ino: Ino) -> bool {
        let entry = self.entries.get(ino.0);
        entry.is_some_and(|entry| entry.is_directory)
    }

    /// Returns the small number of a directory, which it gets now if it has none; nothing if there were too many.
    fn directory(&mut self, ino: Ino) -> Option<u32> {
        let entry = self.entries.get_mut(ino.0)?;
        if entry.directory == 0 {
            if self.last_directory + 1 >= MAX_DIRECTORIES {
                return None;
            }
            self.last_directory += 1;
            entry.directory = self.last_directory;
            self.directories.insert(entry.directory, ino.0);
        }
        Some(entry.directory)
    }

    /// Returns the computed number of a file. Directories have entries instead, which know their parents.
    pub(super) fn computed(
        &mut self,
        parent: Ino,
        name: Option<&NumberedName<'_>>,
        kind: EntryKind,
    ) -> Option<u64> {
        if kind != EntryKind::File {
            return None;
        }
        let code = code_of(name?)?;
        Some(number_of(self.directory(parent)?, code))
    }

    /// Whether an inode is known to have another content.
    pub(super) fn differs(&self, ino: u64, content: Option<u64>) -> bool {
        let known = self.open.content(ino).or_else(|| self.found(ino));
        let is_other = |(known, content)| known == MIXED || known != content;
        known.zip(content).is_some_and(is_other)
    }

    /// Returns the content that the last lookup of an inode has found.
    fn found(&self, ino: u64) -> Option<u64> {
        let found = match self.entries.get(ino) {
            Some(entry) => entry.content,
            None => self.computed.get(&ino).copied(),
        };
        found.map(NonZeroU64::get)
    }

    /// Notes the content of an inode.
    pub(super) fn note_content(&mut self, ino: u64, content: Option<u64>) {
        let content = content.and_then(NonZeroU64::new);
        if let Some(entry) = self.entries.get_mut(ino) {
            entry.content = content;
            return;
        }
        if ino & COMPUTED == 0 {
            return;
        }
        if self.computed.len() >= MAX_COMPUTED {
            self.computed.clear();
        }
        if let Some(content) = content {
            self.computed.insert(ino, content);
        }
    }

    /// Forgets the content of an inode that has a computed number.
    pub(super) fn forget_computed(&mut self, ino: u64) {
        self.computed.remove(&ino);
        if is_sparse(self.computed.len(), self.computed.capacity()) {
            self.computed.shrink_to(2 * self.computed.len());
        }
    }

    /// Returns a number that no inode has; without other inodes it is always the same for a name.
    pub(super) fn free_number(&self, parent: Ino, name: &[u8]) -> u64 {
        let mut ino = hash_of(parent.0, name) & !COMPUTED;
        while ino <= Ino::ROOT.0 || self.entries.get(ino).is_some() || self.open.is_open(ino) {
            ino = (ino + 1) & !COMPUTED;
        }
        ino
    }

    /// Gives an inode a name, which another one may have now.
    pub(super) fn give(&mut self, ino: u64, parent: Ino, name: &[u8]) {
        let owner = self.entries.named(parent.0, name);
        if owner == Some(ino) {
            return;
        }
        if owner.is_some() {
            self.take(parent, name);
        }
        if ino & COMPUTED == 0 {
            self.entries.add_name(ino, parent.0, name);
            if let Some(parent) = self.entries.get_mut(parent.0) {
                parent.children += 1;
            }
        }
        if let Some(owner) = owner {
            self.prune(owner);
        }
    }

    /// Takes a name from the inode that has it, which is returned.
    pub(super) fn take(&mut self, parent: Ino, name: &[u8]) -> Option<u64> {
        let ino = self.entries.take_name(parent.0, name)?;
        self.changes += 1;
        let entry = self.entries.get(ino);
        if entry.is_some_and(|entry| entry.children > 0) || self.dirs.contains(&ino) {
            self.dirs.clear();
        }
        if let Some(parent) = self.entries.get_mut(parent.0) {
            parent.children = parent.children.saturating_sub(1);
        }
        Some(ino)
    }

    /// Takes all names of an inode but one, which is the only one that the file still has.
    pub(super) fn keep_one(&mut self, ino: u64, parent: Ino, name: &[u8]) {
        if self.entries.links.names(ino).is_empty() {
            return;
        }
        for (other, old) in self.entries.names(ino) {
            if (other, &*old) != (parent.0, name) {
                self.take(Ino(other), &old);
            }
        }
    }

    /// Drops an entry that nothing holds, and those above it that it alone held.
    pub(super) fn prune(&mut self, ino: u64) {
        let mut waiting = vec![ino];
        while let Some(at) = waiting.pop() {
            let entry = self.entries.get(at);
            let is_idle = entry.is_some_and(|entry| entry.lookups == 0 && entry.children == 0);
            if at == Ino::ROOT.0 || !is_idle {
                continue;
            }
            for (parent, name) in self.entries.names(at) {
                self.entries.take_name(parent, &name);
                if let Some(parent) = self.entries.get_mut(parent) {
                    parent.children = parent.children.saturating_sub(1);
                }
                waiting.push(parent);
            }
            if let Some(entry) = self.entries.remove(at) {
                self.directories.remove(&entry.directory);
            }
            self.dirs.pop(&at);
        }
    }
}

/// Returns the error of an inode whose last name was removed: the kernel walks its path again.
pub(super) fn nameless(ino: Ino) -> Error {
    Error::new(
        Kind::Changed,
        format!("inode {}", ino.0),
        "has no name any more",
    )
}

/// Returns the error of an inode that the kernel has forgotten.
fn gone(ino: Ino) -> Error {
    Error::new(
        Kind::Changed,
        format!("inode {}", ino.0),
        "is not known any more",
    )
}
