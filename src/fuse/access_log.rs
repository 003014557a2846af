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

use serde_json::{Value, json};

use super::access_record::{AccessRecord, utc_micros};
use crate::error::{Error, Result};
use crate::stats::Stats;

/// How many lines may wait to be written. With the longest paths these are 32 MiB, at most times 2.
const MAX_LINES: usize = 8192;

/// How many bytes are collected before they are written, unless no line waits.
const BUFFER: usize = 64 << 10;

/// How long the end of the process waits for the last lines, and how often it looks.
const END_TIMEOUT: Duration = Duration::from_secs(1);
const END_POLL: Duration = Duration::from_millis(10);

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
        self.push(&record.line());
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Instant;

    use super::super::access_record::tests::record;
    use super::*;

    /// A file that takes so many bytes at first, then waits for leave.
    struct SlowFile {
        taken: Taken,
        leave: Receiver<io::Result<()>>,
    }

    type Taken = Arc<parking_lot::Mutex<Vec<u8>>>;

    impl SlowFile {
        /// Makes a file; returns what it has taken as well, and how it gets leave.
        fn new() -> (SlowFile, Taken, mpsc::Sender<io::Result<()>>) {
            let ((sender, leave), taken) = (mpsc::channel(), Taken::default());
            let file = SlowFile {
                taken: taken.clone(),
                leave,
            };
            (file, taken, sender)
        }
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
    fn a_hung_file_holds_up_nobody_and_the_log_says_what_is_missing() {
        let (file, taken, leave) = SlowFile::new();
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
        let (file, taken, leave) = SlowFile::new();
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
