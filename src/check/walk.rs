//! The way through a hierarchy: group by group, several nodes at a time, and what is found in the order of the nodes.
//!
//! What waits are the names of children of the groups on the way, and a batch of nodes; so a store of any number of nodes is
//! checked in memory that its depth and its largest group bound.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::vec::IntoIter;

use parking_lot::Mutex;

use crate::check::announced::announce;
use crate::check::checked_node::{CheckedNode, NextChild, NodeScope};
use crate::check::context::CheckContext;
use crate::check::data::{ArrayData, check_chunks};
use crate::check::finding::{Finding, Severity};
use crate::check::findings::NodeFindings;
use crate::check::group_folder::GroupChild;
use crate::check::key_findings::folder_link;
use crate::check::node;
use crate::check::node_findings::node_fault;
use crate::error::Result;
use crate::hierarchy::NodeEntry;
use crate::model::Node;
use crate::sync::pool::parallel_map;

/// The deepest node that is checked.
pub(super) const MAX_DEPTH: usize = 1000;

/// How many nodes for each thread are looked at before what was found is given out.
const BATCH: usize = 16;

/// What a check came to.
#[derive(Clone, Debug, Default)]
pub struct CheckSummary {
    /// The dialects of the nodes.
    pub dialects: BTreeSet<&'static str>,
    /// How many groups there are.
    pub groups: u64,
    /// How many arrays.
    pub arrays: u64,
    /// How many nodes do not read.
    pub unreadable: u64,
    /// How many errors, warnings and pieces of advice were found.
    pub findings: [u64; 3],
    is_described: bool,
}

impl CheckSummary {
    /// Returns how many findings of a severity there are.
    pub fn count(&self, severity: Severity) -> u64 {
        self.findings[severity as usize]
    }

    fn note(&mut self, node: &CheckedNode) {
        let Some(entry) = &node.entry else {
            self.unreadable += 1;
            return;
        };
        self.is_described |= node.is_described;
        if node.is_described {
            self.dialects.extend(entry.dialect());
        }
        match entry.node() {
            Ok(Node::Array(_)) => self.arrays += 1,
            Ok(Node::Group(_)) => {
                self.groups += u64::from(node.is_described || !node.children.is_empty())
            }
            Err(_) => self.unreadable += 1,
        }
    }
}

/// A group whose children are still to be looked at.
struct OpenGroup {
    group: Arc<NodeEntry>,
    scope: NodeScope,
    names: IntoIter<GroupChild>,
}

/// Checks a node and all below it; gives out each finding, node by node.
pub fn check(
    context: &CheckContext,
    start: &Arc<NodeEntry>,
    give: &mut dyn FnMut(&Finding),
) -> CheckSummary {
    let mut walk = Walk {
        context,
        open: Vec::new(),
        summary: CheckSummary::default(),
    };
    let first = node::check(context, start, &NodeScope::default());
    walk.finish(vec![first], give);
    loop {
        let batch = walk.next_batch();
        if batch.is_empty() {
            break;
        }
        announce(context, &batch);
        let look = |next: NextChild| look_at(context, &next);
        walk.finish(parallel_map(context.threads, batch, &look), give);
    }
    if !walk.summary.is_described {
        let expected = "documents of Zarr or N5";
        let finding = Finding::error("no-store", &start.path, expected, "none at all");
        walk.give(&finding, 1, give);
    }
    walk.summary
}

/// Looks at a child of a group.
fn look_at(context: &CheckContext, next: &NextChild) -> CheckedNode {
    let NextChild {
        group,
        scope,
        child,
    } = next;
    let path = group.path.child(&child.name).unwrap_or_default();
    if scope.depth >= MAX_DEPTH {
        let expected = format!("nodes at most {MAX_DEPTH} deep, which are checked");
        let finding = Finding::error("too-deep", &path, expected, "a deeper one");
        return CheckedNode::unknown(&path, Some(finding));
    }
    if child.is_link && scope.is_behind_link {
        let finding = folder_link(&path);
        return CheckedNode::unknown(&path, Some(finding));
    }
    let scope = NodeScope {
        is_behind_link: scope.is_behind_link || child.is_link,
        ..scope.clone()
    };
    let found = child_of(context, group, child);
    match found {
        Ok(Some(entry)) => node::check(context, &entry, &scope),
        Ok(None) => CheckedNode::unknown(&path, None),
        Err(error) => CheckedNode::unknown(&path, Some(node_fault(&path, &error))),
    }
}

fn child_of(
    context: &CheckContext,
    group: &NodeEntry,
    child: &GroupChild,
) -> Result<Option<Arc<NodeEntry>>> {
    context.hierarchy.child(group, &child.name)
}

/// A check on its way.
struct Walk<'a> {
    context: &'a CheckContext,
    /// Groups, the one whose children come next at the end.
    open: Vec<OpenGroup>,
    summary: CheckSummary,
}

impl Walk<'_> {
    /// Returns the next nodes in the order of the hierarchy.
    fn next_batch(&mut self) -> Vec<NextChild> {
        let most = BATCH * self.context.threads.max(1);
        let mut batch = Vec::new();
        while let Some(open) = self.open.last_mut().filter(|_| batch.len() < most) {
            match open.names.next() {
                Some(child) => batch.push(NextChild {
                    group: open.group.clone(),
                    scope: open.scope.clone(),
                    child,
                }),
                None => drop(self.open.pop()),
            }
        }
        batch
    }

    /// Decodes the chunks of nodes if that is wanted, gives out what was found, and opens the groups among them.
    fn finish(&mut self, mut nodes: Vec<CheckedNode>, give: &mut dyn FnMut(&Finding)) {
        if self.context.data {
            self.check_data(&mut nodes);
        }
        let mut groups = Vec::new();
        for node in nodes {
            self.summary.note(&node);
            for (finding, count) in node.findings.sorted(&node.path) {
                self.give(&finding, count, give);
            }
            if let Some(group) = node.entry.filter(|_| !node.children.is_empty()) {
                groups.push(OpenGroup {
                    group,
                    scope: node.scope,
                    names: node.children.into_iter(),
                });
            }
        }
        self.open.extend(groups.into_iter().rev());
    }

    fn check_data(&self, nodes: &mut [CheckedNode]) {
        let with_arrays = nodes.iter_mut().enumerate();
        let (places, arrays): (Vec<usize>, Vec<ArrayData>) = with_arrays
            .filter_map(|(place, node)| {
                let (array, folder) = node.array.take()?;
                let findings = Mutex::new(NodeFindings::default());
                Some((
                    place,
                    ArrayData {
                        array,
                        folder,
                        findings,
                    },
                ))
            })
            .unzip();
        check_chunks(self.context, &arrays);
        for (place, array) in places.into_iter().zip(arrays) {
            if let Some(node) = nodes.get_mut(place) {
                node.findings.merge(array.findings.into_inner());
            }
        }
    }

    fn give(&mut self, finding: &Finding, count: u64, give: &mut dyn FnMut(&Finding)) {
        self.summary.findings[finding.severity as usize] += count;
        give(finding);
    }
}
