//! Runs servers that cannot list keys, and mounts of these servers with an upper folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::common::scripted::{Answer, Request, Scripted, answer};
use crate::mounting::fixture::{Fixture, PROGRAM, stderr};

pub(crate) const GROUP: &str = r#"{"zarr_format": 3, "node_type": "group"}"#;

/// Returns the metadata of an array of bytes with chunks of four bytes; some of the chunks may be missing.
fn array(length: u64) -> String {
    format!(
        r#"{{"zarr_format": 3, "node_type": "array", "shape": [{length}, 2], "data_type": "uint8", "fill_value": 0,
        "chunk_grid": {{"name": "regular", "configuration": {{"chunk_shape": [2, 2]}}}},
        "chunk_key_encoding": {{"name": "default"}}, "codecs": ["bytes"]}}"#
    )
}

/// Returns the root's metadata document with consolidated copies of the metadata below it.
pub(crate) fn consolidated() -> String {
    let nodes = [
        ("a", array(2)),
        ("s", array(4)),
        ("g", GROUP.into()),
        ("g/h", array(2)),
    ];
    let copies = nodes.map(|(path, document)| format!("\"{path}\": {document}"));
    format!(
        r#"{{"zarr_format": 3, "node_type": "group", "consolidated_metadata":
        {{"kind": "inline", "must_understand": false, "metadata": {{{}}}}}}}"#,
        copies.join(", ")
    )
}

type Objects = BTreeMap<String, Vec<u8>>;

/// A server that cannot list keys: a bucket that refuses listings, or a web server that refuses changes.
#[derive(Default)]
pub(crate) struct Mute {
    objects: Mutex<Objects>,
    is_bucket: bool,
    /// Whether the server holds PUT requests instead of answering them.
    pub(crate) holds: AtomicBool,
    pub(crate) held: AtomicBool,
}

impl Mute {
    fn new(is_bucket: bool, root: &str) -> Arc<Mute> {
        let texts = [
            ("zarr.json", root.to_string()),
            ("a/zarr.json", array(2)),
            ("a/c/0/0", "abcd".into()),
            ("s/zarr.json", array(4)),
            ("s/c/0/0", "1234".into()),
            ("s/c/1/0", "5678".into()),
            ("s/notes", "odd".into()),
            ("g/zarr.json", GROUP.into()),
            ("g/h/zarr.json", array(2)),
            ("g/h/c/0/0", "wxyz".into()),
        ];
        let objects = texts.map(|(key, text)| (key.to_string(), text.into_bytes()));
        Arc::new(Mute {
            objects: Mutex::new(objects.into()),
            is_bucket,
            ..Mute::default()
        })
    }

    pub(crate) fn keys(&self) -> BTreeSet<String> {
        self.objects.lock().unwrap().keys().cloned().collect()
    }

    fn answer(&self, request: &Request) -> Answer {
        let path = request.target.split('?').next().unwrap_or_default();
        let key = path.trim_start_matches(if self.is_bucket { "/b/" } else { "/" });
        match request.method.as_str() {
            "GET" if self.is_bucket && request.target.contains("list-type") => {
                answer(403, b"<Error><Code>AccessDenied</Code></Error>")
            }
            "GET" | "HEAD" => self.found(key, request.header("range")),
            "PUT" | "DELETE" if self.is_bucket => self.change(key, request),
            _ => answer(405, b""),
        }
    }

    fn found(&self, key: &str, range: &str) -> Answer {
        let objects = self.objects.lock().unwrap();
        let Some(bytes) = objects.get(key) else {
            return answer(404, b"");
        };
        let range = range.trim_start_matches("bytes=").split_once('-');
        let Some((Ok(first), last)) = range.map(|(first, last)| (first.parse::<usize>(), last))
        else {
            return with_tag(bytes, answer(200, bytes));
        };
        let end = last
            .parse()
            .map_or(bytes.len(), |last: usize| (last + 1).min(bytes.len()));
        let mut part = with_tag(
            bytes,
            answer(206, bytes.get(first..end).unwrap_or_default()),
        );
        let place = format!("bytes {first}-{}/{}", end - 1, bytes.len());
        part.headers.push(("content-range", place));
        part
    }

