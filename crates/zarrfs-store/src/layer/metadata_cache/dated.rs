//! Answers with the time of their request to the store.

use std::time::{Duration, Instant};

use crate::QueryStamp;
use crate::request_context::RequestContext;
use crate::sync::clock::Clock;

/// An answer and the time of its request.
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

    /// Returns another answer with the same date.
    pub(super) fn with<U>(&self, value: U) -> Dated<U> {
        let asked = self.asked;
        Dated { value, asked }
    }
}

/// The TTL of answers, and its clock.
#[derive(Clone, Debug)]
pub(super) struct Lifetime {
    pub(super) clock: Clock,
    pub(super) ttl: Duration,
}

impl Lifetime {
    /// Whether an answer requested at `asked` is within its TTL.
    pub(super) fn is_fresh(&self, asked: Instant) -> bool {
        self.clock.now().saturating_duration_since(asked) < self.ttl
    }

    /// Returns the answer if it is within its TTL.
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

/// Returns a cached answer, and records its age in the context.
pub(super) fn from_memory<T>(context: &RequestContext, known: Option<Dated<T>>) -> Option<T> {
    let known = known?;
    context.note_memory(known.asked);
    Some(known.value)
}
