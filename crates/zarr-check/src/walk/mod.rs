//! Walks through a hierarchy in parallel and reports findings in order.
//!
//! A thread that finishes a node or chunk takes the next one at once, so that the allowed number of requests is always
//! in flight. In memory are the child names of each group on the path to the current node, and a bounded number of
//! finished nodes. So the memory of a check depends on the depth of the store and on its largest group, not on the
//! number of nodes.

use std::collections::BTreeSet;
use std::mem::take;
use std::sync::Arc;
use std::thread;

use crate::context::CheckContext;
use crate::finding::{Finding, Severity};
use crate::rules::datasets::SiblingArrays;
use crate::rules::foreign::other_format;
use crate::rules::keys::{folder_link, hidden};
use crate::rules::nodes::node_fault;
use crate::walk::array_keys::MAX_INSPECTED;
use crate::walk::chunk_data::{ArrayData, ChunkTask};
use crate::walk::node::{CheckedNode, NextChild, NodeScope};
use crate::walk::work_queue::{Task, Ticket, Work, WorkQueue};
use zarr_format::error::{Result, printable};
use zarr_format::model::Node;
use zarrfs_array::hierarchy::NodeEntry;
use zarrfs_store::request_context::UNLIMITED;
use zarrfs_store::{EntryKind, HiddenEntry, HiddenReason, Key};

pub(crate) mod array_keys;
pub(crate) mod chunk_data;
pub(crate) mod draft_folders;
pub(crate) mod folder;
pub(crate) mod node;
pub(crate) mod shards;
pub(crate) mod work_queue;

/// Maximum depth of the nodes that are checked.
pub(crate) const MAX_DEPTH: usize = 1000;

/// The numbers of nodes and findings of a check.
#[derive(Clone, Debug, Default)]
pub struct CheckSummary {
    /// The dialects of the nodes that were checked, such as `v2`.
    pub dialects: BTreeSet<&'static str>,
    /// The number of groups that were checked.
    pub groups: u64,
    /// The number of arrays that were checked.
    pub arrays: u64,
    /// The number of nodes that cannot be read.
    pub unreadable: u64,
    /// The numbers of errors, of warnings and of advice, in this order.
    pub findings: [u64; 3],
    is_described: bool,
}

impl CheckSummary {
    /// Returns the number of findings with the given severity.
    pub fn count(&self, severity: Severity) -> u64 {
        self.findings[severity as usize]
    }

    fn record(&mut self, node: &CheckedNode) {
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
            Ok(Node::Group(_)) => self.groups += u64::from(node.is_described || node.has_children),
            Err(_) => self.unreadable += 1,
        }
    }
}

/// Checks a node and all nodes below it. Passes the findings to `report`, in the order of the hierarchy.
pub fn check(
    context: &CheckContext,
    start: &Arc<NodeEntry>,
    report: &mut dyn FnMut(&Finding),
) -> CheckSummary {
    if let Some(finding) = other_format(context, start) {
        report(&finding);
        let mut summary = CheckSummary::default();
        summary.findings[finding.severity as usize] += 1;
        return summary;
    }
    let worker = &Worker {
        context,
        start,
        queue: WorkQueue::new(context.threads, prefetches_listings(context)),
    };
    let mut reporter = Reporter {
        summary: CheckSummary::default(),
        siblings: SiblingArrays::new(context.store().info().lists),
        inspected: (!context.data).then_some(MAX_INSPECTED.into()),
        report,
    };
    thread::scope(|scope| {
        let begin = || {
            let thread = thread::Builder::new().name("zarrfs-check".to_string());
            thread.spawn_scoped(scope, || worker.run()).is_ok()
        };
        let has_threads = (0..context.threads.max(1)).filter(|_| begin()).count() > 0;
        reporter.follow(worker, has_threads);
    });
    reporter.end(context, start)
}

/// The context and the queue that the threads of a check share.
struct Worker<'a> {
    context: &'a CheckContext,
    start: &'a Arc<NodeEntry>,
    queue: WorkQueue,
}

