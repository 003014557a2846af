//! A document that is shown as it stands in consolidated metadata, without the indentation that it has there.
//!
//! Nothing is made of it before it is read, and no copy is held: the text is a part of the consolidated metadata.

use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::hierarchy::DocumentCopy;
use crate::json_text::Dedented;
use crate::known::Known;
use crate::view::text_file::file_attr;
use crate::view::{Attr, File, OpenedFile, ReadAt, ReadBytes};

/// The longest text that is looked through where nothing may wait, in bytes.
const MAX_NOW: usize = 256 << 10;

/// Returns what `stat` shows of a document.
pub(super) fn attr(copy: &DocumentCopy, fresh: Duration) -> Attr {
    let size = Dedented::of(copy.text.clone()).len();
    Attr {
        content: Some(version_of(copy)),
        ..file_attr(size, copy.modified, fresh)
    }
}

/// The same, if that is found in no time.
pub(super) fn attr_now(copy: &DocumentCopy, fresh: Duration) -> Known<Attr> {
    if copy.text.len() <= MAX_NOW {
        Known::Is(attr(copy, fresh))
    } else {
        Known::Unknown
    }
}

/// Opens a document.
pub(super) fn open(copy: DocumentCopy) -> OpenedFile {
    let version = version_of(&copy);
    let text = Dedented::of(copy.text.clone());
    OpenedFile {
        file: Arc::new(CopiedDocument {
            copy,
            text,
            version,
        }),
        content: Some(version),
        version: Some(version),
        direct: false,
        tree_file: None,
    }
}

/// Tells one content of a document from another.
fn version_of(copy: &DocumentCopy) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(&copy.text);
    hasher.finish()
}

/// A document that is open for reading.
struct CopiedDocument {
    copy: DocumentCopy,
    text: Dedented,
    version: u64,
}

impl ReadAt for CopiedDocument {
    fn read_now(&self, offset: u64, len: usize) -> Option<ReadBytes> {
        let is_short = self.text.len() <= MAX_NOW as u64;
        is_short.then(|| self.text.read(offset, len).into())
    }

    fn read_at(&self, offset: u64, len: usize) -> Result<ReadBytes> {
        Ok(self.text.read(offset, len).into())
    }
}

impl File for CopiedDocument {
    fn version(&self) -> Option<u64> {
        Some(self.version)
    }

    fn attr(&self) -> Option<Attr> {
        let modified = self.copy.modified;
        Some(file_attr(self.text.len(), modified, Duration::ZERO))
    }
}
