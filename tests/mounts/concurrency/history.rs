//! The history of a run: each operation with its begin, end and outcome.
//!
//! All actors use one clock.

use std::fmt;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::concurrency::value::{Seen, Value};

/// Nanoseconds of the monotonic clock, which all processes of a machine share.
pub(crate) type Instant = u64;

pub(crate) fn now() -> Instant {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The begin and end of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Span {
    pub(crate) begin: Instant,
    pub(crate) end: Instant,
}

impl Span {
    /// Returns the span from `begin` to now.
    pub(crate) fn since(begin: Instant) -> Span {
        Span { begin, end: now() }
    }

    pub(crate) fn overlaps(&self, other: &Span) -> bool {
        self.begin <= other.end && other.begin <= self.end
    }
}

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// The name of the call.
    pub(crate) call: String,
    pub(crate) errno: i32,
    /// The error message, if any.
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

/// The effect of an operation on a key, or its observation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Act {
    /// The key holds this value from some moment within the operation on.
    Set(Value),
    /// The content that a program on the mount saw.
    Saw(Seen),
    /// The content that the store itself had.
    Stored(Seen),
    /// No information: the operation failed before it saw anything.
    Nothing,
}

/// An operation on a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Operation {
    pub(crate) key: u16,
    pub(crate) actor: u8,
    pub(crate) span: Span,
    pub(crate) act: Act,
    /// The name of the operation, as a program would call it.
    pub(crate) what: String,
    /// Whether other programs may see parts of it while it runs.
    pub(crate) is_gradual: bool,
    /// The failure, if it failed: then the value may have been set or not.
    pub(crate) failure: Option<Failure>,
}

/// The call of an operation whose process ended before the outcome was recorded.
pub(crate) const INTENT: &str = "the end of the process";

impl Operation {
    /// Whether only the intent of the operation was recorded.
    pub(crate) fn is_intent(&self) -> bool {
        let failure = self.failure.as_ref();
        failure.is_some_and(|failure| failure.call == INTENT)
    }

    /// Whether parts of a failed write in place may be visible within `span`; `lengthen_parts` has extended that
    /// write.
    pub(crate) fn leaves_parts_at(&self, span: &Span) -> bool {
        self.is_gradual && self.failure.is_some() && self.span.overlaps(span)
    }
}

/// Extends failed writes in place until the next write: a program that is interrupted between two calls has written
/// the data of the first one.
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

/// A commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CommitRecord {
    pub(crate) span: Span,
    pub(crate) conflicts: Vec<String>,
    pub(crate) kept: Vec<String>,
    pub(crate) failure: Option<Failure>,
}

/// One line of a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Record {
    Operation(Operation),
    Commit(CommitRecord),
    /// The time from a kill until the mount was back.
    Killed(Span),
    /// An error that needs no judging.
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

/// The records of all actors, by kind.
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

    /// Returns the operations on each key, sorted by their begin.
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

    /// Returns the kill that overlaps a span, if any.
    pub(crate) fn kill_during(&self, span: &Span) -> Option<Span> {
        self.kills.iter().find(|kill| kill.overlaps(span)).copied()
    }
}
