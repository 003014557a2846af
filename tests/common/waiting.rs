//! Asks as a mount does: an event loop first, and another thread if that would have to wait.

use zarr_format::error::Result;
use zarrfs_store::request_context::{RequestContext, UNLIMITED, WITHOUT_WAITING, is_answer};

/// Returns the answer of `question`, which is asked again if it must not wait at first and would have to.
pub fn ask<T>(question: impl Fn(&RequestContext) -> Result<T>) -> Result<T> {
    let answer = question(&WITHOUT_WAITING);
    if is_answer(&answer) {
        answer
    } else {
        question(&UNLIMITED)
    }
}
