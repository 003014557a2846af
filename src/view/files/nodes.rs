//! Nodes removed and renamed through the files view.
//!
//! `rm -r` removes every file of a node and then its directory. So a chunk that is removed is erased, the removal of
//! any other file of a node is only noted, and the directory of an array can be removed once all files of its listing
//! were removed. Nothing is lost that the listing does not show, but what belongs to the node itself: an array in whose
//! folder another node lies cannot be removed.

use std::sync::Arc;

use crate::error::{Error, Kind, Result};
use crate::hierarchy::NodeEntry;
use crate::model::{Array, Node};
use crate::store::Key;
use crate::store::tree::RenameMode;
use crate::sync::change_permit::ChangePermit;
use crate::view::files::array_files::{ArrayPart, DecodedTarget};
use crate::view::files::broken::refused;
use crate::view::files::forms::own_format;
use crate::view::files::group_files::read_only;
use crate::view::files::path_target::PathTarget;
use crate::view::files::{ATTRIBUTES, CHUNKS, FilesView, METADATA};

/// Returns the error of a directory that is not empty.
fn not_empty(path: &Key, why: &str) -> Error {
    Error::new(Kind::NotEmpty, path, why)
}

impl FilesView {
    /// Removes one of a node's own files.
    pub(super) fn remove_file(&self, path: &Key, target: &PathTarget) -> Result<()> {
        let (found, chunk) = match target {
            PathTarget::Node(_) | PathTarget::Chunks(_) => {
                return Err(Error::new(Kind::IsADirectory, path, "is a directory"));
            }
            PathTarget::AsFound(..) | PathTarget::ErrorText(_) => return Err(refused(path)),
            PathTarget::Document(found, _) => (found, None),
            PathTarget::Decoded(DecodedTarget {
                part: ArrayPart::Selected(_),
                ..
            }) => {
                let why = "selected elements are no file of the store";
                return Err(Error::new(Kind::NotPermitted, path, why));
            }
            PathTarget::Decoded(target) => (&target.found, target.chunk_index()?),
            PathTarget::Picture(target) => return Err(target.read_only()),
            PathTarget::GroupFile(target) => return Err(read_only(&target.found)),
        };
        let Some(chunk) = chunk else {
            let _permit = ChangePermit::take()?;
            self.unstored.remove(&found.path, path.name());
            return Ok(());
        };
        // The files of a chunk in all formats are one chunk.
        self.arrays.open(found)?.erase_chunk(chunk)
    }

    /// Removes the directory of an array's chunks, once all chunks were removed.
    pub(super) fn remove_chunks(&self, path: &Key, found: &Arc<NodeEntry>) -> Result<()> {
        let mut stored = self.arrays.open(found)?.stored_chunks()?;
        if stored.next_chunk()?.is_some() {
            return Err(not_empty(path, "there are chunks in it"));
        }
        let _permit = ChangePermit::take()?;
        self.unstored.remove(&found.path, CHUNKS);
        Ok(())
    }

    /// Removes a node: a group without children, or an array all of whose files were removed.
    pub(super) fn remove_node(&self, found: &Arc<NodeEntry>) -> Result<()> {
        let path = &found.path;
        if path.is_root() {
            return Err(Error::new(Kind::NotPermitted, path, "the root stays"));
        }
        let is_removed = |name: &[u8]| self.unstored.is_removed(path, name);
        let documents = is_removed(METADATA) && is_removed(ATTRIBUTES);
        match found.node() {
            Ok(Node::Group(group)) => {
                if self.has_children(found)? {
                    return Err(not_empty(path, "there are nodes in it"));
                }
                if !group.attributes.is_empty() && !documents {
                    return Err(not_empty(path, "it has attributes; remove its files first"));
                }
                if let Some(key) = self.hierarchy.foreign(found)? {
                    let why = format!("{key} is no part of Zarr; the store view shows it");
                    return Err(not_empty(path, &why));
                }
            }
            Ok(Node::Array(array)) => {
                if !(documents && self.forms_are_removed(found, array)?) {
                    return Err(not_empty(path, "it is an array; remove its files first"));
                }
                if let Some(key) = self.hierarchy.nested_document(found)? {
                    let why = format!("{key} describes another node; the store view shows it");
                    return Err(not_empty(path, &why));
                }
            }
            Err(_) => return Err(refused(path)),
        }
        self.arrays.discard_below(path);
        self.hierarchy.erase_node(found)?;
        self.unstored.forget_below(path);
        Ok(())
    }

    /// Whether an array was removed in every form in which its directory lists it.
    fn forms_are_removed(&self, found: &Arc<NodeEntry>, array: &Array) -> Result<bool> {
        let is_removed = |name: &[u8]| self.unstored.is_removed(&found.path, name);
        let is_gone = |format| {
            let name = self.file_name(found, format);
            // A file whose name is too long is not listed.
            is_removed(&name) || found.path.child(&name).is_err()
        };
        let chunks = is_removed(CHUNKS);
        let own = chunks || is_gone(own_format(array));
        let place = self.place_of(found)?;
        let asked = self
            .whole_of(&place)
            .map(|subject| self.forms.asked(&subject));
        let mut asked = asked.into_iter().flatten();
        Ok(own && asked.all(is_gone) && (chunks || !self.forms.chunks))
    }

    /// Gives a node and all below it another path.
    pub(super) fn rename_node(
        &self,
        found: &Arc<NodeEntry>,
        to: &Key,
        onto: RenameMode,
    ) -> Result<()> {
        let from = &found.path;
        if from.is_root() || to.below(from).is_some_and(|rest| !rest.is_root()) {
            return Err(Error::invalid(to, "a node cannot be moved into itself"));
        }
        if from == to {
            return Ok(());
        }
        if matches!(onto, RenameMode::Exchange) {
            return Err(Error::invalid(to, "nodes cannot exchange their names"));
        }
        match self.resolve(to)? {
            None => {}
            Some(PathTarget::Node(_)) if matches!(onto, RenameMode::NoReplace) => {
                return Err(Error::new(Kind::Exists, to, "is there already"));
            }
            Some(PathTarget::Node(old)) => match old.node() {
                Ok(Node::Group(group)) if group.attributes.is_empty() => self.remove_node(&old)?,
                _ => return Err(not_empty(to, "there is a node that holds something")),
            },
            Some(_) => return Err(Error::new(Kind::NotADirectory, to, "is a file")),
        }
        self.arrays.flush_below(from)?;
        self.hierarchy.move_node(found, to)?;
        self.unstored.forget_below(from);
        self.unstored.forget_below(to);
        Ok(())
    }
}
