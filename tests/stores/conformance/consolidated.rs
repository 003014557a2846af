//! Counts requests for stores with consolidated metadata: documents in it are not requested.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use zarr_format::error::Kind;
use zarrfs::mount::open::{ViewKind, Views, ViewsConfig, open_views};
use zarrfs::view::View;
use zarrfs_array::array::SpillConfig;
use zarrfs_array::hierarchy::HierarchyConfig;
use zarrfs_store::{EntryKind, Key, RemoteConfig, StoreConfig};

use super::odd_servers::open;
use crate::common::scripted::{Answer, Request, Scripted, answer};
use zarrfs_store::request_context::UNLIMITED;

/// A TTL that is longer than any test.
const FOR_EVER: Duration = Duration::from_secs(1 << 30);

/// Number of chunks of each array, of which only the first is stored.
const CHUNKS: usize = 4;

pub(super) type Objects = BTreeMap<String, Vec<u8>>;

pub(super) fn key(path: &str) -> Key {
    Key::new(path).unwrap()
}

fn text(value: &Value) -> Vec<u8> {
    serde_json::to_string_pretty(value).unwrap().into_bytes()
}

fn arrays() -> Vec<String> {
    let number = |at: usize| format!("g{}/v{at}", at % 2);
    (0..10).map(number).collect()
}

/// Returns the objects of a v2 store with consolidated metadata, as zarr-python writes it.
pub(super) fn v2() -> Objects {
    let group = json!({"zarr_format": 2});
    let array = json!({
        "zarr_format": 2, "shape": [8], "chunks": [2], "dtype": "|u1", "compressor": null,
        "fill_value": 0, "order": "C", "filters": null,
    });
    let mut documents = serde_json::Map::new();
    for path in ["", "g0/", "g1/"] {
        documents.insert(format!("{path}.zgroup"), group.clone());
    }
    documents.insert(".zattrs".to_string(), json!({"title": "made"}));
    for path in arrays() {
        documents.insert(format!("{path}/.zarray"), array.clone());
        documents.insert(format!("{path}/.zattrs"), json!({"units": "K"}));
    }
    let copies = json!({"zarr_consolidated_format": 1, "metadata": documents});
    let mut objects: Objects = documents
        .iter()
        .map(|(key, value)| (key.clone(), text(value)))
        .collect();
    objects.insert(".zmetadata".to_string(), text(&copies));
    objects.extend(
        arrays()
            .iter()
            .map(|path| (format!("{path}/0"), vec![7; 2])),
    );
    objects
}

pub(super) fn v3() -> Objects {
    let group = json!({"zarr_format": 3, "node_type": "group", "attributes": {}});
    let array = json!({
        "zarr_format": 3, "node_type": "array", "shape": [8], "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
        "chunk_key_encoding": {"name": "default"}, "fill_value": 0, "codecs": ["bytes"],
    });
    let groups = ["g0", "g1"].map(|path| (path.to_string(), group.clone()));
    let arrays: Vec<_> = arrays()
        .into_iter()
        .map(|path| (path, array.clone()))
        .collect();
    let nodes: serde_json::Map<_, _> = groups.into_iter().chain(arrays.clone()).collect();
    let mut root = group;
    root["consolidated_metadata"] =
        json!({"kind": "inline", "must_understand": false, "metadata": nodes});
    let document = |(path, value): (&String, &Value)| (format!("{path}/zarr.json"), text(value));
    let mut objects: Objects = nodes.iter().map(document).collect();
    objects.insert("zarr.json".to_string(), text(&root));
    objects.extend(
        arrays
            .iter()
            .map(|(path, _)| (format!("{path}/c/0"), vec![7; 2])),
    );
    objects
}

