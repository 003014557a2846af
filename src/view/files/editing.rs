//! The files view as a tree that can be changed.
//!
//! `attributes.json` is edited in place or by a temporary file renamed over it (`documents`), and decoded elements are
//! written in place (`writing`). Nothing else changes here: nodes are made, moved and removed, and other metadata edited,
//! in the store view.

use std::sync::Arc;

use crate::error::{Error, Kind, Result};
use crate::hierarchy::NodeEntry;
use crate::store::backend::local::check_names;
use crate::store::tree::{
    AttrChange, Credentials, FreeSpace, OpenMode, RenameMode, Stat, TreeFile,
};
use crate::store::{Key, Meta, Tree, Version};
use crate::sync::change_permit::ChangePermit;
use crate::view::View;
use crate::view::files::array_files::DecodedTarget;
use crate::view::files::documents::DocumentFile;
use crate::view::files::path_target::PathTarget;
use crate::view::files::shown_document::{document, length_of};
use crate::view::files::unstored::is_temporary;
use crate::view::files::writing::{DecodedWriter, check_length};
use crate::view::files::{ATTRIBUTES, FilesView};

/// The files view, to be changed.
pub(super) struct Editing {
    files: FilesView,
}

impl Editing {
    pub(super) fn new(files: FilesView) -> Editing {
        Editing { files }
    }

    fn target(&self, path: &Key) -> Result<PathTarget> {
        let target = self.files.resolve(path)?;
        target.ok_or_else(|| Error::not_found(path))
    }

