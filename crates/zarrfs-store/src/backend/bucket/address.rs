//! Which bucket a URL names, of which kind of store, and what of it is the store.
//!
//! Bucket and prefix are taken as they are written: an escape such as `%20` is part of the key, as for the
//! programs of the clouds themselves.

use super::plain_listing;
use zarr_format::error::{Error, Result};

/// A kind of store of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloudKind {
    S3,
    Google,
    Azure,
}

/// A bucket, or container, and a prefix in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) kind: CloudKind,
    /// What the URL begins with, as it was typed.
    pub(super) scheme: String,
    pub(super) bucket: String,
    /// The account that a URL of Azure's names.
    pub(super) account: Option<String>,
    /// Without a slash at either end.
    pub(super) prefix: String,
}

/// The kinds by the scheme of their URLs.
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

/// Returns the kind of store that a scheme names.
pub(super) fn kind(scheme: &str) -> Option<CloudKind> {
    SCHEMES
        .iter()
        .find(|(name, _)| *name == scheme)
        .map(|(_, kind)| *kind)
}

/// Reads `//bucket/prefix`, which follows the scheme of a kind; `Invalid` without a bucket.
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
