//! Makes stores in buckets on SeaweedFS, moto, Azurite and fake-gcs-server, as `scripts/servers` runs them.
//!
//! Each store is a prefix of its own in one shared bucket. Objects are put by a client of the tests, not by zarrfs.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::{
    HttpClient, HttpConnector, HttpRequest, HttpRequestBody, ReqwestConnector,
};
use object_store::path::Path;
use object_store::{ClientOptions, ObjectStore, ObjectStoreExt};
use tokio::runtime::Runtime;
use zarrfs_store::stats::Stats;
use zarrfs_store::{Key, RemoteConfig, Store, StoreConfig};

use super::fixture::{Fixture, Kind, Listed, Objects, Writer, Writes};
use zarrfs_store::request_context::UNLIMITED;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

fn wait<T>(work: impl Future<Output = T>) -> T {
    RUNTIME.block_on(work)
}

const PLAIN: Kind = Kind {
    name: "a bucket",
    changes: true,
    any_bytes: false,
    no_bytes: CONTROL,
    both: true,
    listed: Listed::All,
    many: 1200,
    writes: Writes::Conditionally,
    takes_big: false,
    variable: None,
    holding: seaweedfs,
};

/// Bytes that the crate object_store cannot send in a name.
pub(crate) const CONTROL: &[u8] = b"\x01\x02\x03\x04\x05\x06\x07\x08\t\n\x0b\x0c\r\x0e\x0f\
    \x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f\x7f";

/// Bytes that Azurite and fake-gcs-server do not preserve in a name.
const BACKSLASH: &[u8] = b"\\\x01\x02\x03\x04\x05\x06\x07\x08\t\n\x0b\x0c\r\x0e\x0f\
    \x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f\x7f";

/// SeaweedFS stores keys as files in folders, so a key cannot be an object and a prefix at once.
pub(crate) const SEAWEEDFS: Kind = Kind {
    name: "s3, SeaweedFS",
    both: false,
    no_bytes: BACKSLASH,
    takes_big: true,
    variable: Some("ZARRFS_TEST_S3"),
    holding: seaweedfs,
    ..PLAIN
};

pub(crate) const MOTO: Kind = Kind {
    name: "s3, moto",
    // moto checks a condition without a lock, while other threads may write.
    writes: Writes::Racing,
    variable: Some("ZARRFS_TEST_MOTO"),
    holding: moto,
    ..PLAIN
};

pub(crate) const AZURITE: Kind = Kind {
    name: "az, Azurite",
    no_bytes: BACKSLASH,
    variable: Some("ZARRFS_TEST_AZURE"),
    holding: azurite,
    ..PLAIN
};

pub(crate) const FAKE_GCS: Kind = Kind {
    name: "gs, fake-gcs-server",
    // Writes are tested in `crates/zarrfs-store/src/backend/bucket/tests/writes.rs`, with another server.
    writes: Writes::Elsewhere,
    variable: Some("ZARRFS_TEST_GCS"),
    holding: fake_gcs,
    ..PLAIN
};

pub(crate) const BUCKET: &str = "test";
const KEY_ID: &str = "testkey";
const SECRET: &str = "testsecret1234";

const S3_OPTIONS: [(&str, &str); 3] = [
    ("access_key_id", KEY_ID),
    ("secret_access_key", SECRET),
    ("region", "us-east-1"),
];

/// The account that all Azure emulators share, and its key.
const ACCOUNT: &str = "devstoreaccount1";
const ACCOUNT_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

trait Client: Send + Sync {
    fn put(&self, name: &str, bytes: &[u8]);
    fn delete(&self, name: &str);
}

impl<T: ObjectStore> Client for T {
    fn put(&self, name: &str, bytes: &[u8]) {
        let path = Path::parse(name).unwrap();
        wait(ObjectStoreExt::put(self, &path, bytes.to_vec().into())).unwrap();
    }

    fn delete(&self, name: &str) {
        let path = Path::parse(name).unwrap();
        wait(ObjectStoreExt::delete(self, &path)).unwrap();
    }
}

/// A client of Google's JSON API, because fake-gcs-server accepts uploads by no other API.
struct Json {
    http: HttpClient,
    endpoint: String,
}

impl Json {
    fn send(&self, method: &str, url: String, bytes: &[u8]) {
        let body = HttpRequestBody::from(bytes.to_vec());
        let mut request = HttpRequest::new(body);
        *request.method_mut() = method.parse().unwrap();
        *request.uri_mut() = url.parse().unwrap();
        let answer = wait(self.http.execute(request)).unwrap();
        assert!(
            answer.status().is_success(),
            "{method} {url}: {}",
            answer.status()
        );
    }
}

/// Percent-encodes every byte that has a meaning in a URL.
fn escaped(name: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => (byte as char).to_string(),
        _ => format!("%{byte:02X}"),
    };
    name.bytes().map(escape).collect()
}

impl Client for Json {
    fn put(&self, name: &str, bytes: &[u8]) {
        let (endpoint, name) = (&self.endpoint, escaped(name));
        let query = format!("uploadType=media&name={name}");
        let url = format!("{endpoint}/upload/storage/v1/b/{BUCKET}/o?{query}");
        self.send("POST", url, bytes);
    }

