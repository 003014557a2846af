//! Finds the array and the chunk of a key.
//!
//! A chunk is in the folder of its array; in drafts it is below `data/`, away from the array's documents.

use std::sync::Arc;

use crate::inspect::access::OpenedStore;
use zarr_format::error::{Error, Result};
use zarr_format::grid::{Coordinates, Selection};
use zarrfs_array::array::{Arrays, OpenArray};
use zarrfs_array::hierarchy::{Hierarchy, NodeEntry};
use zarrfs_store::Key;
use zarrfs_store::request_context::RequestContext;

/// Returns the array at the longest prefix of a path, or `None` if no prefix is an array.
fn find_array_above(
    context: &RequestContext,
    hierarchy: &Hierarchy,
    path: &Key,
) -> Result<Option<Arc<NodeEntry>>> {
    let mut found = hierarchy.root(context)?;
    for name in path.names() {
        match &found {
            Some(parent) if parent.array().is_none() => {
                found = hierarchy.child(context, parent, name)?
            }
            _ => break,
        }
    }
    Ok(found.filter(|found| found.array().is_some()))
}

/// Returns the array and the indices of the chunk with a key, or `None` if it is not the key of a chunk.
pub(crate) fn find_chunk(
    context: &RequestContext,
    hierarchy: &Hierarchy,
    arrays: &Arrays,
    key: &Key,
) -> Result<Option<(Arc<OpenArray>, Coordinates)>> {
    let below = |folder| Key::new(folder).ok().and_then(|folder| key.below(&folder));
    let in_drafts = ["data/root", "data"].into_iter().filter_map(below);
    for path in std::iter::once(key.clone()).chain(in_drafts) {
        let Some(entry) = find_array_above(context, hierarchy, &path)? else {
            continue;
        };
        let open = arrays.open(&entry)?;
        if let Some(indices) = indices_of(&open, key)? {
            return Ok(Some((open, indices)));
        }
    }
    Ok(None)
}

/// Returns the indices of the chunk with a key, or `None` if the array has no such chunk.
fn indices_of(open: &OpenArray, key: &Key) -> Result<Option<Coordinates>> {
    let (grid, array) = (open.stored_grid()?, open.array());
    let indices = array.keys.chunk_of(key.as_bytes(), array.shape.len());
    let indices = indices.filter(|indices| grid.index(indices).is_some());
    Ok(indices.map(Coordinates::from))
}

/// Returns the array of a chunk's key, and the elements of the chunk inside the array. Fails with `Invalid` if it is
/// not the key of a chunk.
pub fn chunk_of(
    context: &RequestContext,
    opened: &OpenedStore,
    key: &Key,
) -> Result<(Arc<OpenArray>, Selection)> {
    let found = find_chunk(context, &opened.hierarchy, &opened.arrays, key)?;
    let no_chunk = || Error::invalid(key, "not the key of a chunk in the grid of an array");
    let (open, indices) = found.ok_or_else(no_chunk)?;
    let region = open.stored_grid()?.region(&indices);
    Ok((open, Selection::of_region(&region)))
}
