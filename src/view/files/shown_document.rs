//! The documents that the view makes of nodes: `zarr.json` and `attributes.json`, laid out where they are read.
//!
//! A document holds the node and the text of its attributes, and no copy of that. Its length is found once for each node.

use std::sync::Arc;

use crate::dialect::v3;
use crate::error::Result;
use crate::hierarchy::NodeEntry;
use crate::json_text::LaidOut;
use crate::known::Known;
use crate::model::Node;
use crate::view::files::METADATA;
use crate::view::text_file::file_attr;
use crate::view::{Attr, File, OpenedFile, ReadAt, ReadBytes};
use std::time::Duration;

/// The longest text that is laid out where nothing may wait, in bytes.
const MAX_NOW: usize = 256 << 10;

/// Returns a document of a node.
pub(super) fn laid_out(node: &Node, name: &[u8]) -> LaidOut {
    match name {
        METADATA => v3::laid_out(node),
        _ => LaidOut::of(node.attributes().shared_text().clone()),
    }
}

/// Returns the length of a document of a node; fails with the error about its documents if it does not read.
pub(super) fn length_of(found: &NodeEntry, name: &[u8]) -> Result<u64> {
    let node = found.node()?;
    let [metadata, attributes] = &found.lengths;
    let length = match name {
        METADATA => metadata,
        _ => attributes,
    };
    Ok(*length.get_or_init(|| laid_out(node, name).len()))
}

/// Like `length_of`, if that is known or found in no time.
pub(super) fn length_now(found: &NodeEntry, name: &[u8]) -> Known<u64> {
    let is_short = |node: &Node| node.attributes().shared_text().len() <= MAX_NOW;
    let is_known = found.lengths.iter().all(|length| length.get().is_some());
    if is_known || found.node().is_ok_and(is_short) {
        length_of(found, name).map_or(Known::Unknown, Known::Is)
    } else {
        Known::Unknown
    }
}

/// Opens a document of a node.
pub(super) fn open(found: Arc<NodeEntry>, text: LaidOut) -> OpenedFile {
    let version = Some(found.version);
    OpenedFile {
        file: Arc::new(ShownDocument { found, text }),
        content: version,
        version,
        direct: false,
        tree_file: None,
    }
}

/// A document that is open for reading.
struct ShownDocument {
    found: Arc<NodeEntry>,
    text: LaidOut,
}

impl ReadAt for ShownDocument {
    fn read_now(&self, offset: u64, len: usize) -> Option<ReadBytes> {
        let is_short = self.text.len() <= MAX_NOW as u64;
        is_short.then(|| self.text.read(offset, len).into())
    }

    fn read_at(&self, offset: u64, len: usize) -> Result<ReadBytes> {
        Ok(self.text.read(offset, len).into())
    }
}

impl File for ShownDocument {
    fn version(&self) -> Option<u64> {
        Some(self.found.version)
    }

    fn attr(&self) -> Option<Attr> {
        let modified = self.found.modified;
        Some(file_attr(self.text.len(), modified, Duration::ZERO))
    }
}
