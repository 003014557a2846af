//! Shows documents that are copied in consolidated metadata, without their extra indentation.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use crate::view::text_file::{TextFile, file_attr};
use crate::view::{Attr, OpenedFile};
use zarr_format::error::Result;
use zarr_format::json_text::dedented;
use zarrfs_array::hierarchy::DocumentCopy;
use zarrfs_store::request_context::RequestContext;

/// The longest text in bytes that is measured in a call that must not wait.
const MAX_NOW: usize = 256 << 10;

/// Returns the attributes of a document.
pub(super) fn attr(context: &RequestContext, copy: &DocumentCopy, fresh: Duration) -> Result<Attr> {
    if copy.text.len() > MAX_NOW {
        context.check_may_wait()?;
    }
    let size = text_of(copy).len() as u64;
    Ok(Attr {
        content: Some(version_of(copy)),
        ..file_attr(size, copy.modified, fresh)
    })
}

/// Opens a document.
pub(super) fn open(copy: &DocumentCopy) -> OpenedFile {
    let version = version_of(copy);
    OpenedFile {
        file: Arc::new(TextFile {
            bytes: text_of(copy).into_owned().into(),
            version,
            modified: copy.modified,
        }),
        content: Some(version),
        version: Some(version),
        direct: false,
        tree_file: None,
    }
}

/// Returns the text of a document without the indentation of its parent.
fn text_of(copy: &DocumentCopy) -> Cow<'_, str> {
    dedented(str::from_utf8(&copy.text).unwrap_or_default())
}

/// Returns a number that identifies the content of a document.
fn version_of(copy: &DocumentCopy) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(&copy.text);
    hasher.finish()
}
