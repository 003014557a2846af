//! Answers with the time at which the store was asked for them.

use std::time::{Duration, Instant};

use crate::QueryStamp;
use crate::request_context::RequestContext;
use crate::sync::clock::Clock;

/// An answer, and when the store was asked for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dated<T> {
    pub(super) value: T,
    pub(super) asked: Instant,
}

impl<T> Dated<T> {
    /// Dates an answer of the store below.
    pub(super) fn new(value: T, stamp: QueryStamp) -> Dated<T> {
        let asked = stamp.asked;
        Dated { value, asked }
    }

    /// Returns another answer from the same time.
    pub(super) fn with<U>(&self, value: U) -> Dated<U> {
        let asked = self.asked;
        Dated { value, asked }
    }
}

/// For how long an answer counts.
#[derive(Clone, Debug)]
pub(super) struct Lifetime {
    pub(super) clock: Clock,
    pub(super) ttl: Duration,
}

impl Lifetime {
    /// Whether an answer still counts that was asked for at `asked`.
    pub(super) fn is_fresh(&self, asked: Instant) -> bool {
        self.clock.now().saturating_duration_since(asked) < self.ttl
    }

    /// Returns an answer if it still counts.
    pub(super) fn fresh<T>(&self, answer: Option<Dated<T>>) -> Option<Dated<T>> {
        answer.filter(|answer| self.is_fresh(answer.asked))
    }
}

/// Returns the newer of two answers.
pub(super) fn newer<T>(one: Option<Dated<T>>, other: Option<Dated<T>>) -> Option<Dated<T>> {
    match (one, other) {
        (Some(one), Some(other)) if one.asked < other.asked => Some(other),
        (Some(one), _) => Some(one),
        (None, other) => other,
    }
}

/// Gives an answer out of memory, if there is one, and notes its time.
pub(super) fn from_memory<T>(context: &RequestContext, known: Option<Dated<T>>) -> Option<T> {
    let known = known?;
    context.note_memory(known.asked);
    Some(known.value)
}
