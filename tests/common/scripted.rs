//! A web server with scripted answers, for cases that the servers of `scripts/servers` never produce.
#![allow(dead_code, reason = "each program of tests uses a part of it")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(one, _)| one == name);
        found.map_or("", |(_, value)| value)
    }
}

/// An HTTP response. With `hides_length` it has no Content-Length and ends with the connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) hides_length: bool,
}

pub(crate) fn answer(status: u16, body: &[u8]) -> Answer {
    Answer {
        status,
        body: body.to_vec(),
        ..Answer::default()
    }
}

/// Returns the response with an object, or with the requested range of the object; `headers` are added.
pub(crate) fn answer_of(
    request: &Request,
    bytes: &[u8],
    mut headers: Vec<(&'static str, String)>,
) -> Answer {
    // The header tells the client that ranges work, so that it opens a shard by reading only its index.
    headers.push(("accept-ranges", "bytes".to_string()));
    let Some(range) = request.header("range").strip_prefix("bytes=") else {
        return Answer {
            headers,
            ..answer(200, bytes)
        };
    };
    let (start, last) = range.split_once('-').unwrap();
    let number = |text: &str| text.parse::<usize>().unwrap();
    let part = match start {
        "" => bytes.len().saturating_sub(number(last))..bytes.len(),
        start => number(start)..bytes.len().min(number(last) + 1),
    };
    if part.start >= part.end {
        headers.push(("content-range", format!("bytes */{}", bytes.len())));
        return Answer {
            headers,
            ..answer(416, b"")
        };
    }
    let range = format!("bytes {}-{}/{}", part.start, part.end - 1, bytes.len());
    headers.push(("content-range", range));
    Answer {
        headers,
        ..answer(206, &bytes[part])
    }
}

type Script = dyn Fn(usize, &Request) -> Answer + Send + Sync;

/// A scripted web server on the loopback interface, which runs until the process ends.
pub(crate) struct Scripted {
    pub(crate) address: SocketAddr,
    pub(crate) requests: Arc<Mutex<Vec<Request>>>,
}

impl Scripted {
    /// Starts a server that answers with `script`, which gets the number of the request.
    pub(crate) fn start(
        script: impl Fn(usize, &Request) -> Answer + Send + Sync + 'static,
    ) -> Scripted {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (script, count): (Arc<Script>, _) = (Arc::new(script), Arc::new(AtomicUsize::new(0)));
        let seen = requests.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (script, count, seen) = (script.clone(), count.clone(), seen.clone());
                thread::spawn(move || serve(client, &*script, &count, &seen));
            }
        });
        Scripted { address, requests }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }
}

fn serve(
    client: TcpStream,
    script: &Script,
    count: &AtomicUsize,
    seen: &Mutex<Vec<Request>>,
) -> Option<()> {
    let mut reader = BufReader::new(client.try_clone().ok()?);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_string()),
        }
    }
    let mut words = lines.first()?.split(' ').map(str::to_string);
    let headers = lines.iter().skip(1).filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_string()))
    });
    let mut request = Request {
        method: words.next()?,
        target: words.next()?,
        headers: headers.collect(),
        body: Vec::new(),
    };
    let length = request.header("content-length").parse().unwrap_or(0);
    reader.take(length).read_to_end(&mut request.body).ok()?;
    seen.lock().unwrap().push(request.clone());
    let answer = script(count.fetch_add(1, Ordering::SeqCst), &request);
    write_answer(client, &request, &answer)
}

fn write_answer(mut client: TcpStream, request: &Request, answer: &Answer) -> Option<()> {
    let mut head = format!("HTTP/1.1 {} Said\r\nconnection: close\r\n", answer.status);
    if !answer.hides_length {
        head += &format!("content-length: {}\r\n", answer.body.len());
    }
    for (name, value) in &answer.headers {
        head += &format!("{name}: {value}\r\n");
    }
    client.write_all(format!("{head}\r\n").as_bytes()).ok()?;
    if request.method != "HEAD" {
        client.write_all(&answer.body).ok()?;
    }
    client.flush().ok()
}