/// Answers a request with an object. If the server lists, the answer for a folder is its index page.
pub(super) fn page_or_object(objects: &Objects, lists: bool, request: &Request) -> Answer {
    let name = request.target.trim_start_matches('/');
    if request.method == "PROPFIND" {
        return answer(405, b"");
    }
    if let Some(object) = objects.get(name) {
        let headers = vec![("etag", format!("\"{}-{}\"", name.len(), object.len()))];
        return Answer {
            headers,
            ..answer(200, object)
        };
    }
    let names: BTreeSet<&str> = objects
        .keys()
        .filter_map(|key| key.strip_prefix(name))
        .map(|rest| rest.find('/').map_or(rest, |end| &rest[..=end]))
        .collect();
    if !lists || names.is_empty() || !(name.is_empty() || name.ends_with('/')) {
        return answer(404, b"");
    }
    let links = names
        .iter()
        .map(|name| format!("<a href=\"{name}\">{name}</a>\n"));
    let page = format!(
        "<html><title>Index of /</title><pre>{}</pre></html>",
        links.collect::<String>()
    );
    Answer {
        headers: vec![("content-type", "text/html".to_string())],
        ..answer(200, page.as_bytes())
    }
}

/// Opens the views of a store on a web server.
pub(super) fn views_at(url: &str, metadata_ttl: Duration, consolidated: bool) -> Views {
    let config = ViewsConfig {
        source: url.to_string(),
        list: Vec::new(),
        memory: 64 << 20,
        max_chunk: 16 << 20,
        spill: SpillConfig::default(),
        timeout: Duration::from_secs(60),
        hierarchy: HierarchyConfig {
            consolidated,
            ..HierarchyConfig::default()
        },
        store: StoreConfig {
            remote: RemoteConfig {
                metadata_ttl,
                ..RemoteConfig::default()
            },
            ..StoreConfig::default()
        },
        overlay: None,
        rebind: false,
        lossy: false,
        options: Vec::new(),
    };
    open_views(&config, &Arc::default()).unwrap()
}

/// The views of a store on a web server, with the server's log of requests.
struct Mounted {
    server: Scripted,
    views: Views,
}

impl Mounted {
    fn new(objects: Objects, lists: bool, consolidated: bool) -> Mounted {
        let answers = move |_, request: &Request| page_or_object(&objects, lists, request);
        let server = Scripted::start(answers);
        let views = views_at(&server.url(""), FOR_EVER, consolidated);
        Mounted { server, views }
    }

    fn requests(&self) -> Vec<String> {
        let requests = std::mem::take(&mut *self.server.requests.lock().unwrap());
        let line = |request: &Request| format!("{} {}", request.method, request.target);
        let mut lines: Vec<String> = requests.iter().map(line).collect();
        lines.sort();
        lines
    }

    /// Walks a view as `ls -lR` does, and reads all files except chunks. Returns the number of names.
    fn walk(&self, kind: ViewKind) -> usize {
        let view = self.views.view(kind);
        let mut folders = vec![Key::root()];
        let mut seen = 0;
        while let Some(folder) = folders.pop() {
            assert!(view.lookup(&UNLIMITED, &folder).unwrap().is_some());
            let mut listing = view.list(&UNLIMITED, &folder).unwrap();
            while let Some(name) = listing.next(&UNLIMITED).unwrap() {
                seen += 1;
                let path = folder.child(&name.name).unwrap();
                let attr = view.lookup(&UNLIMITED, &path).unwrap();
                match name.kind {
                    EntryKind::Directory => folders.push(path),
                    _ if name.name.ends_with(b".json") || name.name.starts_with(b".z") => {
                        let length = attr.unwrap().size;
                        assert_eq!(read(&view, &path).len() as u64, length, "{path}");
                    }
                    _ => {}
                }
            }
        }
        seen
    }
}

fn read(view: &Arc<dyn View>, path: &Key) -> Vec<u8> {
    view.open(&UNLIMITED, path)
        .unwrap()
        .file
        .read_at(&UNLIMITED, 0, 1 << 20)
        .unwrap()
        .to_vec()
}

