//! Counts the requests of a walk on a web server: one per directory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::common::waiting;
use serde_json::json;
use zarrfs::mount::open::{ViewKind, Views};
use zarrfs::view::View;
use zarrfs_store::EntryKind;

use super::consolidated::{Objects, key, views_at};
use crate::common::scripted::{Answer, Request, Scripted, answer};
use zarrfs_store::request_context::UNLIMITED;

/// How a server shows the names in a folder.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Server {
    /// `python3 -m http.server`, whose index pages list all names.
    Python,
    /// nginx and Apache, whose index pages omit names that begin with a dot.
    HidesDotNames,
    WebDav,
}

const SERVERS: [Server; 3] = [Server::Python, Server::HidesDotNames, Server::WebDav];

impl Server {
    fn start(self, objects: Objects) -> Scripted {
        Scripted::start(move |_, request| self.answer(&objects, request))
    }

    fn answer(self, objects: &Objects, request: &Request) -> Answer {
        let name = request.target.trim_start_matches('/');
        if request.method == "PROPFIND" && self != Server::WebDav {
            return answer(501, b"");
        }
        if request.method != "PROPFIND"
            && let Some(object) = objects.get(name)
        {
            let headers = vec![("etag", format!("\"{}\"", object.len()))];
            return Answer {
                headers,
                ..answer(200, object)
            };
        }
        let names = names_in(objects, name.trim_end_matches('/'));
        if names.is_empty() {
            return answer(404, b"");
        }
        if !name.is_empty() && !name.ends_with('/') {
            return Answer {
                headers: vec![("location", format!("/{name}/"))],
                ..answer(301, b"")
            };
        }
        match self {
            Server::WebDav if request.method != "PROPFIND" => answer(405, b""),
            Server::WebDav => multistatus(name, &names, request.header("depth") == "1"),
            Server::Python | Server::HidesDotNames => {
                let is_shown = |name: &&String| self == Server::Python || !name.starts_with('.');
                page(names.keys().filter(is_shown))
            }
        }
    }
}

/// Returns the names in a folder with the lengths of the objects. Names of folders end with a slash.
fn names_in(objects: &Objects, folder: &str) -> BTreeMap<String, usize> {
    let stem = match folder {
        "" => String::new(),
        folder => format!("{folder}/"),
    };
    let below = objects
        .iter()
        .filter_map(|(key, bytes)| Some((key.strip_prefix(&stem)?, bytes.len())));
    below
        .map(|(rest, length)| match rest.find('/') {
            Some(end) => (rest[..=end].to_string(), 0),
            None => (rest.to_string(), length),
        })
        .collect()
}

fn page<'a>(names: impl Iterator<Item = &'a String>) -> Answer {
    let links: String = names
        .map(|name| format!("<li><a href=\"{name}\">{name}</a></li>\n"))
        .collect();
    let page = format!("<html><title>Index of /</title><ul>{links}</ul></html>");
    Answer {
        headers: vec![("content-type", "text/html".to_string())],
        ..answer(200, page.as_bytes())
    }
}

fn multistatus(folder: &str, names: &BTreeMap<String, usize>, with_names: bool) -> Answer {
    let response = |name: &str, length: usize| {
        let properties = if name.is_empty() || name.ends_with('/') {
            "<D:resourcetype><D:collection/></D:resourcetype>".to_string()
        } else {
            format!(
                "<D:resourcetype/><D:getcontentlength>{length}</D:getcontentlength>\
                 <D:getetag>\"{length}\"</D:getetag>"
            )
        };
        format!(
            "<D:response><D:href>/{folder}{name}</D:href><D:propstat><D:prop>{properties}\
             <D:getlastmodified>Sat, 21 Nov 2026 18:40:20 GMT</D:getlastmodified></D:prop>\
             <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
        )
    };
    let mut text = response("", 0);
    if with_names {
        text.extend(names.iter().map(|(name, length)| response(name, *length)));
    }
    let text = format!("<D:multistatus xmlns:D=\"DAV:\">{text}</D:multistatus>");
    answer(207, text.as_bytes())
}

