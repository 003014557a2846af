//! One request and its outcome, and the line of the access log that says so.

use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};

use crate::array::TouchedChunks;
use crate::failures::utc;
use crate::store::Key;

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

impl AccessRecord {
    /// Returns the record as a line; members that say nothing are left out.
    pub(super) fn line(&self) -> Value {
        let text = |key: &Key| json!(format!("/{}", String::from_utf8_lossy(key.as_bytes())));
        let mut line = Map::new();
        let mut put = |name: &str, value: Value| drop(line.insert(name.to_string(), value));
        put("time", json!(utc_micros(self.time)));
        put("pid", json!(self.pid));
        put("op", json!(self.operation));
        put("path", self.path.as_ref().map_or(Value::Null, text));
        if let Some(to) = &self.to {
            put("to", text(to));
        }
        if let Some((offset, length)) = self.range {
            put("offset", json!(offset));
            put("length", json!(length));
            put("chunks", json!(self.touched.chunks));
            put("hits", json!(self.touched.hits));
        }
        let micros = u64::try_from(self.duration.as_micros()).unwrap_or(u64::MAX);
        put("microseconds", json!(micros));
        if let Some(errno) = self.errno {
            put("errno", json!(errno));
        }
        Value::Object(line)
    }
}

/// Returns a time as `2026-11-22T13:28:40.000123Z`.
pub(super) fn utc_micros(time: SystemTime) -> String {
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
pub(super) mod tests {
    use super::*;

    /// A read of 100 bytes.
    pub(in crate::fuse) fn record(path: &str) -> AccessRecord {
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

    #[test]
    fn a_line_has_all_of_a_request() {
        let failed = AccessRecord {
            errno: Some(5),
            to: Some(Key::new("b").unwrap()),
            ..record("a\u{1b}\"")
        };
        let text = failed.line().to_string();
        let expected = json!({
            "time": "1970-01-01T00:00:01.000123Z", "pid": 7, "op": "read", "path": "/a\u{1b}\"", "to": "/b",
            "offset": 4096, "length": 100, "chunks": 2, "hits": 1, "microseconds": 55, "errno": 5,
        });
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
        assert_eq!(text.lines().count(), 1);
    }
}