impl Worker<'_> {
    /// Checks nodes and chunks from the queue until the check has ended.
    fn run(&self) {
        let guard = AbortGuard(&self.queue);
        while let Some(work) = self.queue.wait_for_work() {
            self.work(work);
        }
        drop(guard);
    }

    fn work(&self, work: Work) {
        match work {
            Work::Chunk(task) => self.check_chunk(task),
            Work::Node(Task::Prefetch(ticket, children)) => {
                prefetch_listings(self.context, &children);
                self.queue.mark_prefetched(ticket, children);
            }
            Work::Node(Task::Check(ticket, next)) => {
                self.take_node(ticket, check_child(self.context, &next));
            }
            Work::Node(Task::Start(ticket)) => {
                let node = node::check(self.context, self.start, &NodeScope::default());
                self.take_node(ticket, node);
            }
        }
    }

    /// Finishes a node that was checked. If it is an array whose chunks are to be decoded, queues them, and the node is
    /// finished after the last chunk.
    fn take_node(&self, ticket: Ticket, mut node: CheckedNode) {
        match node.array.take().filter(|_| self.context.data) {
            Some((array, folder)) => {
                let of = Arc::new(ArrayData::new(array, folder, ticket, node));
                of.list_chunks(self.context, &mut |task| {
                    if let Some(task) = self.queue.offer(task) {
                        self.check_chunk(task);
                    }
                });
                self.release(of);
            }
            None => self.queue.finish(ticket, node),
        }
    }

    fn check_chunk(&self, task: ChunkTask) {
        task.check(self.context);
        self.release(task.of);
    }

    /// Drops a reference to an array whose chunks are decoded. The last reference finishes the array's node.
    fn release(&self, of: Arc<ArrayData>) {
        if let Some((ticket, node)) = Arc::into_inner(of).map(ArrayData::into_node) {
            self.queue.finish(ticket, node);
        }
    }
}

/// Ends the check if a thread panics. Otherwise, the other threads would wait forever for the node of that thread.
struct AbortGuard<'a>(&'a WorkQueue);

impl Drop for AbortGuard<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.abort();
        }
    }
}

/// Reports the findings in the order of the nodes in the hierarchy.
struct Reporter<'a> {
    summary: CheckSummary,
    siblings: SiblingArrays,
    /// The maximum number of chunks of an array that are inspected, or `None` if all chunks are.
    inspected: Option<u64>,
    report: &'a mut dyn FnMut(&Finding),
}

impl Reporter<'_> {
    /// Reports finished nodes until the check has ended. If no thread could be started, also checks the nodes.
    fn follow(&mut self, worker: &Worker<'_>, has_threads: bool) {
        while !worker.queue.has_ended() {
            if let Some(node) = worker.queue.take_finished() {
                self.take(node);
            } else if has_threads {
                worker.queue.wait_for_finished();
            } else if let Some(work) = worker.queue.try_work() {
                worker.work(work);
            }
        }
    }

    fn take(&mut self, mut node: CheckedNode) {
        self.summary.record(&node);
        let findings = self.siblings.take(&node);
        self.add_all(findings);
        node.findings
            .merge_chunks(&node.path, node.chunks, self.inspected);
        for (finding, count) in node.findings.sorted(&node.path) {
            self.add(&finding, count);
        }
    }

    fn add_all(&mut self, findings: Vec<Finding>) {
        findings.iter().for_each(|finding| self.add(finding, 1));
    }

    fn add(&mut self, finding: &Finding, count: u64) {
        self.summary.findings[finding.severity as usize] += count;
        (self.report)(finding);
    }

    fn end(mut self, context: &CheckContext, start: &NodeEntry) -> CheckSummary {
        let left = take(&mut self.siblings).end();
        self.add_all(left);
        if !self.summary.is_described {
            let (message, remedy) = if has_folders_of_draft(context, &start.path) {
                (
                    "zarr.json is missing: the directories meta and data are those of a Zarr v3 draft",
                    "copy zarr.json from another copy of the store",
                )
            } else {
                (
                    "not a Zarr or N5 store: no metadata file found",
                    "check the path",
                )
            };
            let finding = Finding::error("no-store", &start.path, message);
            self.add(&finding.with_remedy(remedy), 1);
        }
        self.add_all(hidden_entries(context, &start.path));
        self.add_all(ozx_layout(context, &start.path).into_iter().collect());
        self.summary
    }
}

/// Whether a node has the folders `meta` and `data`, as the root of a Zarr v3 draft has them, but no metadata document.
fn has_folders_of_draft(context: &CheckContext, node: &Key) -> bool {
    ["meta", "data"].into_iter().all(|name| {
        let folder = node.child(name.as_bytes());
        let meta = folder.and_then(|folder| context.store().head(&UNLIMITED, &folder));
        meta.is_ok_and(|meta| meta.is_some_and(|meta| meta.kind == EntryKind::Directory))
    })
}

