//! Makes requests as a mount does: first without waiting, then with it.

use zarr_format::error::Result;
use zarrfs_store::request_context::{RequestContext, UNLIMITED, WITHOUT_WAITING, is_answer};

/// Runs `question` without waiting; runs it again, with waiting allowed, if it would have to wait.
pub fn ask<T>(question: impl Fn(&RequestContext) -> Result<T>) -> Result<T> {
    let answer = question(&WITHOUT_WAITING);
    if is_answer(&answer) {
        answer
    } else {
        question(&UNLIMITED)
    }
}
