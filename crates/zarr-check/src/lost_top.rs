//! Reports the top of a store that lost its document.

use std::sync::Arc;

use crate::context::CheckContext;
use crate::finding::{Finding, document_of};
use crate::group_folder::GroupChild;
use crate::key_findings::metadata_heading;
use crate::node_findings::describing;
use zarr_format::model::document::{ZARR_JSON, ZGROUP};
use zarrfs_array::hierarchy::NodeEntry;
use zarrfs_store::request_context::UNLIMITED;

/// Maximum number of children that are looked up.
const MAX_LOOKED_AT: usize = 64;

/// File name endings of stores: a folder with such children is a folder of stores.
const ENDINGS: [&[u8]; 4] = [b".zarr", b".n5", b".zarr2", b".zarr3"];

/// Returns a finding about the start of a check that has nodes below it but no document. Returns `None` if it is a
/// folder of stores.
pub(super) fn top_undescribed(
    context: &CheckContext,
    top: &NodeEntry,
    children: &[GroupChild],
    has_attributes: bool,
) -> Option<Finding> {
    let is_store = |child: &GroupChild| {
        let name = child.name.to_ascii_lowercase();
        ENDINGS.iter().any(|ending| name.ends_with(ending))
    };
    if children.iter().any(is_store) {
        return None;
    }
    let nodes = children.iter().take(MAX_LOOKED_AT).filter_map(|child| {
        let node = context.hierarchy.child(&UNLIMITED, top, &child.name);
        node.ok().flatten().filter(|node| node.version != 0)
    });
    let nodes: Vec<Arc<NodeEntry>> = nodes.collect();
    let first = nodes.iter().find(|node| node.dialect().is_some())?;
    let dialect = first.dialect()?;
    let document = match dialect {
        "v3" => ZARR_JSON,
        "v2" => ZGROUP,
        _ => return None,
    };
    let path = &first.path;
    let message = format!(
        "the top of the store has no {document}, and nodes such as {path} lie below it, so that Zarr libraries do \
         not open it"
    );
    let text = document_of(Some(dialect));
    let finding = Finding::error("group-implied", &top.path, message);
    let finding = finding
        .mended_by(describing(document))
        .by(text, metadata_heading(text));
    // Writers of single arrays create no group, but a dataset is never written without one.
    let is_dataset = has_attributes || nodes.iter().any(|node| is_coordinates(node));
    Some(if is_dataset {
        finding
    } else {
        finding.habit_of("zarrs and tensorstore")
    })
}

/// Whether a node is an array named like its only dimension.
fn is_coordinates(node: &NodeEntry) -> bool {
    let names = node.array().map(|array| array.dimension_names.as_slice());
    let own = node.path.name();
    matches!(names, Some([Some(name)]) if name.as_bytes() == own)
}
