//! The order of a check: which node is looked at next, and what of the finished ones is given out next.
//!
//! Nodes are given out in the order of the hierarchy: each before those below it, siblings sorted by name. Looked at is
//! always the first one in that order which no thread has taken, so that threads never wait for each other, only for the
//! store. How many nodes may be taken before an unfinished one is bounded, and with it what is held of finished ones.

use std::collections::VecDeque;
use std::sync::Arc;
use std::vec::IntoIter;

use crate::checked_node::{CheckedNode, NextChild, NodeScope};
use crate::group_folder::GroupChild;
use zarrfs_array::hierarchy::NodeEntry;

/// How many nodes for each thread may come before the one that is taken and are not given out yet.
pub(super) const AHEAD: usize = 16;

/// How many times as many may be held in all, at every depth together, before only the first ones are taken.
const MAX_HELD: usize = 8;

/// Names a place in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket(u64);

/// What a thread does next.
pub(super) enum Task {
    /// Looks at the node at which the check starts.
    Start(Ticket),
    /// Announces children of a group, which are then ready.
    Announce(Ticket, Vec<NextChild>),
    /// Looks at a node.
    Look(Ticket, NextChild),
}

/// A place in the order.
enum Place {
    /// The node at which the check starts, which no thread has taken.
    Start,
    /// A node that a thread has taken.
    Taken(Ticket),
    /// One that is to be given out.
    Finished(Box<CheckedNode>),
    /// Children of a group that no thread has taken.
    Children(OpenGroup),
}

/// A group whose children are still to be looked at.
struct OpenGroup {
    group: Arc<NodeEntry>,
    scope: NodeScope,
    names: IntoIter<GroupChild>,
    /// Children that can be taken.
    ready: VecDeque<NextChild>,
    /// The ticket of children that are being announced.
    announced: Option<Ticket>,
}

/// All places that are not given out, in their order.
pub(super) struct NodeOrder {
    places: VecDeque<Place>,
    threads: usize,
    /// Whether children are announced before they are looked at.
    announces: bool,
    last_ticket: u64,
}

impl NodeOrder {
    /// Begins with the node at which the check starts.
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

    /// Returns what a thread is to do; nothing while that depends on what others do.
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

    /// Makes a place for a node that a thread has taken.
    fn take(&mut self, index: usize, task: &Task) {
        match task {
            Task::Start(ticket) => self.places[index] = Place::Taken(*ticket),
            Task::Look(ticket, _) => self.places.insert(index, Place::Taken(*ticket)),
            Task::Announce(..) => {}
        }
    }

    /// Notes that children were announced.
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

    /// Notes what was found about a node; its children come behind it.
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

    /// Takes out the next node in the order, if it is finished.
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

    /// Whether all nodes were taken out.
    pub(super) fn has_ended(&self) -> bool {
        self.places.is_empty()
    }
}

impl OpenGroup {
    /// Takes the children of a node; nothing if it has none.
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

    /// Returns what is to be done for the children: the next ones are announced while others are still ready.
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
