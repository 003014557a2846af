//! The files view as a writable tree.
//!
//! `attributes.json` can be edited in place, by renaming a scratch file over it, or by creating it again after an
//! unlink (`document_file`, `scratch_files`). Decoded arrays are written in place (`decoded_writer`). Everything else
//! is read-only: to create, move and remove nodes, or to edit other metadata, programs use the store view.

use std::sync::Arc;

use crate::view::View;
use crate::view::files::decoded_writer::{DecodedWriter, check_length};
use crate::view::files::document_file::{DocumentFile, save};
use crate::view::files::node_documents::{DocumentVersion, document, length_of};
use crate::view::files::path_target::{DecodedTarget, PathEntry, PathTarget};
use crate::view::files::resolver::no_file_is_none;
use crate::view::files::scratch_files::{ScratchFile, exists};
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

/// The files view of a writable mount.
pub(super) struct EditableTree {
    files: FilesView,
}

impl EditableTree {
    pub(super) fn new(files: FilesView) -> EditableTree {
        EditableTree { files }
    }

    fn entry(&self, context: &RequestContext, path: &Key) -> Result<PathEntry> {
        let entry = self.files.resolver.lookup(context, path)?;
        entry.ok_or_else(|| Error::not_found(path))
    }

    /// Fails unless a scratch file can be created at a path: its directory has an editable `attributes.json`, and Zarr
    /// libraries do not regard its name as metadata of a node.
    fn check_beside(&self, context: &RequestContext, path: &Key) -> Result<()> {
        let parent = path.parent().unwrap_or_default();
        match self.entry(context, &parent)? {
            PathEntry::Target(PathTarget::Node(entry)) => {
                if !entry.is_described() || entry.node.is_err() {
                    let why = "the attributes of this directory cannot be edited here";
                    Err(store_view_only(path, why))
                } else if is_in_node_folder(path.name()) {
                    Err(store_view_only(
                        path,
                        "metadata files cannot be created here",
                    ))
                } else {
                    Ok(())
                }
            }
            PathEntry::Target(PathTarget::Chunks(_)) => {
                Err(store_view_only(path, "no files can be created here"))
            }
            _ => Err(Error::new(Kind::NotADirectory, parent, "is a file")),
        }
    }

    fn open_attributes(
        &self,
        path: &Key,
        entry: &NodeEntry,
        truncate: bool,
    ) -> Result<Arc<dyn TreeFile>> {
        let text = document(entry.node()?, ATTRIBUTES);
        let file = DocumentFile::document(&self.files.resolver, path, entry, &text);
        let length = self.files.resolver.scratch_files.take_truncated(path);
        if let Some(length) = length.or(truncate.then_some(0)) {
            file.resize(length)?;
        }
        Ok(file)
    }

    /// Opens a file whose bytes are only in memory: an `attributes.json` that was created after an unlink, or a scratch
    /// file.
    fn open_scratch(&self, path: &Key, bytes: Arc<ScratchFile>) -> Arc<DocumentFile> {
        if path.name() == ATTRIBUTES {
            DocumentFile::new_document(&self.files.resolver, path, bytes, false)
        } else {
            DocumentFile::scratch(&self.files.resolver, path, bytes)
        }
    }

    /// Stores the bytes of the scratch file at `from` as the `attributes.json` at `to`, onto which it is renamed.
    fn replace_document(
        &self,
        context: &RequestContext,
        from: &Key,
        bytes: &[u8],
        to: &Key,
    ) -> Result<()> {
        let scratch_files = &self.files.resolver.scratch_files;
        // The kernel repeats a rename that failed with `Changed` (ESTALE), so the repeated rename gets the same error.
        if let Some(error) = scratch_files.refusal(from, to) {
            return Err(error);
        }
        let read = scratch_files
            .origin(from)
            .or_else(|| scratch_files.last_read(to));
        if let Err(error) = save(&self.files.resolver, context, to, bytes, read.as_ref()) {
            scratch_files.record_refusal(from, to, &error);
            if error.kind() == Kind::Changed {
                // Another program has saved `attributes.json`, so it is visible again, even if it was unlinked before.
                scratch_files.show_document(to);
            }
            return Err(error);
        }
        scratch_files.show_document(to);
        Ok(())
    }

