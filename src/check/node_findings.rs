//! Findings about nodes as a whole: those that do not read or decode, groups without a document, nodes in one place.

use crate::check::documents::DocumentKind;
use crate::check::finding::{Finding, V2, V3, document_of};
use crate::check::key_findings::codecs_heading;
use crate::error::{Error, Kind};
use crate::model::document::{ZARR_JSON, ZARRAY, ZATTRS, ZGROUP, ZMETADATA};
use crate::store::Key;

/// A node that does not read: because of what is in its documents, or because this program cannot read such ones.
pub(super) fn node_fault(path: &Key, error: &Error) -> Finding {
    let found = error.to_string();
    match error.kind() {
        Kind::Unsupported | Kind::TooLarge => {
            let expected = "a node that this program can read";
            Finding::warning("node-not-supported", path, expected, found)
        }
        _ => Finding::error("node-unreadable", path, "a node", found),
    }
}

/// An array whose chunks do not decode, whatever is in them.
pub(super) fn undecodable(path: &Key, error: &Error, dialect: Option<&str>) -> Finding {
    let expected = "codecs, a data type and extensions that are known";
    let error = error.within(&path.to_string());
    let found = error.to_string();
    let finding = match error.kind() {
        Kind::Corrupt => Finding::error(
            "codecs-impossible",
            path,
            "codecs that work together",
            found,
        ),
        // What cannot be numbered does not fit with any option.
        Kind::TooLarge if matches!(error.subject(), "chunk_grid" | "shape") => Finding::warning(
            "array-too-large",
            path,
            "less than 2^64 chunks, and less than 2^63 bytes of elements",
            found,
        ),
        Kind::TooLarge => Finding::warning(
            "chunk-too-large",
            path,
            "chunks that fit --max-chunk",
            found,
        ),
        _ => Finding::warning("not-decodable", path, expected, found),
    };
    let document = document_of(dialect);
    let heading = heading_of(error.detail()).filter(|_| document == V3);
    finding.by(document, heading.unwrap_or(codecs_heading(document)))
}

/// A node of another dialect than the group above it, which readers of that one pass over.
pub(super) fn other_dialect(path: &Key, own: &str, above: &str) -> Finding {
    let expected = format!("a node of {above}, as the group above is");
    let found = format!("one of {own}, which readers of {above} do not show");
    Finding::warning("dialect-differs", path, expected, found)
}

/// Consolidated metadata of v2 in a folder that is no group: readers open none by them.
pub(super) fn copies_without_group(path: &Key) -> Finding {
    let expected = format!("{ZGROUP} beside {ZMETADATA}");
    Finding::error("group-implied", path, expected, "none").by(V2, "Groups")
}

/// Returns the heading of final v3 about what stops an array from being decoded, where that is no codec.
fn heading_of(reason: &str) -> Option<&'static str> {
    let (member, why) = reason.split_once(": ")?;
    match member {
        "storage_transformers" => Some("Storage transformers"),
        "chunk_key_encoding" => Some("Array metadata"),
        _ if why.starts_with("an extension that is not known") => Some("must_understand"),
        _ => None,
    }
}

/// A group that no document describes, where the text demands one.
pub(super) fn implied(path: &Key, dialect: Option<&'static str>) -> Option<Finding> {
    let (document, heading, name) = match dialect {
        Some("v2") => (V2, "Groups", ZGROUP),
        Some("v3") => (V3, "Group metadata", ZARR_JSON),
        _ => return None,
    };
    let finding = Finding::error(
        "group-implied",
        path,
        format!("{name} in each group"),
        "none",
    );
    let writers = "tensorstore, and zarr-python where an array is made by its path alone";
    Some(finding.by(document, heading).habit_of(writers))
}

/// Tells documents of several nodes in one folder, and attributes of none.
pub(super) fn collisions(documents: &[(Key, DocumentKind)]) -> Vec<Finding> {
    let has = |name: &str| {
        let mut keys = documents.iter().map(|(key, _)| key);
        keys.find(|key| key.name() == name.as_bytes())
    };
    let (v3, array, group, attributes) = (has(ZARR_JSON), has(ZARRAY), has(ZGROUP), has(ZATTRS));
    let mut found = Vec::new();
    if let (Some(_), Some(key)) = (array, group) {
        let finding = Finding::error(
            "nodes-collide",
            key,
            "one node a path",
            "an array and a group",
        );
        found.push(finding.by(V2, "Groups"));
    }
    if let (Some(key), Some(_)) = (v3, array.or(group)) {
        let other = "documents of v2 beside it, which readers of v2 take for the node";
        let expected = "documents of one version";
        found.push(
            Finding::warning("nodes-collide", key, expected, other)
                .by(V3, "Comparison with Zarr v2"),
        );
    }
    if let (Some(key), None) = (attributes, array.or(group)) {
        let finding = Finding::warning(
            "orphan-key",
            key,
            "a .zarray or .zgroup beside it",
            "neither",
        );
        found.push(finding.by(V2, "Attributes"));
    }
    found
}
