//! Resolves the paths of the files view.

use std::sync::Arc;

use crate::view::files::array_files::{ArrayPlace, DecodedTarget};
use crate::view::files::broken::{self, ERROR_TEXT, not_readable};
use crate::view::files::group_files::GroupTarget;
use crate::view::files::scratch::Scratch;
use crate::view::files::unstored::Instead;
use crate::view::files::{ATTRIBUTES, CHUNKS, FilesView, METADATA};
use crate::view::{ChildName, ViewDir};
use zarr_format::error::{Kind, Result};
use zarr_format::grid::NumberedName;
use zarr_format::model::document::is_in_node_folder;
use zarrfs_array::hierarchy::{BrokenDocument, NodeEntry};
use zarrfs_export::formats::Format;
use zarrfs_export::inspect::file_ending::{FileEnding, GroupChoice, removed_format};
use zarrfs_export::inspect::surrounding_nodes::SurroundingNodes;
use zarrfs_store::Key;
use zarrfs_store::request_context::RequestContext;

/// The target of a path.
pub(super) enum PathTarget {
    /// A node's directory.
    Node(Arc<NodeEntry>),
    /// A document generated from a node's metadata.
    Document(Arc<NodeEntry>, Vec<u8>),
    /// A document of a broken node, as stored.
    AsFound(Arc<NodeEntry>, BrokenDocument),
    /// The error of a broken node.
    ErrorText(Arc<NodeEntry>),
    /// The directory of an array's chunks.
    Chunks(Arc<NodeEntry>),
    /// A decoded file.
    Decoded(DecodedTarget),
    /// A file of several arrays.
    GroupFile(Box<GroupTarget>),
}

impl PathTarget {
    /// Whether it is a directory.
    pub(super) fn is_directory(&self) -> bool {
        matches!(self, PathTarget::Node(_) | PathTarget::Chunks(_))
    }

    /// Whether it is `attributes.json` of a node that has a stored document.
    pub(super) fn is_editable(&self) -> bool {
        match self {
            PathTarget::Document(found, name) => name == ATTRIBUTES && found.is_described(),
            _ => false,
        }
    }

    /// Whether it is read-only even if the mount is writable.
    pub(super) fn is_read_only(&self) -> bool {
        match self {
            PathTarget::Node(_) => false,
            PathTarget::Decoded(target) => !target.is_writable(),
            target => !target.is_editable(),
        }
    }

    /// Returns the node that it belongs to.
    pub(super) fn node(&self) -> &Arc<NodeEntry> {
        match self {
            PathTarget::Decoded(target) => &target.found,
            PathTarget::GroupFile(target) => &target.found,
            PathTarget::Node(found)
            | PathTarget::Chunks(found)
            | PathTarget::Document(found, _)
            | PathTarget::AsFound(found, _)
            | PathTarget::ErrorText(found) => found,
        }
    }
}

/// The entry of a path: its target, or a file in memory.
pub(super) enum ShownFile {
    /// A directory or file generated from the store.
    Target(PathTarget),
    /// A scratch file, or a new file in place of a document.
    Scratch(Arc<Scratch>),
}

impl ShownFile {
    /// Whether it is a directory.
    pub(super) fn is_directory(&self) -> bool {
        matches!(self, ShownFile::Target(target) if target.is_directory())
    }
}

/// Maps `NoFile`, a decoded file that cannot be made, to `None`.
pub(super) fn none_of_no_file<T>(found: Result<Option<T>>) -> Result<Option<T>> {
    match found {
        Err(error) if error.kind() == Kind::NoFile => Ok(None),
        found => found,
    }
}

impl FilesView {
    /// Returns the entry of a path, or `None` if the path does not exist.
    pub(super) fn shown(&self, context: &RequestContext, path: &Key) -> Result<Option<ShownFile>> {
        none_of_no_file(self.shown_or_why(context, path))
    }

    /// Like `shown`; `NoFile` with the reason if the path names a decoded file that cannot be made.
    pub(super) fn shown_or_why(
        &self,
        context: &RequestContext,
        path: &Key,
    ) -> Result<Option<ShownFile>> {
        self.shown_instead(path, || self.resolve_or_why(context, path))
    }

