//! The access log: a line of JSON for each request of the kernel that is answered, written by one thread.
//!
//! An answer never waits for it: lines for which the queue has no room, or that the file does not take, are dropped and
//! counted, and the next line that is written says how many. `line_writer` writes lines, `line` makes them.

use std::fs::OpenOptions;
use std::io;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, SystemTime};

use crate::array::TouchedChunks;
use crate::error::{Error, Result};
use crate::stats::Stats;
use crate::store::Key;
use line_writer::LineWriter;

mod line;
mod line_writer;

/// How many lines may wait to be written. With the longest paths these are 32 MiB, at most times 2.
const MAX_LINES: usize = 8192;

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
    /// All lines before are to be written, then this is to be signalled.
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
        let writer = LineWriter::new(out, stats.clone());
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

#[cfg(test)]
pub(super) mod tests {
    use std::sync::mpsc;
    use std::sync::mpsc::Receiver;
    use std::time::Instant;

    use serde_json::{Value, json};

    use super::*;

    pub(super) fn record(path: &str) -> AccessRecord {
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
            // Once the sender of leaves is gone, all is taken.
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
