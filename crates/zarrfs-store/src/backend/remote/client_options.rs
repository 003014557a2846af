//! HTTP client settings of all remote stores: accepted options and defaults.

use std::time::Duration;

use object_store::ClientConfigKey;

use crate::RemoteConfig;
use crate::edit_distance::nearest;
use zarr_format::error::{Error, Result};

/// Names of `--option` that every kind of store accepts.
pub(crate) const CLIENT_OPTIONS: [&str; 12] = [
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "disable_system_certificates",
    "http1_only",
    "pool_idle_timeout",
    "pool_max_idle_per_host",
    "proxy_ca_certificate",
    "proxy_excludes",
    "proxy_url",
    "read_timeout",
    "user_agent",
];

/// Returns the error `Invalid` if an option is not one of the HTTP client's. Stores on web servers have no others.
pub(crate) fn check_client(name: &str) -> Result<()> {
    if CLIENT_OPTIONS.contains(&name.to_ascii_lowercase().as_str()) {
        return Ok(());
    }
    Err(unknown_option(name, &CLIENT_OPTIONS))
}

/// Returns the error for an option that is not in `known`, with the nearest known name.
pub(crate) fn unknown_option(name: &str, known: &[&'static str]) -> Error {
    if name == "profile" {
        return Error::invalid("--profile", "only buckets of S3 have one");
    }
    let hint = match nearest(name, known.iter().copied()) {
        Some(known) => format!("did you mean '{known}'?"),
        None => format!("known are {}", known.join(", ")),
    };
    Error::invalid(
        format!("--option {name}"),
        format!("no such option; {hint}"),
    )
}

/// Returns the default settings of every client. The client's own limits for requests and reads are disabled (1 day):
/// they would include bodies, whose time depends on their length. The effective limits are in `limits`.
pub(crate) fn defaults(config: &RemoteConfig) -> [(ClientConfigKey, String); 4] {
    let milliseconds = |duration: Duration| format!("{}ms", duration.as_millis().max(1));
    [
        (ClientConfigKey::Timeout, "1day".to_string()),
        (ClientConfigKey::ReadTimeout, "1day".to_string()),
        (
            ClientConfigKey::ConnectTimeout,
            milliseconds(config.timeout.min(Duration::from_secs(5))),
        ),
        (
            ClientConfigKey::UserAgent,
            concat!("zarrfs/", env!("CARGO_PKG_VERSION")).to_string(),
        ),
    ]
}
