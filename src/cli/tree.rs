//! `zarrfs tree` and `zarrfs ls`: list the nodes of a store.

use std::mem::take;
use std::ops::ControlFlow;

use serde_json::{Value, json};

use crate::cli::report::JsonList;
use crate::cli::source::{NAMED_ONLY, SourceNode};
use crate::cli::terminal::{Paint, is_utf8, terminal_width};
use crate::cli::{LsArgs, TreeArgs, format, report};
use zarr_format::error::{Error, Result, printable};
use zarrfs_array::hierarchy::SYMLINK_CYCLE;
use zarrfs_export::inspect::locate::StorePath;
use zarrfs_export::inspect::locate::root_name;
use zarrfs_export::inspect::tree;
use zarrfs_export::inspect::tree::TakeNode;
use zarrfs_export::inspect::tree::{NodeFacts, TreeConfig, TreeNode};
use zarrfs_store::request_context::UNLIMITED;

/// Maximum number of chunks of an array that are counted without --sizes.
const USUAL_CHUNKS: u64 = 10_000;

/// Prints the nodes of a store as a tree. Each line is printed as soon as its node and all nodes before it are read.
pub(super) fn tree(args: &TreeArgs) -> Result<bool> {
    let source = SourceNode::open(&args.store, &args.path)?;
    let located = &source.located;
    let config = TreeConfig {
        depth: args.depth.unwrap_or(usize::MAX),
        chunks: if args.sizes { u64::MAX } else { USUAL_CHUNKS },
        threads: located.concurrency,
    };
    let mut fault = None;
    let late = if args.json {
        let mut list = JsonList::member("store", &json!(located.source), "nodes");
        let late = walk(&source, &config, &mut |node| {
            let printed = list.item(&node_json(&node));
            fault = fault.take().or(node.fault);
            printed
        })?;
        list.end();
        late
    } else {
        let mut printer = TreePrinter::new(located);
        let late = walk(&source, &config, &mut |node| {
            let printed = printer.print(&node);
            fault = fault.take().or(node.fault);
            printed
        })?;
        report::print(printer.counts.in_words());
        late
    };
    source.name_errors(fault.or(late).map_or(Ok(true), Err))
}

/// Prints the children of a group, or the array that the path names.
pub(super) fn ls(args: &LsArgs) -> Result<bool> {
    let source = SourceNode::open(&args.store, &args.path)?;
    let located = &source.located;
    let config = TreeConfig {
        depth: 1,
        chunks: if args.long { USUAL_CHUNKS } else { 0 },
        threads: located.concurrency,
    };
    let mut fault = None;
    let mut list = JsonList::plain();
    let mut table = Vec::new();
    let late = walk(&source, &config, &mut |node| {
        let is_group = matches!(node.facts, NodeFacts::Group);
        if node.depth == 0 {
            fault.clone_from(&node.fault);
        }
        if node.depth == 0 && is_group {
            return ControlFlow::Continue(());
        }
        if args.json {
            return list.item(&node_json(&node));
        }
        table.push(node);
        // A list with details is printed in batches of 1024 nodes; within a batch the columns have equal widths.
        if args.long && table.len() < 1024 {
            return ControlFlow::Continue(());
        }
        print_list(&take(&mut table), &args.path, args.long)
    })?;
    if args.json {
        list.end();
    } else {
        let _ = print_list(&table, &args.path, args.long);
    }
    source.name_errors(fault.or(late).map_or(Ok(true), Err))
}

/// Walks a tree and passes each node to `take`. Returns the error of a node that turned out to be broken only after its
/// group was passed.
fn walk(source: &SourceNode<'_>, config: &TreeConfig, take: TakeNode<'_>) -> Result<Option<Error>> {
    let located = &source.located;
    let root = root_name(&located.source);
    let mut is_partial = false;
    let walked = tree::walk(
        &UNLIMITED,
        &located.opened,
        &located.path,
        &root,
        config,
        &mut |node| {
            is_partial |= node.is_partial;
            take(node)
        },
    );
    if is_partial {
        let place = whole_name(located);
        report::warn(format_args!("{place}: these nodes are {NAMED_ONLY}"));
    }
    if let Some(link) = located.opened.hierarchy.symlink_cycle() {
        report::warn(format_args!("{}: {SYMLINK_CYCLE}", format::text(&link)));
    }
    if matches!(walked, Ok(None)) {
        source.warn_unread_copies();
    }
    source.name_errors(walked)
}

