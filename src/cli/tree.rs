//! `zarrfs tree` and `zarrfs ls`: the nodes of a store, a line each.

use serde_json::{Value, json};

use super::named_faults::named;
use super::paint::Paint;
use super::{LsArgs, TreeArgs, report, shown, units};
use crate::error::{Error, Result, printable};
use crate::inspect::locate::StorePath;
use crate::inspect::root_name::root_name;
use crate::inspect::tree;
use crate::inspect::tree::{NodeFacts, TreeConfig, TreeNode};

/// How many chunks of an array are counted unless --sizes asks for all.
const USUAL_CHUNKS: u64 = 10_000;

/// Prints the nodes of a store as a tree.
pub(super) fn tree(args: &TreeArgs) -> Result<bool> {
    let located = args.store.open(&args.path)?;
    let config = TreeConfig {
        depth: args.depth.unwrap_or(usize::MAX),
        chunks: if args.sizes { u64::MAX } else { USUAL_CHUNKS },
        threads: located.concurrency,
    };
    let root = root_name(&located.source);
    let nodes = tree::tree(&located.opened, (&located.path, &root), &config);
    let nodes = named(&located, &args.path, nodes)?;
    if args.json {
        let list: Vec<Value> = nodes.iter().map(node_json).collect();
        let found = json!({"store": located.source, "nodes": list});
        report::print_json(&found);
    } else {
        print_tree(&located, &nodes);
    }
    named(&located, &args.path, first_fault(nodes))
}

/// Prints the children of a group, or an array.
pub(super) fn ls(args: &LsArgs) -> Result<bool> {
    let located = args.store.open(&args.path)?;
    let config = TreeConfig {
        depth: 1,
        chunks: if args.long { USUAL_CHUNKS } else { 0 },
        threads: located.concurrency,
    };
    let root = root_name(&located.source);
    let nodes = tree::tree(&located.opened, (&located.path, &root), &config);
    let mut nodes = named(&located, &args.path, nodes)?;
    let is_group = matches!(nodes.first(), Some(node) if matches!(node.facts, NodeFacts::Group));
    let listed: Vec<&TreeNode> = nodes.iter().skip(usize::from(is_group)).collect();
    if args.json {
        let list: Vec<Value> = listed.into_iter().map(node_json).collect();
        report::print_json(&json!(list));
    } else {
        print_list(&listed, &args.path, args.long);
    }
    nodes.truncate(1);
    named(&located, &args.path, first_fault(nodes))
}

/// Fails with the first error that hid a part of the tree.
fn first_fault(nodes: Vec<TreeNode>) -> Result<bool> {
    let fault = nodes.into_iter().find_map(|node| node.fault);
    fault.map_or(Ok(true), Err)
}

/// Prints nodes, a line each; the node that was typed itself as `typed`.
fn print_list(nodes: &[&TreeNode], typed: &str, is_long: bool) {
    let paint = Paint::of_stdout();
    let shown = |node: &&TreeNode| {
        if node.depth == 0 {
            printable(typed)
        } else {
            name(node)
        }
    };
    let names: Vec<String> = nodes.iter().map(shown).collect();
    let width = names
        .iter()
        .map(|name| name.chars().count())
        .max()
        .unwrap_or(0);
    for (node, name) in nodes.iter().zip(&names) {
        if is_long {
            let space = " ".repeat(width - name.chars().count());
            let line = format!(
                "{}{space}  {}",
                painted(node, name, paint),
                facts(node, paint)
            );
            report::print(line.trim_end());
        } else {
            report::print(painted(node, name, paint));
        }
    }
}

/// Returns the name of a node, as it is shown.
fn name(node: &TreeNode) -> String {
    printable(&String::from_utf8_lossy(node.path.name()))
}

fn painted(node: &TreeNode, name: &str, paint: Paint) -> String {
    match node.facts {
        NodeFacts::Group => paint.group(name),
        NodeFacts::Array(_) => paint.array(name),
        NodeFacts::Broken(_) => paint.fault(name),
    }
}

fn print_tree(located: &StorePath, nodes: &[TreeNode]) {
    let paint = Paint::of_stdout();
    let mut bars: Vec<&str> = Vec::new();
    for node in nodes {
        let (branch, bar) = match (node.depth, node.is_last) {
            (0, _) => ("", ""),
            (_, true) => ("\u{2514}\u{2500}\u{2500} ", "    "),
            (_, false) => ("\u{251c}\u{2500}\u{2500} ", "\u{2502}   "),
        };
        bars.truncate(node.depth);
        let name = match node.depth {
            0 => whole_name(located),
            _ => name(node),
        };
        let line = format!(
            "{}{branch}{}  {}",
            bars.concat(),
            painted(node, &name, paint),
            facts(node, paint)
        );
        report::print(line.trim_end());
        bars.push(bar);
    }
    report::print(counts(nodes));
}

