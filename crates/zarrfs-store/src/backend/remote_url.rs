//! Opens network URLs: buckets and folders of web servers.
//!
//! An HTTPS URL of a cloud's own host is opened as a bucket if possible.

use std::sync::Arc;

use url::Url;

use crate::backend::bucket;
use crate::backend::bucket::BucketStore;
use crate::backend::http::HttpStore;
use crate::stats::Stats;
use crate::{Key, RemoteConfig, Store};
use zarr_format::error::{Error, Result};

/// The URL of a store on the network, split into its parts.
#[derive(Clone, Copy)]
pub(crate) struct RemoteUrl<'a> {
    pub(crate) scheme: &'a str,
    /// The part of the URL after the scheme and its colon.
    pub(crate) rest: &'a str,
    /// The name of the store in messages, without secrets.
    pub(crate) display_name: &'a str,
    /// The key of the zip archive, if the store is opened for an archive: no other key needs to exist.
    pub(crate) only: Option<&'a Key>,
}

pub(crate) fn has_scheme(scheme: &str) -> bool {
    is_http(scheme) || bucket::has_scheme(scheme)
}

fn is_http(scheme: &str) -> bool {
    matches!(scheme, "http" | "https")
}

/// Fails with `Invalid` if there are credentials for web servers, but the URL is that of a bucket.
fn check_login(scheme: &str, config: &RemoteConfig) -> Result<()> {
    let Some(option) = config.login.first_option() else {
        return Ok(());
    };
    let why = format!(
        "only for http:// and https:// URLs; a store at {scheme}:// has credentials of its own (see --profile and \
         --storage-option)"
    );
    Err(Error::invalid(option, why))
}

/// Opens a store on the network. Fails within seconds with `Denied`, `NotFound`, `Invalid` or `Unavailable`.
pub(crate) fn open(
    location: RemoteUrl<'_>,
    config: &RemoteConfig,
    stats: &Arc<Stats>,
) -> Result<Arc<dyn Store>> {
    let RemoteUrl {
        scheme,
        rest,
        display_name,
        only,
    } = location;
    if !is_http(scheme) {
        check_login(scheme, config)?;
        let store = BucketStore::open(scheme, rest, display_name, config, stats)?;
        return Ok(Arc::new(store));
    }
    let url = format!("{scheme}:{rest}");
    let host = Url::parse(&url).ok();
    let host = host.as_ref().and_then(Url::host_str);
    // If the URL cannot be opened as a bucket, its server may still serve the objects as files. A URL whose host has
    // web-server credentials is never opened as a bucket, because they would not be sent to it.
    if !host.is_some_and(|host| config.login.is_for(host))
        && let Some(bucket) = BucketStore::open_cloud_url(&url, display_name, config, stats)
    {
        return Ok(Arc::new(bucket));
    }
    let store = HttpStore::open(&url, display_name, only, config, stats)?;
    Ok(Arc::new(store))
}
