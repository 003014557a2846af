//! The files view as a tree that can be changed.
//!
//! Says what each operation means where, and leaves the doing to others: decoded files to `writing`, documents to
//! `documents`, directories to `nodes`.

use std::sync::Arc;
use std::sync::PoisonError;

use crate::error::Error;
use crate::error::Kind;
use crate::error::Result;
use crate::export::Format;
use crate::grid::ChunkIndex;
use crate::hierarchy::Found;
use crate::store::Key;
use crate::store::Meta;
use crate::store::Tree;
use crate::store::Version;
use crate::store::tree::Change;
use crate::store::tree::Maker;
use crate::store::tree::Onto;
use crate::store::tree::Room;
use crate::store::tree::Stat;
use crate::store::tree::TreeFile;
use crate::view::View;
use crate::view::files::Files;
use crate::view::files::document;
use crate::view::files::documents::DocumentFile;
use crate::view::files::place::Place;
use crate::view::files::session::is_temporary;
use crate::view::files::writing::DecodedWriter;
use crate::view::files::writing::check_length;

/// The files view, to be changed.
pub(super) struct Editing {
    files: Files,
}

impl Editing {
    pub(super) fn new(files: Files) -> Editing {
        Editing { files }
    }

    fn place(&self, path: &Key) -> Result<Place> {
        let place = self.files.resolve(path)?;
        place.ok_or_else(|| Error::not_found(path))
    }

    /// Says why nothing can be made at a path, unless it is a file that will replace a document.
    fn check_temporary(&self, path: &Key) -> Result<()> {
        let parent = path.parent().unwrap_or_default();
        match self.place(&parent)? {
            Place::Node(_) if is_temporary(path.name()) => Ok(()),
            Place::Node(_) | Place::Chunks(_) => Err(refused(
                path,
                "this view has the files of groups and arrays and no others; the store view takes any file",
            )),
            _ => Err(Error::new(Kind::NotADirectory, parent, "is a file")),
        }
    }

    fn open_document(
        &self,
        path: &Key,
        (found, name): (&Found, &[u8]),
        truncate: bool,
    ) -> Result<Arc<dyn TreeFile>> {
        let file = DocumentFile::document(&self.files, path, document(found, name)?);
        let length = self.files.session.take_truncated(path);
        if let Some(length) = length.or(truncate.then_some(0)) {
            file.resize(length)?;
        }
        Ok(file)
    }

    /// Gives a file beside a document another name, or makes it the document.
    fn rename_scratch(&self, (from, bytes): (&Key, &[u8]), to: &Key, onto: Onto) -> Result<()> {
        match self.files.resolve(to)? {
            None => {
                self.check_temporary(to)?;
                self.files.session.rename_scratch(from, to);
                return Ok(());
            }
            Some(Place::Document(..)) if matches!(onto, Onto::Replace) => {}
            Some(Place::Document(..)) => {
                return Err(Error::new(Kind::Exists, to, "is there already"));
            }
            Some(Place::Node(_) | Place::Chunks(_)) => return Err(is_directory(to)),
            Some(Place::Decoded(..)) => {
                return Err(refused(to, "an array is written in place"));
            }
        }
        self.files.save(to, bytes)?;
        self.files.session.take_scratch(from);
        Ok(())
    }