    /// Returns the entry of a path whose target `resolve` finds: a target takes precedence over a scratch file, except
    /// for a document that a program has taken away.
    pub(super) fn shown_instead(
        &self,
        path: &Key,
        resolve: impl FnOnce() -> Result<Option<PathTarget>>,
    ) -> Result<Option<ShownFile>> {
        match self.instead(path) {
            Some(Instead::Nothing) => return Ok(None),
            Some(Instead::File(scratch)) => return Ok(Some(ShownFile::Scratch(scratch))),
            None => {}
        }
        let scratch = || self.unstored.scratch(path).map(ShownFile::Scratch);
        match resolve() {
            Ok(Some(target)) => Ok(Some(ShownFile::Target(target))),
            Ok(None) => Ok(scratch()),
            Err(error) if error.kind() == Kind::NoFile => scratch().map(Some).ok_or(error),
            Err(error) => Err(error),
        }
    }

    /// Returns the replacement of a document that was taken away, or `None` if it was not.
    fn instead(&self, path: &Key) -> Option<Instead> {
        let is_document = path.name() == ATTRIBUTES;
        is_document.then(|| self.unstored.instead(path)).flatten()
    }

    /// Returns the names of the documents in the directory of a node.
    pub(super) fn documents_shown(&self, node: &Key) -> Vec<Vec<u8>> {
        let attributes = node.child(ATTRIBUTES).ok();
        let instead = attributes.and_then(|path| self.unstored.instead(&path));
        let mut names = vec![METADATA.to_vec()];
        if !matches!(instead, Some(Instead::Nothing)) {
            names.push(ATTRIBUTES.to_vec());
        }
        names
    }

    /// Resolves a path from the root down; `None` if the path does not exist.
    pub(super) fn resolve(
        &self,
        context: &RequestContext,
        path: &Key,
    ) -> Result<Option<PathTarget>> {
        none_of_no_file(self.resolve_or_why(context, path))
    }

    /// Like `resolve`; `NoFile` with the reason if the path names a decoded file that cannot be made.
    fn resolve_or_why(&self, context: &RequestContext, path: &Key) -> Result<Option<PathTarget>> {
        let Some(root) = self.hierarchy.root(context)? else {
            return Ok(None);
        };
        let names: Vec<&[u8]> = path.names().collect();
        self.resolve_below(context, root, None, &names)
    }

    /// Like `resolve_or_why`, for a name in a directory. If the directory has changed since it was resolved, the whole
    /// path is resolved again.
    pub(super) fn resolve_child(
        &self,
        context: &RequestContext,
        dir: &ViewDir,
        name: &ChildName<'_>,
    ) -> Result<Option<PathTarget>> {
        match (dir, &name.numbered, dir.path().parent()) {
            (ViewDir::Node(path), _, parent) => {
                if let Some(node) = self.hierarchy.node(context, path)? {
                    let group = match parent {
                        Some(parent) if node.is_array() => self.hierarchy.node(context, &parent)?,
                        _ => None,
                    };
                    return self.resolve_below(context, node, group, &[name.bytes]);
                }
            }
            (ViewDir::Chunks(_), Some(numbered), Some(array)) => {
                let found = self.hierarchy.node(context, &array)?;
                if let Some(found) = found.filter(|found| found.array().is_some()) {
                    let around = SurroundingNodes::default();
                    let file = self.chunk_file(ArrayPlace { found, around }, numbered)?;
                    return Ok(file.map(PathTarget::Decoded));
                }
            }
            _ => {}
        }
        self.resolve_or_why(context, &dir.path().child(name.bytes)?)
    }

    /// Resolves names below a node whose parent is `group`.
    fn resolve_below(
        &self,
        context: &RequestContext,
        mut node: Arc<NodeEntry>,
        mut group: Option<Arc<NodeEntry>>,
        names: &[&[u8]],
    ) -> Result<Option<PathTarget>> {
        let mut rest = names;
        while let Some((name, after)) = rest.split_first() {
            if node.array().is_some() {
                let around = SurroundingNodes::of_group(group);
                let place = ArrayPlace {
                    found: node,
                    around,
                };
                return self.within_array(context, place, rest);
            }
            match self.hierarchy.child(context, &node, name)? {
                Some(child) => group = Some(std::mem::replace(&mut node, child)),
                None if node.broken.is_some() => return self.within_broken(node, rest),
                None => return self.group_file(context, node, rest),
            }
            rest = after;
        }
        Ok(Some(PathTarget::Node(node)))
    }

