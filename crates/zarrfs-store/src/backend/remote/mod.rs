//! Code that the network stores share.
//!
//! This folder has the runtime with its blocking waits, the counting HTTP client and its settings, request limits,
//! error messages and the retries of changes. All asynchronous code of zarrfs is here and in `bucket` and `http`, which
//! use this folder.

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

/// Maximum number of retries of a request, once the store is open.
pub(super) const RETRIES: usize = 10;

/// Maximum number of retries, and the time limit of a response, while a store is being opened, so that a wrong address
/// is reported within seconds.
pub(super) const FIRST_RETRIES: usize = 1;
pub(super) const FIRST_LIMIT: Duration = Duration::from_secs(10);