/// Prints nodes, one a line; the node that the user named is printed as typed.
fn print_list(nodes: &[TreeNode], typed: &str, is_long: bool) -> ControlFlow<()> {
    let paint = Paint::of_stdout();
    let name_of = |node: &TreeNode| {
        if node.depth == 0 {
            printable(typed)
        } else {
            name(node)
        }
    };
    let names: Vec<String> = nodes.iter().map(name_of).collect();
    let lengths = names.iter().map(|name| name.chars().count());
    let width = lengths.max().unwrap_or(0);
    nodes.iter().zip(&names).try_for_each(|(node, name)| {
        let mut line = painted(node, name, paint);
        if is_long {
            let space = " ".repeat(width - name.chars().count());
            let facts: Vec<String> = facts(node, paint)
                .into_iter()
                .map(|fact| fact.painted)
                .collect();
            line = format!("{line}{space}  {}", facts.join("  "));
        }
        report::print_more(if is_long { line.trim_end() } else { &line })
    })
}

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

/// Line-drawing characters before the names in a tree.
struct Lines {
    branch: &'static str,
    last: &'static str,
    bar: &'static str,
    /// Vertical line in the further lines of a group: it leads down to the group's children.
    below: &'static str,
}

impl Lines {
    fn of_locale() -> Lines {
        if is_utf8() {
            Lines {
                branch: "\u{251c}\u{2500}\u{2500} ",
                last: "\u{2514}\u{2500}\u{2500} ",
                bar: "\u{2502}   ",
                below: "\u{2502} ",
            }
        } else {
            Lines {
                branch: "+-- ",
                last: "`-- ",
                bar: "|   ",
                below: "| ",
            }
        }
    }
}

/// Prints the lines of a tree.
struct TreePrinter<'a> {
    located: &'a StorePath,
    paint: Paint,
    lines: Lines,
    width: usize,
    /// Vertical lines before the descendants of each node on the current path.
    bars: Vec<&'static str>,
    counts: Counts,
}

impl TreePrinter<'_> {
    fn new(located: &StorePath) -> TreePrinter<'_> {
        TreePrinter {
            located,
            paint: Paint::of_stdout(),
            lines: Lines::of_locale(),
            width: terminal_width(),
            bars: Vec::new(),
            counts: Counts::default(),
        }
    }

    fn print(&mut self, node: &TreeNode) -> ControlFlow<()> {
        self.counts.add(node);
        let lines = &self.lines;
        let (branch, bar) = match (node.depth, node.is_last) {
            (0, _) => ("", ""),
            (_, true) => (lines.last, "    "),
            (_, false) => (lines.branch, lines.bar),
        };
        self.bars.truncate(node.depth);
        let name = match node.depth {
            0 => whole_name(self.located),
            _ => name(node),
        };
        let first = format!("{}{branch}{name}", self.bars.concat());
        let painted = format!(
            "{}{branch}{}",
            self.bars.concat(),
            painted(node, &name, self.paint)
        );
        self.bars.push(bar);
        // Below the facts of a group the vertical line to its children begins.
        let below = if matches!(node.facts, NodeFacts::Group) && !node.is_cut {
            lines.below
        } else {
            "  "
        };
        let margin = format!("{}{below}  ", self.bars.concat());
        let mut used = first.chars().count();
        let mut text = painted;
        for fact in facts(node, self.paint) {
            let length = fact.length();
            if used + 2 + length > self.width && used > margin.chars().count() {
                text += &format!("\n{margin}{}", fact.painted);
                used = margin.chars().count() + length;
            } else {
                text += &format!("  {}", fact.painted);
                used += 2 + length;
            }
        }
        report::print_more(&text)
    }
}

/// Returns the path or URL of the tree's topmost node.
fn whole_name(located: &StorePath) -> String {
    let path = if located.path.is_root() {
        String::new()
    } else {
        format!("/{}", format::text(&located.path))
    };
    printable(&format!("{}{path}", located.source))
}

/// A fact about a node, as plain and as coloured text.
struct Fact {
    plain: String,
    painted: String,
}

impl Fact {
    fn new(plain: String, paint: impl Fn(&str) -> String) -> Fact {
        Fact {
            painted: paint(&plain),
            plain,
        }
    }

    fn length(&self) -> usize {
        self.plain.chars().count()
    }
}