    fn delete(&self, name: &str) {
        let (endpoint, name) = (&self.endpoint, escaped(name));
        self.send(
            "DELETE",
            format!("{endpoint}/storage/v1/b/{BUCKET}/o/{name}"),
            b"",
        );
    }
}

/// A prefix in a bucket, where a test may change objects.
struct Place {
    client: Box<dyn Client>,
    prefix: String,
}

impl Place {
    fn name(&self, key: &Key) -> String {
        format!(
            "{}/{}",
            self.prefix,
            str::from_utf8(key.as_bytes()).unwrap()
        )
    }
}

impl Writer for Place {
    fn replace(&self, key: &Key, bytes: &[u8]) {
        self.client.put(&self.name(key), bytes);
    }

    fn overwrite(&self, key: &Key, bytes: &[u8]) {
        self.replace(key, bytes);
    }

    fn erase(&self, key: &Key) {
        self.client.delete(&self.name(key));
    }
}

/// Puts the given objects under a new prefix of the bucket, and opens the prefix as a store.
fn holding(
    scheme: &str,
    client: Box<dyn Client>,
    remote: RemoteConfig,
    objects: Objects,
) -> Fixture {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let prefix = format!("rust-{}-{count}", std::process::id());
    let place = Place { client, prefix };
    // Put the objects in parallel, because each request to a server is slow.
    std::thread::scope(|scope| {
        for part in objects.chunks(objects.len().div_ceil(16).max(1)) {
            let place = &place;
            scope.spawn(move || {
                for (name, bytes) in part {
                    place.replace(&Key::new(*name).unwrap(), bytes);
                }
            });
        }
    });
    // Put a stand-in if there are no objects, because a prefix cannot be opened without a key.
    let stand_in = Key::new("stand-in").unwrap();
    if objects.is_empty() {
        place.replace(&stand_in, b"");
    }
    let store = open(scheme, &place.prefix, remote);
    if objects.is_empty() {
        place.erase(&stand_in);
    }
    Fixture::new(store, Box::new(place))
}

fn open(scheme: &str, prefix: &str, remote: RemoteConfig) -> Arc<dyn Store> {
    let config = StoreConfig {
        remote,
        ..StoreConfig::default()
    };
    let url = format!("{scheme}://{BUCKET}/{prefix}");
    zarrfs_store::open(&UNLIMITED, &url, &config, &Arc::new(Stats::default())).unwrap()
}

/// Opens the test bucket on an S3 server, with credentials or anonymously.
pub(crate) fn open_s3(endpoint: String, signs: bool) -> Arc<dyn Store> {
    let pairs: &[_] = if signs {
        &S3_OPTIONS
    } else {
        &[("skip_signature", "true")]
    };
    open("s3", "", remote(endpoint, pairs))
}

pub(crate) fn open_moto(prefix: &str) -> Arc<dyn Store> {
    open(
        "s3",
        prefix,
        remote(server("ZARRFS_TEST_MOTO"), &S3_OPTIONS),
    )
}

pub(crate) fn server(variable: &str) -> String {
    std::env::var(variable).unwrap()
}

fn options(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
    pairs.iter().map(owned).collect()
}

/// Returns options for a server. Metadata is not cached, so that changes are visible at once.
fn remote(endpoint: String, pairs: &[(&str, &str)]) -> RemoteConfig {
    RemoteConfig {
        options: options(pairs),
        endpoint: Some(endpoint),
        metadata_ttl: std::time::Duration::ZERO,
        ..RemoteConfig::default()
    }
}

fn seaweedfs(objects: Objects) -> Fixture {
    s3(server("ZARRFS_TEST_S3"), objects)
}

fn moto(objects: Objects) -> Fixture {
    s3(server("ZARRFS_TEST_MOTO"), objects)
}

/// Sets a default rustls provider, because an HTTP client other than zarrfs's own may be the first in the process.
fn choose_cryptography() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

fn s3(endpoint: String, objects: Objects) -> Fixture {
    choose_cryptography();
    let client = AmazonS3Builder::new()
        .with_bucket_name(BUCKET)
        .with_endpoint(&endpoint)
        .with_region("us-east-1")
        .with_access_key_id(KEY_ID)
        .with_secret_access_key(SECRET)
        .with_allow_http(true)
        .build()
        .unwrap();
    let remote = remote(endpoint, &S3_OPTIONS);
    holding("s3", Box::new(client), remote, objects)
}

fn azurite(objects: Objects) -> Fixture {
    let endpoint = format!("{}/{ACCOUNT}", server("ZARRFS_TEST_AZURE"));
    choose_cryptography();
    let client = MicrosoftAzureBuilder::new()
        .with_container_name(BUCKET)
        .with_account(ACCOUNT)
        .with_access_key(ACCOUNT_KEY)
        .with_endpoint(endpoint.clone())
        .with_allow_http(true)
        .build()
        .unwrap();
    let keys = [("account_name", ACCOUNT), ("account_key", ACCOUNT_KEY)];
    holding("az", Box::new(client), remote(endpoint, &keys), objects)
}

fn fake_gcs(objects: Objects) -> Fixture {
    let endpoint = server("ZARRFS_TEST_GCS");
    let client = Json {
        http: ReqwestConnector::default()
            .connect(&ClientOptions::new().with_allow_http(true))
            .unwrap(),
        endpoint: endpoint.clone(),
    };
    holding("gs", Box::new(client), remote(endpoint, &[]), objects)
}
