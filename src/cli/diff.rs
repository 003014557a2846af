//! `zarrfs diff --arrays` and `zarrfs diff A B`: prints differences, node by node.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::cli::store_args::StoreArgs;
use crate::cli::{DiffArgs, format, report};
use zarr_format::error::{Error, Result, printable};
use zarrfs_array::hierarchy::{Hierarchy, NodeEntry};
use zarrfs_export::compare;
use zarrfs_export::compare::{Compared, HierarchyState};
use zarrfs_export::inspect::locate::StorePath;
use zarrfs_store::request_context::UNLIMITED;

/// Prints the differences of two stores; returns whether there are none. Fails with `Unsupported` if no difference was
/// found but some nodes cannot be compared.
pub(super) fn diff(args: &DiffArgs, other: &str) -> Result<bool> {
    let reading = StoreArgs::of_two(&args.place.remote, &args.outside);
    let before = reading.open(&args.place.place.to_string_lossy())?;
    let after = reading.open(other)?;
    check_described(&before)?;
    check_described(&after)?;
    let what = if args.values {
        Compared::Values
    } else {
        Compared::Stores
    };
    let mut nodes = Vec::new();
    let mut is_equal = true;
    let mut first_fault = None;
    compare::compare(&state(&before), &state(&after), what, &mut |node: Value| {
        is_equal &= node["error"].is_string() && !has_difference(&node);
        if let (None, Some(why)) = (&first_fault, node["error"].as_str()) {
            first_fault = Some((node["path"].clone(), why.to_string()));
        }
        if args.json {
            nodes.push(node);
        } else {
            print(&[node]);
        }
        Ok(())
    })?;
    if args.json {
        report::print_json(&serde_json::json!({ "nodes": nodes }));
    }
    match first_fault {
        Some((path, why)) if is_equal => {
            let path = path.as_str().unwrap_or_default();
            let why = format!("cannot be compared: {why} (no other differences)");
            Err(Error::unsupported(format!("/{path}"), why))
        }
        _ => Ok(is_equal),
    }
}

/// Whether the report of a node has differences; it may also have an error.
fn has_difference(node: &Value) -> bool {
    let lists = ["attributes", "metadata", "regions"];
    lists.iter().any(|name| node.get(name).is_some())
}

/// Fails with `Invalid` if neither the node nor a descendant has a metadata document: otherwise an unrelated folder
/// would be compared as if it were a group.
fn check_described(place: &StorePath) -> Result<()> {
    let hierarchy = &place.opened.hierarchy;
    let Some(start) = hierarchy.node(&UNLIMITED, &place.path)? else {
        return Ok(());
    };
    // An unreadable node is compared anyway, since the comparison reports its error.
    if is_described(hierarchy, start).unwrap_or(true) {
        return Ok(());
    }
    let folder = format!("{}/{}", place.source, place.path);
    let why = "no metadata files of Zarr or N5 found; check the path";
    Err(Error::invalid(folder.trim_end_matches('/'), why))
}

/// Whether a node or one of its descendants has a metadata document.
fn is_described(hierarchy: &Arc<Hierarchy>, start: Arc<NodeEntry>) -> Result<bool> {
    let has_document = |node: &NodeEntry| node.version != 0 || node.dialect().is_some();
    let mut visited = 0;
    let mut open = vec![start];
    while let Some(node) = open.pop() {
        if node.node.is_err() || has_document(&node) {
            return Ok(true);
        }
        let mut children = hierarchy.children(&UNLIMITED, &node)?;
        while let Some(name) = children.next(&UNLIMITED)? {
            visited += 1;
            // Symbolic links may form a cycle, so the search for metadata documents stops after 100,000 names.
            if visited > 100_000 {
                return Ok(true);
            }
            open.extend(hierarchy.child(&UNLIMITED, &node, &name.name)?);
        }
    }
    Ok(false)
}

fn state(place: &StorePath) -> HierarchyState {
    HierarchyState {
        hierarchy: place.opened.hierarchy.clone(),
        arrays: Arc::clone(&place.opened.arrays),
        base: place.path.clone(),
    }
}

