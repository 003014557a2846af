//! Identifies a store in the cache by URL and server.
//!
//! The whole URL counts: a user, password or query may change a web server's response, and so may other credentials for
//! it (`StoreInfo::server`). The server of a bucket comes from options, the environment or a profile. Credentials, home
//! folder and machine do not count, since they change no byte of a bucket's objects: all users who may read the cache
//! folder share its entries. For a local server such as `localhost` the network of the process counts too, since
//! `localhost` is another server in another network.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sha2::{Digest, Sha256};
use url::{Host, Url};

use crate::{StoreInfo, normalized};

/// Returns the digest that identifies the store at a URL in the disk cache. It is a digest because the URL may contain
/// secrets.
pub fn identity(location: &str, store: &StoreInfo) -> String {
    let location = without_last_slash(&normalized(location));
    let server = store.server.as_deref().unwrap_or_default();
    let network = if is_local(&location) || server.split('"').any(is_local) {
        own_network(Path::new("/sys/class/net"))
    } else {
        String::new()
    };
    let mut digest = Sha256::new();
    for part in [location.as_str(), server, network.as_str()] {
        digest.update(part);
        digest.update([0]);
    }
    format!("{:x}", digest.finalize())
}

/// Whether only processes of the same network can reach the server of a URL.
fn is_local(url: &str) -> bool {
    match Url::parse(url).as_ref().map(Url::host) {
        Ok(Some(Host::Domain(name))) => name == "localhost" || name.ends_with(".localhost"),
        Ok(Some(Host::Ipv4(address))) => address.is_loopback(),
        Ok(Some(Host::Ipv6(address))) => address.is_loopback(),
        Ok(None) | Err(_) => false,
    }
}

/// Returns the identity of this process's network, different on other machines and in other containers: the namespace
/// and a hardware address, of a physical interface if there is one.
fn own_network(interfaces: &Path) -> String {
    let namespace = fs::metadata("/proc/self/ns/net").map_or(0, |facts| facts.ino());
    let entries = fs::read_dir(interfaces).into_iter().flatten().flatten();
    let addresses = entries.filter_map(|entry| {
        let is_virtual = !entry.path().join("device").exists();
        let address = fs::read_to_string(entry.path().join("address")).ok()?;
        let is_one = address
            .chars()
            .any(|digit| !matches!(digit, '0' | ':' | '\n'));
        is_one.then_some((is_virtual, address))
    });
    let address = addresses.min().unwrap_or_default().1;
    format!("{namespace} {address}")
}

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
    fn each_query_user_and_server_has_its_own_identity() {
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
    fn spellings_of_one_url_have_one_identity() {
        let first = of("https://host/a/?v=1", None);
        assert_eq!(first, of("HTTPS://host/a?v=1", None));
        let (one, other) = (of("s3://b/a", Some("x")), of("s3://b/a/", Some("x")));
        assert_eq!(one, other);
    }

    #[test]
    fn a_server_on_this_machine_is_recognized() {
        for url in [
            "http://localhost/a",
            "http://me:pw@localhost:8000/a",
            "https://minio.localhost/a",
            "http://127.0.0.1:9000",
            "http://127.8.0.1/a",
            "http://[::1]:8000/a",
        ] {
            assert!(is_local(url), "{url}");
        }
        for url in [
            "http://localhost.org/a",
            "http://10.0.0.1/a",
            "s3://localhosts/a",
            "us-east-1",
        ] {
            assert!(!is_local(url), "{url}");
        }
        let endpoint = of("s3://b/a", Some("Some(\"http://127.0.0.1:10000\") None"));
        assert_ne!(
            endpoint,
            of("s3://b/a", Some("Some(\"http://10.0.0.1:10000\") None"))
        );
    }

    #[test]
    fn a_network_is_identified_by_a_device_address() {
        let folder = tempfile::tempdir().unwrap();
        let add = |name: &str, address: &str, has_device: bool| {
            let interface = folder.path().join(name);
            fs::create_dir(&interface).unwrap();
            fs::write(interface.join("address"), format!("{address}\n")).unwrap();
            if has_device {
                fs::create_dir(interface.join("device")).unwrap();
            }
        };
        let bare = own_network(folder.path());
        add("lo", "00:00:00:00:00:00", false);
        assert_eq!(own_network(folder.path()), bare);
        add("eth0", "52:54:00:00:00:01", true);
        let known = own_network(folder.path());
        assert_ne!(known, bare);
        add("docker0", "02:42:00:00:00:01", false);
        assert_eq!(own_network(folder.path()), known);
    }
}
