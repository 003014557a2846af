//! What the stores on the network share: the runtime and blocking waits, the counting HTTP client, its settings, limits
//! of requests, the wording of errors, and repeated changes. No code of zarrfs is asynchronous but this folder, `bucket`
//! and `http`, which use it and are not used by it.

use std::time::Duration;

pub(super) mod absence;
pub(super) mod body_room;
pub(super) mod client_options;
pub(super) mod condition_probe;
pub(super) mod connector;
pub(super) mod fault;
pub(super) mod limits;
mod network;
pub(super) mod packing;
mod proxied;
mod redirect;
pub(super) mod retry_after;
pub(super) mod runtime;
mod second_request;
mod trust;
pub(super) mod validator;
pub(super) mod write_retry;

/// How often a request is repeated once the store is open.
pub(super) const RETRIES: usize = 10;

/// How often a request is repeated, and the time limit of its response, while a store is being opened: a wrong address
/// is reported within seconds.
pub(super) const FIRST_RETRIES: usize = 1;
pub(super) const FIRST_LIMIT: Duration = Duration::from_secs(10);
