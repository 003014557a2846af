//! The files view as a tree that can be changed.
//!
//! Decides what each operation means for what its path stands for; `writing` has decoded files, `documents` documents,
//! `nodes` directories.

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
use crate::view::files::group_files::read_only;
use crate::view::files::path_target::PathTarget;
use crate::view::files::shown_document::{laid_out, length_of};
use crate::view::files::unstored::is_temporary;
use crate::view::files::writing::{DecodedWriter, check_length};
use crate::view::files::{FilesView, broken};

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

    /// Fails if no file can be made at a path; one that programs rename onto a document can.
    fn check_temporary(&self, path: &Key) -> Result<()> {
        let parent = path.parent().unwrap_or_default();
        match self.target(&parent)? {
            PathTarget::Node(_) if is_temporary(path.name()) => Ok(()),
            PathTarget::Node(_) | PathTarget::Chunks(_) => Err(refused(
                path,
                "this view has the files of groups and arrays and no others; the store view takes any file",
            )),
            _ => Err(Error::new(Kind::NotADirectory, parent, "is a file")),
        }
    }

    fn open_document(
        &self,
        path: &Key,
        (found, name): (&NodeEntry, &[u8]),
        truncate: bool,
    ) -> Result<Arc<dyn TreeFile>> {
        let text = laid_out(found.node()?, name);
        let file = DocumentFile::document(&self.files, path, found, &text);
        let length = self.files.unstored.take_truncated(path);
        if let Some(length) = length.or(truncate.then_some(0)) {
            file.resize(length)?;
        }
        Ok(file)
    }

    /// Gives a file beside a document another name, or makes it the document if that is the new name.
    fn rename_scratch(
        &self,
        (from, bytes): (&Key, &[u8]),
        to: &Key,
        onto: RenameMode,
    ) -> Result<()> {
        match self.files.resolve(to)? {
            None => {
                self.check_temporary(to)?;
                let _permit = ChangePermit::take()?;
                self.files.unstored.rename_scratch(from, to);
                return Ok(());
            }
            Some(PathTarget::Document(..)) if matches!(onto, RenameMode::Replace) => {}
            Some(PathTarget::Document(..)) => {
                return Err(Error::new(Kind::Exists, to, "is there already"));
            }
            Some(PathTarget::Node(_) | PathTarget::Chunks(_)) => return Err(is_directory(to)),
            Some(PathTarget::AsFound(..) | PathTarget::ErrorText(_)) => {
                return Err(broken::refused(to));
            }
            Some(PathTarget::Decoded(_) | PathTarget::Picture(_) | PathTarget::GroupFile(_)) => {
                return Err(refused(to, "an array is written in place"));
            }
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
        let writer = DecodedWriter::new(path, target.found, export);
        Ok(Arc::new(writer))
    }
}

fn refused(path: &Key, why: &str) -> Error {
    Error::new(Kind::NotPermitted, path, why)
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
                version: Version(0),
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
            PathTarget::Node(_) | PathTarget::Chunks(_) => Err(is_directory(path)),
            PathTarget::Document(found, name) => {
                self.open_document(path, (&found, &name), truncate)
            }
            PathTarget::AsFound(..) | PathTarget::ErrorText(_) => Err(broken::refused(path)),
            PathTarget::Decoded(target) => {
                self.files.unstored.keep(&target.found.path);
                self.open_decoded(path, target, truncate)
            }
            PathTarget::Picture(target) => Err(target.read_only()),
            PathTarget::GroupFile(target) => Err(read_only(&target.found)),
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
            PathTarget::Node(_) | PathTarget::Chunks(_) => Err(is_directory(path)),
            PathTarget::Document(found, name) => {
                if size != length_of(&found, &name)? {
                    let _permit = ChangePermit::take()?;
                    self.files.unstored.truncate(path, size);
                }
                Ok(())
            }
            PathTarget::AsFound(..) | PathTarget::ErrorText(_) => Err(broken::refused(path)),
            PathTarget::Decoded(target) => {
                check_length(path, self.files.export(&target)?.len(), size)
            }
            PathTarget::Picture(target) => Err(target.read_only()),
            PathTarget::GroupFile(target) => Err(read_only(&target.found)),
        }
    }

    fn make_folder(&self, path: &Key, _credentials: &Credentials) -> Result<()> {
        if self.files.lookup(path)?.is_some() {
            return Err(Error::new(Kind::Exists, path, "is there already"));
        }
        check_names(path)?;
        self.files.hierarchy.make_group(path)
    }

    fn unlink(&self, path: &Key) -> Result<()> {
        if self.files.unstored.remove_scratch(path) {
            return Ok(());
        }
        let target = self.target(path)?;
        self.files.remove_file(path, &target)
    }

    fn remove_folder(&self, path: &Key) -> Result<()> {
        match self.target(path)? {
            PathTarget::Node(found) => self.files.remove_node(&found),
            PathTarget::Chunks(found) => self.files.remove_chunks(path, &found),
            _ => Err(Error::new(Kind::NotADirectory, path, "is a file")),
        }
    }

    fn rename(&self, from: &Key, to: &Key, onto: RenameMode) -> Result<()> {
        check_names(to)?;
        if let Some(bytes) = self.files.unstored.scratch(from) {
            let bytes = bytes.lock().clone();
            return self.rename_scratch((from, &bytes), to, onto);
        }
        match self.target(from)? {
            PathTarget::Node(found) => self.files.rename_node(&found, to, onto),
            // Editors keep the old content under another name.
            PathTarget::Document(found, name) if is_temporary(to.name()) => {
                self.check_temporary(to)?;
                let bytes = laid_out(found.node()?, &name).to_vec();
                let _permit = ChangePermit::take()?;
                self.files.unstored.make_scratch(to, bytes).map(drop)
            }
            PathTarget::AsFound(..) | PathTarget::ErrorText(_) => Err(broken::refused(from)),
            PathTarget::Document(..)
            | PathTarget::Chunks(_)
            | PathTarget::Decoded(_)
            | PathTarget::Picture(_)
            | PathTarget::GroupFile(_) => {
                let why = "has the name of its node; rename that";
                Err(refused(from, why))
            }
        }
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
