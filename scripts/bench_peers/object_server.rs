//! A read-only S3 server over a folder, fast enough never to limit a client.
//!
//!     object_server FOLDER PORT LATENCY_MS
//!
//! Each folder in FOLDER is a public bucket. Its keys are read once, at the start, and never change. Every response
//! comes LATENCY_MS after its request; connections are served in parallel. Prints a line for each request, as `"GET
//! /bucket/key HTTP/1.1" 200`. It supports no writes and makes no faults: the servers of the tests do both.

#![allow(
    clippy::cast_possible_truncation,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a program of tests and measurements: what panics has failed"
)]

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read, Result, Seek, SeekFrom, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use percent_encoding::percent_decode_str;

/// The maximum number of names in one page of a listing.
const PAGE: usize = 1000;

const WRITTEN: &str = "Thu, 01 Jan 1970 00:00:00 GMT";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, port, latency] = arguments.as_slice() else {
        panic!("usage: object_server FOLDER PORT LATENCY_MS");
    };
    let port: u16 = port.parse().expect("a port");
    let server = Arc::new(Server {
        buckets: buckets(Path::new(folder)),
        latency: Duration::from_millis(latency.parse().expect("milliseconds")),
    });
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("a free port");
    for connection in listener.incoming() {
        let (server, connection) = (server.clone(), connection.expect("a connection"));
        // An error, such as a disconnected client, ends only the thread of its connection.
        thread::spawn(move || server.serve(&connection));
    }
}

struct Server {
    buckets: HashMap<String, Bucket>,
    latency: Duration,
}

/// The objects of a bucket with their lengths, sorted by key.
struct Bucket {
    folder: PathBuf,
    objects: Vec<(String, u64)>,
}

fn buckets(folder: &Path) -> HashMap<String, Bucket> {
    let mut found = HashMap::new();
    for entry in fs::read_dir(folder).expect("a folder of buckets") {
        let entry = entry.expect("a bucket");
        let name = entry.file_name().into_string().expect("a name in UTF-8");
        let folder = entry.path();
        if folder.is_dir() {
            let mut objects = Vec::new();
            add_objects(&folder, "", &mut objects);
            objects.sort();
            found.insert(name, Bucket { folder, objects });
        }
    }
    found
}

fn add_objects(folder: &Path, prefix: &str, found: &mut Vec<(String, u64)>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("a name in UTF-8");
        let meta = fs::metadata(entry.path()).expect("its metadata");
        let key = format!("{prefix}{name}");
        if meta.is_dir() {
            add_objects(&entry.path(), &format!("{key}/"), found);
        } else {
            found.push((key, meta.len()));
        }
    }
}

/// The parts of an HTTP request that the server uses.
struct Request {
    method: String,
    target: String,
    range: Option<String>,
}

impl Request {
    /// Reads an HTTP request; returns `None` if the client has closed the connection.
    fn read(input: &mut impl BufRead) -> Result<Option<Request>> {
        let mut line = String::new();
        if input.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split_ascii_whitespace().map(str::to_string);
        let mut word = || words.next().unwrap_or_default();
        let (method, target) = (word(), word());
        let mut range = None;
        loop {
            let mut header = String::new();
            if input.read_line(&mut header)? == 0 || header.trim_end().is_empty() {
                break;
            }
            if let Some((name, value)) = header.split_once(':')
                && name.eq_ignore_ascii_case("range")
            {
                range = Some(value.trim().to_string());
            }
        }
        Ok(Some(Request {
            method,
            target,
            range,
        }))
    }
}

struct Answer {
    status: u16,
    headers: String,
    /// The Content-Length, if it differs from the length of the body.
    length: Option<u64>,
    body: Vec<u8>,
}

impl Answer {
    fn of(status: u16, body: impl Into<Vec<u8>>) -> Answer {
        let (headers, length, body) = (String::new(), None, body.into());
        Answer {
            status,
            headers,
            length,
            body,
        }
    }

    /// Returns an error response with an S3 error code.
    fn error(status: u16, code: &str) -> Answer {
        let body = format!("<Error><Code>{code}</Code><Message>{code}</Message></Error>");
        Answer::of(status, body)
    }
}

impl Server {
    fn serve(&self, connection: &TcpStream) -> Result<()> {
        connection.set_nodelay(true)?;
        let mut input = BufReader::new(connection);
        while let Some(request) = Request::read(&mut input)? {
            let due = Instant::now() + self.latency;
            let answer = self.answer(&request)?;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let Request { method, target, .. } = &request;
            println!("\"{method} {target} HTTP/1.1\" {}", answer.status);
            send(connection, answer)?;
        }
        Ok(())
    }

    fn answer(&self, request: &Request) -> Result<Answer> {
        let (path, query) = request
            .target
            .split_once('?')
            .unwrap_or((&request.target, ""));
        let (bucket, key) = path
            .trim_start_matches('/')
            .split_once('/')
            .unwrap_or((path.trim_start_matches('/'), ""));
        let Some(bucket) = self.buckets.get(&decoded(bucket)) else {
            return Ok(Answer::error(404, "NoSuchBucket"));
        };
        match request.method.as_str() {
            "GET" if key.is_empty() => Ok(Answer::of(200, bucket.page(query))),
            "GET" => bucket.object(&decoded(key), request.range.as_deref()),
            "HEAD" => Ok(bucket.head(&decoded(key))),
            _ => Ok(Answer::error(405, "MethodNotAllowed")),
        }
    }
}

