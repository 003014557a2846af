//! The access log: a line of JSON for each request, written by one thread.
//!
//! Who answers a request never waits for it: lines for which the queue has no room, or that the file does not take, are
//! dropped and counted, and the next line that is written says how many.

use std::fs::OpenOptions;
use std::io;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};

use crate::array::TouchedChunks;
use crate::error::{Error, Result};
use crate::failures::utc;
use crate::stats::Stats;
use crate::store::Key;

/// How many lines may wait to be written. With the longest paths these are 32 MiB, at most times 2.
const MAX_LINES: usize = 8192;

/// How many bytes are collected before they are written, unless no line waits.
const BUFFER: usize = 64 << 10;

/// How long the end of the process waits for the last lines, and how often it looks.
const END_TIMEOUT: Duration = Duration::from_secs(1);
const END_POLL: Duration = Duration::from_millis(10);

/// One request and its outcome.
pub(super) struct AccessRecord {
    pub(super) time: SystemTime,
    pub(super) pid: u32,
    pub(super) operation: &'static str,
    /// Nothing if the file has no name any more.
    pub(super) path: Option<Key>,
    /// The new name of what is renamed or linked.
    pub(super) to: Option<Key>,
    /// Offset and length in bytes, if it is about a part of a content.
    pub(super) range: Option<(u64, u64)>,
    pub(super) touched: TouchedChunks,
    pub(super) duration: Duration,
    /// Nothing if it succeeded.
    pub(super) errno: Option<i32>,
}

/// What the writing thread gets.
enum Message {
    Line(Box<AccessRecord>),
    /// All lines before are to be written, then this is signalled.
    End(SyncSender<()>),
}

/// The access log of a process.
pub struct AccessLog {
    sender: SyncSender<Message>,
    stats: Arc<Stats>,
}

