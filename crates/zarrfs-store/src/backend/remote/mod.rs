//! Code that the network stores share.
//!
//! `http_client` builds the HTTP client. `hedge` wraps the client to send second requests, and `connector` to count
//! requests. `runtime` waits for requests, `limits` and `retry` bound them, `headers` and `errors` interpret the
//! answers. `redirect` follows redirects, with the credentials of `login`. `probes` find out whether a server enforces
//! conditions and refuses missing keys. All asynchronous code of zarrfs is here and in `bucket` and `http`, which use
//! this folder.

use std::time::Duration;

pub(super) mod connector;
pub(super) mod errors;
pub(super) mod headers;
mod hedge;
pub(super) mod http_client;
pub(super) mod limits;
pub(super) mod login;
pub(super) mod probes;
pub(super) mod redirect;
pub(super) mod retry;
pub(super) mod runtime;
mod tls;

/// Maximum number of retries of a request, once the store is open.
pub(super) const RETRIES: usize = 10;

/// Maximum number of retries, and the time limit of a response, while a store is being opened, so that a wrong address
/// is reported within seconds.
pub(super) const OPEN_RETRIES: usize = 1;
pub(super) const OPEN_TIME_LIMIT: Duration = Duration::from_secs(10);
