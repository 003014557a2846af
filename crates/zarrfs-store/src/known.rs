//! What is known of something without asking for it.

use zarr_format::error::Result;

/// An answer from memory: it may be unknown, and what is known may be that there is nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known<T> {
    /// Memory has no answer; the store has to be asked.
    Unknown,
    /// There is nothing.
    Missing,
    /// There is this.
    Is(T),
}

impl<T> Known<T> {
    /// Returns the same answer about something made of what is there.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Known<U> {
        match self {
            Known::Unknown => Known::Unknown,
            Known::Missing => Known::Missing,
            Known::Is(value) => Known::Is(change(value)),
        }
    }

    /// Returns what is there; nothing if it is missing or unknown.
    pub fn found(self) -> Option<T> {
        match self {
            Known::Is(value) => Some(value),
            Known::Unknown | Known::Missing => None,
        }
    }
}

impl<T> From<Result<Option<T>>> for Known<T> {
    /// Takes an answer of what may fail: what has failed is unknown.
    fn from(answer: Result<Option<T>>) -> Known<T> {
        answer.map_or(Known::Unknown, Known::from)
    }
}

impl<T> From<Option<T>> for Known<T> {
    /// Takes a store's answer: what is not there is missing.
    fn from(answer: Option<T>) -> Known<T> {
        answer.map_or(Known::Missing, Known::Is)
    }
}
