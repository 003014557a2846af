//! The files view as a writable tree.
//!
//! `attributes.json` is edited in place, by renaming a scratch file over it, or by creating it again after an unlink
//! (`documents`, `unstored`); decoded elements are written in place (`writing`). Everything else is read-only here:
//! nodes are made, moved and removed, and other metadata edited, in the store view.

use std::sync::Arc;

use crate::view::View;
use crate::view::files::array_files::DecodedTarget;
use crate::view::files::documents::DocumentFile;
use crate::view::files::path_target::{PathTarget, ShownFile, none_of_no_file};
use crate::view::files::scratch::Scratch;
use crate::view::files::seen::SeenDocument;
use crate::view::files::shown_document::{document, length_of};
use crate::view::files::writing::{DecodedWriter, check_length};
use crate::view::files::{ATTRIBUTES, FilesView};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::document::is_in_node_folder;
use zarrfs_array::hierarchy::NodeEntry;
use zarrfs_store::backend::local::check_names;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::tree::{
    AttrChange, Credentials, FreeSpace, OpenMode, RenameMode, Stat, TreeFile,
};
use zarrfs_store::{Key, Meta, Tree, Version};

/// The files view, writable.
pub(super) struct Editing {
    files: FilesView,
}

impl Editing {
    pub(super) fn new(files: FilesView) -> Editing {
        Editing { files }
    }

    /// Returns the entry of a path; `NotFound` if the path does not exist.
    fn shown(&self, context: &RequestContext, path: &Key) -> Result<ShownFile> {
        let shown = self.files.shown(context, path)?;
        shown.ok_or_else(|| Error::not_found(path))
    }

    /// Fails unless a scratch file can be created at a path: its directory has an editable `attributes.json`, and a
    /// Zarr library would not take its name for stored metadata.
    fn check_beside(&self, context: &RequestContext, path: &Key) -> Result<()> {
        let parent = path.parent().unwrap_or_default();
        match self.shown(context, &parent)? {
            ShownFile::Target(PathTarget::Node(found)) => {
                if !found.is_described() || found.node.is_err() {
                    let why = "this directory has no attributes that can be edited";
                    Err(refused(path, why))
                } else if is_in_node_folder(path.name()) {
                    Err(refused(path, "metadata are not made here"))
                } else {
                    Ok(())
                }
            }
            ShownFile::Target(PathTarget::Chunks(_)) => {
                Err(refused(path, "this directory has no files of its own"))
            }
            _ => Err(Error::new(Kind::NotADirectory, parent, "is a file")),
        }
    }

    fn open_attributes(
        &self,
        path: &Key,
        found: &NodeEntry,
        truncate: bool,
    ) -> Result<Arc<dyn TreeFile>> {
        let text = document(found.node()?, ATTRIBUTES);
        let file = DocumentFile::document(&self.files, path, found, &text);
        let length = self.files.unstored.take_truncated(path);
        if let Some(length) = length.or(truncate.then_some(0)) {
            file.resize(length)?;
        }
        Ok(file)
    }

    /// Opens a file that is not stored. A file with the name of a document was created in its place.
    fn open_unstored(&self, path: &Key, bytes: Arc<Scratch>) -> Arc<DocumentFile> {
        if path.name() == ATTRIBUTES {
            DocumentFile::new_document(&self.files, path, bytes, false)
        } else {
            DocumentFile::scratch(&self.files, path, bytes)
        }
    }

    /// Saves the bytes of the scratch file at `from` as the document at `to`.
    fn replace_document(
        &self,
        context: &RequestContext,
        from: &Key,
        bytes: &[u8],
        to: &Key,
    ) -> Result<()> {
        let unstored = &self.files.unstored;
        // The kernel repeats a rename that fails with `Changed` (ESTALE).
        if let Some(error) = unstored.refusal(from, to) {
            return Err(error);
        }
        let seen = unstored.origin(from).or_else(|| unstored.seen(to));
        if let Err(error) = self.files.save(context, to, bytes, seen.as_ref()) {
            unstored.note_refusal(from, to, &error);
            if error.kind() == Kind::Changed {
                // Show the text that another program has saved, whether the document was taken away or not.
                unstored.show_document(to);
            }
            return Err(error);
        }
        unstored.show_document(to);
        Ok(())
    }

