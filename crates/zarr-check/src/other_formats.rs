//! Recognizes folders of formats other than Zarr by their top-level names.

use std::collections::BTreeSet;

use crate::context::CheckContext;
use crate::finding::Finding;
use crate::group_folder::MAX_CHILDREN;
use crate::stored_keys::{StoredEntry, visit_folder};
use zarrfs_array::hierarchy::NodeEntry;

/// A format: top-level names that it always has, a description, and the program that reads it.
type Format = (&'static [&'static str], &'static str, &'static str);

const FORMATS: [Format; 6] = [
    (&["refs", "snapshots"], "an Icechunk repository", "icechunk"),
    (&["repo", "snapshots"], "an Icechunk repository", "icechunk"),
    (&["manifest.ocdbt"], "an OCDBT database", "tensorstore"),
    (&["__schema", "__fragments"], "a TileDB array", "tiledb"),
    (&["_delta_log"], "a Delta table", "deltalake"),
    (
        &["info", "provenance"],
        "a precomputed volume of Neuroglancer",
        "cloud-volume or tensorstore",
    ),
];

/// Returns a finding if the folder has another format; it is not checked for Zarr nodes then.
pub(super) fn other_format(context: &CheckContext, top: &NodeEntry) -> Option<Finding> {
    if top.version != 0 || top.node.is_err() || !context.store().info().lists {
        return None;
    }
    let mut names = BTreeSet::new();
    let visited = visit_folder(context.store(), &top.path, &mut |entry| {
        if let StoredEntry::Object(key, _) | StoredEntry::Folder(key) = entry
            && names.len() < MAX_CHILDREN
        {
            names.insert(key.name().to_vec());
        }
    });
    visited.ok()?;
    let is_it = |(needed, ..): &&Format| needed.iter().all(|name| names.contains(name.as_bytes()));
    let (_, what, program) = FORMATS.iter().find(is_it)?;
    let message = format!("the folder is {what} and no store of Zarr or N5");
    let remedy = format!("read it with {program}, which can write it as Zarr");
    Some(Finding::error("no-store", &top.path, message).mended_by(remedy))
}
