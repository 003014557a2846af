//! Queues the nodes and chunks of a check, and returns finished nodes in order.
//!
//! A thread takes one task at a time, chunks before nodes, and waits only if no task is available. Nodes are reported
//! in the order of the hierarchy: each before its children, siblings sorted by name. A thread takes the first node in
//! this order that no other thread has taken, so threads hardly wait for each other. Finished nodes wait in memory
//! until all nodes before them are reported; their number is bounded.

use std::collections::VecDeque;
use std::sync::Arc;
use std::vec::IntoIter;

use parking_lot::{Condvar, Mutex};

use crate::walk::chunk_data::ChunkTask;
use crate::walk::folder::GroupChild;
use crate::walk::node::{CheckedNode, NextChild, NodeScope};
use zarrfs_array::hierarchy::NodeEntry;

/// A task for a thread of the check.
pub(crate) enum Work {
    /// Decode one chunk of an array.
    Chunk(ChunkTask),
    /// Check a node, or prefetch listings for nodes that are checked later.
    Node(Task),
}

/// The tasks of a check, and the nodes that are not reported yet.
pub(crate) struct WorkQueue {
    state: Mutex<WorkState>,
    /// Wakes threads that wait for a task.
    has_work: Condvar,
    /// Wakes the thread that reports nodes when the next node may be finished.
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
    /// Creates a queue whose only task is to check the first node, below which all others are found.
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

    /// Waits for a task, and returns it. Returns `None` after the check has ended.
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

    pub(crate) fn try_work(&self) -> Option<Work> {
        self.state.lock().next()
    }

    /// Queues a chunk to be decoded. If the queue is full, returns the chunk, and the caller has to decode it.
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

    /// Makes tasks of a group's children, whose listings were prefetched.
    pub(crate) fn mark_prefetched(&self, ticket: Ticket, children: Vec<NextChild>) {
        self.state.lock().order.mark_prefetched(ticket, children);
        self.has_work.notify_all();
    }

    /// Records the result of checking the node that was taken with `ticket`.
    pub(crate) fn finish(&self, ticket: Ticket, node: CheckedNode) {
        self.state.lock().order.finish(ticket, node);
        self.has_work.notify_all();
        self.has_finished.notify_one();
    }

    /// Removes and returns the next node in the order of the hierarchy if it is finished, or else returns `None`.
    pub(crate) fn take_finished(&self) -> Option<CheckedNode> {
        let mut state = self.state.lock();
        let node = state.order.take_finished();
        state.has_ended |= state.order.has_ended();
        drop(state);
        self.has_work.notify_all();
        node
    }

    /// Waits until the next node to report is finished, or until the check ends.
    pub(crate) fn wait_for_finished(&self) {
        let mut state = self.state.lock();
        if !state.has_ended && !state.order.has_finished() {
            self.has_finished.wait(&mut state);
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state.lock().has_ended
    }

    /// Ends the check at once after a thread panicked, because its task will never finish and others would wait for it.
    pub(crate) fn abort(&self) {
        self.state.lock().has_ended = true;
        self.has_work.notify_all();
        self.has_finished.notify_all();
    }
}

/// How many nodes per thread may be unreported before a node that a thread takes, which bounds the finished nodes in
/// memory.
const AHEAD: usize = 16;

/// The number of a task, by which its result is assigned to its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

/// A node to check, or listings to prefetch.
pub(crate) enum Task {
    /// Check the node at which the check of the store starts.
    Start(Ticket),
    /// Prefetch the listings of the given children of a group, after which the children can be checked.
    Prefetch(Ticket, Vec<NextChild>),
    /// Check a child of a group.
    Check(Ticket, NextChild),
}

/// One or more nodes in the order in which nodes are reported.
enum Place {
    /// The node at which the check starts, before a thread takes it.
    Start,
    /// A node that a thread is checking now.
    Taken(Ticket),
    /// A node that was checked but not reported yet.
    Finished(Box<CheckedNode>),
    /// The children of a group that no thread has taken yet.
    Children(OpenGroup),
}

/// A group, with the children that no thread has taken yet.
struct OpenGroup {
    group: Arc<NodeEntry>,
    scope: NodeScope,
    names: IntoIter<GroupChild>,
    /// Children that threads can take now, since their listings were prefetched.
    ready: VecDeque<NextChild>,
    /// The ticket of the task that prefetches listings of the group's children now, or `None`.
    prefetching: Option<Ticket>,
}

/// The nodes that are not reported yet, in the order of the hierarchy.
struct NodeOrder {
    places: VecDeque<Place>,
    threads: usize,
    /// Whether the listings of children are prefetched before the children are checked.
    prefetches: bool,
    last_ticket: u64,
}

impl NodeOrder {
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

    /// Returns the next task for a thread, or `None` if no task is available until another one finishes.
    fn next_task(&mut self) -> Option<Task> {
        let window = AHEAD * self.threads;
        // With so many unreported nodes in memory, threads only take nodes that are reported soon.
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

    /// Records that a thread has taken the node of a task.
    fn take(&mut self, index: usize, task: &Task) {
        match task {
            Task::Start(ticket) => self.places[index] = Place::Taken(*ticket),
            Task::Check(ticket, _) => self.places.insert(index, Place::Taken(*ticket)),
            Task::Prefetch(..) => {}
        }
    }

    /// Lets threads take the given children of a group, because their listings were prefetched.
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

    /// Records the result of checking a node, and inserts the node's children after it.
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

    /// Removes and returns the next node to report if it is finished, or else returns `None`.
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

    /// Whether the next node to report is finished, or no node is left.
    fn has_finished(&self) -> bool {
        match self.places.front() {
            Some(Place::Finished(_)) | None => true,
            Some(Place::Children(open)) => open.is_done(),
            Some(Place::Start | Place::Taken(_)) => false,
        }
    }

    fn has_ended(&self) -> bool {
        self.places.is_empty()
    }
}

impl OpenGroup {
    /// Moves the children out of a checked node that is to be reported. Returns `None` if the node has no children.
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

    /// Returns the next task for the children of the group. Listings of later children are prefetched while earlier
    /// children are still to be checked.
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

    /// Whether threads have taken all children of the group.
    fn is_done(&self) -> bool {
        self.prefetching.is_none() && self.ready.is_empty() && self.names.len() == 0
    }
}