    /// Renames a document or a scratch file to a scratch file. Editors keep a backup of a document this way.
    fn rename_beside(
        &self,
        context: &RequestContext,
        from: &Key,
        source: &ShownFile,
        to: &Key,
        onto: RenameMode,
    ) -> Result<()> {
        self.check_beside(context, to)?;
        let _permit = context.permit_change()?;
        match source {
            ShownFile::Scratch(_) => self.files.unstored.rename_scratch(from, to, onto),
            ShownFile::Target(target) => {
                let found = target.node();
                let text = document(found.node()?, ATTRIBUTES);
                let origin = SeenDocument::shown(found, &text);
                let unstored = &self.files.unstored;
                unstored.rename_document(from, text.to_vec(), origin, to, onto)
            }
        }
    }

    fn open_decoded(
        &self,
        context: &RequestContext,
        path: &Key,
        target: DecodedTarget,
        truncate: bool,
    ) -> Result<Arc<dyn TreeFile>> {
        let export = self.files.export(context, &target)?;
        export.check_writable().map_err(|error| error.about(path))?;
        if truncate {
            check_length(path, export.len(), 0)?;
        }
        let store = self.files.hierarchy.store().clone();
        let writer = DecodedWriter::new(self.files.shown_in, path, target.found, export, store)?;
        let keys = self.files.arrays.check_keys_free(writer.export.array());
        keys.map_err(|error| error.about(path))?;
        Ok(Arc::new(writer))
    }
}

/// Returns the error of a change that is possible only in the store view.
fn refused(path: &Key, why: &str) -> Error {
    let why = format!("{why}; do it in the store view: DIR/.zarrfs/store");
    Error::new(Kind::NotPermitted, path, why)
}

/// Returns the error of replacing or removing a generated file.
fn not_edited(path: &Key) -> Error {
    refused(path, "nodes, chunks and metadata are not changed here")
}

/// Returns the error of writing a generated file that is not a decoded array.
fn read_only(path: &Key) -> Error {
    let why = "is read-only; write NAME.npy, NAME.raw or attributes.json, \
               or the keys in the store view: DIR/.zarrfs/store";
    Error::new(Kind::Denied, path, why)
}

fn exists(path: &Key) -> Error {
    Error::new(Kind::Exists, path, "is there already")
}

fn is_directory(path: &Key) -> Error {
    Error::new(Kind::IsADirectory, path, "is a directory")
}

impl Tree for Editing {
    fn identity(&self) -> usize {
        self.files.identity()
    }

    fn stat(&self, context: &RequestContext, path: &Key) -> Result<Option<Stat>> {
        let attr = none_of_no_file(self.files.lookup(context, path))?;
        Ok(attr.map(|attr| Stat {
            meta: Meta {
                kind: attr.kind,
                size: attr.size,
                stored: attr.stored,
                modified: attr.modified,
                version: Version::NONE,
            },
            posix: None,
            content: attr.content.unwrap_or(0),
        }))
    }

    fn create(
        &self,
        context: &RequestContext,
        path: &Key,
        _credentials: &Credentials,
    ) -> Result<Arc<dyn TreeFile>> {
        if self.files.shown(context, path)?.is_some() {
            return Err(exists(path));
        }
        check_names(path)?;
        let unstored = &self.files.unstored;
        if self.files.resolve(context, path)?.is_some() {
            let _permit = context.permit_change()?;
            let bytes = unstored.make_document(path)?;
            return Ok(DocumentFile::new_document(&self.files, path, bytes, true));
        }
        self.check_beside(context, path)?;
        let _permit = context.permit_change()?;
        let bytes = unstored.make_scratch(path, Vec::new(), None)?;
        Ok(DocumentFile::scratch(&self.files, path, bytes))
    }

    fn open(
        &self,
        context: &RequestContext,
        path: &Key,
        mode: OpenMode,
    ) -> Result<Arc<dyn TreeFile>> {
        let truncate = mode == OpenMode::Truncate;
        let target = match self.shown(context, path)? {
            ShownFile::Scratch(bytes) => {
                let file = self.open_unstored(path, bytes);
                if truncate {
                    file.resize(0)?;
                }
                return Ok(file);
            }
            ShownFile::Target(target) => target,
        };
        match target {
            target if target.is_directory() => Err(is_directory(path)),
            target if target.is_read_only() => Err(read_only(path)),
            PathTarget::Decoded(target) => self.open_decoded(context, path, target, truncate),
            target => self.open_attributes(path, target.node(), truncate),
        }
    }