fn both() -> [(Objects, &'static str); 2] {
    [(v2(), ""), (v3(), "c/")]
}

/// Invariant (metadata): A server that cannot list is not asked about nodes that consolidated metadata have, and an
/// immutable store is never asked twice.
#[test]
fn a_mount_requests_only_the_root_and_its_documents() {
    for ((objects, _), documents) in both().into_iter().zip([
        vec!["GET /", "GET /.zmetadata", "GET /zarr.json", "PROPFIND /"],
        vec!["GET /", "GET /zarr.json", "PROPFIND /"],
    ]) {
        let mounted = Mounted::new(objects, false, false);
        mounted.views.describe("it").unwrap();
        for kind in [ViewKind::Store, ViewKind::Files] {
            mounted
                .views
                .view(kind)
                .lookup(&UNLIMITED, &Key::root())
                .unwrap();
        }
        assert_eq!(mounted.requests(), documents);
    }
}

/// Invariant of `a_mount_requests_only_the_root_and_its_documents`.
#[test]
fn consolidated_documents_are_not_requested_again() {
    for (objects, prefix) in both() {
        let mounted = Mounted::new(objects.clone(), false, false);
        mounted.requests();
        assert!(mounted.walk(ViewKind::Files) > 40);
        assert_eq!(mounted.requests(), [] as [String; 0]);
        assert!(mounted.walk(ViewKind::Store) > 20);
        assert_eq!(mounted.requests(), [] as [String; 0]);
        let view = mounted.views.view(ViewKind::Store);
        let mut chunks = Vec::new();
        for path in arrays() {
            for at in 0..CHUNKS {
                let chunk = format!("{path}/{prefix}{at}");
                let found = view.lookup(&UNLIMITED, &key(&chunk)).unwrap();
                assert_eq!(found.is_some(), at == 0, "{chunk}");
                chunks.push(format!("HEAD /{chunk}"));
            }
        }
        chunks.sort();
        assert_eq!(mounted.requests(), chunks, "one for each chunk");
        for (name, document) in objects.iter().filter(|(_, bytes)| bytes.starts_with(b"{")) {
            let shown = read(&mounted.views.view(ViewKind::Store), &key(name));
            assert_eq!(shown, *document, "{name}");
        }
        assert_eq!(mounted.requests(), [] as [String; 0]);
    }
}

#[test]
fn a_chunk_is_requested_when_it_is_looked_up_or_read() {
    for (objects, prefix) in both() {
        let mounted = Mounted::new(objects, false, false);
        mounted.requests();
        let view = mounted.views.view(ViewKind::Store);
        let path = |at: usize| key(&format!("g0/v0/{prefix}{at}"));
        assert_eq!(view.lookup(&UNLIMITED, &path(0)).unwrap().unwrap().size, 2);
        assert_eq!(mounted.requests(), [format!("HEAD /{}", path(0))]);
        assert_eq!(read(&view, &path(0)), [7; 2]);
        assert_eq!(mounted.requests(), [format!("GET /{}", path(0))]);
        assert!(view.lookup(&UNLIMITED, &path(1)).unwrap().is_none());
        assert!(view.lookup(&UNLIMITED, &path(1)).unwrap().is_none());
        assert_eq!(mounted.requests(), [format!("HEAD /{}", path(1))]);
        let files = mounted.views.view(ViewKind::Files);
        let raw = read(&files, &key("g1/v1/v1.raw"));
        assert_eq!(raw, [7, 7, 0, 0, 0, 0, 0, 0]);
        let chunks: Vec<_> = (0..CHUNKS)
            .map(|at| format!("GET /g1/v1/{prefix}{at}"))
            .collect();
        assert_eq!(mounted.requests(), chunks);
    }
}

#[test]
fn consolidated_metadata_are_used_on_request_if_the_store_lists() {
    let documents = |requests: Vec<String>| {
        let is_document = |line: &String| {
            line.starts_with("GET") && (line.contains("/.z") || line.contains("zarr.json"))
        };
        requests.into_iter().filter(is_document).collect::<Vec<_>>()
    };
    for ((objects, _), root) in both()
        .into_iter()
        .zip(["GET /.zmetadata", "GET /zarr.json"])
    {
        let mounted = Mounted::new(objects.clone(), true, true);
        let names = mounted.walk(ViewKind::Files);
        assert_eq!(documents(mounted.requests()), [root]);
        let without = Mounted::new(objects, true, false);
        assert_eq!(without.walk(ViewKind::Files), names);
        assert!(documents(without.requests()).len() > 12);
    }
}

/// Invariant of `a_mount_requests_only_the_root_and_its_documents`.
#[test]
fn an_immutable_store_is_never_asked_twice() {
    for (objects, prefix) in both() {
        let mounted = Mounted::new(objects, false, false);
        let chunk = key(&format!("g0/v0/{prefix}0"));
        let look = || {
            mounted.walk(ViewKind::Store);
            mounted.walk(ViewKind::Files);
            read(&mounted.views.view(ViewKind::Store), &chunk);
            read(&mounted.views.view(ViewKind::Files), &key("g1/v1/v1.raw"));
        };
        look();
        let requests = mounted.requests();
        let once: BTreeSet<_> = requests.iter().collect();
        assert_eq!(once.len(), requests.len(), "{requests:?}");
        // Header files are listed only after their elements were read, so the next walk makes new requests.
        look();
        mounted.requests();
        look();
        assert_eq!(mounted.requests(), [] as [String; 0]);
    }
}

#[test]
fn a_403_is_a_missing_key_if_the_server_still_sends_the_root() {
    let server = Scripted::start(|_, request| match request.target.as_str() {
        "/zarr.json" => answer(200, b"{}"),
        _ => answer(403, b""),
    });
    let store = open(&server.url(""), FOR_EVER, RemoteConfig::default()).unwrap();
    let asked = || server.requests.lock().unwrap().len();
    assert_eq!(asked(), 3);
    assert!(
        store
            .get(&UNLIMITED, &key("a/zarr.json"), 100)
            .unwrap()
            .is_none()
    );
    let found_out = asked();
    assert!(
        store
            .get(&UNLIMITED, &key("b/zarr.json"), 100)
            .unwrap()
            .is_none()
    );
    assert_eq!(
        asked(),
        found_out + 2,
        "the key, and whether the root is given"
    );
    assert!(store.get(&UNLIMITED, &key("a/c/0"), 100).unwrap().is_none());
}

#[test]
fn a_key_that_expired_credentials_refuse_is_not_missing() {
    let is_expired = Arc::new(AtomicBool::new(false));
    let expired = is_expired.clone();
    let server = Scripted::start(move |_, request| match request.target.as_str() {
        _ if expired.load(Ordering::SeqCst) => answer(403, b""),
        "/zarr.json" | "/a/zarr.json" => answer(200, b"{}"),
        _ => answer(404, b""),
    });
    let store = open(&server.url(""), FOR_EVER, RemoteConfig::default()).unwrap();
    is_expired.store(true, Ordering::SeqCst);
    let refused = store.get(&UNLIMITED, &key("a/zarr.json"), 100).unwrap_err();
    assert_eq!(refused.kind(), Kind::Denied);
    is_expired.store(false, Ordering::SeqCst);
    assert!(
        store
            .get(&UNLIMITED, &key("a/zarr.json"), 100)
            .unwrap()
            .is_some()
    );
    is_expired.store(true, Ordering::SeqCst);
    assert_eq!(
        store
            .get(&UNLIMITED, &key("b/zarr.json"), 100)
            .unwrap_err()
            .kind(),
        Kind::Denied
    );
}

/// If an array's attributes in consolidated metadata nest too deep to be parsed, all arrays must still be readable.
#[test]
fn deeply_nested_attributes_in_consolidated_metadata_block_no_data() {
    let deep = format!(
        "{{\"deep\": {}1{}}}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    for (mut objects, _) in both() {
        for name in [".zmetadata", "zarr.json"] {
            if let Some(document) = objects.get(name) {
                let mut document: Value = serde_json::from_slice(document).unwrap();
                let (at, inner) = match name {
                    ".zmetadata" => ("/metadata/g1~1v1~1.zattrs", ""),
                    _ => ("/consolidated_metadata/metadata/g1~1v1", "attributes"),
                };
                let place = document.pointer_mut(at).unwrap();
                match inner {
                    "" => *place = json!("HERE"),
                    inner => place[inner] = json!("HERE"),
                }
                let text = document.to_string();
                assert_eq!(text.matches("\"HERE\"").count(), 1);
                let text = text.replace("\"HERE\"", &deep);
                objects.insert(name.to_string(), text.into_bytes());
            }
        }
        let mounted = Mounted::new(objects, false, false);
        let files = mounted.views.view(ViewKind::Files);
        for path in ["g1/v1", "g0/v0"] {
            let raw = read(&files, &key(&format!("{path}/{}.raw", &path[3..])));
            assert_eq!(raw, [7, 7, 0, 0, 0, 0, 0, 0]);
        }
        let said = read(&files, &key("g1/v1/attributes.json"));
        let said = String::from_utf8(said).unwrap();
        assert!(said.contains("nest deeper than 127 levels"), "{said}");
        assert!(mounted.walk(ViewKind::Store) > 20);
    }
}
