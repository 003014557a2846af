//! The thread that writes the lines of the access log.
//!
//! A line that the file does not take whole is dropped and counted. What a line about dropped ones says counts as
//! reported once the file has that line.

use std::io;
use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use serde_json::Value;

use super::line::{line_of, line_of_dropped};
use super::{AccessRecord, Message};
use crate::stats::Stats;

/// How many bytes are collected before they are written, unless no line waits.
const BUFFER: usize = 64 << 10;

/// Writes lines to a file.
pub(super) struct LineWriter<W> {
    out: W,
    /// Whole lines.
    buffer: Vec<u8>,
    lines: Vec<BufferedLine>,
    /// The number of dropped lines that the file reports.
    told: u64,
    /// Whether the file ends with a part of a line, since it took no more.
    is_cut: bool,
    has_warned: bool,
    stats: Arc<Stats>,
}

/// A line that is not written yet.
struct BufferedLine {
    /// Where it ends in the buffer.
    end: usize,
    /// The number of dropped lines that it reports; nothing if it is the line of a request.
    dropped: Option<u64>,
}

impl<W: Write> LineWriter<W> {
    pub(super) fn new(out: W, stats: Arc<Stats>) -> LineWriter<W> {
        LineWriter {
            out,
            buffer: Vec::new(),
            lines: Vec::new(),
            told: 0,
            is_cut: false,
            has_warned: false,
            stats,
        }
    }

    /// Writes what comes until all senders are gone.
    pub(super) fn run(mut self, receiver: &Receiver<Message>) {
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
                    self.write();
                    self.tell_dropped();
                    self.write();
                    // The thread that waited may be gone.
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
        self.push(&line_of(record), None);
    }

    fn push(&mut self, line: &Value, dropped: Option<u64>) {
        self.buffer.extend_from_slice(line.to_string().as_bytes());
        self.buffer.push(b'\n');
        let end = self.buffer.len();
        self.lines.push(BufferedLine { end, dropped });
    }

    /// Adds a line about the dropped ones of which no line tells.
    fn tell_dropped(&mut self) {
        let told_soon: u64 = self.lines.iter().filter_map(|line| line.dropped).sum();
        let dropped = self.stats.access_dropped_lines.get();
        let untold = dropped.saturating_sub(self.told + told_soon);
        if untold > 0 {
            self.push(&line_of_dropped(untold), Some(untold));
        }
    }

    /// Writes what is collected; drops what the file does not take.
    fn write(&mut self) {
        if self.buffer.is_empty() {
            return;
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let taken = self.write_lines(&buffer);
        buffer.clear();
        self.buffer = buffer;
        let mut lost = 0;
        for line in self.lines.drain(..) {
            match line.dropped {
                Some(dropped) if line.end <= taken => self.told += dropped,
                None if line.end > taken => lost += 1,
                _ => {}
            }
        }
        self.stats.access_dropped_lines.add(lost);
    }

    /// Writes whole lines; returns how many bytes of them the file took.
    fn write_lines(&mut self, bytes: &[u8]) -> usize {
        if self.is_cut && !self.end_line() {
            return 0;
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
        taken
    }

    /// Ends the part of a line that the file has; returns whether it took the end.
    fn end_line(&mut self) -> bool {
        let ended = self.out.write_all(b"\n");
        if let Err(error) = &ended {
            self.warn(error);
        }
        self.is_cut = ended.is_err();
        !self.is_cut
    }

    /// Logs why the file takes no lines, once.
    fn warn(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.has_warned, true) {
            log::warn!("the access log takes no lines, which are dropped: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::record;
    use super::*;

    /// A file that takes so many bytes.
    struct SmallFile {
        room: usize,
        taken: Vec<u8>,
    }

    impl Write for SmallFile {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.room == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let count = bytes.len().min(self.room);
            self.room -= count;
            self.taken.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl LineWriter<SmallFile> {
        /// Writes a line where there is so much room, and returns how many lines were dropped so far.
        fn add_with_room(&mut self, path: &str, room: usize) -> u64 {
            self.out.room = room;
            self.add(&record(path));
            self.write();
            self.stats.access_dropped_lines.get()
        }
    }

    /// Returns of how many dropped lines, or of which path, each whole line tells.
    fn told(text: &[u8]) -> Vec<Value> {
        let lines = std::str::from_utf8(text).unwrap().lines();
        let lines = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let told = lines.map(|line| match line.get("lines") {
            Some(lines) => lines.clone(),
            None => line["path"].clone(),
        });
        told.collect()
    }

    /// The line about dropped ones is dropped itself, twice: it is told again, and does not count as one of them.
    #[test]
    fn what_was_not_told_is_told_again() {
        let file = SmallFile {
            room: 0,
            taken: Vec::new(),
        };
        let mut writer = LineWriter::new(file, Arc::default());
        assert_eq!(writer.add_with_room("a", 0), 1);
        assert_eq!(writer.add_with_room("b", 0), 2);
        // Room for a part of the line that tells.
        assert_eq!(writer.add_with_room("c", 20), 3);
        // Room for that line, and for a part of the next one.
        let room = 1 + line_of_dropped(3).to_string().len() + 30;
        assert_eq!(writer.add_with_room("d", room), 4);
        assert_eq!(writer.add_with_room("e", 10_000), 4);
        assert_eq!(told(&writer.out.taken), [json!(3), json!(1), json!("/e")]);
        assert_eq!(writer.told, 4);
    }
}
