//! When the store itself was asked for an answer that comes out of memory.
//!
//! Several layers over a store remember its answers, and so do their callers; each lets an answer count for the store's
//! freshness. These times must not add up: an answer from memory comes with the time at which the store was asked
//! (`note_memory`), and one that is remembered in turn counts from then (`StoreInfo::ask`). The time is handed on beside
//! the answer, in the thread that asks: every layer answers in the thread of its caller. What is not noted was asked
//! just now.

use std::cell::Cell;
use std::time::Instant;

thread_local! {
    /// When the oldest part was asked of all that this thread was answered from memory since its question began.
    static OLDEST: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Notes that an answer which is given now out of memory was asked of the store at `asked`.
pub fn note_memory(asked: Instant) {
    OLDEST.set(older(OLDEST.get(), Some(asked)));
}

/// Asks a question that begins at `now`; returns the answer, and when the oldest part of it was asked of the store.
pub(super) fn timed<T>(now: Instant, question: impl FnOnce() -> T) -> (T, Instant) {
    let outer = OLDEST.replace(Some(now));
    let answer = question();
    let asked = OLDEST.get();
    // The answer is part of that to the question in which it was asked.
    OLDEST.set(older(outer, asked));
    (answer, asked.unwrap_or(now))
}

fn older(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_answer_is_as_old_as_its_oldest_part() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        note_memory(at(1));
        assert_eq!(timed(at(9), || 7), (7, at(9)), "asked just now");
        let outer = || {
            note_memory(at(5));
            let inner = timed(at(10), || note_memory(at(4)));
            assert_eq!(inner, ((), at(4)));
            timed(at(11), || note_memory(at(6)))
        };
        assert_eq!(timed(at(10), outer), (((), at(6)), at(4)));
        assert_eq!(timed(at(12), || ()), ((), at(12)));
    }
}