    /// Fails if no file can be made at a path; one that programs rename onto `attributes.json` can.
    fn check_temporary(&self, path: &Key) -> Result<()> {
        let parent = path.parent().unwrap_or_default();
        match self.target(&parent)? {
            PathTarget::Node(_) if is_temporary(path.name()) => Ok(()),
            PathTarget::Node(_) | PathTarget::Chunks(_) => {
                Err(refused(path, "this view has no files of its own"))
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

    /// Gives a file beside a document another name, or makes it the document if that is the new name.
    fn rename_scratch(&self, from: &Key, bytes: &[u8], to: &Key, onto: RenameMode) -> Result<()> {
        match self.files.resolve(to)? {
            None => {
                self.check_temporary(to)?;
                let _permit = ChangePermit::take()?;
                self.files.unstored.rename_scratch(from, to);
                return Ok(());
            }
            Some(target) if target.is_directory() => return Err(is_directory(to)),
            Some(target) if !target.is_editable() => return Err(not_edited(to)),
            Some(_) if !matches!(onto, RenameMode::Replace) => {
                return Err(Error::new(Kind::Exists, to, "is there already"));
            }
            Some(_) => {}
        }
        // The kernel repeats a rename that is `Changed`.
        if let Some(error) = self.files.unstored.refusal(from, to) {
            return Err(error);
        }
        let seen = self.files.unstored.seen(to);
        if let Err(error) = self.files.save(to, bytes, seen.as_ref()) {
            self.files.unstored.note_refusal(from, to, &error);
            return Err(error);
        }
        self.files.unstored.remove_scratch(from);
        Ok(())
    }

    fn open_decoded(
        &self,
        path: &Key,
        target: DecodedTarget,
        truncate: bool,
    ) -> Result<Arc<dyn TreeFile>> {
        let export = self.files.export(&target)?;
        export.check_writable().map_err(|error| error.about(path))?;
        if truncate {
            check_length(path, export.len(), 0)?;
        }
        let store = self.files.hierarchy.store().clone();
        let writer = DecodedWriter::new(self.files.shown_in, path, (target.found, export), store)?;
        let keys = self.files.arrays.check_keys_free(writer.export.array());
        keys.map_err(|error| error.about(path))?;
        Ok(Arc::new(writer))
    }
}

/// Returns the error of a change that is made in the store view alone.
fn refused(path: &Key, why: &str) -> Error {
    let why = format!("{why}; do it in the store view: DIR/.zarrfs/store");
    Error::new(Kind::NotPermitted, path, why)
}

/// Returns the error of replacing or removing a file that is made of the store.
fn not_edited(path: &Key) -> Error {
    refused(path, "nodes, chunks and metadata are not changed here")
}

/// Returns the error of writing a file that is made of the store and is no decoded array.
fn read_only(path: &Key) -> Error {
    let why = "is read-only; write NAME.npy, NAME.raw or attributes.json, \
               or the keys in the store view: DIR/.zarrfs/store";
    Error::new(Kind::Denied, path, why)
}

fn is_directory(path: &Key) -> Error {
    Error::new(Kind::IsADirectory, path, "is a directory")
}

impl Tree for Editing {
    fn identity(&self) -> usize {
        self.files.identity()
    }

    fn stat(&self, path: &Key) -> Result<Option<Stat>> {
        let attr = self.files.lookup(path)?;
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

    fn create(&self, path: &Key, _credentials: &Credentials) -> Result<Arc<dyn TreeFile>> {
        if self.files.lookup(path)?.is_some() {
            return Err(Error::new(Kind::Exists, path, "is there already"));
        }
        check_names(path)?;
        self.check_temporary(path)?;
        let _permit = ChangePermit::take()?;
        let bytes = self.files.unstored.make_scratch(path, Vec::new())?;
        Ok(DocumentFile::scratch(&self.files, path, bytes))
    }

    fn open(&self, path: &Key, mode: OpenMode) -> Result<Arc<dyn TreeFile>> {
        let truncate = mode == OpenMode::Truncate;
        if let Some(bytes) = self.files.unstored.scratch(path) {
            let file = DocumentFile::scratch(&self.files, path, bytes);
            if truncate {
                file.resize(0)?;
            }
            return Ok(file);
        }
        match self.target(path)? {
            target if target.is_directory() => Err(is_directory(path)),
            target if target.is_read_only() => Err(read_only(path)),
            PathTarget::Decoded(target) => self.open_decoded(path, target, truncate),
            target => self.open_attributes(path, target.node(), truncate),
        }
    }

    /// Owner, mode and times are those of the mount: setting them is allowed and changes nothing.
    fn change(&self, path: &Key, change: &AttrChange) -> Result<()> {
        if self.files.unstored.scratch(path).is_some() {
            return self.open(path, OpenMode::Write)?.change(change);
        }
        let target = self.target(path)?;
        let Some(size) = change.size else {
            return Ok(());
        };
        match target {
            target if target.is_directory() => Err(is_directory(path)),
            target if target.is_read_only() => Err(read_only(path)),
            PathTarget::Decoded(target) => {
                check_length(path, self.files.export(&target)?.len(), size)
            }
            target => {
                if size != length_of(target.node(), ATTRIBUTES)? {
                    let _permit = ChangePermit::take()?;
                    self.files.unstored.truncate(path, size);
                }
                Ok(())
            }
        }
    }

    fn make_folder(&self, path: &Key, _credentials: &Credentials) -> Result<()> {
        if self.files.lookup(path)?.is_some() {
            return Err(Error::new(Kind::Exists, path, "is there already"));
        }
        check_names(path)?;
        Err(refused(path, "nodes are not made here"))
    }

    fn unlink(&self, path: &Key) -> Result<()> {
        if self.files.unstored.remove_scratch(path) {
            return Ok(());
        }
        if self.target(path)?.is_directory() {
            return Err(is_directory(path));
        }
        Err(not_edited(path))
    }

    fn remove_folder(&self, path: &Key) -> Result<()> {
        if !self.target(path)?.is_directory() {
            return Err(Error::new(Kind::NotADirectory, path, "is a file"));
        }
        Err(not_edited(path))
    }

    fn rename(&self, from: &Key, to: &Key, onto: RenameMode) -> Result<()> {
        check_names(to)?;
        if let Some(bytes) = self.files.unstored.scratch(from) {
            let bytes = bytes.lock().clone();
            return self.rename_scratch(from, &bytes, to, onto);
        }
        let target = self.target(from)?;
        if !target.is_editable() || !is_temporary(to.name()) {
            return Err(not_edited(from));
        }
        // Editors keep the old content under another name.
        self.check_temporary(to)?;
        let bytes = document(target.node().node()?, ATTRIBUTES).to_vec();
        let _permit = ChangePermit::take()?;
        self.files.unstored.make_scratch(to, bytes).map(drop)
    }

    fn sync_folder(&self, _path: &Key) -> Result<()> {
        self.files.arrays.flush_below(&Key::root())?;
        self.files.hierarchy.store().sync()
    }

    /// How much room a store has is unknown; the number is large enough for every program that checks it.
    fn room(&self) -> Result<FreeSpace> {
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