fn check_child(context: &CheckContext, next: &NextChild) -> CheckedNode {
    let NextChild {
        group,
        scope,
        child,
    } = next;
    let path = group.path.child(&child.name).unwrap_or_default();
    if scope.depth >= MAX_DEPTH {
        let message = format!("the node is more than {MAX_DEPTH} levels deep and is not checked");
        let finding = Finding::error("too-deep", &path, message);
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
    match context.hierarchy.child(&UNLIMITED, group, &child.name) {
        Ok(Some(entry)) => node::check(context, &entry, &scope),
        Ok(None) => CheckedNode::unknown(&path, None),
        Err(error) => CheckedNode::unknown(&path, Some(node_fault(&path, &error))),
    }
}

/// Whether listings are prefetched, which saves time in a remote store that can list names.
fn prefetches_listings(context: &CheckContext) -> bool {
    context.is_remote && context.store().info().lists
}

/// Prefetches the listings of all keys below the given children of one group.
fn prefetch_listings(context: &CheckContext, nodes: &[NextChild]) {
    for (top, folders) in folders_by_parent(nodes) {
        context
            .hierarchy
            .hints()
            .prefetch_below(&UNLIMITED, &top, &folders);
    }
}

/// Returns the folders of the given children of one group, grouped by the folders that contain them.
fn folders_by_parent(nodes: &[NextChild]) -> Vec<(Key, Vec<Key>)> {
    let Some(first) = nodes.first() else {
        return Vec::new();
    };
    let tops = parent_folders(&first.group).unwrap_or_default();
    let folders = |top: &Key| {
        let below = |node: &NextChild| top.child(&node.child.name).ok();
        nodes.iter().filter_map(below).collect()
    };
    tops.into_iter()
        .map(|top| (top.clone(), folders(&top)))
        .collect()
}

/// Returns the folders that contain the folders of a group's children. In a Zarr v3 draft, there are two: one for
/// metadata documents and one for chunks.
fn parent_folders(group: &NodeEntry) -> Result<Vec<Key>> {
    match group.entry_point() {
        None => Ok(vec![group.path.clone()]),
        Some(draft) => Ok(vec![draft.folder(&group.path)?, draft.data(&group.path)?]),
    }
}

/// Returns advice if the layout of a zipped OME-Zarr (`.ozx`) is not the one that RFC-9 recommends.
fn ozx_layout(context: &CheckContext, top: &Key) -> Option<Finding> {
    let layout = context.store().info().ozx_layout.as_ref()?;
    let mut differences = Vec::new();
    if let Some(key) = &layout.compressed {
        differences.push(format!("entries are compressed, {key} first"));
    }
    if let Some(key) = &layout.misplaced {
        let order = "the zarr.json files are not the first entries in breadth-first order";
        differences.push(format!("{order}, {key} first"));
    }
    if !layout.is_zip64 {
        differences.push("it is no ZIP64 archive".to_string());
    }
    if !layout.has_comment {
        differences.push("the archive comment does not name the version of OME-Zarr".to_string());
    }
    if differences.is_empty() {
        return None;
    }
    let message = format!(
        "differs from the .ozx layout of RFC-9: {}",
        differences.join("; ")
    );
    let remedy = "pack the store again with a program that writes this layout, such as ngff-zarr";
    Some(Finding::advice("ozx-layout", top, message).with_remedy(remedy))
}

/// Returns a finding for each entry at or below a node that the store hides. A bucket only knows its hidden entries
/// after they were listed.
fn hidden_entries(context: &CheckContext, top: &Key) -> Vec<Finding> {
    let entries = context.store().info().hidden_entries.all();
    let findings = entries.iter().filter_map(|entry| finding_of(entry, top));
    findings.collect()
}

fn finding_of(entry: &HiddenEntry, top: &Key) -> Option<Finding> {
    let name = printable(&String::from_utf8_lossy(&entry.name));
    let Some(key) = &entry.key else {
        let message =
            format!("the name {name} is not a path inside the store, so zarrfs does not show it");
        let finding = Finding::error("entry-not-shown", top, message);
        return top.is_root().then(|| finding.with_part(name));
    };
    key.below(top)?;
    match entry.why {
        HiddenReason::NoPath => None,
        HiddenReason::Special => Some(hidden(key, "symbolic link or special file")),
        HiddenReason::Replaced => {
            let message = "several entries have this name; zarrfs reads the last one";
            let finding = Finding::warning("entry-twice", key, message);
            Some(finding.with_habit("zarr-python"))
        }
        HiddenReason::Respelled => {
            let message = format!(
                "the name {name} is not a relative path with slashes; other programs do not find it"
            );
            let finding = Finding::warning("entry-respelled", top, message);
            Some(finding.with_part(name))
        }
    }
}
