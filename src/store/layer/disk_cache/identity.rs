//! What tells one store from another in the cache: its URL, and the server where the URL does not name it.
//!
//! The URL counts whole: a user, a password or a query may change what a web server gives. Of a bucket, options, the
//! environment or a profile name the server. Who asks changes no byte of a bucket's objects, so credentials, home and
//! machine do not count: what one user of the folder has read is there for all who may read the folder.

use sha2::{Digest, Sha256};

use crate::store::{StoreInfo, normalized};

/// Returns the identity of the store at a URL: a digest, since the URL may have secrets.
pub fn identity(location: &str, store: &StoreInfo) -> String {
    let location = without_last_slash(&normalized(location));
    let server = store.server.as_deref().unwrap_or_default();
    let digest = Sha256::new().chain_update(location).chain_update([0]);
    format!("{:x}", digest.chain_update(server).finalize())
}

/// Returns a URL without the slashes at the end of its path.
fn without_last_slash(url: &str) -> String {
    let (path, query) = url.split_at(url.find(['?', '#']).unwrap_or(url.len()));
    format!("{}{query}", path.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::time::Duration;

    fn of(url: &str, server: Option<&str>) -> String {
        let info = StoreInfo {
            server: server.map(Into::into),
            ..StoreInfo::new(Duration::ZERO)
        };
        identity(url, &info)
    }

    #[test]
    fn b04_whatever_changes_the_bytes_is_another_store() {
        let found = [
            of("https://host/a.zarr", None),
            of("https://host/a.zarr?v=1", None),
            of("https://host/a.zarr?v=2", None),
            of("https://host/a?v=1/", None),
            of("https://host/a?v=1", None),
            of("https://alice:pw@host/a.zarr", None),
            of("https://bob:pw@host/a.zarr", None),
            of("https://bob:other@host/a.zarr", None),
            of("s3://bucket/a.zarr", Some("eu-west-1")),
            of("s3://bucket/a.zarr", Some("cn-north-1")),
            of("s3://bucket/a.zarr", Some("http://minio:9000")),
        ];
        assert_eq!(found.iter().collect::<HashSet<_>>().len(), found.len());
    }

    #[test]
    fn b04_one_store_has_one_identity() {
        let first = of("https://host/a/?v=1", None);
        assert_eq!(first, of("HTTPS://host/a?v=1", None));
        let (one, other) = (of("s3://b/a", Some("x")), of("s3://b/a/", Some("x")));
        assert_eq!(one, other);
    }
}