/// Prints a line for each changed node, with its differences below.
pub(super) fn print(nodes: &[Value]) {
    for node in nodes {
        let word = |name: &str| printable(node[name].as_str().unwrap_or_default());
        let change = change_letter(node["change"].as_str());
        let (kind, path) = (word("kind"), word("path"));
        report::print(format_args!("{change} {kind} /{path}"));
        for what in ["attributes", "metadata"] {
            for member in list(node, what) {
                print_member(what, member);
            }
        }
        for region in list(node, "regions") {
            let bounds = list(region, "start").iter().zip(list(region, "stop"));
            let bounds: Vec<String> = bounds.map(|(from, to)| format!("{from}:{to}")).collect();
            let count = region["count"].as_u64().unwrap_or_default();
            let count = format::count(count, "element");
            report::print(format_args!("    [{}] {count}", bounds.join(", ")));
        }
        if let Some(error) = node["error"].as_str() {
            report::print(format_args!("    cannot be compared: {}", printable(error)));
        }
    }
}

/// Returns the letter that shows how a node changed: A (created), M (modified) or D (deleted).
fn change_letter(change: Option<&str>) -> char {
    match change {
        Some("created") => 'A',
        Some("deleted") => 'D',
        _ => 'M',
    }
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

/// Prints a changed attribute or metadata member before and after; of a long object or array only the values that
/// differ.
fn print_member(what: &str, member: &Value) {
    let name = printable(member["name"].as_str().unwrap_or_default());
    for Difference {
        place,
        before,
        after,
    } in Difference::between(name, member.get("before"), member.get("after"))
    {
        let text = |value: Option<&Value>| value.map(|value| printable(&value.to_string()));
        let text = match (text(before), text(after)) {
            (Some(before), Some(after)) => format!("{before} -> {after}"),
            (None, Some(after)) => format!("added {after}"),
            (Some(before), None) => format!("removed {before}"),
            (None, None) => String::new(),
        };
        report::print(format_args!("    {what} {place}: {text}"));
    }
}

/// A value that differs between two JSON documents.
struct Difference<'a> {
    /// Path of the value in the document: `ome.omero.channels[1].label`.
    place: String,
    before: Option<&'a Value>,
    after: Option<&'a Value>,
}

impl<'a> Difference<'a> {
    /// Compares two JSON values: long objects and arrays by their members, others as a whole.
    fn between(
        place: String,
        before: Option<&'a Value>,
        after: Option<&'a Value>,
    ) -> Vec<Difference<'a>> {
        // Values of at most 60 bytes of JSON text are printed whole, not member by member.
        let is_long =
            |value: Option<&Value>| value.is_some_and(|value| value.to_string().len() > 60);
        let is_divided = is_long(before) || is_long(after);
        match (before, after) {
            (Some(before), Some(after)) if before == after => Vec::new(),
            (Some(Value::Object(old)), Some(Value::Object(new))) if is_divided => {
                let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
                let inner = |name: &String| {
                    let place = format!("{place}.{}", printable(name));
                    Difference::between(place, old.get(name), new.get(name))
                };
                names.into_iter().flat_map(inner).collect()
            }
            (Some(Value::Array(old)), Some(Value::Array(new)))
                if is_divided && old.len() == new.len() =>
            {
                let pairs = old.iter().zip(new).enumerate();
                let inner = |(index, (old, new))| {
                    Difference::between(format!("{place}[{index}]"), Some(old), Some(new))
                };
                pairs.flat_map(inner).collect()
            }
            _ => vec![Difference {
                place,
                before,
                after,
            }],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn places(before: &Value, after: &Value) -> Vec<String> {
        let found = Difference::between("ome".to_string(), Some(before), Some(after));
        found.into_iter().map(|found| found.place).collect()
    }

    #[test]
    fn long_members_are_narrowed_to_the_values_that_differ() {
        let name = "x".repeat(60);
        let before = json!({"name": name, "channels": [{"label": "a"}, {"label": "b"}]});
        let after = json!({"name": name, "channels": [{"label": "a"}, {"label": "c"}], "new": 1});
        assert_eq!(places(&before, &after), ["ome.channels", "ome.new"]);
        let before = json!({"channels": [{"label": name}, {"label": "b"}]});
        let after = json!({"channels": [{"label": name}, {"label": "c"}]});
        assert_eq!(places(&before, &after), ["ome.channels[1]"]);
        assert_eq!(places(&json!({"a": 1}), &json!({"a": 2})), ["ome"]);
    }
}
