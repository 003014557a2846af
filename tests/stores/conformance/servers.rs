//! Web servers over a local folder: WebDAV, nginx, Apache, Caddy, Python without ranges.
//!
//! `scripts/servers` runs them; nginx runs with and without index pages. Every store is a subfolder of the server's
//! folder.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use zarrfs_store::stats::Stats;
use zarrfs_store::{Key, RemoteConfig, StoreConfig};

use super::buckets::CONTROL;
use super::fixture::{Fixture, Kind, Listed, Objects, Writer, Writes};
use zarrfs_store::request_context::UNLIMITED;

const PLAIN: Kind = Kind {
    name: "a web server",
    changes: true,
    any_bytes: false,
    no_bytes: &[],
    both: false,
    listed: Listed::All,
    // All names of a folder are on one page, so a few names suffice to test cursors.
    many: 200,
    writes: Writes::No,
    takes_big: false,
    variable: None,
    holding: webdav,
};

pub(crate) const WEBDAV: Kind = Kind {
    name: "WebDAV, rclone",
    // rclone replaces each control character by another character.
    no_bytes: CONTROL,
    // rclone does not support conditional writes.
    writes: Writes::Looking,
    takes_big: true,
    variable: Some("ZARRFS_TEST_WEBDAV"),
    holding: webdav,
    ..PLAIN
};

pub(crate) const NGINX: Kind = Kind {
    name: "nginx",
    any_bytes: true,
    listed: Listed::None,
    variable: Some("ZARRFS_TEST_NGINX"),
    holding: nginx,
    ..PLAIN
};

pub(crate) const NGINX_AUTOINDEX: Kind = Kind {
    name: "nginx with index pages",
    any_bytes: true,
    listed: Listed::Visible,
    variable: Some("ZARRFS_TEST_NGINX_AUTOINDEX"),
    holding: nginx_autoindex,
    ..PLAIN
};

pub(crate) const APACHE: Kind = Kind {
    name: "Apache with index pages",
    any_bytes: true,
    variable: Some("ZARRFS_TEST_APACHE"),
    holding: apache,
    ..PLAIN
};

pub(crate) const CADDY: Kind = Kind {
    name: "Caddy with index pages",
    variable: Some("ZARRFS_TEST_CADDY"),
    holding: caddy,
    ..PLAIN
};

pub(crate) const HTTP_SERVER: Kind = Kind {
    name: "python3 -m http.server",
    variable: Some("ZARRFS_TEST_HTTP"),
    holding: http_server,
    ..PLAIN
};

fn webdav(objects: Objects) -> Fixture {
    served("ZARRFS_TEST_WEBDAV", "ZARRFS_TEST_WEBDAV_DIR", objects)
}

fn nginx(objects: Objects) -> Fixture {
    served("ZARRFS_TEST_NGINX", "ZARRFS_TEST_NGINX_DIR", objects)
}

fn nginx_autoindex(objects: Objects) -> Fixture {
    served(
        "ZARRFS_TEST_NGINX_AUTOINDEX",
        "ZARRFS_TEST_NGINX_DIR",
        objects,
    )
}

fn apache(objects: Objects) -> Fixture {
    served("ZARRFS_TEST_APACHE", "ZARRFS_TEST_APACHE_DIR", objects)
}

fn caddy(objects: Objects) -> Fixture {
    served("ZARRFS_TEST_CADDY", "ZARRFS_TEST_CADDY_DIR", objects)
}

fn http_server(objects: Objects) -> Fixture {
    served("ZARRFS_TEST_HTTP", "ZARRFS_TEST_HTTP_DIR", objects)
}

/// A subfolder of a server's folder, which is removed when the test ends.
struct Folder(PathBuf);

fn served(address: &str, folder: &str, objects: Objects) -> Fixture {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    // The name has a space, so that it must be percent-encoded in the URL.
    let name = format!("rust {}-{count}", std::process::id());
    let root = Folder(Path::new(&std::env::var_os(folder).unwrap()).join(&name));
    fs::create_dir_all(&root.0).unwrap();
    for (name, bytes) in objects {
        root.replace(&Key::new(*name).unwrap(), bytes);
    }
    let url = format!(
        "{}/{}",
        std::env::var(address).unwrap(),
        name.replace(' ', "%20")
    );
    let stats = Arc::new(Stats::default());
    // Without a TTL, changes that the test makes are visible at once.
    let remote = RemoteConfig {
        metadata_ttl: Duration::ZERO,
        ..RemoteConfig::default()
    };
    let config = StoreConfig {
        remote,
        ..StoreConfig::default()
    };
    let store = zarrfs_store::open(&UNLIMITED, &url, &config, &stats).unwrap();
    Fixture::new(store, Box::new(root))
}

impl Folder {
    fn path(&self, key: &Key) -> PathBuf {
        self.0.join(std::ffi::OsStr::from_bytes(key.as_bytes()))
    }

    /// Writes a file whose time is a second later than that of the last one, because HTTP headers have whole seconds.
    fn write(path: &Path, bytes: &[u8]) {
        static CLOCK: AtomicU64 = AtomicU64::new(1_600_000_000);
        let time = UNIX_EPOCH + Duration::from_secs(CLOCK.fetch_add(1, Ordering::Relaxed));
        fs::write(path, bytes).unwrap();
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(time).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Writer for Folder {
    fn replace(&self, key: &Key, bytes: &[u8]) {
        let path = self.path(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let arriving = self.0.with_extension("arriving");
        Folder::write(&arriving, bytes);
        fs::rename(arriving, path).unwrap();
        wait_until_seen();
    }

    fn overwrite(&self, key: &Key, bytes: &[u8]) {
        Folder::write(&self.path(key), bytes);
        wait_until_seen();
    }

    fn erase(&self, key: &Key) {
        fs::remove_file(self.path(key)).unwrap();
        wait_until_seen();
    }
}

/// Waits until the server has no folder in its cache: rclone caches folders for a millisecond.
fn wait_until_seen() {
    std::thread::sleep(std::time::Duration::from_millis(20));
}
