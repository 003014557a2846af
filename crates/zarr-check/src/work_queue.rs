//! Queues the work of a check: chunks to decode and nodes to check.
//!
//! Threads take one task at a time, chunks before nodes; no thread waits while there is work that it can do.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

use crate::checked_node::{CheckedNode, NextChild};
use crate::data::ChunkTask;
use crate::node_order::{AHEAD, NodeOrder, Task, Ticket};

/// The next task of a thread.
pub(super) enum Work {
    /// Decode a chunk.
    Chunk(ChunkTask),
    /// The next task in the order of nodes.
    Node(Task),
}

/// The work of a check.
pub(super) struct WorkQueue {
    state: Mutex<WorkState>,
    /// Signals that there may be work.
    has_work: Condvar,
    /// Signals that a node may be finished.
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
    /// Starts with the node at which the check starts.
    pub(super) fn new(threads: usize, announces: bool) -> WorkQueue {
        WorkQueue {
            state: Mutex::new(WorkState {
                order: NodeOrder::new(threads, announces),
                chunks: VecDeque::new(),
                has_ended: false,
            }),
            has_work: Condvar::new(),
            has_finished: Condvar::new(),
            max_chunks: AHEAD * threads.max(1),
        }
    }

    /// Waits for work; returns `None` when the check has ended.
    pub(super) fn wait_for_work(&self) -> Option<Work> {
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

    /// Returns work without waiting, or `None` if there is no work now.
    pub(super) fn try_work(&self) -> Option<Work> {
        self.state.lock().next()
    }

    /// Queues a chunk; returns it if the queue is full.
    pub(super) fn offer(&self, task: ChunkTask) -> Option<ChunkTask> {
        let mut state = self.state.lock();
        if state.chunks.len() >= self.max_chunks {
            return Some(task);
        }
        state.chunks.push_back(task);
        drop(state);
        self.has_work.notify_one();
        None
    }

    /// Marks children of a group as ready after their prefetch.
    pub(super) fn note_announced(&self, ticket: Ticket, children: Vec<NextChild>) {
        self.state.lock().order.note_announced(ticket, children);
        self.has_work.notify_all();
    }

    /// Records the result for a node.
    pub(super) fn finish(&self, ticket: Ticket, node: CheckedNode) {
        self.state.lock().order.finish(ticket, node);
        self.has_work.notify_all();
        self.has_finished.notify_one();
    }

    /// Removes and returns the next node in the order of the hierarchy, if it is finished.
    pub(super) fn take_finished(&self) -> Option<CheckedNode> {
        let mut state = self.state.lock();
        let node = state.order.take_finished();
        state.has_ended |= state.order.has_ended();
        drop(state);
        self.has_work.notify_all();
        node
    }

    /// Waits until a node is finished or the check has ended.
    pub(super) fn wait_for_finished(&self) {
        let mut state = self.state.lock();
        if !state.has_ended && !state.order.has_finished() {
            self.has_finished.wait(&mut state);
        }
    }

    /// Whether the check has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.state.lock().has_ended
    }

    /// Ends the check, since a task will never be finished.
    pub(super) fn abort(&self) {
        self.state.lock().has_ended = true;
        self.has_work.notify_all();
        self.has_finished.notify_all();
    }
}
