//! Prints the result of `zarrfs diff --arrays`: changed nodes, attributes and array regions.

use serde_json::Value;

use super::report;
use zarr_format::error::printable;

/// Prints the differences: a line for each node, with its details below.
pub(super) fn print(nodes: &[Value]) {
    for node in nodes {
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