/// Returns a v3 store with a group and two arrays, whose chunk keys are three folders deep.
fn v3() -> Objects {
    let group = json!({"zarr_format": 3, "node_type": "group", "attributes": {}});
    let array = json!({
        "zarr_format": 3, "node_type": "array", "shape": [4, 4, 2], "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 2, 2]}},
        "chunk_key_encoding": {"name": "default"}, "fill_value": 0, "codecs": ["bytes"],
    });
    let mut objects = Objects::new();
    for path in ["", "g/"] {
        objects.insert(format!("{path}zarr.json"), group.to_string().into_bytes());
    }
    for path in ["a", "g/b"] {
        let document = array.to_string().into_bytes();
        objects.insert(format!("{path}/zarr.json"), document);
        for chunk in ["0/0/0", "0/1/0", "1/0/0", "1/1/0"] {
            objects.insert(format!("{path}/c/{chunk}"), vec![7; 8]);
        }
    }
    objects
}

/// Returns a v2 store with a group, two arrays, and an object that belongs to no node.
fn v2() -> Objects {
    let array = json!({
        "zarr_format": 2, "shape": [4, 4, 2], "chunks": [2, 2, 2], "dtype": "|u1", "compressor": null,
        "fill_value": 0, "order": "C", "filters": null, "dimension_separator": "/",
    });
    let group = br#"{"zarr_format": 2}"#;
    let mut objects = Objects::new();
    for path in ["", "g/"] {
        objects.insert(format!("{path}.zgroup"), group.to_vec());
    }
    for path in ["a", "g/b"] {
        let document = array.to_string().into_bytes();
        objects.insert(format!("{path}/.zarray"), document);
        objects.insert(format!("{path}/.zattrs"), b"{}".to_vec());
        for chunk in ["0/0/0", "0/1/0", "1/0/0", "1/1/0"] {
            objects.insert(format!("{path}/{chunk}"), vec![7; 8]);
        }
    }
    objects.insert("a/0/.notes".to_string(), b"text".to_vec());
    objects
}

struct Opened {
    server: Scripted,
    views: Views,
}

impl Opened {
    fn new(server: Server, objects: Objects) -> Opened {
        let server = server.start(objects);
        let views = views_at(&server.url(""), Duration::from_secs(1 << 30), false);
        // Wait until the prefetch of the root's documents is complete, because its requests must not be counted.
        thread::sleep(Duration::from_millis(500));
        Opened { server, views }
    }

    fn view(&self, kind: ViewKind) -> Arc<dyn View> {
        self.views.view(kind)
    }

    /// Returns the requests since it was last called, each with its method.
    fn take_requests(&self) -> Vec<String> {
        let requests = std::mem::take(&mut *self.server.requests.lock().unwrap());
        requests
            .iter()
            .map(|request| format!("{} {}", request.method, request.target))
            .collect()
    }
}

/// Walks a view as `find` does, which asks for attributes of directories only. Returns all paths.
fn find(view: &Arc<dyn View>) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![String::new()];
    while let Some(folder) = open.pop() {
        let mut listing = view.list(&UNLIMITED, &key(&folder)).unwrap();
        while let Some(name) = listing.next(&UNLIMITED).unwrap() {
            let text = String::from_utf8(name.name).unwrap();
            let path = match folder.as_str() {
                "" => text,
                folder => format!("{folder}/{text}"),
            };
            if name.kind == EntryKind::Directory {
                assert_eq!(kind_of(view, &path), Some(EntryKind::Directory));
                open.push(path.clone());
            }
            found.push(path);
        }
    }
    found.sort();
    found
}

fn kind_of(view: &Arc<dyn View>, path: &str) -> Option<EntryKind> {
    let found = waiting::ask(|context| view.lookup(context, &key(path))).unwrap();
    found.map(|attr| attr.kind)
}

