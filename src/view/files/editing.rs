//! The files view as a tree that can be changed.
//!
//! Says what each operation means where, and leaves the doing to others: decoded files to `writing`.

use std::sync::Arc;

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
use crate::view::files::place::Place;
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
        if self.files.resolve(path)?.is_some() {
            return Err(Error::new(Kind::Exists, path, "is there already"));
        }
        Err(refused(
            path,
            "this view has the files of groups and arrays and no others",
        ))
    }

    fn open(&self, path: &Key, truncate: bool) -> Result<Arc<dyn TreeFile>> {
        match self.place(path)? {
            Place::Node(_) | Place::Chunks(_) => Err(is_directory(path)),
            Place::Document(..) => Err(Error::read_only(path)),
            Place::Decoded(found, format, chunk) => {
                self.open_decoded(path, (found, format, chunk), truncate)
            }
        }
    }

    /// Owner, mode and times are the mount's: to set them is allowed and changes nothing.
    fn change(&self, path: &Key, change: &Change) -> Result<()> {
        let place = self.place(path)?;
        let Some(size) = change.size else {
            return Ok(());
        };
        match place {
            Place::Node(_) | Place::Chunks(_) => Err(is_directory(path)),
            Place::Document(..) => Err(Error::read_only(path)),
            Place::Decoded(found, format, chunk) => {
                let length = self.files.export(&found, format, chunk)?.len();
                check_length(path, length, size)
            }
        }
    }

    fn make_folder(&self, path: &Key, _maker: &Maker) -> Result<()> {
        Err(Error::read_only(path))
    }

    fn unlink(&self, path: &Key) -> Result<()> {
        Err(Error::read_only(path))
    }

    fn remove_folder(&self, path: &Key) -> Result<()> {
        Err(Error::read_only(path))
    }

    fn rename(&self, from: &Key, _to: &Key, _onto: Onto) -> Result<()> {
        Err(Error::read_only(from))
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
