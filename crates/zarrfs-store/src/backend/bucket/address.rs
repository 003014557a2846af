//! Parses a bucket URL into the kind of store, the bucket and the prefix.
//!
//! Bucket and prefix are not decoded: an escape such as `%20` is part of the key, as in the clouds' own programs.

use super::plain_listing;
use zarr_format::error::{Error, Result};

/// A kind of object store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloudKind {
    S3,
    Google,
    Azure,
}

/// A bucket (on Azure a container) and a prefix in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) kind: CloudKind,
    /// The scheme of the URL, as the user typed it.
    pub(super) scheme: String,
    pub(super) bucket: String,
    /// The account in an Azure URL.
    pub(super) account: Option<String>,
    /// Without a slash at either end.
    pub(super) prefix: String,
}

/// The kinds of stores by URL scheme.
const SCHEMES: [(&str, CloudKind); 9] = [
    ("s3", CloudKind::S3),
    ("s3a", CloudKind::S3),
    ("gs", CloudKind::Google),
    ("gcs", CloudKind::Google),
    ("az", CloudKind::Azure),
    ("adl", CloudKind::Azure),
    ("azure", CloudKind::Azure),
    ("abfs", CloudKind::Azure),
    ("abfss", CloudKind::Azure),
];

/// Returns the kind of store for a scheme, or `None` if it is not the scheme of a bucket.
pub(super) fn kind(scheme: &str) -> Option<CloudKind> {
    SCHEMES
        .iter()
        .find(|(name, _)| *name == scheme)
        .map(|(_, kind)| *kind)
}

/// Parses `//bucket/prefix`, the part after the scheme. Without a bucket, the error is `Invalid`.
pub(super) fn read(scheme: &str, kind: CloudKind, rest: &str, shown: &str) -> Result<Address> {
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (bucket, account) = match (kind, authority.split_once('@')) {
        (CloudKind::Azure, Some((container, host))) => {
            let account = host.split('.').next().unwrap_or_default();
            (container, Some(account.to_string()))
        }
        _ => (authority, None),
    };
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.$".contains(letter);
    if bucket.is_empty() || !bucket.chars().all(is_plain) {
        let what = match kind {
            CloudKind::S3 | CloudKind::Google => "BUCKET",
            CloudKind::Azure => "CONTAINER",
        };
        let why = format!("expected {scheme}://{what}/PREFIX");
        return Err(Error::invalid(shown, why));
    }
    let prefix = path.trim_matches('/');
    if !prefix.is_empty() && !plain_listing::is_plain(prefix) {
        let why = "keys with an empty part (//), '.' or '..' as a part, or control characters are not read";
        return Err(Error::unsupported(shown, why));
    }
    Ok(Address {
        kind,
        scheme: scheme.to_string(),
        bucket: bucket.to_string(),
        account,
        prefix: prefix.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use zarr_format::error::Kind;

    fn address(url: &str) -> Result<Address> {
        let (scheme, rest) = url.split_once(':').unwrap();
        read(scheme, kind(scheme).unwrap(), rest, url)
    }

    #[test]
    fn urls_name_buckets() {
        let found = address("s3://bucket/a/b%20c.zarr/").unwrap();
        assert_eq!(
            (found.bucket.as_str(), found.prefix.as_str()),
            ("bucket", "a/b%20c.zarr")
        );
        let found = address("abfss://box@account.dfs.core.windows.net/a").unwrap();
        assert_eq!(found.account.as_deref(), Some("account"));
        assert_eq!((found.bucket.as_str(), found.prefix.as_str()), ("box", "a"));
        assert_eq!(address("gs://b").unwrap().prefix, "");
        assert!(address("s3:///a").is_err() && address("s3://a:b@c/d").is_err());
        let error = address("s3://b/a//c").unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported, "{error}");
    }
}