/// Returns the root and all folders that contain keys.
fn folders(objects: &Objects) -> BTreeSet<String> {
    let folders = objects.keys().flat_map(|key| {
        let slashes = key.match_indices('/');
        slashes
            .map(|(end, _)| key[..=end].to_string())
            .collect::<Vec<_>>()
    });
    folders.chain([String::new()]).collect()
}

fn all_paths(objects: &Objects) -> Vec<String> {
    let folders = folders(objects).into_iter();
    let folders = folders.map(|folder| folder.trim_end_matches('/').to_string());
    let mut paths: Vec<String> = folders.filter(|path| !path.is_empty()).collect();
    paths.extend(objects.keys().cloned());
    paths.sort();
    paths
}

#[test]
fn each_directory_takes_one_request() {
    for server in SERVERS {
        let opened = Opened::new(server, v3());
        opened.take_requests();
        assert_eq!(find(&opened.view(ViewKind::Store)), all_paths(&v3()));
        let method = match server {
            Server::WebDav => "PROPFIND",
            Server::Python | Server::HidesDotNames => "GET",
        };
        let mut asked = opened.take_requests();
        asked.sort();
        // The root is not requested again, because it was listed when the store was opened.
        let folders = folders(&v3())
            .into_iter()
            .filter(|folder| !folder.is_empty());
        let expected: Vec<String> = folders
            .map(|folder| format!("{method} /{folder}"))
            .collect();
        assert_eq!(asked, expected, "{server:?}");
    }
}

#[test]
fn a_lookup_in_a_v3_root_requests_no_documents_of_v2() {
    for server in SERVERS {
        let opened = Opened::new(server, v3());
        opened
            .view(ViewKind::Files)
            .lookup(&UNLIMITED, &key("a"))
            .unwrap();
        thread::sleep(Duration::from_millis(500));
        let asked = opened.take_requests();
        let of_v2 = asked.iter().filter(|request| request.contains("/.z"));
        assert_eq!(of_v2.count(), 0, "{server:?}: {asked:?}");
        let of_root = asked.iter().filter(|request| *request == "GET /zarr.json");
        assert_eq!(of_root.count(), 1, "{server:?}: {asked:?}");
    }
}

#[test]
fn the_files_view_of_a_v3_store_requests_no_documents_of_v2() {
    for server in SERVERS {
        let opened = Opened::new(server, v3());
        opened.take_requests();
        find(&opened.view(ViewKind::Files));
        let asked = opened.take_requests();
        let of_v2 = asked.iter().filter(|request| request.contains("/.z"));
        assert_eq!(of_v2.count(), 0, "{server:?}: {asked:?}");
    }
}

#[test]
fn documents_that_an_index_page_hides_are_listed() {
    for server in SERVERS {
        let opened = Opened::new(server, v2());
        opened.take_requests();
        let view = opened.view(ViewKind::Store);
        let shown: Vec<String> = all_paths(&v2())
            .into_iter()
            .filter(|path| server != Server::HidesDotNames || !path.ends_with(".notes"))
            .collect();
        assert_eq!(find(&view), shown, "{server:?}");
        let asked = opened.take_requests();
        let of_chunks = asked.iter().filter(|request| request.contains("/0/."));
        assert_eq!(of_chunks.count(), 0, "{server:?}: {asked:?}");
        assert_eq!(
            view.open(&UNLIMITED, &key("a/0/.notes"))
                .unwrap()
                .file
                .read_at(&UNLIMITED, 0, 9)
                .unwrap()
                .len(),
            4
        );
        assert!(
            view.lookup(&UNLIMITED, &key("a/0/.none"))
                .unwrap()
                .is_none()
        );
        let files = find(&opened.view(ViewKind::Files));
        assert!(files.contains(&"g/b/b.npy".to_string()), "{files:?}");
    }
}
