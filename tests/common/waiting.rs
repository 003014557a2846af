//! Makes requests as a mount does: first without waiting, then waiting for the store.

use zarr_format::error::Result;
use zarrfs_store::request_context::{RequestContext, UNLIMITED, WITHOUT_WAITING, is_answer};

/// Calls `question` with a request that may not wait; if it would have to wait, calls it again with one that may.
pub fn ask<T>(question: impl Fn(&RequestContext) -> Result<T>) -> Result<T> {
    let answer = question(&WITHOUT_WAITING);
    if is_answer(&answer) {
        answer
    } else {
        question(&UNLIMITED)
    }
}
