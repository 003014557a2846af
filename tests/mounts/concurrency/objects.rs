//! A web server of objects with conditional writes, which can hang for one key.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::common::scripted::{Answer, Request, answer};

/// The key for which the server can hang.
pub(crate) const HUNG: &str = "c/1";

const ARRAY: &str = r#"{"zarr_format": 3, "node_type": "array", "shape": [12], "data_type": "uint8", "fill_value": 0,
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}},
    "chunk_key_encoding": {"name": "default"}, "codecs": ["bytes"]}"#;

/// The server's objects with their ETags, and whether requests for the key `HUNG` hang.
pub(crate) struct Objects {
    objects: Mutex<BTreeMap<String, (u64, Vec<u8>)>>,
    last_etag: AtomicU64,
    pub(crate) hangs: AtomicBool,
    pub(crate) is_asked: AtomicBool,
}

impl Objects {
    pub(crate) fn new() -> Arc<Objects> {
        let objects = Objects {
            objects: Mutex::default(),
            last_etag: AtomicU64::new(0),
            hangs: AtomicBool::new(false),
            is_asked: AtomicBool::new(false),
        };
        for (key, content) in [("zarr.json", ARRAY), ("c/0", "0000"), (HUNG, "1111")] {
            objects.put(key, content.as_bytes());
        }
        Arc::new(objects)
    }

    pub(crate) fn put(&self, key: &str, content: &[u8]) {
        let etag = self.last_etag.fetch_add(1, Ordering::SeqCst);
        let mut objects = self.objects.lock().unwrap();
        objects.insert(key.to_string(), (etag, content.to_vec()));
    }

    pub(crate) fn content(&self, key: &str) -> String {
        let objects = self.objects.lock().unwrap();
        String::from_utf8(objects[key].1.clone()).unwrap()
    }

    /// Answers a request as a web server that supports conditional PUT and DELETE.
    pub(crate) fn answer(&self, request: &Request) -> Answer {
        let key = request.target.split_once("/s.zarr/").map(|(_, key)| key);
        let Some(key) = key else {
            return answer(404, b"");
        };
        while key == HUNG && self.hangs.load(Ordering::SeqCst) {
            self.is_asked.store(true, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(5));
        }
        let found = self.objects.lock().unwrap().get(key).cloned();
        let etag = found.as_ref().map(|(etag, _)| format!("\"{etag}\""));
        let is_refused = match (request.header("if-match"), request.header("if-none-match")) {
            ("", "") => false,
            ("", _) => found.is_some() && request.method == "PUT",
            (wanted, _) => etag.as_deref() != Some(wanted),
        };
        match (request.method.as_str(), found) {
            (_, _) if is_refused => answer(412, b""),
            ("PUT", _) => {
                self.put(key, &request.body);
                answer(201, b"")
            }
            ("GET" | "HEAD" | "DELETE", None) => answer(404, b""),
            ("DELETE", Some(_)) => {
                self.objects.lock().unwrap().remove(key);
                answer(204, b"")
            }
            ("GET" | "HEAD", Some((_, body))) => {
                let mut found = match range(request, body.len()) {
                    None => answer(200, &body),
                    Some((start, end)) => {
                        let mut part = answer(206, &body[start..end]);
                        let place = format!("bytes {start}-{}/{}", end - 1, body.len());
                        part.headers.push(("content-range", place));
                        part
                    }
                };
                found.headers.push(("etag", etag.unwrap_or_default()));
                found
            }
            _ => answer(405, b""),
        }
    }
}

/// Returns the begin and end of the requested byte range, or `None` if all bytes are requested.
fn range(request: &Request, length: usize) -> Option<(usize, usize)> {
    let (start, last) = request
        .header("range")
        .strip_prefix("bytes=")?
        .split_once('-')?;
    let start: usize = start.parse().ok()?;
    let end = last
        .parse()
        .map_or(length, |last: usize| length.min(last + 1));
    (start < end).then_some((start, end))
}
