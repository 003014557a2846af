//! Recognizes HTTPS URLs of buckets, which are then opened as buckets.
//!
//! A bucket supports more than a folder of a web server. Only the clouds' own hosts are recognized. A URL with a query
//! may be signed for exactly that URL, so it is opened as a web server.

use percent_encoding::percent_decode_str;
use url::Url;

use super::address::{Address, CloudKind};

/// The domain of S3's own hosts.
const S3_HOSTS: &str = "amazonaws.com";

/// Returns the bucket of a URL, and the region if the host name has it; `None` if it is not the URL of a bucket.
pub(super) fn bucket(url: &str) -> Option<(Address, Option<String>)> {
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
        return Some((address(CloudKind::Google, first, rest)?, None));
    }
    if let Some(bucket) = host.strip_suffix(".storage.googleapis.com") {
        return Some((address(CloudKind::Google, bucket, path)?, None));
    }
    if let Some(account) = host.strip_suffix(".blob.core.windows.net") {
        let address = address(CloudKind::Azure, first, rest)?;
        let account = Some(account.to_string());
        return Some((Address { account, ..address }, None));
    }
    s3_bucket(host, path)
}

/// Returns the bucket of a path on one of S3's own hosts, and its region.
fn s3_bucket(host: &str, path: &str) -> Option<(Address, Option<String>)> {
    let (first, rest) = path.split_once('/').unwrap_or((path, ""));
    let host_prefix = host.strip_suffix(S3_HOSTS)?.strip_suffix('.')?;
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
        Some(bucket) => address(CloudKind::S3, bucket, path)?,
        None => address(CloudKind::S3, first, rest)?,
    };
    Some((address, region.map(str::to_string)))
}

fn address(kind: CloudKind, bucket: &str, prefix: &str) -> Option<Address> {
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

    #[test]
    fn hosts_of_the_clouds_name_buckets() {
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
            let (found, found_region) = bucket(&format!("https://{url}")).unwrap();
            assert_eq!(found.kind, kind, "{url}");
            assert_eq!((found.bucket.as_str(), found.prefix.as_str()), names);
            assert_eq!(found_region.as_deref(), region, "{url}");
        }
        let azure = bucket("https://account.blob.core.windows.net/c/x")
            .unwrap()
            .0;
        assert_eq!(azure.account.as_deref(), Some("account"));
    }

    #[test]
    fn other_urls_are_of_web_servers() {
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
            assert!(bucket(url).is_none(), "{url}");
        }
    }
}