    fn change(&self, key: &str, request: &Request) -> Answer {
        while request.method == "PUT" && self.holds.load(Ordering::SeqCst) {
            self.held.store(true, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(5));
        }
        let mut objects = self.objects.lock().unwrap();
        let now = objects.get(key).map_or(String::new(), |bytes| tag(bytes));
        let expected = request.header("if-match");
        let is_new = request.header("if-none-match") == "*";
        if (!expected.is_empty() && expected != now) || (is_new && !now.is_empty()) {
            return answer(412, b"");
        }
        if request.method == "DELETE" {
            objects.remove(key);
            return answer(204, b"");
        }
        objects.insert(key.to_string(), request.body.clone());
        with_tag(&request.body, answer(200, b""))
    }
}

fn tag(bytes: &[u8]) -> String {
    let sum = bytes.iter().fold(7_u64, |sum, &byte| {
        sum.wrapping_mul(1_000_003).wrapping_add(u64::from(byte))
    });
    format!("\"{sum:x}\"")
}

fn with_tag(bytes: &[u8], answer: Answer) -> Answer {
    let time = "Thu, 01 Jan 2026 00:00:00 GMT".to_string();
    Answer {
        headers: vec![("etag", tag(bytes)), ("last-modified", time)],
        ..answer
    }
}

/// A server that cannot list keys, and a mount of the server with an upper folder.
pub(crate) struct Changed {
    pub(crate) fixture: Fixture,
    pub(crate) server: Arc<Mute>,
    options: Vec<String>,
}

impl Changed {
    pub(crate) fn new(is_bucket: bool, root: &str, more: &[&str]) -> Option<Changed> {
        let mut fixture = Fixture::new()?;
        let server = Mute::new(is_bucket, root);
        let answers = server.clone();
        let scripted = Scripted::start(move |_, request| answers.answer(request));
        let upper = fixture.path("upper").display().to_string();
        let mut options = vec!["--cow".to_string(), upper];
        options.extend(more.iter().map(|&option| option.to_string()));
        if is_bucket {
            let endpoint = format!("http://{}", scripted.address);
            options.extend(["--anon".into(), "--endpoint".into(), endpoint]);
        }
        fixture.store = if is_bucket {
            "s3://b".into()
        } else {
            scripted.url("").into()
        };
        let changed = Changed {
            fixture,
            server,
            options,
        };
        changed.mount();
        Some(changed)
    }

    pub(crate) fn mount(&self) {
        let options: Vec<&str> = self.options.iter().map(String::as_str).collect();
        self.fixture.mount(&options);
    }

    pub(crate) fn remount(&self) {
        let ended = self.fixture.umount(&self.fixture.dir);
        assert!(ended.status.success(), "{}", stderr(&ended));
        self.mount();
    }

    /// Runs a zarrfs command on the mount; if the command fails, returns its error output.
    pub(crate) fn zarrfs(&self, command: &str) -> Result<(), String> {
        let mut program = Command::new(PROGRAM);
        let done = program
            .args(command.split(' '))
            .arg(&self.fixture.dir)
            .output()
            .unwrap();
        done.status
            .success()
            .then_some(())
            .ok_or_else(|| stderr(&done))
    }

    /// Runs a shell command in the directory of the mount, which has to succeed.
    pub(crate) fn shell(&self, line: &str) {
        let mut shell = Command::new("sh");
        let shell = shell.args(["-euc", line]).current_dir(&self.fixture.dir);
        let done = shell.output().unwrap();
        assert!(done.status.success(), "{line}: {}", stderr(&done));
    }

    /// Returns all paths of the mount that its listings show.
    pub(crate) fn shown(&self) -> BTreeSet<String> {
        below(&self.fixture.dir)
    }

    pub(crate) fn shown_files(&self) -> BTreeSet<String> {
        below(&self.fixture.dir.join(".zarrfs/files"))
    }
}

pub(crate) fn below(top: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![top.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(top).unwrap().display().to_string();
            assert!(found.insert(name.clone()), "{name} is listed twice");
            if path.is_dir() {
                folders.push(path);
            }
        }
    }
    found
}