    /// Renames `attributes.json` or a scratch file to a scratch file, as editors do to make a backup.
    fn rename_beside(
        &self,
        context: &RequestContext,
        from: &Key,
        source: &PathEntry,
        to: &Key,
        onto: RenameMode,
    ) -> Result<()> {
        self.check_beside(context, to)?;
        let _permit = context.permit_change()?;
        match source {
            PathEntry::Scratch(_) => self
                .files
                .resolver
                .scratch_files
                .rename_scratch(from, to, onto),
            PathEntry::Target(target) => {
                let entry = target.node();
                let text = document(entry.node()?, ATTRIBUTES);
                let origin = DocumentVersion::of_node(entry, &text);
                let scratch_files = &self.files.resolver.scratch_files;
                scratch_files.rename_document(from, text.to_vec(), origin, to, onto)
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
        let store = self.files.resolver.hierarchy.store().clone();
        let writer = DecodedWriter::new(self.files.mount_dir, path, target.entry, export, store)?;
        let keys = self
            .files
            .resolver
            .arrays
            .check_no_open_key(writer.export.array());
        keys.map_err(|error| error.about(path))?;
        Ok(Arc::new(writer))
    }
}

/// Returns the error for a change that is only possible in the store view.
fn store_view_only(path: &Key, why: &str) -> Error {
    let why = format!("{why}; use the store view, DIR/.zarrfs/store");
    Error::new(Kind::NotPermitted, path, why)
}

/// Returns the error for replacing or removing a generated file.
fn not_editable(path: &Key) -> Error {
    store_view_only(
        path,
        "groups, arrays, chunks and metadata cannot be changed here",
    )
}

/// Returns the error for writing a generated file that is not a decoded array.
fn read_only(path: &Key) -> Error {
    let why = "read-only; write NAME.npy, NAME.raw or attributes.json, \
               or the keys in the store view, DIR/.zarrfs/store";
    Error::new(Kind::Denied, path, why)
}

fn is_directory(path: &Key) -> Error {
    Error::new(Kind::IsADirectory, path, "is a directory")
}

impl Tree for EditableTree {
    fn identity(&self) -> usize {
        self.files.identity()
    }

    fn stat(&self, context: &RequestContext, path: &Key) -> Result<Option<Stat>> {
        let attr = no_file_is_none(self.files.lookup(context, path))?;
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
        if self.files.resolver.lookup(context, path)?.is_some() {
            return Err(exists(path));
        }
        check_names(path)?;
        let scratch_files = &self.files.resolver.scratch_files;
        if self.files.resolver.resolve(context, path)?.is_some() {
            let _permit = context.permit_change()?;
            let bytes = scratch_files.recreate_document(path)?;
            return Ok(DocumentFile::new_document(
                &self.files.resolver,
                path,
                bytes,
                true,
            ));
        }
        self.check_beside(context, path)?;
        let _permit = context.permit_change()?;
        let bytes = scratch_files.make_scratch(path, Vec::new(), None)?;
        Ok(DocumentFile::scratch(&self.files.resolver, path, bytes))
    }

    fn open(
        &self,
        context: &RequestContext,
        path: &Key,
        mode: OpenMode,
    ) -> Result<Arc<dyn TreeFile>> {
        let truncate = mode == OpenMode::Truncate;
        let target = match self.entry(context, path)? {
            PathEntry::Scratch(bytes) => {
                let file = self.open_scratch(path, bytes);
                if truncate {
                    file.resize(0)?;
                }
                return Ok(file);
            }
            PathEntry::Target(target) => target,
        };
        match target {
            target if target.is_directory() => Err(is_directory(path)),
            target if target.is_read_only() => Err(read_only(path)),
            PathTarget::Decoded(target) => self.open_decoded(context, path, *target, truncate),
            target => self.open_attributes(path, target.node(), truncate),
        }
    }

    /// Owner, mode and times come from the mount, so a change of them succeeds without effect.
    fn change(&self, context: &RequestContext, path: &Key, change: &AttrChange) -> Result<()> {
        let target = match self.entry(context, path)? {
            PathEntry::Scratch(bytes) => {
                return self.open_scratch(path, bytes).change(context, change);
            }
            PathEntry::Target(target) => target,
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
                    self.files.resolver.scratch_files.truncate(path, size);
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
        if self.files.resolver.lookup(context, path)?.is_some() {
            return Err(exists(path));
        }
        check_names(path)?;
        Err(store_view_only(
            path,
            "groups and arrays cannot be created here",
        ))
    }

    /// Hides `attributes.json` until a program creates it again, as archivers do, or for five seconds.
    fn unlink(&self, context: &RequestContext, path: &Key) -> Result<()> {
        let scratch_files = &self.files.resolver.scratch_files;
        match self.entry(context, path)? {
            PathEntry::Scratch(_) => {
                let _permit = context.permit_change()?;
                if !scratch_files.remove_scratch(path) {
                    scratch_files.remove_document(path)?;
                }
                Ok(())
            }
            PathEntry::Target(target) if target.is_directory() => Err(is_directory(path)),
            PathEntry::Target(target) if target.is_editable() => {
                let _permit = context.permit_change()?;
                scratch_files.remove_document(path)
            }
            PathEntry::Target(_) => Err(not_editable(path)),
        }
    }

    fn remove_folder(&self, context: &RequestContext, path: &Key) -> Result<()> {
        if !self.entry(context, path)?.is_directory() {
            return Err(Error::new(Kind::NotADirectory, path, "is not a directory"));
        }
        Err(not_editable(path))
    }

    fn rename(
        &self,
        context: &RequestContext,
        from: &Key,
        to: &Key,
        onto: RenameMode,
    ) -> Result<()> {
        check_names(to)?;
        let source = self.entry(context, from)?;
        if matches!(&source, PathEntry::Target(target) if !target.is_editable()) {
            return Err(not_editable(from));
        }
        match self.files.resolver.resolve(context, to)? {
            None => return self.rename_beside(context, from, &source, to, onto),
            Some(target) if target.is_directory() => return Err(is_directory(to)),
            Some(target) if !target.is_editable() => return Err(not_editable(to)),
            Some(_)
                if onto == RenameMode::NoReplace
                    && self.files.resolver.lookup(context, to)?.is_some() =>
            {
                return Err(exists(to));
            }
            Some(_) => {}
        }
        match source {
            PathEntry::Scratch(bytes) if from.name() != ATTRIBUTES => {
                self.replace_document(context, from, &bytes.bytes(), to)?;
                self.files.resolver.scratch_files.remove_scratch(from);
                Ok(())
            }
            _ => {
                let why = "attributes cannot be moved to another group or array; copy the file";
                Err(Error::new(Kind::NotPermitted, from, why))
            }
        }
    }

    /// Copies a file to a new scratch file, or to an `attributes.json` that was unlinked.
    fn link(&self, context: &RequestContext, from: &Key, to: &Key) -> Result<()> {
        check_names(to)?;
        let (bytes, origin) = match self.entry(context, from)? {
            PathEntry::Scratch(bytes) => (bytes.bytes(), None),
            PathEntry::Target(target) if target.is_editable() => {
                let entry = target.node();
                let text = document(entry.node()?, ATTRIBUTES);
                let origin = DocumentVersion::of_node(entry, &text);
                (text.to_vec(), Some(origin))
            }
            PathEntry::Target(_) => return Err(not_editable(from)),
        };
        if self.files.resolver.lookup(context, to)?.is_some() {
            return Err(exists(to));
        }
        if self.files.resolver.resolve(context, to)?.is_some() {
            return self.replace_document(context, from, &bytes, to);
        }
        self.check_beside(context, to)?;
        let _permit = context.permit_change()?;
        let scratch_files = &self.files.resolver.scratch_files;
        scratch_files.make_scratch(to, bytes, origin).map(drop)
    }

    fn sync_folder(&self, context: &RequestContext, _path: &Key) -> Result<()> {
        self.files
            .resolver
            .arrays
            .flush_below(context, &Key::root())?;
        self.files.resolver.hierarchy.store().sync(context)
    }

    /// The free space of a store is unknown, so a number is returned that is large enough for programs that check it.
    fn free_space(&self) -> Result<FreeSpace> {
        let plenty = 1 << 38;
        Ok(FreeSpace {
            block: 4096,
            blocks: plenty,
            free: plenty,
            available: plenty,
            files: plenty,
            free_files: plenty,
        })
    }
}
