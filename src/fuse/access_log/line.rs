//! One line of the access log.

use std::time::SystemTime;

use serde_json::{Map, Value, json};

use super::AccessRecord;
use crate::failures::utc;
use crate::store::Key;

/// Returns a line; members that say nothing are left out.
pub(super) fn line_of(record: &AccessRecord) -> Value {
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

/// Returns a line that says how many lines are missing before it.
pub(super) fn line_of_dropped(lines: u64) -> Value {
    json!({"time": utc_micros(SystemTime::now()), "op": "dropped", "lines": lines})
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
    use super::super::tests::record;
    use super::*;

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
}
