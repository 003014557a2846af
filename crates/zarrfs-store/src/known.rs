//! Answers from memory, which may be unknown.

use zarr_format::error::Result;

/// An answer from memory: unknown, known to be missing, or a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known<T> {
    /// Not in memory; only a request to the store can tell.
    Unknown,
    /// Known not to exist.
    Missing,
    /// Known to exist.
    Is(T),
}

impl<T> Known<T> {
    /// Applies a function to the value.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Known<U> {
        match self {
            Known::Unknown => Known::Unknown,
            Known::Missing => Known::Missing,
            Known::Is(value) => Known::Is(change(value)),
        }
    }

    /// Returns the value, or `None` if it is missing or unknown.
    pub fn found(self) -> Option<T> {
        match self {
            Known::Is(value) => Some(value),
            Known::Unknown | Known::Missing => None,
        }
    }
}

impl<T> From<Result<Option<T>>> for Known<T> {
    /// Converts a fallible answer: an error is `Unknown`.
    fn from(answer: Result<Option<T>>) -> Known<T> {
        answer.map_or(Known::Unknown, Known::from)
    }
}

impl<T> From<Option<T>> for Known<T> {
    /// Converts an answer of the store: `None` is `Missing`.
    fn from(answer: Option<T>) -> Known<T> {
        answer.map_or(Known::Missing, Known::Is)
    }
}
