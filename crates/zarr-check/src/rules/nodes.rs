//! Reports faults of nodes: unreadable nodes, missing documents, and documents that contradict each other.

use std::sync::Arc;

use crate::context::CheckContext;
use crate::finding::Finding;
use crate::rules::documents::{DocumentKind, shortened};
use crate::spec::Spec;
use crate::walk::folder::GroupChild;
use zarr_format::error::{Error, Kind};
use zarr_format::model::document::{ZARR_JSON, ZARRAY, ZATTRS, ZGROUP, ZMETADATA};
use zarr_format::model::{Array, DataType};
use zarrfs_array::array::OpenArray;
use zarrfs_array::hierarchy::NodeEntry;
use zarrfs_store::Key;
use zarrfs_store::request_context::UNLIMITED;

/// Reports a node that cannot be read, because its metadata are invalid or zarrfs does not support them.
pub(crate) fn node_fault(path: &Key, error: &Error) -> Finding {
    let why = error.within(&path.to_string());
    match error.kind() {
        Kind::Unsupported | Kind::TooLarge => {
            let message = format!("zarrfs cannot read this node: {why}");
            Finding::warning("node-not-supported", path, message)
        }
        _ => Finding::error(
            "node-unreadable",
            path,
            format!("the node cannot be read: {why}"),
        ),
    }
}

/// Reports an array whose metadata make it impossible to decode any of its chunks.
pub(crate) fn undecodable(path: &Key, error: &Error, dialect: Option<&str>) -> Finding {
    let why = error.within(&path.to_string());
    let finding = match error.kind() {
        Kind::Corrupt => {
            let message = format!("the codecs do not work together: {why}");
            Finding::error("codecs-impossible", path, message)
        }
        // The array has more chunks than can be numbered, so a larger memory budget does not help.
        Kind::TooLarge if matches!(why.subject(), "chunk_grid" | "shape") => {
            let message = format!("the array is too large: {why}");
            Finding::warning("array-too-large", path, message)
        }
        Kind::TooLarge => {
            let message = format!("the chunks are too large: {why}");
            Finding::warning("chunk-too-large", path, message)
        }
        _ if why.detail().starts_with("unsupported") => {
            Finding::warning("not-decodable", path, why.detail())
        }
        _ => {
            let is_own = why.subject() == path.to_string();
            let why = if is_own {
                why.detail().to_string()
            } else {
                why.to_string()
            };
            let message = format!("zarrfs cannot decode the array: {why}");
            Finding::warning("not-decodable", path, message)
        }
    };
    let spec = Spec::of(dialect);
    let heading = heading_of(why.detail()).filter(|_| spec == Spec::V3);
    finding.with_section(heading.map_or_else(|| spec.codecs(), |heading| spec.section(heading)))
}

/// Reports an array without stored chunks: it was never written, has only the fill value, or lost its chunks.
pub(crate) fn chunks_missing(open: &OpenArray) -> Option<Finding> {
    let array = open.array();
    let chunks = open.stored_grid().ok()?.len();
    if array.shape.contains(&0) {
        return None;
    }
    let which = match chunks {
        1 => "the only chunk is not stored".to_string(),
        _ => format!("none of the {chunks} chunks is stored"),
    };
    let reads = if array.fill_value.is_none {
        "the metadata have no fill value, so readers return anything".to_string()
    } else {
        format!(
            "all elements read as the fill value {}",
            shortened(&array.fill_value.json)
        )
    };
    let (code, path) = ("chunks-missing", open.path());
    let message = format!("{which}; {reads}");
    let finding = if is_likely_unwritten(array, chunks) {
        Finding::advice(code, path, message)
    } else {
        Finding::warning(code, path, message)
    };
    Some(
        finding.with_remedy(
            "if the array was written, copy its chunks from another copy of the store",
        ),
    )
}

/// Whether an array may well contain only the fill value, so that writers store no chunks. That is usual for masks,
/// counts, and scalars that only have attributes.
fn is_likely_unwritten(array: &Array, chunks: u64) -> bool {
    let is_small = chunks == 1 && array.shape.iter().all(|&length| length == 1);
    let is_whole = matches!(
        array.data_type,
        DataType::Bool | DataType::Int(_) | DataType::UInt(_)
    );
    is_small || (chunks == 1 && is_whole)
}

/// Reports a node whose dialect differs from that of its parent, because readers of the parent's dialect do not see it.
pub(crate) fn other_dialect(path: &Key, own: &str, above: &str) -> Finding {
    let message =
        format!("the node is {own}, but its parent is {above}; readers of {above} do not see it");
    Finding::warning("dialect-differs", path, message)
}

