//! What the stores behind a network share: the runtime and the waiting, the counting HTTP client, its settings,
//! the wording of errors, and repeated changes. No other code of zarrfs is asynchronous but `bucket` and `http`,
//! which use this folder and are not used by it.

use std::time::Duration;

pub(super) mod client_options;
pub(super) mod condition_probe;
pub(super) mod connector;
pub(super) mod fault;
pub(super) mod runtime;
pub(super) mod write_retry;

/// How often a request is repeated once the store is open.
pub(super) const RETRIES: usize = 10;

/// How often a request is repeated, and the limit of its time, while a store is being opened: a wrong address is
/// to be reported within seconds.
pub(super) const FIRST_RETRIES: usize = 1;
pub(super) const FIRST_LIMIT: Duration = Duration::from_secs(10);
