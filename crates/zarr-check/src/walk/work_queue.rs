//! Queues the nodes and chunks of a check, and returns finished nodes in order.
//!
//! A thread takes one task at a time, chunks before nodes, and waits only if there is no task that it can do. Nodes are
//! reported in the order of the hierarchy: each before its children, siblings sorted by name. A thread takes the first
//! node in this order that no thread has taken. So threads wait for the store, but hardly for each other. Finished
//! nodes wait in memory until all nodes before them are finished; their number is bounded.

use std::collections::VecDeque;
use std::sync::Arc;
use std::vec::IntoIter;

use parking_lot::{Condvar, Mutex};

use crate::walk::chunk_data::ChunkTask;
use crate::walk::folder::GroupChild;
use crate::walk::node::{CheckedNode, NextChild, NodeScope};
use zarrfs_array::hierarchy::NodeEntry;

/// A task for a thread.
pub(crate) enum Work {
    /// Decode a chunk.
    Chunk(ChunkTask),
    /// Do the next task in the order of nodes.
    Node(Task),
}

/// The tasks of a check, and the nodes that are not reported yet.
pub(crate) struct WorkQueue {
    state: Mutex<WorkState>,
    /// Signals that there may be a task for a thread.
    has_work: Condvar,
    /// Signals that the next node to report may be finished.
    has_finished: Condvar,
    max_chunks: usize,
}

struct WorkState {
    order: NodeOrder,
    chunks: VecDeque<ChunkTask>,
    has_ended: bool,
}

impl WorkState {
    fn next(&mut self) -> Option<Work> {
        match self.chunks.pop_front() {
            Some(task) => Some(Work::Chunk(task)),
            None => self.order.next_task().map(Work::Node),
        }
    }
}

impl WorkQueue {
    /// Creates a queue with one task: to check the node at which the check starts.
    pub(crate) fn new(threads: usize, prefetches: bool) -> WorkQueue {
        WorkQueue {
            state: Mutex::new(WorkState {
                order: NodeOrder::new(threads, prefetches),
                chunks: VecDeque::new(),
                has_ended: false,
            }),
            has_work: Condvar::new(),
            has_finished: Condvar::new(),
            max_chunks: AHEAD * threads.max(1),
        }
    }

    /// Waits for a task. Returns `None` when the check has ended.
    pub(crate) fn wait_for_work(&self) -> Option<Work> {
        let mut state = self.state.lock();
        loop {
            if state.has_ended {
                return None;
            }
            if let Some(work) = state.next() {
                return Some(work);
            }
            self.has_work.wait(&mut state);
        }
    }

    /// Returns a task without waiting, or `None` if there is none now.
    pub(crate) fn try_work(&self) -> Option<Work> {
        self.state.lock().next()
    }

    /// Queues a chunk. If the queue is full, returns the chunk, so that the caller decodes it.
    pub(crate) fn offer(&self, task: ChunkTask) -> Option<ChunkTask> {
        let mut state = self.state.lock();
        if state.chunks.len() >= self.max_chunks {
            return Some(task);
        }
        state.chunks.push_back(task);
        drop(state);
        self.has_work.notify_one();
        None
    }

    /// Makes children of a group available after their listings were prefetched.
    pub(crate) fn mark_prefetched(&self, ticket: Ticket, children: Vec<NextChild>) {
        self.state.lock().order.mark_prefetched(ticket, children);
        self.has_work.notify_all();
    }

    /// Records the result of checking a node.
    pub(crate) fn finish(&self, ticket: Ticket, node: CheckedNode) {
        self.state.lock().order.finish(ticket, node);
        self.has_work.notify_all();
        self.has_finished.notify_one();
    }

    /// If the next node in the order of the hierarchy is finished, removes and returns it.
    pub(crate) fn take_finished(&self) -> Option<CheckedNode> {
        let mut state = self.state.lock();
        let node = state.order.take_finished();
        state.has_ended |= state.order.has_ended();
        drop(state);
        self.has_work.notify_all();
        node
    }

    /// Waits until a node is finished or the check ends.
    pub(crate) fn wait_for_finished(&self) {
        let mut state = self.state.lock();
        if !state.has_ended && !state.order.has_finished() {
            self.has_finished.wait(&mut state);
        }
    }

    /// Whether the check has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.state.lock().has_ended
    }

    /// Ends the check at once. A thread that panicked never finishes its task, so the others would wait forever.
    pub(crate) fn abort(&self) {
        self.state.lock().has_ended = true;
        self.has_work.notify_all();
        self.has_finished.notify_all();
    }
}

/// For each thread, the maximum number of unreported nodes before a node that is taken.
const AHEAD: usize = 16;

/// Identifies a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

/// The next task of a thread.
pub(crate) enum Task {
    /// Check the node at which the check starts.
    Start(Ticket),
    /// Prefetch the listings of some children of a group. These children are then available.
    Prefetch(Ticket, Vec<NextChild>),
    /// Check a node.
    Check(Ticket, NextChild),
}

/// An element of the order of nodes.
enum Place {
    /// The node at which the check starts, which no thread has taken.
    Start,
    /// A node that a thread is checking.
    Taken(Ticket),
    /// A node that was checked but not reported yet.
    Finished(Box<CheckedNode>),
    /// The children of a group that no thread has taken.
    Children(OpenGroup),
}

