//! Generates the documents of nodes: `metadata.json` and `attributes.json`.
//!
//! A document is generated when it is opened. Its length is computed once for each node.

use std::sync::Arc;

use bytes::Bytes;

use crate::view::OpenedFile;
use crate::view::files::METADATA;
use crate::view::text_file::TextFile;
use zarr_format::dialect::v3;
use zarr_format::error::Result;
use zarr_format::json_text;
use zarr_format::model::Node;
use zarrfs_array::hierarchy::NodeEntry;
use zarrfs_store::request_context::RequestContext;

/// Maximum size in bytes of attributes that are reformatted, and whose document is generated in a call that must not
/// wait.
const MAX_NOW: usize = 256 << 10;

/// Returns a document of a node. Long attributes are the stored text itself, which is shared and not copied.
pub(super) fn document(node: &Node, name: &[u8]) -> Bytes {
    let attributes = node.attributes();
    match name {
        METADATA => v3::document(node).into(),
        _ if is_short(node) => json_text::document(attributes.text()).into(),
        _ => attributes.shared_text().clone(),
    }
}

fn is_short(node: &Node) -> bool {
    node.attributes().shared_text().len() <= MAX_NOW
}

/// Returns the length of a node's document; fails with the node's error if the node cannot be read.
pub(super) fn length_of(context: &RequestContext, found: &NodeEntry, name: &[u8]) -> Result<u64> {
    let node = found.node()?;
    let [metadata, attributes] = &found.lengths;
    let length = match name {
        METADATA => metadata,
        _ => attributes,
    };
    if length.get().is_none() && !is_short(node) {
        context.check_may_wait()?;
    }
    Ok(*length.get_or_init(|| document(node, name).len() as u64))
}

/// Opens a document of a node.
pub(super) fn open(found: &NodeEntry, bytes: Bytes) -> OpenedFile {
    let version = Some(found.version);
    OpenedFile {
        file: Arc::new(TextFile {
            bytes,
            version: found.version,
            modified: found.modified,
        }),
        content: version,
        version,
        direct: false,
        tree_file: None,
    }
}