/// Returns the path of the node that the tree begins with, with its store.
fn whole_name(located: &StorePath) -> String {
    let path = if located.path.is_root() {
        String::new()
    } else {
        format!("/{}", shown::text(&located.path))
    };
    printable(&format!("{}{path}", located.source))
}

/// Returns what is shown of a node after its name.
fn facts(node: &TreeNode, paint: Paint) -> String {
    let mut parts = Vec::new();
    match &node.facts {
        NodeFacts::Group => parts.extend(
            node.dialect
                .map(|dialect| paint.faint(&format!("{dialect} group"))),
        ),
        NodeFacts::Array(array) => {
            parts.push(shown::array_line(array, &paint));
            let unit = if array.inner_chunk_shapes.is_empty() {
                "chunk"
            } else {
                "shard"
            };
            parts.extend(
                node.stored
                    .as_ref()
                    .map(|stored| shown::stored_line(stored, unit)),
            );
        }
        NodeFacts::Broken(error) => parts.push(paint.fault(&format!("broken: {error}"))),
    }
    if node.attributes > 0 {
        parts.push(units::count(node.attributes as u64, "attribute"));
    }
    if node.is_cut {
        parts.push(paint.faint("..."));
    }
    if let Some(fault) = &node.fault {
        parts.push(paint.fault(&format!("its children are not known: {fault}")));
    }
    parts.join("  ")
}

fn counts(nodes: &[TreeNode]) -> String {
    let count =
        |is: fn(&NodeFacts) -> bool| nodes.iter().filter(|node| is(&node.facts)).count() as u64;
    let arrays = count(|facts| matches!(facts, NodeFacts::Array(_)));
    let groups = count(|facts| matches!(facts, NodeFacts::Group));
    let broken = count(|facts| matches!(facts, NodeFacts::Broken(_)));
    let mut text = format!(
        "{}, {}",
        units::count(groups, "group"),
        units::count(arrays, "array")
    );
    if broken > 0 {
        text += &format!(", {}", units::count(broken, "broken node"));
    }
    // Each folder without documents is taken for a group.
    let is_bare = |node: &TreeNode| {
        let is_plain = node.dialect.is_none() && matches!(node.facts, NodeFacts::Group);
        is_plain && !node.is_cut && node.fault.is_none()
    };
    if nodes.iter().all(is_bare) {
        text += "; no Zarr metadata found";
    }
    text
}

fn node_json(node: &TreeNode) -> Value {
    let (kind, members) = match &node.facts {
        NodeFacts::Group => ("group", None),
        NodeFacts::Array(array) => ("array", Some(shown::array_json(array))),
        NodeFacts::Broken(_) => ("broken", None),
    };
    let mut found = json!({
        "path": shown::text(&node.path),
        "kind": kind,
        "dialect": node.dialect,
        "attributes": node.attributes,
    });
    let error = match &node.facts {
        NodeFacts::Broken(error) => Some(error),
        _ => node.fault.as_ref(),
    };
    let error = error.map(|error: &Error| ("error", json!(error.to_string())));
    let cut = node.is_cut.then(|| ("is_cut", json!(true)));
    let stored = node
        .stored
        .as_ref()
        .map(|stored| ("stored", shown::stored_json(stored)));
    if let Some(found) = found.as_object_mut() {
        found.extend(members.into_iter().flatten());
        let others = [stored, cut, error].into_iter().flatten();
        found.extend(others.map(|(name, value)| (name.to_string(), value)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Key;

    #[test]
    fn a_folder_whose_children_are_not_known_may_have_metadata() {
        let folder = |fault: Option<Error>| TreeNode {
            path: Key::root(),
            depth: 0,
            facts: NodeFacts::Group,
            dialect: None,
            attributes: 0,
            stored: None,
            is_last: true,
            is_cut: false,
            fault,
        };
        let told = counts(&[folder(None)]);
        assert_eq!(told, "1 group, 0 arrays; no Zarr metadata found");
        let fault = Error::unavailable("a.zarr", "no answer");
        assert_eq!(counts(&[folder(Some(fault))]), "1 group, 0 arrays");
    }
}
