//! Orders the nodes of a check: the next to check and the next to report.
//!
//! Nodes are reported in the order of the hierarchy: each before its children, siblings sorted by name. Threads take
//! the first node in that order that is not taken, so they only wait for the store, not for each other. The number of
//! nodes that may be taken after an unfinished one is bounded, which bounds the memory of finished nodes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::vec::IntoIter;

use crate::checked_node::{CheckedNode, NextChild, NodeScope};
use crate::group_folder::GroupChild;
use zarrfs_array::hierarchy::NodeEntry;

/// Maximum number of unreported nodes per thread that may precede the next node.
pub(super) const AHEAD: usize = 16;

/// Beyond this many windows of places, over all depths, threads only take nodes near the front.
const MAX_HELD: usize = 8;

/// Identifies a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket(u64);

/// The next task of a thread.
pub(super) enum Task {
    /// Check the node at which the check starts.
    Start(Ticket),
    /// Prefetch the listings of children of a group, which are ready afterwards.
    Announce(Ticket, Vec<NextChild>),
    /// Check a node.
    Look(Ticket, NextChild),
}

/// A place in the order.
enum Place {
    /// The start node, not taken yet.
    Start,
    /// A node that a thread has taken.
    Taken(Ticket),
    /// A node that was checked but not reported yet.
    Finished(Box<CheckedNode>),
    /// Children of a group that no thread has taken.
    Children(OpenGroup),
}

/// A group with children that are not taken yet.
struct OpenGroup {
    group: Arc<NodeEntry>,
    scope: NodeScope,
    names: IntoIter<GroupChild>,
    /// Children that can be taken.
    ready: VecDeque<NextChild>,
    /// The ticket of the prefetch that is in progress.
    announced: Option<Ticket>,
}

/// All places that are not reported yet, in order.
pub(super) struct NodeOrder {
    places: VecDeque<Place>,
    threads: usize,
    /// Whether listings are prefetched before children are checked.
    announces: bool,
    last_ticket: u64,
}

impl NodeOrder {
    /// Starts with the node at which the check starts.
    pub(super) fn new(threads: usize, announces: bool) -> NodeOrder {
        NodeOrder {
            places: VecDeque::from([Place::Start]),
            threads: threads.max(1),
            announces,
            last_ticket: 0,
        }
    }

    fn ticket(&mut self) -> Ticket {
        self.last_ticket += 1;
        Ticket(self.last_ticket)
    }

    /// Returns the next task for a thread, or `None` while it depends on other threads.
    pub(super) fn next_task(&mut self) -> Option<Task> {
        let window = AHEAD * self.threads;
        let is_full = self.places.len() > MAX_HELD * window;
        let most = if is_full { self.threads } else { window };
        let ticket = self.ticket();
        let mut before = 0;
        for index in 0..self.places.len() {
            if before >= most {
                return None;
            }
            let task = match self.places.get_mut(index) {
                Some(Place::Children(open)) => open.next_task(self.announces, ticket, window),
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

    /// Inserts a place for a node that a thread has taken.
    fn take(&mut self, index: usize, task: &Task) {
        match task {
            Task::Start(ticket) => self.places[index] = Place::Taken(*ticket),
            Task::Look(ticket, _) => self.places.insert(index, Place::Taken(*ticket)),
            Task::Announce(..) => {}
        }
    }

    /// Marks children as ready after their prefetch.
    pub(super) fn note_announced(&mut self, ticket: Ticket, children: Vec<NextChild>) {
        let open = self.places.iter_mut().find_map(|place| match place {
            Place::Children(open) if open.announced == Some(ticket) => Some(open),
            _ => None,
        });
        if let Some(open) = open {
            open.announced = None;
            open.ready.extend(children);
        }
    }

    /// Records the result for a node, and inserts its children after it.
    pub(super) fn finish(&mut self, ticket: Ticket, mut node: CheckedNode) {
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

    /// Removes and returns the next node in the order, if it is finished.
    pub(super) fn take_finished(&mut self) -> Option<CheckedNode> {
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

    /// Whether the next node in the order may be finished.
    pub(super) fn has_finished(&self) -> bool {
        match self.places.front() {
            Some(Place::Finished(_)) | None => true,
            Some(Place::Children(open)) => open.is_done(),
            Some(Place::Start | Place::Taken(_)) => false,
        }
    }

    /// Whether all nodes were removed.
    pub(super) fn has_ended(&self) -> bool {
        self.places.is_empty()
    }
}

impl OpenGroup {
    /// Takes the children of a node, or returns `None` if it has none.
    fn of(node: &mut CheckedNode) -> Option<OpenGroup> {
        let group = node.entry.clone().filter(|_| node.has_children)?;
        Some(OpenGroup {
            group,
            scope: node.scope.clone(),
            names: std::mem::take(&mut node.children).into_iter(),
            ready: VecDeque::new(),
            announced: None,
        })
    }

    /// Returns the next task for the children. The next ones are prefetched while others are still ready.
    fn next_task(&mut self, announces: bool, ticket: Ticket, window: usize) -> Option<Task> {
        if !announces {
            return Some(Task::Look(ticket, self.next_child()?));
        }
        if self.announced.is_none() && self.ready.len() < window {
            let next = self.names.len().min(window);
            let next: Vec<NextChild> = (0..next).filter_map(|_| self.next_child()).collect();
            if !next.is_empty() {
                self.announced = Some(ticket);
                return Some(Task::Announce(ticket, next));
            }
        }
        Some(Task::Look(ticket, self.ready.pop_front()?))
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
        self.announced.is_none() && self.ready.is_empty() && self.names.len() == 0
    }
}
