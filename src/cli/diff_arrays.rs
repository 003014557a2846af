//! `zarrfs diff --arrays`: what was changed, in words of nodes, attributes and regions of arrays.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::report;
use crate::array::{Arrays, Engine, Limits};
use crate::compare;
use crate::compare::HierarchyState;
use crate::error::{Result, printable};
use crate::hierarchy::Hierarchy;
use crate::overlay::Overlay;
use crate::stats::Stats;
use crate::store::{Key, Store};

/// What comparing may hold in memory, beside what a mount holds, in bytes.
const MEMORY: u64 = 1 << 30;

/// How long a request to the store may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns what differs between a store and the overlay over it.
pub(super) fn answer(overlay: &Overlay) -> Result<Value> {
    let keys: HashSet<Key> = overlay
        .changes()?
        .keys
        .into_iter()
        .map(|change| change.key)
        .collect();
    let before = state(overlay.lower().clone());
    let after = state(Arc::new(overlay.clone()));
    Ok(json!({"nodes": compare::compare(&before, &after, &keys)?}))
}

fn state(store: Arc<dyn Store>) -> HierarchyState {
    let hierarchy = Arc::new(Hierarchy::new(store));
    let limits = Limits {
        memory: MEMORY / 2,
        max_chunk: MEMORY / 4,
        timeout: TIMEOUT,
        fetches: 0,
        lossy: false,
    };
    let engine = Engine::new(limits, Arc::new(Stats::default()));
    HierarchyState {
        arrays: Arrays::new(hierarchy.clone(), engine),
        hierarchy,
    }
}

/// Prints what differs, a node a line and what is in it below.
pub(super) fn print(answer: &Value) {
    for node in answer["nodes"].as_array().map_or(&[][..], Vec::as_slice) {
        let word = |name: &str| printable(node[name].as_str().unwrap_or_default());
        let (change, kind, path) = (word("change"), word("kind"), word("path"));
        report::print(format_args!("{change} {kind} /{path}"));
        for what in ["attributes", "metadata"] {
            for member in list(node, what) {
                print_member(what, member);
            }
        }
        for region in list(node, "regions") {
            let bounds = list(region, "start").iter().zip(list(region, "stop"));
            let bounds: Vec<String> = bounds.map(|(from, to)| format!("{from}:{to}")).collect();
            let count = &region["count"];
            report::print(format_args!("    [{}] {count} elements", bounds.join(", ")));
        }
        if let Some(error) = node["error"].as_str() {
            report::print(format_args!("    cannot be compared: {}", printable(error)));
        }
    }
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

fn print_member(what: &str, member: &Value) {
    let name = printable(member["name"].as_str().unwrap_or_default());
    let shown = |which: &str| member.get(which).map(|value| printable(&value.to_string()));
    let text = match (shown("before"), shown("after")) {
        (Some(before), Some(after)) => format!("{before} -> {after}"),
        (None, Some(after)) => format!("+ {after}"),
        (Some(before), None) => format!("- {before}"),
        (None, None) => String::new(),
    };
    report::print(format_args!("    {what} {name}: {text}"));
}
