//! Erases and renames nodes with all that is stored below them, wherever their format has it.
//!
//! A renamed node is copied and then erased: the new documents are written after the chunks, the deepest first, so that no
//! node is there before its chunks, and the old ones are erased before the chunks. An interruption leaves the old node, or
//! the new one and a rest of the old. Where the store is a tree and the node is one folder of it, the folder is renamed.

use crate::error::{Error, Kind, Result};
use crate::hierarchy::scope::Rule;
use crate::hierarchy::{Hierarchy, NodeEntry};
use crate::model::document::{IN_NODE_FOLDER, ZARR_JSON, is_document};
use crate::store::tree::RenameMode;
use crate::store::{Condition, EntryKind, Key, PutBody, Tree};

/// The longest object that is moved through memory, in bytes.
const MAX_IN_MEMORY: u64 = 16 << 20;

/// How many bytes of a longer object are copied at a time.
const COPY_LEN: usize = 4 << 20;

/// Where a node and all below it are stored.
struct NodeKeys {
    /// Its documents that are in none of the folders.
    documents: Vec<Key>,
    folders: Vec<Key>,
}

impl NodeKeys {
    /// Returns the key of a document that could lie in each of the folders, and the documents that are in none.
    fn any_document(&self) -> Result<Vec<Key>> {
        let folders = self.folders.iter();
        let within = folders.map(|folder| folder.child(ZARR_JSON.as_bytes()));
        within
            .chain(self.documents.iter().cloned().map(Ok))
            .collect()
    }
}

impl Hierarchy {
    /// Erases a node and all that is stored below it.
    pub fn erase_node(&self, found: &NodeEntry) -> Result<()> {
        let keys = self.keys_of(found, &found.path)?;
        self.check_consolidated(&keys.any_document()?)?;
        let mut changed = Vec::new();
        for folder in &keys.folders {
            self.erase_below(folder, &mut changed)?;
        }
        for key in keys.documents {
            self.store.erase(&key, &Condition::Any)?;
            changed.push(key);
        }
        self.update_consolidated(&changed)
    }

    /// Returns the key of a document of another node in the folders of an array, if there is one. An array has no
    /// children, so the files view does not show it.
    pub fn nested_document(&self, array: &NodeEntry) -> Result<Option<Key>> {
        let own: Vec<Key> = match &array.scope.rule {
            Rule::Draft(entry) => {
                let documents = entry.documents(&array.path)?.into_iter();
                let own = documents.map(|(_, key)| key);
                let entry_point = entry.top().child(ZARR_JSON.as_bytes())?;
                own.chain(entry.consolidated()?)
                    .chain([entry_point])
                    .collect()
            }
            Rule::Plain(_) | Rule::Closed => {
                let names = IN_NODE_FOLDER.iter();
                let own = names.map(|name| array.path.child(name.as_bytes()));
                own.collect::<Result<_>>()?
            }
        };
        let mut documents = Vec::new();
        for folder in self.keys_of(array, &array.path)?.folders {
            self.documents_below(&folder, &mut documents)?;
        }
        Ok(documents.into_iter().find(|key| !own.contains(key)))
    }

    /// Returns the key of a file in the folder of a group that is no part of Zarr, if there is one. The files view does
    /// not show it, so a user of that view cannot mean to erase it.
    pub fn foreign(&self, group: &NodeEntry) -> Result<Option<Key>> {
        let own = self.documents_of(group)?.map(|own| own.documents);
        let own = own.unwrap_or_default();
        let is_known =
            |key: &Key| own.iter().any(|document| document.key == *key) || is_document(key.name());
        for folder in self.keys_of(group, &group.path)?.folders {
            for (name, kind) in self.names(&folder)? {
                let key = folder.child(&name)?;
                if kind != EntryKind::Directory && !is_known(&key) {
                    return Ok(Some(key));
                }
            }
        }
        Ok(None)
    }

    /// Renames a node and all below it to a path where there is no node.
    ///
    /// Fails with `CrossDevice` if nodes have other formats there, `NotFound` if there is no parent.
    pub fn move_node(&self, found: &NodeEntry, to: &Key) -> Result<()> {
        let above = to
            .parent()
            .ok_or_else(|| Error::invalid(to, "is the root"))?;
        let parent = self.node(&above)?.ok_or_else(|| Error::not_found(&above))?;
        if !has_same_format(found, &parent) || is_draft_root(found) {
            let why = "the nodes of both places are not written in one way";
            return Err(Error::new(Kind::CrossDevice, to, why));
        }
        let (old, new) = (self.keys_of(found, &found.path)?, self.keys_of(found, to)?);
        self.check_consolidated(&[old.any_document()?, new.any_document()?].concat())?;
        if let (Some(tree), [from], [to], []) = (
            &self.tree,
            old.folders.as_slice(),
            new.folders.as_slice(),
            old.documents.as_slice(),
        ) {
            return self.rename_folder(&**tree, from, to);
        }
        self.copy_and_erase(&old, &new)
    }

    /// Copies a node to other keys and erases the old ones, in the order that the head of this file gives.
    fn copy_and_erase(&self, old: &NodeKeys, new: &NodeKeys) -> Result<()> {
        let mut documents: Vec<(Key, Key)> = Vec::new();
        for (old, new) in old.folders.iter().zip(&new.folders) {
            self.copy_below(old, new, &mut documents)?;
        }
        let own = old.documents.iter().zip(&new.documents);
        documents.extend(own.map(|(from, to)| (from.clone(), to.clone())));
        documents.sort_by_key(|(_, to)| std::cmp::Reverse(to.names().count()));
        for (from, to) in &documents {
            self.copy_key(from, to)?;
        }
        for (from, _) in documents.iter().rev() {
            self.store.erase(from, &Condition::Any)?;
        }
        let mut rest = Vec::new();
        for folder in &old.folders {
            self.erase_below(folder, &mut rest)?;
        }
        let changed = documents.into_iter().flat_map(|(from, to)| [to, from]);
        self.update_consolidated(&changed.collect::<Vec<_>>())
    }