    fn open_decoded(
        &self,
        path: &Key,
        (found, format, chunk): (Arc<Found>, &'static Format, Option<ChunkIndex>),
        truncate: bool,
    ) -> Result<Arc<dyn TreeFile>> {
        let export = self.files.export(&found, format, chunk)?;
        export.check_writable().map_err(|error| error.about(path))?;
        if truncate {
            check_length(path, export.len(), 0)?;
        }
        Ok(Arc::new(DecodedWriter {
            path: path.clone(),
            found,
            export,
        }))
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
        let meta = attr.map(|attr| Meta {
            kind: attr.kind,
            size: attr.size,
            stored: attr.stored,
            modified: attr.modified,
            version: Version(0),
        });
        Ok(meta.map(|meta| Stat { meta, posix: None }))
    }

    fn create(&self, path: &Key, _maker: &Maker) -> Result<Arc<dyn TreeFile>> {
        if self.files.lookup(path)?.is_some() {
            return Err(Error::new(Kind::Exists, path, "is there already"));
        }
        self.check_temporary(path)?;
        let bytes = self.files.session.make_scratch(path, Vec::new())?;
        Ok(DocumentFile::scratch(&self.files, path, bytes))
    }

    fn open(&self, path: &Key, truncate: bool) -> Result<Arc<dyn TreeFile>> {
        if let Some(bytes) = self.files.session.scratch(path) {
            let file = DocumentFile::scratch(&self.files, path, bytes);
            if truncate {
                file.resize(0)?;
            }
            return Ok(file);
        }
        match self.place(path)? {
            Place::Node(_) | Place::Chunks(_) => Err(is_directory(path)),
            Place::Document(found, name) => self.open_document(path, (&found, &name), truncate),
            Place::Decoded(found, format, chunk) => {
                self.files.session.keep(&found.path);
                self.open_decoded(path, (found, format, chunk), truncate)
            }
        }
    }

    /// Owner, mode and times are the mount's: to set them is allowed and changes nothing.
    fn change(&self, path: &Key, change: &Change) -> Result<()> {
        if self.files.session.scratch(path).is_some() {
            return self.open(path, false)?.change(change);
        }
        let place = self.place(path)?;
        let Some(size) = change.size else {
            return Ok(());
        };
        match place {
            Place::Node(_) | Place::Chunks(_) => Err(is_directory(path)),
            Place::Document(found, name) => {
                if size != document(&found, &name)?.len() as u64 {
                    self.files.session.truncate(path, size);
                }
                Ok(())
            }
            Place::Decoded(found, format, chunk) => {
                let length = self.files.export(&found, format, chunk)?.len();
                check_length(path, length, size)
            }
        }
    }

    fn make_folder(&self, path: &Key, _maker: &Maker) -> Result<()> {
        if self.files.lookup(path)?.is_some() {
            return Err(Error::new(Kind::Exists, path, "is there already"));
        }
        self.files.hierarchy.make_group(path)
    }

    fn unlink(&self, path: &Key) -> Result<()> {
        if self.files.session.take_scratch(path).is_some() {
            return Ok(());
        }
        let place = self.place(path)?;
        self.files.remove_file(path, &place)
    }

    fn remove_folder(&self, path: &Key) -> Result<()> {
        match self.place(path)? {
            Place::Node(found) => self.files.remove_node(&found),
            Place::Chunks(found) => self.files.remove_chunks(path, &found),
            Place::Document(..) | Place::Decoded(..) => {
                Err(Error::new(Kind::NotADirectory, path, "is a file"))
            }
        }
    }

    fn rename(&self, from: &Key, to: &Key, onto: Onto) -> Result<()> {
        if let Some(bytes) = self.files.session.scratch(from) {
            let bytes = bytes.lock().unwrap_or_else(PoisonError::into_inner).clone();
            return self.rename_scratch((from, &bytes), to, onto);
        }
        match self.place(from)? {
            Place::Node(found) => self.files.rename_node(&found, to, onto),
            // Editors put what they replace aside.
            Place::Document(found, name) if is_temporary(to.name()) => {
                self.check_temporary(to)?;
                let bytes = document(&found, &name)?;
                self.files.session.make_scratch(to, bytes).map(drop)
            }
            Place::Document(..) | Place::Chunks(_) | Place::Decoded(..) => {
                let why = "has the name of its node; rename that";
                Err(refused(from, why))
            }
        }
    }

    /// Nobody knows how much room a store has, so there is plenty.
    fn room(&self) -> Result<Room> {
        const PLENTY: u64 = 1 << 38;
        Ok(Room {
            block: 4096,
            blocks: PLENTY,
            free: PLENTY,
            available: PLENTY,
            files: PLENTY,
            free_files: PLENTY,
        })
    }
}