/// Returns the facts that follow the name of a node in a tree.
fn facts(node: &TreeNode, paint: Paint) -> Vec<Fact> {
    let plain = |text: &str| text.to_string();
    let fault = |text: &str| paint.fault(text);
    let mut facts = Vec::new();
    match &node.facts {
        NodeFacts::Group => {
            let dialect = node.dialect.map(|dialect| format!("{dialect} group"));
            facts.extend(dialect.map(|text| Fact::new(text, |text| paint.faint(text))));
        }
        NodeFacts::Array(array) => {
            let (kind, shape) = (printable(&array.data_type), format::shape(&array.shape));
            facts.push(Fact {
                plain: format!("{kind} {shape}"),
                painted: format!("{} {shape}", paint.kind(&kind)),
            });
            facts.extend(
                format::array_facts(array)
                    .into_iter()
                    .map(|text| Fact::new(text, plain)),
            );
            if array.undecodable.is_some() {
                facts.push(Fact::new("cannot be decoded".to_string(), fault));
            }
            let unit = if array.inner_chunk_shapes.is_empty() {
                "chunk"
            } else {
                "shard"
            };
            let stored = node.stored.as_ref();
            let stored = stored.map(|stored| format::stored_line(stored, unit));
            facts.extend(stored.map(|text| Fact::new(text, plain)));
        }
        NodeFacts::Broken(error) => facts.push(Fact::new(format!("broken: {error}"), fault)),
    }
    if node.is_cut {
        facts.push(Fact::new("...".to_string(), |text| paint.faint(text)));
    }
    if let Some(error) = &node.fault {
        facts.push(Fact::new(format!("children unknown: {error}"), fault));
    }
    facts
}

/// Numbers of groups, arrays and broken nodes.
#[derive(Default)]
struct Counts {
    groups: u64,
    arrays: u64,
    broken: u64,
    /// Whether a node with a metadata document was found, or may exist unseen.
    has_metadata: bool,
}

impl Counts {
    fn add(&mut self, node: &TreeNode) {
        let is_group = matches!(node.facts, NodeFacts::Group);
        match node.facts {
            NodeFacts::Group => self.groups += 1,
            NodeFacts::Array(_) => self.arrays += 1,
            NodeFacts::Broken(_) => self.broken += 1,
        }
        // A folder without a metadata document counts as a group.
        let is_bare = is_group && node.dialect.is_none();
        self.has_metadata |= !is_bare || node.is_cut || node.fault.is_some();
    }

    fn in_words(&self) -> String {
        let groups = format::count(self.groups, "group");
        let mut text = format!("{groups}, {}", format::count(self.arrays, "array"));
        if self.broken > 0 {
            text += &format!(", {}", format::count(self.broken, "broken node"));
        }
        if !self.has_metadata {
            text += "; no Zarr metadata found";
        }
        text
    }
}

fn node_json(node: &TreeNode) -> Value {
    let (kind, members) = match &node.facts {
        NodeFacts::Group => ("group", None),
        NodeFacts::Array(array) => ("array", Some(format::array_json(array))),
        NodeFacts::Broken(_) => ("broken", None),
    };
    let mut report = json!({
        "path": format::text(&node.path),
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
    let partial = node.is_partial.then(|| ("is_partial", json!(true)));
    let stored = node
        .stored
        .as_ref()
        .map(|stored| ("stored", format::stored_json(stored)));
    if let Some(report) = report.as_object_mut() {
        report.extend(members.into_iter().flatten());
        let others = [stored, cut, partial, error].into_iter().flatten();
        report.extend(others.map(|(name, value)| (name.to_string(), value)));
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use zarrfs_store::Key;

    #[test]
    fn an_unlistable_folder_is_not_reported_as_without_metadata() {
        let folder = |fault: Option<Error>| TreeNode {
            path: Key::root(),
            depth: 0,
            facts: NodeFacts::Group,
            dialect: None,
            attributes: 0,
            stored: None,
            is_last: true,
            is_cut: false,
            is_partial: false,
            fault,
        };
        let counts = |node: TreeNode| {
            let mut counts = Counts::default();
            counts.add(&node);
            counts.in_words()
        };
        let text = counts(folder(None));
        assert_eq!(text, "1 group, 0 arrays; no Zarr metadata found");
        let fault = Error::unavailable("a.zarr", "no answer");
        assert_eq!(counts(folder(Some(fault))), "1 group, 0 arrays");
    }
}
