//! Settings of the HTTP client that every remote store has: the names of `--option` that it accepts, and the
//! values that zarrfs sets itself.

use std::time::Duration;

use object_store::ClientConfigKey;

use crate::RemoteConfig;
use crate::spelling::nearest;
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

/// Checks that an option's name is one of the HTTP client, the only ones that a store on a web server has;
/// `Invalid` otherwise.
pub(crate) fn check_client(name: &str) -> Result<()> {
    if CLIENT_OPTIONS.contains(&name.to_ascii_lowercase().as_str()) {
        return Ok(());
    }
    Err(unknown_option(name, &CLIENT_OPTIONS))
}

/// Returns the error of an option that is none of `known`, with the nearest of these names.
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

/// Returns the settings of every client. The client's own limits of a whole request and of an answer are set out of
/// reach: they would include the bodies, whose time depends on their length. `limits` has those that count.
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