    /// Renames the folder of a node, in one step.
    fn rename_folder(&self, tree: &dyn Tree, from: &Key, to: &Key) -> Result<()> {
        let mut documents = Vec::new();
        self.documents_below(from, &mut documents)?;
        let mut changed = Vec::new();
        for old in documents {
            let rest = old.below(from).unwrap_or_default();
            let new = rest
                .names()
                .try_fold(to.clone(), |key, name| key.child(name))?;
            changed.extend([new, old]);
        }
        tree.rename(from, to, RenameMode::NoReplace)?;
        self.update_consolidated(&changed)
    }

    /// Adds the keys of all documents below a folder.
    fn documents_below(&self, folder: &Key, documents: &mut Vec<Key>) -> Result<()> {
        for (name, kind) in self.names(folder)? {
            let key = folder.child(&name)?;
            if kind == EntryKind::Directory {
                self.documents_below(&key, documents)?;
            } else if is_document(&name) {
                documents.push(key);
            }
        }
        Ok(())
    }

    /// Returns where a node is stored, or would be at another path.
    fn keys_of(&self, found: &NodeEntry, path: &Key) -> Result<NodeKeys> {
        match &found.scope.rule {
            Rule::Draft(entry) if *entry.top() != found.path => {
                let documents = entry.documents(path)?.into_iter();
                Ok(NodeKeys {
                    documents: documents.map(|(_, key)| key).collect(),
                    folders: vec![entry.data(path)?, entry.folder(path)?],
                })
            }
            _ => Ok(NodeKeys {
                documents: Vec::new(),
                folders: vec![path.clone()],
            }),
        }
    }

    /// Returns the names in a folder; none if it is missing.
    fn names(&self, folder: &Key) -> Result<Vec<(Vec<u8>, EntryKind)>> {
        let mut listing = match self.store.list(folder) {
            Err(error) if matches!(error.kind(), Kind::NotFound | Kind::NotADirectory) => {
                return Ok(Vec::new());
            }
            answer => answer?,
        };
        let mut names = Vec::new();
        while let Some(name) = listing.next()? {
            names.push((name.name, name.kind));
        }
        Ok(names)
    }

    /// Erases all that is stored in a folder, and the folder; adds the erased documents to `documents`.
    fn erase_below(&self, folder: &Key, documents: &mut Vec<Key>) -> Result<()> {
        for (name, kind) in self.names(folder)? {
            let key = folder.child(&name)?;
            if kind == EntryKind::Directory {
                self.erase_below(&key, documents)?;
                continue;
            }
            self.store.erase(&key, &Condition::Any)?;
            if is_document(&name) {
                documents.push(key);
            }
        }
        self.store.erase_folder(folder)
    }

    /// Copies all that is stored in a folder but documents; adds their old and new keys to `documents`.
    fn copy_below(&self, from: &Key, to: &Key, documents: &mut Vec<(Key, Key)>) -> Result<()> {
        for (name, kind) in self.names(from)? {
            let (old, new) = (from.child(&name)?, to.child(&name)?);
            if kind == EntryKind::Directory {
                self.copy_below(&old, &new, documents)?;
            } else if is_document(&name) {
                documents.push((old, new));
            } else {
                self.copy_key(&old, &new)?;
            }
        }
        Ok(())
    }

    /// Copies an object.
    fn copy_key(&self, from: &Key, to: &Key) -> Result<()> {
        match self.store.get(from, MAX_IN_MEMORY) {
            Ok(None) => Ok(()),
            Ok(Some(object)) => {
                let body = PutBody::Bytes(&object.bytes);
                self.store.put(to, body, &Condition::Any).map(drop)
            }
            Err(error) if error.kind() == Kind::TooLarge => self.copy_long(from, to),
            Err(error) => Err(error),
        }
    }

    /// Copies a long object by way of a temporary file.
    fn copy_long(&self, from: &Key, to: &Key) -> Result<()> {
        use std::io::Write;
        let reader = self.store.open(from, None)?;
        let meta = reader.meta()?;
        let mut file = unnamed_file().map_err(|error| Error::os(from, error))?;
        let mut length = 0;
        while length < meta.size {
            let bytes = reader.read_at(length, COPY_LEN)?;
            if bytes.is_empty() || reader.meta()?.version != meta.version {
                return Err(Error::new(
                    Kind::Changed,
                    from,
                    "changed while it was moved",
                ));
            }
            file.write_all(&bytes)
                .map_err(|error| Error::os(from, error))?;
            length += bytes.len() as u64;
        }
        let body = PutBody::File(&file, length);
        self.store.put(to, body, &Condition::Any).map(drop)
    }
}

/// Whether a node could be a child of another without a change of its documents.
fn has_same_format(found: &NodeEntry, parent: &NodeEntry) -> bool {
    match (&found.scope.rule, &parent.scope.rule) {
        (Rule::Plain(_), Rule::Plain(_)) => true,
        (Rule::Draft(own), Rule::Draft(other)) => own.top() == other.top(),
        _ => false,
    }
}

/// Whether a node is the root of a draft's hierarchy.
fn is_draft_root(found: &NodeEntry) -> bool {
    matches!(&found.scope.rule, Rule::Draft(entry) if *entry.top() == found.path)
}

/// Opens a temporary file without a name, which is removed when it is closed.
fn unnamed_file() -> std::io::Result<std::fs::File> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::open(std::env::temp_dir(), flags, Mode::RUSR | Mode::WUSR)?;
    Ok(file.into())
}
