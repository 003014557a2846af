//! `zarrfs diff A B`: what differs between two stores, node by node as it is found.

use std::sync::Arc;

use serde_json::Value;

use super::store_args::StoreArgs;
use super::{DiffArgs, diff_arrays, report};
use crate::compare;
use crate::compare::{Compared, HierarchyState};
use crate::error::Result;
use crate::inspect::locate::StorePath;

/// Prints what differs; returns whether nothing does.
pub(super) fn diff(args: &DiffArgs, other: &str) -> Result<bool> {
    let reading = StoreArgs::of_two(&args.place.remote);
    let before = reading.open(&args.place.place.to_string_lossy())?;
    let after = reading.open(other)?;
    let what = if args.values {
        Compared::Values
    } else {
        Compared::Stores
    };
    let mut nodes = Vec::new();
    let mut is_equal = true;
    compare::compare(&state(&before), &state(&after), what, &mut |node: Value| {
        is_equal = false;
        if args.json {
            nodes.push(node);
        } else {
            diff_arrays::print(&[node]);
        }
        Ok(())
    })?;
    if args.json {
        report::print_json(&serde_json::json!({ "nodes": nodes }));
    }
    Ok(is_equal)
}

fn state(place: &StorePath) -> HierarchyState {
    HierarchyState {
        hierarchy: place.opened.hierarchy.clone(),
        arrays: Arc::clone(&place.opened.arrays),
        base: place.path.clone(),
    }
}
