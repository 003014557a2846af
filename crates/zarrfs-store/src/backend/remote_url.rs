//! Which kind of store a URL of the network names, and its opening: a bucket, also one behind the plain HTTPS
//! address of its cloud, or a folder of a web server.

use std::sync::Arc;

use crate::backend::bucket;
use crate::backend::bucket::BucketStore;
use crate::backend::http::HttpStore;
use crate::stats::Stats;
use crate::{Key, RemoteConfig, Store};
use zarr_format::error::Result;

/// A URL to open.
#[derive(Clone, Copy)]
pub(crate) struct RemoteUrl<'a> {
    pub(crate) scheme: &'a str,
    /// What follows the scheme and its colon.
    pub(crate) rest: &'a str,
    /// The name of the store in messages, without secrets.
    pub(crate) shown: &'a str,
    /// Of an archive, its object key: the only key that has to be there.
    pub(crate) only: Option<&'a Key>,
}

/// Whether URLs of a scheme can be opened here.
pub(crate) fn has_scheme(scheme: &str) -> bool {
    is_http(scheme) || bucket::has_scheme(scheme)
}

fn is_http(scheme: &str) -> bool {
    matches!(scheme, "http" | "https")
}

/// Opens a store on the network; `Denied`, `NotFound`, `Invalid` or `Unavailable` within seconds otherwise.
pub(crate) fn open(
    location: RemoteUrl<'_>,
    config: &RemoteConfig,
    stats: &Arc<Stats>,
) -> Result<Arc<dyn Store>> {
    let RemoteUrl {
        scheme,
        rest,
        shown,
        only,
    } = location;
    if !is_http(scheme) {
        let store = BucketStore::open(scheme, rest, shown, config, stats)?;
        return Ok(Arc::new(store));
    }
    let url = format!("{scheme}:{rest}");
    // A bucket that cannot be read as one may still serve its objects as files.
    if let Some(bucket) = BucketStore::open_cloud_url(&url, shown, config, stats) {
        return Ok(Arc::new(bucket));
    }
    let store = HttpStore::open(&url, shown, only, config, stats)?;
    Ok(Arc::new(store))
}
