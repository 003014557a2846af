//! Parses a bucket URL into the kind of store, the bucket and the prefix.
//!
//! The bucket and the prefix in a URL such as `s3://bucket/prefix` are not percent-decoded: an escape such as `%20` is
//! part of the key, as in the clouds' own programs.

use percent_encoding::percent_decode_str;
use url::Url;

use super::listing_page;
use zarr_format::error::{Error, Result};

/// A cloud whose object store holds buckets.
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
    /// The key prefix of the store in the bucket, without a slash at either end.
    pub(super) prefix: String,
}

impl CloudKind {
    /// Returns the kind of store for a scheme, or `None` if it is not the scheme of a bucket.
    pub(super) fn of_scheme(scheme: &str) -> Option<CloudKind> {
        match scheme {
            "s3" | "s3a" => Some(CloudKind::S3),
            "gs" | "gcs" => Some(CloudKind::Google),
            "az" | "adl" | "azure" | "abfs" | "abfss" => Some(CloudKind::Azure),
            _ => None,
        }
    }
}

impl Address {
    /// Parses `//bucket/prefix`, the part after the scheme. Without a bucket, the error is `Invalid`.
    pub(super) fn parse(
        scheme: &str,
        kind: CloudKind,
        rest: &str,
        display_name: &str,
    ) -> Result<Address> {
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
            return Err(Error::invalid(display_name, why));
        }
        let prefix = path.trim_matches('/');
        if !prefix.is_empty() && !listing_page::is_valid_name(prefix) {
            let why = "a prefix cannot contain '//', '.' or '..' as a name, or control characters";
            return Err(Error::unsupported(display_name, why));
        }
        Ok(Address {
            kind,
            scheme: scheme.to_string(),
            bucket: bucket.to_string(),
            account,
            prefix: prefix.to_string(),
        })
    }

    /// Returns the bucket that an HTTPS URL of a cloud's own host names, and its region if the host name contains it.
    /// Returns `None` if the URL names no bucket.
    ///
    /// Such a URL is better opened as a bucket, which supports more than a folder of a web server. A URL with a query
    /// may be signed for exactly that URL, so it is opened as a web server.
    pub(super) fn of_cloud_url(url: &str) -> Option<(Address, Option<String>)> {
        let url = Url::parse(url).ok()?;
        let has_no_extras =
            url.query().is_none() && url.username().is_empty() && url.password().is_none();
        if !has_no_extras || url.port().is_some() {
            return None;
        }
        let path = percent_decode_str(url.path()).decode_utf8().ok()?;
        let path = path.trim_matches('/');
        let (first, rest) = path.split_once('/').unwrap_or((path, ""));
        let host = url.host_str()?;
        if host == "storage.googleapis.com" {
            return Some((cloud_address(CloudKind::Google, first, rest)?, None));
        }
        if let Some(bucket) = host.strip_suffix(".storage.googleapis.com") {
            return Some((cloud_address(CloudKind::Google, bucket, path)?, None));
        }
        if let Some(account) = host.strip_suffix(".blob.core.windows.net") {
            let address = cloud_address(CloudKind::Azure, first, rest)?;
            let account = Some(account.to_string());
            return Some((Address { account, ..address }, None));
        }
        s3_bucket(host, path)
    }
}

/// Returns the bucket that a URL on one of S3's own hosts names, and the bucket's region if the host name contains it.
fn s3_bucket(host: &str, path: &str) -> Option<(Address, Option<String>)> {
    let (first, rest) = path.split_once('/').unwrap_or((path, ""));
    let host_prefix = host.strip_suffix("amazonaws.com")?.strip_suffix('.')?;
    let (bucket, region) = match host_prefix.rsplit_once("s3") {
        Some(("", region)) => (None, region),
        Some((bucket, region)) => (Some(bucket.strip_suffix('.')?), region),
        None => return None,
    };
    let region = match region {
        "" => None,
        region => Some(region.strip_prefix(['.', '-'])?),
    };
    let is_plain = |region: &str| !region.contains('.') && region != "accelerate";
    if !region.is_none_or(is_plain) {
        return None;
    }
    let address = match bucket {
        Some(bucket) => cloud_address(CloudKind::S3, bucket, path)?,
        None => cloud_address(CloudKind::S3, first, rest)?,
    };
    Some((address, region.map(str::to_string)))
}

fn cloud_address(kind: CloudKind, bucket: &str, prefix: &str) -> Option<Address> {
    (!bucket.is_empty()).then(|| Address {
        kind,
        scheme: "https".to_string(),
        bucket: bucket.to_string(),
        account: None,
        prefix: prefix.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use zarr_format::error::Kind;

    fn address(url: &str) -> Result<Address> {
        let (scheme, rest) = url.split_once(':').unwrap();
        let kind = CloudKind::of_scheme(scheme).unwrap();
        Address::parse(scheme, kind, rest, url)
    }

    #[test]
    fn a_bucket_url_gives_bucket_and_prefix() {
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

    #[test]
    fn https_urls_of_clouds_are_parsed_as_buckets() {
        let (s3, google, azure) = (CloudKind::S3, CloudKind::Google, CloudKind::Azure);
        for (url, kind, names, region) in [
            (
                "storage.googleapis.com/b/a/x%20y.zarr/",
                google,
                ("b", "a/x y.zarr"),
                None,
            ),
            ("b.storage.googleapis.com/a", google, ("b", "a"), None),
            ("b.s3.amazonaws.com/a.zarr", s3, ("b", "a.zarr"), None),
            (
                "b.c.s3.eu-west-1.amazonaws.com/a",
                s3,
                ("b.c", "a"),
                Some("eu-west-1"),
            ),
            (
                "s3.us-west-2.amazonaws.com/b/a",
                s3,
                ("b", "a"),
                Some("us-west-2"),
            ),
            (
                "s3-us-west-2.amazonaws.com/b/a",
                s3,
                ("b", "a"),
                Some("us-west-2"),
            ),
            ("s3.amazonaws.com/b", s3, ("b", ""), None),
            ("account.blob.core.windows.net/c/x", azure, ("c", "x"), None),
        ] {
            let (found, found_region) = Address::of_cloud_url(&format!("https://{url}")).unwrap();
            assert_eq!(found.kind, kind, "{url}");
            assert_eq!((found.bucket.as_str(), found.prefix.as_str()), names);
            assert_eq!(found_region.as_deref(), region, "{url}");
        }
        let azure = Address::of_cloud_url("https://account.blob.core.windows.net/c/x")
            .unwrap()
            .0;
        assert_eq!(azure.account.as_deref(), Some("account"));
    }

    #[test]
    fn other_urls_are_not_parsed_as_buckets() {
        for url in [
            "https://host/b/x",
            "https://b.s3.amazonaws.com/a?X-Amz-Signature=x",
            "https://me:pw@storage.googleapis.com/b",
            "https://storage.googleapis.com:8443/b",
            "https://storage.googleapis.com/",
            "https://s3.amazonaws.com.evil.org/b",
            "https://notamazonaws.com/b",
            "https://s3.dualstack.us-west-2.amazonaws.com/b",
            "https://b.s3-accelerate.amazonaws.com/b",
            "not a URL",
        ] {
            assert!(Address::of_cloud_url(url).is_none(), "{url}");
        }
    }
}