impl AccessLog {
    /// Opens the file, to which lines are appended, and starts the thread that writes them.
    ///
    /// Fails as opening does; so does a pipe without a reader.
    pub fn open(path: &Path, stats: Arc<Stats>) -> Result<AccessLog> {
        let failed = |error| Error::os(path.display(), error);
        // A pipe that is full must not hold up the thread for ever.
        let mut how = OpenOptions::new();
        how.append(true)
            .create(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        let file = how.open(path).map_err(failed)?;
        AccessLog::writing(file, stats).map_err(failed)
    }

    /// Starts the thread that writes lines to `out`.
    fn writing(out: impl Write + Send + 'static, stats: Arc<Stats>) -> io::Result<AccessLog> {
        let (sender, receiver) = sync_channel(MAX_LINES);
        let writer = LineWriter {
            out,
            buffer: Vec::new(),
            lines: 0,
            told: 0,
            is_cut: false,
            has_warned: false,
            stats: stats.clone(),
        };
        thread::Builder::new()
            .name("zarrfs-access".to_string())
            .spawn(move || writer.run(&receiver))?;
        Ok(AccessLog { sender, stats })
    }

    /// Queues a line, or drops it where there is no room.
    pub(super) fn add(&self, record: AccessRecord) {
        if self
            .sender
            .try_send(Message::Line(Box::new(record)))
            .is_err()
        {
            self.stats.access_dropped_lines.add(1);
        }
    }

    /// Waits for the lines that are queued, a second at most.
    pub fn finish(&self) {
        let (done, is_done) = sync_channel(1);
        let mut waited = Duration::ZERO;
        while self.sender.try_send(Message::End(done.clone())).is_err() && waited < END_TIMEOUT {
            thread::sleep(END_POLL);
            waited += END_POLL;
        }
        // Lines that a hung file does not take are lost with the process.
        let _ = is_done.recv_timeout(END_TIMEOUT.saturating_sub(waited));
    }
}

/// Writes lines to a file.
struct LineWriter<W> {
    out: W,
    /// Whole lines.
    buffer: Vec<u8>,
    /// How many these are.
    lines: u64,
    /// How many dropped lines have been reported.
    told: u64,
    /// Whether the file ends with a part of a line, since it took no more.
    is_cut: bool,
    has_warned: bool,
    stats: Arc<Stats>,
}

impl<W: Write> LineWriter<W> {
    fn run(mut self, receiver: &Receiver<Message>) {
        loop {
            // What is collected is written as soon as no line waits.
            let message = match receiver.recv_timeout(Duration::ZERO) {
                Err(RecvTimeoutError::Timeout) => {
                    self.write();
                    match receiver.recv() {
                        Ok(message) => message,
                        Err(_) => return,
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return self.write(),
                Ok(message) => message,
            };
            match message {
                Message::Line(record) => self.add(&record),
                Message::End(done) => {
                    self.tell_dropped();
                    self.write();
                    // Who waited may be gone.
                    let _ = done.try_send(());
                }
            }
            if self.buffer.len() >= BUFFER {
                self.write();
            }
        }
    }

    fn add(&mut self, record: &AccessRecord) {
        self.tell_dropped();
        self.push(&line_of(record));
    }

    fn push(&mut self, line: &Value) {
        self.buffer.extend_from_slice(line.to_string().as_bytes());
        self.buffer.push(b'\n');
        self.lines += 1;
    }

    /// Adds a line about those that were dropped since the last such line.
    fn tell_dropped(&mut self) {
        let dropped = self.stats.access_dropped_lines.get();
        if dropped > self.told {
            let time = utc_micros(SystemTime::now());
            let lines = dropped - self.told;
            self.push(&json!({"time": time, "op": "dropped", "lines": lines}));
            self.told = dropped;
        }
    }

    /// Writes what is collected; drops it if the file does not take it.
    fn write(&mut self) {
        if self.buffer.is_empty() {
            return;
        }
        let buffer = std::mem::take(&mut self.buffer);
        let lines = std::mem::take(&mut self.lines);
        let taken = self.write_lines(&buffer);
        let is_whole = matches!(taken, Ok(taken) if taken == buffer.len());
        if !is_whole {
            let taken = taken.unwrap_or(0);
            let whole = buffer.get(..taken).unwrap_or_default();
            let kept = whole.iter().filter(|byte| **byte == b'\n').count() as u64;
            self.stats
                .access_dropped_lines
                .add(lines.saturating_sub(kept));
        }
        self.buffer = buffer;
        self.buffer.clear();
    }

    /// Writes bytes that begin a line; returns how many the file took.
    fn write_lines(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_cut {
            self.out
                .write_all(b"\n")
                .inspect_err(|error| self.warn(error))?;
            self.is_cut = false;
        }
        let mut taken = 0;
        while let Some(rest) = bytes.get(taken..).filter(|rest| !rest.is_empty()) {
            match self.out.write(rest) {
                Ok(0) => break,
                Ok(count) => taken += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.warn(&error);
                    break;
                }
            }
        }
        let last = taken.checked_sub(1).and_then(|last| bytes.get(last));
        self.is_cut = last.is_some_and(|last| *last != b'\n');
        Ok(taken)
    }
}

impl<W> LineWriter<W> {
    /// Logs why the file takes no lines, once.
    fn warn(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.has_warned, true) {
            log::warn!("the access log takes no lines, which are dropped: {error}");
        }
    }
}

/// Returns a line; members that say nothing are left out.
fn line_of(record: &AccessRecord) -> Value {
    let text = |key: &Key| json!(format!("/{}", String::from_utf8_lossy(key.as_bytes())));
    let mut line = Map::new();
    let mut put = |name: &str, value: Value| drop(line.insert(name.to_string(), value));
    put("time", json!(utc_micros(record.time)));
    put("pid", json!(record.pid));
    put("op", json!(record.operation));
    put("path", record.path.as_ref().map_or(Value::Null, text));
    if let Some(to) = &record.to {
        put("to", text(to));
    }
    if let Some((offset, length)) = record.range {
        put("offset", json!(offset));
        put("length", json!(length));
        put("chunks", json!(record.touched.chunks));
        put("hits", json!(record.touched.hits));
    }
    let micros = u64::try_from(record.duration.as_micros()).unwrap_or(u64::MAX);
    put("microseconds", json!(micros));
    if let Some(errno) = record.errno {
        put("errno", json!(errno));
    }
    Value::Object(line)
}

/// Returns a time as `2026-11-22T13:28:40.000123Z`.
fn utc_micros(time: SystemTime) -> String {
    let micros = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let seconds = utc(time);
    format!(
        "{}.{:06}Z",
        seconds.trim_end_matches('Z'),
        micros.subsec_micros()
    )
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Instant;

    use super::*;

    fn record(path: &str) -> AccessRecord {
        AccessRecord {
            time: SystemTime::UNIX_EPOCH + Duration::from_micros(1_000_123),
            pid: 7,
            operation: "read",
            path: Some(Key::new(path.as_bytes()).unwrap()),
            to: None,
            range: Some((4096, 100)),
            touched: TouchedChunks { chunks: 2, hits: 1 },
            duration: Duration::from_micros(55),
            errno: None,
        }
    }

    /// A file that takes so many bytes at first, then waits for leave.
    struct SlowFile {
        taken: Arc<parking_lot::Mutex<Vec<u8>>>,
        leave: Receiver<io::Result<()>>,
    }

    impl Write for SlowFile {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // Once the sender is gone all is taken.
            self.leave.recv().unwrap_or(Ok(()))?;
            self.taken.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn lines(text: &[u8]) -> Vec<Value> {
        let lines = std::str::from_utf8(text).unwrap().lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    #[test]
    fn a_line_has_all_of_a_request() {
        let failed = AccessRecord {
            errno: Some(5),
            to: Some(Key::new("b").unwrap()),
            ..record("a\u{1b}\"")
        };
        let text = line_of(&failed).to_string();
        let expected = json!({
            "time": "1970-01-01T00:00:01.000123Z", "pid": 7, "op": "read", "path": "/a\u{1b}\"", "to": "/b",
            "offset": 4096, "length": 100, "chunks": 2, "hits": 1, "microseconds": 55, "errno": 5,
        });
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
        assert_eq!(text.lines().count(), 1);
    }

    #[test]
    fn a_hung_file_holds_up_nobody_and_the_log_says_what_is_missing() {
        let (leave, is_given) = mpsc::channel();
        let taken = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let file = SlowFile {
            taken: taken.clone(),
            leave: is_given,
        };
        let stats = Arc::new(Stats::default());
        let log = AccessLog::writing(file, stats.clone()).unwrap();
        let count = 3 * MAX_LINES as u64;
        let started = Instant::now();
        (0..count).for_each(|_| log.add(record("a")));
        assert!(started.elapsed() < Duration::from_secs(20));
        let dropped = stats.access_dropped_lines.get();
        assert!(dropped > MAX_LINES as u64, "{dropped}");
        drop(leave);
        // Room for the end comes with the first lines that are written.
        log.finish();
        let lines = lines(&taken.lock());
        let told = lines.iter().filter(|line| line["op"] == "dropped");
        let told: u64 = told.map(|line| line["lines"].as_u64().unwrap()).sum();
        let whole = lines.iter().filter(|line| line["op"] == "read").count() as u64;
        assert_eq!((told, whole + dropped), (dropped, count));
    }

    #[test]
    fn what_a_full_file_does_not_take_is_counted() {
        let (leave, is_given) = mpsc::channel();
        let taken = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let file = SlowFile {
            taken: taken.clone(),
            leave: is_given,
        };
        let stats = Arc::new(Stats::default());
        let log = AccessLog::writing(file, stats.clone()).unwrap();
        leave.send(Err(io::ErrorKind::StorageFull.into())).unwrap();
        log.add(record("a"));
        while stats.access_dropped_lines.get() == 0 {
            thread::sleep(END_POLL);
        }
        drop(leave);
        log.add(record("b"));
        log.finish();
        let lines = lines(&taken.lock());
        let found: Vec<_> = lines
            .iter()
            .map(|line| (&line["op"], &line["path"], &line["lines"]))
            .collect();
        let null = Value::Null;
        assert_eq!(
            found,
            [
                (&json!("dropped"), &null, &json!(1)),
                (&json!("read"), &json!("/b"), &null)
            ]
        );
    }
}