/// Writes a response in one piece, so that TCP does not delay a part of it.
fn send(mut connection: &TcpStream, answer: Answer) -> Result<()> {
    let length = answer.length.unwrap_or(answer.body.len() as u64);
    let head = format!(
        "HTTP/1.1 {} Answer\r\nContent-Length: {length}\r\n{}\r\n",
        answer.status, answer.headers
    );
    let mut whole = head.into_bytes();
    whole.extend(answer.body);
    connection.write_all(&whole)
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

impl Bucket {
    /// Returns the position of a key in the bucket's list of objects, or `None` if the key is missing.
    fn place(&self, key: &str) -> Option<usize> {
        let found = self
            .objects
            .binary_search_by(|(other, _)| other.as_str().cmp(key));
        found.ok()
    }

    fn head(&self, key: &str) -> Answer {
        let Some(place) = self.place(key) else {
            return Answer::of(404, "");
        };
        let mut answer = Answer::of(200, "");
        answer.headers = headers(place);
        answer.length = Some(self.objects[place].1);
        answer
    }

    /// Returns the response with an object, or with a range of it.
    fn object(&self, key: &str, range: Option<&str>) -> Result<Answer> {
        let Some(place) = self.place(key) else {
            return Ok(Answer::error(404, "NoSuchKey"));
        };
        let length = self.objects[place].1;
        let Some(part) = range.map_or(Some(0..length), |range| parsed(range, length)) else {
            return Ok(Answer::error(416, "InvalidRange"));
        };
        let mut file = fs::File::open(self.folder.join(key))?;
        file.seek(SeekFrom::Start(part.start))?;
        let mut body = vec![0; (part.end - part.start) as usize];
        file.read_exact(&mut body)?;
        let mut answer = Answer::of(if range.is_some() { 206 } else { 200 }, body);
        answer.headers = headers(place);
        if range.is_some() {
            let (first, last) = (part.start, part.end - 1);
            let _ = write!(
                answer.headers,
                "Content-Range: bytes {first}-{last}/{length}\r\n"
            );
        }
        Ok(answer)
    }

    /// Returns a page of a listing of the bucket as XML.
    fn page(&self, query: &str) -> String {
        let value = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs
                .find(|(other, _)| *other == name)
                .map(|(_, value)| decoded(value))
        };
        let prefix = value("prefix").unwrap_or_default();
        let delimiter = value("delimiter").filter(|text| !text.is_empty());
        let after = value("continuation-token").or_else(|| value("start-after"));
        let mut place = self.first_at(&prefix);
        if let Some(after) = &after {
            let is_folder = delimiter
                .as_ref()
                .is_some_and(|text| after.ends_with(text.as_str()));
            let next = self
                .objects
                .partition_point(|(key, _)| key <= after || (is_folder && key.starts_with(after)));
            place = place.max(next);
        }
        self.page_from(place, &prefix, delimiter.as_deref())
    }

    /// Returns the position of the first key that is not less than `text`.
    fn first_at(&self, text: &str) -> usize {
        self.objects.partition_point(|(key, _)| key.as_str() < text)
    }

    fn page_from(&self, mut place: usize, prefix: &str, delimiter: Option<&str>) -> String {
        let (mut names, mut count, mut last) = (String::new(), 0, String::new());
        let is_below = |place: usize| {
            self.objects
                .get(place)
                .is_some_and(|(key, _)| key.starts_with(prefix))
        };
        while is_below(place) && count < PAGE {
            let (key, length) = &self.objects[place];
            let folder = delimiter
                .and_then(|text| Some(prefix.len() + key[prefix.len()..].find(text)? + text.len()));
            if let Some(end) = folder {
                last = key[..end].to_string();
                let _ = write!(
                    names,
                    "<CommonPrefixes><Prefix>{}</Prefix></CommonPrefixes>",
                    escaped(&last)
                );
                place += self.objects[place..].partition_point(|(key, _)| key.starts_with(&last));
            } else {
                last.clone_from(key);
                let _ = write!(
                    names,
                    "<Contents><Key>{}</Key><LastModified>1970-01-01T00:00:00.000Z</LastModified>\
                     <ETag>&quot;{place}&quot;</ETag><Size>{length}</Size></Contents>",
                    escaped(key)
                );
                place += 1;
            }
            count += 1;
        }
        let next = if is_below(place) {
            format!(
                "<IsTruncated>true</IsTruncated><NextContinuationToken>{}</NextContinuationToken>",
                escaped(&last)
            )
        } else {
            "<IsTruncated>false</IsTruncated>".to_string()
        };
        format!("<ListBucketResult>{next}<KeyCount>{count}</KeyCount>{names}</ListBucketResult>")
    }
}

fn headers(place: usize) -> String {
    format!("ETag: \"{place}\"\r\nLast-Modified: {WRITTEN}\r\nAccept-Ranges: bytes\r\n")
}

/// Returns the byte range that a Range header selects, or `None` if the header selects no byte.
fn parsed(range: &str, length: u64) -> Option<Range<u64>> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let part = match (first.parse().ok(), last.parse::<u64>().ok()) {
        (None, Some(last)) => length.saturating_sub(last)..length,
        (Some(first), last) => first..last.map_or(length, |last| length.min(last + 1)),
        (None, None) => return None,
    };
    (part.start < part.end).then_some(part)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
