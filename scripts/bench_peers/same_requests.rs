//! Repeats the requests of another client, at a fixed concurrency, and discards the answers.
//!
//!     same_requests HOST:PORT CONCURRENCY < PATHS
//!
//! Each line of the input is a path with its query. Prints the seconds from the first request to the last answer, which
//! is the server's own time for these requests on this machine.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a program of tests and measurements: what panics has failed"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [host, concurrency] = arguments.as_slice() else {
        panic!("usage: same_requests HOST:PORT CONCURRENCY < PATHS");
    };
    let concurrency: usize = concurrency.parse().expect("a number");
    let paths: Vec<String> = std::io::stdin()
        .lines()
        .map(|line| line.expect("a path"))
        .collect();
    let next = AtomicUsize::new(0);
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..concurrency {
            scope.spawn(|| {
                let mut connection = Connection::new(host);
                while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
                    connection.get(path);
                }
            });
        }
    });
    println!("{:.6}", start.elapsed().as_secs_f64());
}

struct Connection<'a> {
    host: &'a str,
    stream: BufReader<TcpStream>,
    body: Vec<u8>,
}

impl Connection<'_> {
    fn new(host: &str) -> Connection<'_> {
        let stream = TcpStream::connect(host).expect("the server");
        stream.set_nodelay(true).expect("a socket");
        Connection {
            host,
            stream: BufReader::new(stream),
            body: Vec::new(),
        }
    }

    fn get(&mut self, path: &str) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.host);
        self.stream
            .get_mut()
            .write_all(request.as_bytes())
            .expect("a request");
        let length = self.length();
        self.body.resize(length, 0);
        self.stream.read_exact(&mut self.body).expect("a body");
    }

    /// Reads the head of a response; returns the length of the body in bytes.
    fn length(&mut self) -> usize {
        let mut length = 0;
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).expect("a head");
            match line.trim_end().split_once(':') {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.trim().parse().expect("a length");
                }
                _ if line.trim_end().is_empty() => return length,
                _ => {}
            }
        }
    }
}