    /// Resolves `rest` in the directory of a broken node. Fails with `Unsupported` for the files that it would have if
    /// it could be read, and for all paths below a broken entry point, which must not look missing.
    fn within_broken(&self, found: Arc<NodeEntry>, rest: &[&[u8]]) -> Result<Option<PathTarget>> {
        let [name, ref below @ ..] = *rest else {
            return Ok(None);
        };
        let mut documents = found.broken.iter().flat_map(|broken| &broken.documents);
        let document = documents
            .find(|document| broken::name_of(document) == name)
            .cloned();
        let ending = name.strip_prefix(self.name_of(&found));
        let broken = found.broken.as_ref();
        let is_entry_point = broken.is_some_and(|broken| broken.is_entry_point);
        // A Zarr library that looks for a document accepts a missing file, but no other error.
        let is_hidden = is_entry_point && !is_in_node_folder(name);
        let is_own = [METADATA, ATTRIBUTES, CHUNKS].contains(&name)
            || ending.is_some_and(|ending| {
                FileEnding::parse(ending).is_some() || GroupChoice::of_variable(ending).is_some()
            });
        Ok(match document {
            Some(document) if below.is_empty() => Some(PathTarget::AsFound(found, document)),
            None if below.is_empty() && name == ERROR_TEXT => Some(PathTarget::ErrorText(found)),
            None if is_own || is_hidden => return Err(not_readable(&found)),
            _ => None,
        })
    }

    /// Resolves `rest` in an array's directory.
    fn within_array(
        &self,
        context: &RequestContext,
        place: ArrayPlace,
        rest: &[&[u8]],
    ) -> Result<Option<PathTarget>> {
        let found = &place.found;
        Ok(match *rest {
            [name @ (METADATA | ATTRIBUTES)] => {
                Some(PathTarget::Document(found.clone(), name.to_vec()))
            }
            [CHUNKS] => Some(PathTarget::Chunks(found.clone())),
            [name] => {
                let ending = name.strip_prefix(self.name_of(found));
                self.array_file(context, place, ending.unwrap_or_default())?
            }
            [CHUNKS, name] => {
                let file = match NumberedName::parse(name) {
                    Some(name) => self.chunk_file(place, &name)?,
                    None => None,
                };
                file.map(PathTarget::Decoded)
            }
            _ => None,
        })
    }

    /// Resolves the file of an array by its ending after the array's name.
    fn array_file(
        &self,
        context: &RequestContext,
        place: ArrayPlace,
        ending: &[u8],
    ) -> Result<Option<PathTarget>> {
        if let Some(removed) = removed_format(ending) {
            return Err(removed.error(&place.found.path));
        }
        if let Some(ending) = FileEnding::parse(ending) {
            let file = self.named_file(context, place, ending)?;
            if let Some(file) = &file {
                self.pairs.note(&file.found.path, &ending);
            }
            return Ok(file.map(PathTarget::Decoded));
        }
        let Some(choice) = GroupChoice::of_variable(ending) else {
            return Ok(None);
        };
        // The file also depends on the array's coordinates.
        context.check_may_wait()?;
        let target = self.variable_target(context, place.found, &choice)?;
        Ok(Some(PathTarget::GroupFile(Box::new(target))))
    }

    /// Resolves a group's own file.
    fn group_file(
        &self,
        context: &RequestContext,
        found: Arc<NodeEntry>,
        rest: &[&[u8]],
    ) -> Result<Option<PathTarget>> {
        let [name] = *rest else {
            return Ok(None);
        };
        if [METADATA, ATTRIBUTES].contains(&name) {
            return Ok(Some(PathTarget::Document(found, name.to_vec())));
        }
        let Some(ending) = name.strip_prefix(self.name_of(&found)) else {
            return Ok(None);
        };
        if let Some(removed) = removed_format(ending) {
            return Err(removed.error(&found.path));
        }
        let Some(choice) = GroupChoice::of_group(ending) else {
            return Ok(None);
        };
        // The file depends on all nodes of the group.
        context.check_may_wait()?;
        let target = self.group_target(context, found, &choice)?;
        Ok(Some(PathTarget::GroupFile(Box::new(target))))
    }

    /// Returns the name of an array's file in a format.
    pub(super) fn file_name(&self, found: &NodeEntry, format: &Format) -> Vec<u8> {
        [self.name_of(found), b".", format.extension.as_bytes()].concat()
    }

    /// Returns the base name of a node's own files.
    pub(super) fn name_of<'a>(&'a self, found: &'a NodeEntry) -> &'a [u8] {
        if found.path.is_root() {
            &self.root_name
        } else {
            found.path.name()
        }
    }
}
