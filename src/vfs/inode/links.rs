//! Files with several names: which further names they have, and their identity in the store, by which a name that was
//! not looked up yet finds its inode.

use std::collections::HashMap;

/// A name in a directory, by the directory's number.
type DirName = (u64, Box<[u8]>);

/// What inodes have beside their first name.
#[derive(Default)]
pub(super) struct HardLinks {
    /// Further names, by the number of their inode.
    names: HashMap<u64, Vec<DirName>>,
    inodes: HashMap<DirName, u64>,
    identities: HashMap<u64, u64>,
    by_identity: HashMap<u64, u64>,
}

impl HardLinks {
    /// Returns the inode that has a name as a further one.
    pub(super) fn find(&self, parent: u64, name: &[u8]) -> Option<u64> {
        if self.inodes.is_empty() {
            return None;
        }
        self.inodes.get(&(parent, Box::from(name))).copied()
    }

    /// Returns the further names of an inode.
    pub(super) fn names(&self, ino: u64) -> &[DirName] {
        self.names.get(&ino).map_or(&[], Vec::as_slice)
    }

    /// Gives an inode a further name.
    pub(super) fn add(&mut self, ino: u64, parent: u64, name: &[u8]) {
        let name: DirName = (parent, Box::from(name));
        self.inodes.insert(name.clone(), ino);
        self.names.entry(ino).or_default().push(name);
    }

    /// Takes a further name from its inode, which is returned.
    pub(super) fn take(&mut self, parent: u64, name: &[u8]) -> Option<u64> {
        let name: DirName = (parent, Box::from(name));
        let ino = self.inodes.remove(&name)?;
        let names = self.names.entry(ino).or_default();
        names.retain(|known| *known != name);
        if names.is_empty() {
            self.names.remove(&ino);
        }
        Some(ino)
    }

    /// Takes the first of the further names of an inode.
    pub(super) fn take_first(&mut self, ino: u64) -> Option<DirName> {
        let (parent, name) = self.names.get(&ino)?.first()?.clone();
        self.take(parent, &name)?;
        Some((parent, name))
    }

    /// Returns the identity of an inode in the store.
    pub(super) fn identity(&self, ino: u64) -> Option<u64> {
        self.identities.get(&ino).copied()
    }

    /// Returns the inode with an identity.
    pub(super) fn with_identity(&self, identity: u64) -> Option<u64> {
        self.by_identity.get(&identity).copied()
    }

    /// Notes the identity of an inode.
    pub(super) fn identify(&mut self, ino: u64, identity: u64) {
        if self.identity(ino) != Some(identity) {
            self.forget_identity(ino);
        }
        self.identities.insert(ino, identity);
        self.by_identity.insert(identity, ino);
    }

    /// Forgets the identity of an inode.
    pub(super) fn forget_identity(&mut self, ino: u64) {
        let Some(identity) = self.identities.remove(&ino) else {
            return;
        };
        if self.by_identity.get(&identity) == Some(&ino) {
            self.by_identity.remove(&identity);
        }
    }
}
