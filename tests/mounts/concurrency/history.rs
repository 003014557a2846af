//! Records the history of a run: each operation with its begin, end and outcome.
//!
//! All actors use one clock.

use std::fmt;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::concurrency::value::{Seen, Value};

/// A time in nanoseconds of the monotonic clock, which all processes of a machine share.
pub(crate) type Instant = u64;

pub(crate) fn now() -> Instant {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Span {
    pub(crate) begin: Instant,
    pub(crate) end: Instant,
}

impl Span {
    pub(crate) fn since(begin: Instant) -> Span {
        Span { begin, end: now() }
    }

    pub(crate) fn overlaps(&self, other: &Span) -> bool {
        self.begin <= other.end && other.begin <= self.end
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) call: String,
    pub(crate) errno: i32,
    pub(crate) why: String,
}

impl Failure {
    pub(crate) fn new(call: &str, errno: i32) -> Failure {
        Failure {
            call: call.to_string(),
            errno,
            why: String::new(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = std::io::Error::from_raw_os_error(self.errno);
        write!(f, "{} failed: {name} {}", self.call, self.why)
    }
}

/// What an operation did to its key, or saw of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Act {
    /// The operation set the key: from some moment within the operation on, the key has this value.
    Set(Value),
    /// A program on the mount saw this content.
    Saw(Seen),
    /// The store itself had this content.
    Stored(Seen),
    /// The operation failed before it saw anything.
    Nothing,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Operation {
    pub(crate) key: u16,
    pub(crate) actor: u8,
    pub(crate) span: Span,
    pub(crate) act: Act,
    pub(crate) what: String,
    /// Whether other programs may see a partly written value while the operation runs.
    pub(crate) is_gradual: bool,
    /// The failure of the operation, if it failed; the value may nevertheless have been set.
    pub(crate) failure: Option<Failure>,
}

/// The name of the failed call if a process ended before it had recorded the outcome of its operation.
pub(crate) const INTENT: &str = "the end of the process";

impl Operation {
    /// Whether the operation was recorded before it was made, and its outcome is not known.
    pub(crate) fn is_intent(&self) -> bool {
        let failure = self.failure.as_ref();
        failure.is_some_and(|failure| failure.call == INTENT)
    }

    /// Whether this operation is a failed write in place whose partly written value may be visible within `span`. Call
    /// `lengthen_parts` first.
    pub(crate) fn leaves_parts_at(&self, span: &Span) -> bool {
        self.is_gradual && self.failure.is_some() && self.span.overlaps(span)
    }
}

/// Extends failed writes in place until the next write, because a program that was interrupted between two calls has
/// written the data of the first call.
pub(crate) fn lengthen_parts(operations: &mut [Operation]) {
    for place in 0..operations.len() {
        let begin = operations[place].span.begin;
        let is_next = |each: &&Operation| {
            let is_whole = each.failure.is_none() && matches!(each.act, Act::Set(_));
            is_whole && each.span.begin > begin
        };
        let next = operations.iter().find(is_next);
        let end = next.map_or(Instant::MAX, |next| next.span.begin.saturating_sub(1));
        let operation = &mut operations[place];
        if operation.is_gradual && operation.failure.is_some() {
            operation.span.end = operation.span.end.max(end);
        }
    }
}

/// A commit in a history, with its conflicts and the files that it did not commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CommitRecord {
    pub(crate) span: Span,
    pub(crate) conflicts: Vec<String>,
    pub(crate) kept: Vec<String>,
    pub(crate) failure: Option<Failure>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Record {
    Operation(Operation),
    Commit(CommitRecord),
    /// The time from a kill of the mount until the mount was back.
    Killed(Span),
    /// A violation that an actor has found itself.
    Wrong(String),
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = |time: Instant| time % 1_000_000_000_000 / 1000;
        write!(
            f,
            "{:>10} {:>10} us  actor {:>2}  {:<12}",
            micros(self.span.begin),
            micros(self.span.end),
            self.actor,
            self.what
        )?;
        match &self.act {
            Act::Set(value) => write!(f, " := {value}"),
            Act::Saw(seen) => write!(f, " saw {seen}"),
            Act::Stored(seen) => write!(f, " saw in the store {seen}"),
            Act::Nothing => Ok(()),
        }?;
        match &self.failure {
            Some(failure) => write!(f, " ({failure})"),
            None => Ok(()),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) operations: Vec<Operation>,
    pub(crate) commits: Vec<CommitRecord>,
    pub(crate) kills: Vec<Span>,
    pub(crate) wrongs: Vec<String>,
}

impl History {
    pub(crate) fn extend(&mut self, records: Vec<Record>) {
        for record in records {
            match record {
                Record::Operation(operation) => self.operations.push(operation),
                Record::Commit(commit) => self.commits.push(commit),
                Record::Killed(span) => self.kills.push(span),
                Record::Wrong(why) => self.wrongs.push(why),
            }
        }
    }

    /// Returns for each key the operations on it, sorted by the times when they began.
    pub(crate) fn by_key(&self, keys: usize) -> Vec<Vec<Operation>> {
        let mut by_key = vec![Vec::new(); keys];
        for operation in &self.operations {
            by_key[usize::from(operation.key)].push(operation.clone());
        }
        for operations in &mut by_key {
            operations.sort_by_key(|operation| (operation.span.begin, operation.span.end));
        }
        by_key
    }

    /// Returns the kill of the mount that overlaps a span, if there is one.
    pub(crate) fn kill_during(&self, span: &Span) -> Option<Span> {
        self.kills.iter().find(|kill| kill.overlaps(span)).copied()
    }
}