/// Reports `.zmetadata` without `.zgroup` in the same folder, because readers cannot open the folder as a group.
pub(crate) fn copies_without_group(path: &Key) -> Finding {
    let message = format!("{ZMETADATA} has no {ZGROUP} next to it; readers cannot open the group");
    Finding::error("group-implied", path, message)
        .with_remedy(group_remedy(ZGROUP))
        .with_section(Spec::V2.section("Groups"))
}

/// Returns the heading in the Zarr v3 specification that describes the metadata member in an error message, or `None`
/// if the error is about a codec.
fn heading_of(reason: &str) -> Option<&'static str> {
    let (member, why) = reason.split_once(": ")?;
    match member {
        "storage_transformers" => Some("Storage transformers"),
        "chunk_key_encoding" => Some("Array metadata"),
        _ if why.contains("must_understand") => Some("must_understand"),
        _ => None,
    }
}

/// Returns the remedy for a group whose document `name` is missing.
fn group_remedy(name: &str) -> String {
    let text = match name {
        ZGROUP => r#"{"zarr_format": 2}"#,
        _ => r#"{"zarr_format": 3, "node_type": "group"}"#,
    };
    format!("write {text} to {name}, or copy it from another copy of the store")
}

/// Reports a group that lacks the metadata document that its dialect demands.
pub(crate) fn implied_group(path: &Key, dialect: Option<&'static str>) -> Option<Finding> {
    let (section, name) = match dialect {
        Some("v2") => (Spec::V2.section("Groups"), ZGROUP),
        Some("v3") => (Spec::V3.section("Group metadata"), ZARR_JSON),
        _ => return None,
    };
    let message = format!("the group has no {name}, which every group must have");
    let finding = Finding::error("group-implied", path, message).with_remedy(group_remedy(name));
    let writers = "tensorstore, and zarr-python for an array created by its path";
    Some(finding.with_section(section).with_habit(writers))
}

/// Reports a folder with metadata documents of several nodes, and attributes in a folder without a node.
pub(crate) fn collisions(documents: &[(Key, DocumentKind)]) -> Vec<Finding> {
    let has = |name: &str| {
        let mut keys = documents.iter().map(|(key, _)| key);
        keys.find(|key| key.name() == name.as_bytes())
    };
    let (v3, array, group, attributes) = (has(ZARR_JSON), has(ZARRAY), has(ZGROUP), has(ZATTRS));
    let mut findings = Vec::new();
    if let (Some(_), Some(key)) = (array, group) {
        let message = "the directory has the metadata files of both an array and a group";
        let finding = Finding::error("nodes-collide", key, message);
        findings.push(finding.with_section(Spec::V2.section("Groups")));
    }
    if let (Some(key), Some(_)) = (v3, array.or(group)) {
        let message =
            "the directory also has metadata files of v2; readers of v2 use those instead";
        let finding = Finding::warning("nodes-collide", key, message);
        findings.push(finding.with_section(Spec::V3.section("Comparison with Zarr v2")));
    }
    if let (Some(key), None) = (attributes, array.or(group)) {
        let message = "neither .zarray nor .zgroup is next to it; no reader sees these attributes";
        let finding = Finding::warning("orphan-key", key, message);
        findings.push(finding.with_section(Spec::V2.section("Attributes")));
    }
    findings
}

/// Reports that the node at which the check starts has no metadata document although it has child nodes. Returns `None`
/// if it is just a folder that contains stores.
pub(crate) fn undescribed_top(
    context: &CheckContext,
    top: &NodeEntry,
    children: &[GroupChild],
    has_attributes: bool,
) -> Option<Finding> {
    let is_store = |child: &GroupChild| {
        let name = child.name.to_ascii_lowercase();
        let mut endings = [".zarr", ".n5", ".zarr2", ".zarr3"].into_iter();
        endings.any(|ending| name.ends_with(ending.as_bytes()))
    };
    if children.iter().any(is_store) {
        return None;
    }
    let nodes = children.iter().take(64).filter_map(|child| {
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
    let message =
        format!("the root has no {document}, only nodes such as {path}; libraries cannot open it");
    let finding = Finding::error("group-implied", &top.path, message);
    let finding = finding
        .with_remedy(group_remedy(document))
        .with_section(Spec::of(Some(dialect)).metadata());
    // Some writers of single arrays create no parent group. Writers of a dataset always create one.
    let is_dataset = has_attributes || nodes.iter().any(|node| is_coordinates(node));
    Some(if is_dataset {
        finding
    } else {
        finding.with_habit("zarrs and tensorstore")
    })
}

/// Whether a node is a coordinate: an array whose only dimension has the array's name.
fn is_coordinates(node: &NodeEntry) -> bool {
    let names = node.array().map(|array| array.dimension_names.as_slice());
    let own = node.path.name();
    matches!(names, Some([Some(name)]) if name.as_bytes() == own)
}
