//! A proxy that makes an HTTP server slow and unreliable.
//!
//! Some requests get a 503 at once; others are passed on to the server, but its response is lost.

use std::io;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::concurrency::plan::Random;

/// The percentage of requests that fail: half of them are not passed on, of the others the response is lost.
const LOST_PERCENT: usize = 5;

const UNAVAILABLE: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// A proxy on the loopback interface that runs until it is dropped.
pub(crate) struct Proxy {
    address: SocketAddr,
    has_ended: Arc<AtomicBool>,
    is_calm: Arc<AtomicBool>,
}

struct Settings {
    server: String,
    latency: Duration,
    random: Mutex<Random>,
    is_calm: Arc<AtomicBool>,
}

impl Proxy {
    /// Starts a proxy in front of `server`, which is a URL without a path.
    pub(crate) fn start(server: &str, latency: Duration, seed: u64) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (has_ended, is_calm) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let settings = Arc::new(Settings {
            server: server.trim_start_matches("http://").to_string(),
            latency,
            random: Mutex::new(Random::new(seed)),
            is_calm: is_calm.clone(),
        });
        let ended = has_ended.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                let settings = settings.clone();
                // A disconnected client is no error of the test.
                thread::spawn(move || settings.serve(client).unwrap_or_default());
            }
        });
        Proxy {
            address,
            has_ended,
            is_calm,
        }
    }

    /// Returns a flag that makes the proxy reliable once it is set.
    pub(crate) fn is_calm(&self) -> Arc<AtomicBool> {
        self.is_calm.clone()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
        // The thread of the proxy waits for a client; this connection makes it end.
        let _ = TcpStream::connect(self.address);
    }
}

impl Settings {
    /// Serves one request of a client, and closes the connection.
    fn serve(&self, mut client: TcpStream) -> io::Result<()> {
        let Some(request) = read_request(&mut client)? else {
            return Ok(());
        };
        thread::sleep(self.latency);
        let (is_lost, is_late) = {
            let mut random = self.random.lock().unwrap();
            (random.percent(LOST_PERCENT), random.percent(50))
        };
        let is_lost = is_lost && !self.is_calm.load(Ordering::Relaxed);
        if is_lost && !is_late {
            client.write_all(UNAVAILABLE)?;
            return end(&client);
        }
        let mut server = TcpStream::connect(&self.server)?;
        server.write_all(&request)?;
        let mut answer = Vec::new();
        server.read_to_end(&mut answer)?;
        if !is_lost {
            client.write_all(&answer)?;
        }
        end(&client)
    }
}

fn end(client: &TcpStream) -> io::Result<()> {
    client.shutdown(Shutdown::Write)
}

/// Reads a request and adds a header that makes the server close the connection; `None` if the client sends no request.
fn read_request(client: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let mut piece = [0; 16 << 10];
    loop {
        if let Some(head) = find(&bytes, b"\r\n\r\n") {
            let body = head + 4 + content_length(&bytes[..head]);
            if bytes.len() >= body {
                let first = find(&bytes, b"\r\n").unwrap_or(head);
                let close = b"\r\nconnection: close";
                return Ok(Some([&bytes[..first], close, &bytes[first..]].concat()));
            }
        }
        match client.read(&mut piece)? {
            0 => return Ok(None),
            length => bytes.extend_from_slice(&piece[..length]),
        }
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

fn content_length(head: &[u8]) -> usize {
    let head = String::from_utf8_lossy(head).to_lowercase();
    let lines = head.lines();
    let mut lengths = lines.filter_map(|line| line.strip_prefix("content-length:"));
    let length = lengths.next().and_then(|length| length.trim().parse().ok());
    length.unwrap_or(0)
}