    /// Owner, mode and times come from the mount: setting them succeeds without effect.
    fn change(&self, context: &RequestContext, path: &Key, change: &AttrChange) -> Result<()> {
        let target = match self.shown(context, path)? {
            ShownFile::Scratch(bytes) => {
                return self.open_unstored(path, bytes).change(context, change);
            }
            ShownFile::Target(target) => target,
        };
        let Some(size) = change.size else {
            return Ok(());
        };
        match target {
            target if target.is_directory() => Err(is_directory(path)),
            target if target.is_read_only() => Err(read_only(path)),
            PathTarget::Decoded(target) => {
                check_length(path, self.files.export(context, &target)?.len(), size)
            }
            target => {
                if size != length_of(context, target.node(), ATTRIBUTES)? {
                    let _permit = context.permit_change()?;
                    self.files.unstored.truncate(path, size);
                }
                Ok(())
            }
        }
    }

    fn make_folder(
        &self,
        context: &RequestContext,
        path: &Key,
        _credentials: &Credentials,
    ) -> Result<()> {
        if self.files.shown(context, path)?.is_some() {
            return Err(exists(path));
        }
        check_names(path)?;
        Err(refused(path, "nodes are not made here"))
    }

    /// An unlinked document is missing until a program creates it again, as archivers do, or until `REMOVAL_TIMEOUT`.
    fn unlink(&self, context: &RequestContext, path: &Key) -> Result<()> {
        let unstored = &self.files.unstored;
        match self.shown(context, path)? {
            ShownFile::Scratch(_) => {
                let _permit = context.permit_change()?;
                if !unstored.remove_scratch(path) {
                    unstored.remove_document(path)?;
                }
                Ok(())
            }
            ShownFile::Target(target) if target.is_directory() => Err(is_directory(path)),
            ShownFile::Target(target) if target.is_editable() => {
                let _permit = context.permit_change()?;
                unstored.remove_document(path)
            }
            ShownFile::Target(_) => Err(not_edited(path)),
        }
    }

    fn remove_folder(&self, context: &RequestContext, path: &Key) -> Result<()> {
        if !self.shown(context, path)?.is_directory() {
            return Err(Error::new(Kind::NotADirectory, path, "is a file"));
        }
        Err(not_edited(path))
    }

    fn rename(
        &self,
        context: &RequestContext,
        from: &Key,
        to: &Key,
        onto: RenameMode,
    ) -> Result<()> {
        check_names(to)?;
        let source = self.shown(context, from)?;
        if matches!(&source, ShownFile::Target(target) if !target.is_editable()) {
            return Err(not_edited(from));
        }
        match self.files.resolve(context, to)? {
            None => return self.rename_beside(context, from, &source, to, onto),
            Some(target) if target.is_directory() => return Err(is_directory(to)),
            Some(target) if !target.is_editable() => return Err(not_edited(to)),
            Some(_)
                if onto == RenameMode::NoReplace && self.files.shown(context, to)?.is_some() =>
            {
                return Err(exists(to));
            }
            Some(_) => {}
        }
        match source {
            ShownFile::Scratch(bytes) if from.name() != ATTRIBUTES => {
                self.replace_document(context, from, &bytes.bytes(), to)?;
                self.files.unstored.remove_scratch(from);
                Ok(())
            }
            _ => {
                let why = "attributes do not move from node to node: copy the file";
                Err(Error::new(Kind::NotPermitted, from, why))
            }
        }
    }

    /// Copies a file to a scratch file, or to a document that was taken away.
    fn link(&self, context: &RequestContext, from: &Key, to: &Key) -> Result<()> {
        check_names(to)?;
        let (bytes, origin) = match self.shown(context, from)? {
            ShownFile::Scratch(bytes) => (bytes.bytes(), None),
            ShownFile::Target(target) if target.is_editable() => {
                let found = target.node();
                let text = document(found.node()?, ATTRIBUTES);
                let origin = SeenDocument::shown(found, &text);
                (text.to_vec(), Some(origin))
            }
            ShownFile::Target(_) => return Err(not_edited(from)),
        };
        if self.files.shown(context, to)?.is_some() {
            return Err(exists(to));
        }
        if self.files.resolve(context, to)?.is_some() {
            return self.replace_document(context, from, &bytes, to);
        }
        self.check_beside(context, to)?;
        let _permit = context.permit_change()?;
        let unstored = &self.files.unstored;
        unstored.make_scratch(to, bytes, origin).map(drop)
    }

    fn sync_folder(&self, context: &RequestContext, _path: &Key) -> Result<()> {
        self.files.arrays.flush_below(context, &Key::root())?;
        self.files.hierarchy.store().sync(context)
    }

    /// The free space of a store is unknown; the number is large enough for programs that check it.
    fn free_space(&self) -> Result<FreeSpace> {
        const PLENTY: u64 = 1 << 38;
        Ok(FreeSpace {
            block: 4096,
            blocks: PLENTY,
            free: PLENTY,
            available: PLENTY,
            files: PLENTY,
            free_files: PLENTY,
        })
    }
}
