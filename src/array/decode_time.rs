//! The processor time that decoding takes.
//!
//! To ask the kernel for it takes a system call, as long as some of the pieces take to decode. So of short ones a thread
//! measures one in many, which stands for those before it.

use std::cell::Cell;

use rustix::time::{ClockId, clock_gettime};

/// Pieces from this length on are measured each, in bytes.
const MIN_MEASURED: usize = 64 << 10;

/// One in so many shorter ones is measured.
const MEASURED_SHARE: u64 = 16;

thread_local! {
    /// How many shorter pieces were decoded since one was measured; nothing before the first.
    static UNMEASURED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Decodes a piece of `length` bytes; returns the nanoseconds of processor time that it and those which it stands for took.
/// Time spent waiting for a core is not decoding.
pub(super) fn measured<T>(length: usize, decode: impl FnOnce() -> T) -> (T, u64) {
    let Some(pieces) = pieces_measured(length) else {
        return (decode(), 0);
    };
    let start = cpu_nanoseconds();
    let decoded = decode();
    let nanoseconds = cpu_nanoseconds().saturating_sub(start);
    (decoded, nanoseconds.saturating_mul(pieces))
}

/// Returns for how many pieces one of `length` bytes is measured; nothing if it is not.
fn pieces_measured(length: usize) -> Option<u64> {
    if length >= MIN_MEASURED {
        return Some(1);
    }
    let (measured, unmeasured) = match UNMEASURED.get() {
        None => (Some(1), 0),
        Some(before) if before + 1 == MEASURED_SHARE => (Some(MEASURED_SHARE), 0),
        Some(before) => (None, before + 1),
    };
    UNMEASURED.set(Some(unmeasured));
    measured
}

fn cpu_nanoseconds() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_piece_is_measured_once() {
        assert_eq!(pieces_measured(MIN_MEASURED), Some(1));
        let all = 1 + 3 * MEASURED_SHARE;
        let measured: Vec<u64> = (0..all).filter_map(|_| pieces_measured(100)).collect();
        assert_eq!(
            measured,
            [1, MEASURED_SHARE, MEASURED_SHARE, MEASURED_SHARE]
        );
        assert_eq!(pieces_measured(MIN_MEASURED), Some(1));
    }

    #[test]
    fn what_is_decoded_comes_with_its_time() {
        let (sum, nanoseconds) = measured(MIN_MEASURED, || {
            (0..100_000_u64).map(std::hint::black_box).sum::<u64>()
        });
        assert_eq!(sum, 4_999_950_000);
        assert!(nanoseconds > 0);
    }
}