/// A group and those of its children that no thread has taken.
struct OpenGroup {
    group: Arc<NodeEntry>,
    scope: NodeScope,
    names: IntoIter<GroupChild>,
    /// Children that threads can take, since their listings were prefetched.
    ready: VecDeque<NextChild>,
    /// The ticket of the prefetch for this group that is in progress.
    prefetching: Option<Ticket>,
}

/// The order of all nodes that are not reported yet.
struct NodeOrder {
    places: VecDeque<Place>,
    threads: usize,
    /// Whether the listings of children are prefetched before the children are checked.
    prefetches: bool,
    last_ticket: u64,
}

impl NodeOrder {
    /// Creates an order with the node at which the check starts.
    fn new(threads: usize, prefetches: bool) -> NodeOrder {
        NodeOrder {
            places: VecDeque::from([Place::Start]),
            threads: threads.max(1),
            prefetches,
            last_ticket: 0,
        }
    }

    fn ticket(&mut self) -> Ticket {
        self.last_ticket += 1;
        Ticket(self.last_ticket)
    }

    /// Returns the next task for a thread. Returns `None` if there is none before other threads finish theirs.
    fn next_task(&mut self) -> Option<Task> {
        let window = AHEAD * self.threads;
        // If there are more than 8 windows of places over all depths, threads only take nodes near the front.
        let is_full = self.places.len() > 8 * window;
        let max_before = if is_full { self.threads } else { window };
        let ticket = self.ticket();
        let mut before = 0;
        for index in 0..self.places.len() {
            if before >= max_before {
                return None;
            }
            let task = match self.places.get_mut(index) {
                Some(Place::Children(open)) => open.next_task(self.prefetches, ticket, window),
                Some(Place::Start) => Some(Task::Start(ticket)),
                _ => {
                    before += 1;
                    None
                }
            };
            if let Some(task) = task {
                self.take(index, &task);
                return Some(task);
            }
        }
        None
    }

    /// Marks the node of a task as taken.
    fn take(&mut self, index: usize, task: &Task) {
        match task {
            Task::Start(ticket) => self.places[index] = Place::Taken(*ticket),
            Task::Check(ticket, _) => self.places.insert(index, Place::Taken(*ticket)),
            Task::Prefetch(..) => {}
        }
    }

    /// Makes children available after their listings were prefetched.
    fn mark_prefetched(&mut self, ticket: Ticket, children: Vec<NextChild>) {
        let open = self.places.iter_mut().find_map(|place| match place {
            Place::Children(open) if open.prefetching == Some(ticket) => Some(open),
            _ => None,
        });
        if let Some(open) = open {
            open.prefetching = None;
            open.ready.extend(children);
        }
    }

    /// Records the result of checking a node, and inserts the children of the node after it.
    fn finish(&mut self, ticket: Ticket, mut node: CheckedNode) {
        let is_it = |place: &Place| matches!(place, Place::Taken(other) if *other == ticket);
        let Some(index) = self.places.iter().position(is_it) else {
            return;
        };
        if let Some(open) = OpenGroup::of(&mut node) {
            self.places.insert(index + 1, Place::Children(open));
        }
        if let Some(place) = self.places.get_mut(index) {
            *place = Place::Finished(Box::new(node));
        }
    }

    /// If the next node in the order is finished, removes and returns it.
    fn take_finished(&mut self) -> Option<CheckedNode> {
        while let Some(Place::Children(open)) = self.places.front() {
            if !open.is_done() {
                return None;
            }
            self.places.pop_front();
        }
        match self.places.pop_front()? {
            Place::Finished(node) => Some(*node),
            other => {
                self.places.push_front(other);
                None
            }
        }
    }

    /// Whether `take_finished` may return a node.
    fn has_finished(&self) -> bool {
        match self.places.front() {
            Some(Place::Finished(_)) | None => true,
            Some(Place::Children(open)) => open.is_done(),
            Some(Place::Start | Place::Taken(_)) => false,
        }
    }

    /// Whether all nodes were reported.
    fn has_ended(&self) -> bool {
        self.places.is_empty()
    }
}

impl OpenGroup {
    /// Moves the children out of a checked node. Returns `None` if the node has no children.
    fn of(node: &mut CheckedNode) -> Option<OpenGroup> {
        let group = node.entry.clone().filter(|_| node.has_children)?;
        Some(OpenGroup {
            group,
            scope: node.scope.clone(),
            names: std::mem::take(&mut node.children).into_iter(),
            ready: VecDeque::new(),
            prefetching: None,
        })
    }

    /// Returns the next task for the children. If listings are prefetched, this is done for the next children while
    /// there are still others to check.
    fn next_task(&mut self, prefetches: bool, ticket: Ticket, window: usize) -> Option<Task> {
        if !prefetches {
            return Some(Task::Check(ticket, self.next_child()?));
        }
        if self.prefetching.is_none() && self.ready.len() < window {
            let next = self.names.len().min(window);
            let next: Vec<NextChild> = (0..next).filter_map(|_| self.next_child()).collect();
            if !next.is_empty() {
                self.prefetching = Some(ticket);
                return Some(Task::Prefetch(ticket, next));
            }
        }
        Some(Task::Check(ticket, self.ready.pop_front()?))
    }

    fn next_child(&mut self) -> Option<NextChild> {
        Some(NextChild {
            child: self.names.next()?,
            group: self.group.clone(),
            scope: self.scope.clone(),
        })
    }

    /// Whether all children were taken.
    fn is_done(&self) -> bool {
        self.prefetching.is_none() && self.ready.is_empty() && self.names.len() == 0
    }
}
