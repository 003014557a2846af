//! Formats shapes, lengths, durations, codecs and arrays as text or JSON.

use std::time::Duration;

use serde_json::{Map, Value, json};

use zarr_format::dialect::fill;
use zarr_format::error::{Error, printable};
use zarr_format::model::{CodecSpec, DataType};
use zarrfs_export::inspect::node_info::{ArrayInfo, ReadCost};
use zarrfs_export::inspect::stored_chunks::{ChunkLength, ChunkTotals};
use zarrfs_store::Key;

/// Formats lengths along dimensions: `(12, 36, 72)`.
pub(super) fn shape(lengths: &[u64]) -> String {
    let lengths: Vec<String> = lengths.iter().map(u64::to_string).collect();
    match lengths.as_slice() {
        [one] => format!("({one},)"),
        all => format!("({})", all.join(", ")),
    }
}

/// Formats a dimension as its number, with the first 40 characters of its name if it has a name.
pub(super) fn dimension(names: &[Option<String>], axis: usize) -> String {
    let name = names.get(axis).and_then(Option::as_deref);
    match name.filter(|name| !name.is_empty()) {
        Some(name) => {
            let short: String = name.chars().take(40).collect();
            format!("{} (dimension {axis})", printable(&short))
        }
        None => format!("dimension {axis}"),
    }
}

/// Formats a number of bytes in the largest unit that fits: `3.0 KiB`.
pub(super) fn bytes(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut unit, mut tenths) = ("", u128::from(bytes) * 10);
    for next in units {
        if tenths < 10_240 {
            break;
        }
        (unit, tenths) = (next, tenths.div_ceil(1024));
    }
    if unit.is_empty() {
        return count(bytes, "byte");
    }
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

/// Formats the name of a codec; for a sharding codec also its inner codecs: `sharding_indexed(bytes, zstd)`.
fn codec_name(codec: &Value) -> String {
    let name = printable(codec["name"].as_str().unwrap_or("?"));
    match codec["configuration"]["codecs"].as_array() {
        Some(inner) => {
            let inner: Vec<String> = inner.iter().map(codec_name).collect();
            format!("{name}({})", inner.join(", "))
        }
        None => name,
    }
}

/// Formats a ratio with one decimal; `None` for a division by zero.
pub(super) fn ratio(decoded: u128, stored: u64) -> Option<String> {
    let tenths = decoded.saturating_mul(10).checked_div(u128::from(stored))?;
    Some(format!("{}.{}", tenths / 10, tenths % 10))
}

/// Returns a store key as text, with replacement characters for invalid UTF-8.
pub(super) fn text(key: &Key) -> String {
    String::from_utf8_lossy(key.as_bytes()).into_owned()
}

/// Formats the chunk shape and the codecs of an array, without the codec `bytes`, which nearly every array has.
pub(super) fn array_facts(array: &ArrayInfo) -> Vec<String> {
    let mut facts = vec![match array.inner_chunk_shapes.as_slice() {
        [] => format!("chunks {}", shape(&array.chunk_shape)),
        [.., inner] => format!(
            "shards {} of chunks {}",
            shape(&array.chunk_shape),
            shape(inner)
        ),
    }];
    let notable = array.codecs.iter().filter(|codec| codec.name != "bytes");
    let names: Vec<String> = notable.map(|codec| codec_name(&codec.to_json())).collect();
    if !names.is_empty() {
        facts.push(names.join(", "));
    }
    facts
}

/// Formats the number and total size of an array's stored chunks; `unit` is chunk or shard.
pub(super) fn stored_line(stored: &ChunkTotals, unit: &str) -> String {
    if !stored.is_whole {
        let counted = count(stored.present, unit);
        return format!("more than {} in more than {counted}", bytes(stored.bytes));
    }
    let total = count(stored.total, unit);
    if stored.present == stored.total {
        return format!("{} in {total}", bytes(stored.bytes));
    }
    format!("{} in {} of {total}", bytes(stored.bytes), stored.present)
}

pub(super) fn array_json(array: &ArrayInfo) -> Map<String, Value> {
    let rendered = |name: &str| array.members.get(name).cloned().unwrap_or(Value::Null);
    let codecs: Vec<Value> = array.codecs.iter().map(CodecSpec::to_json).collect();
    let mut members = Map::new();
    let mut add = |name: &str, value: Value| members.insert(name.to_string(), value);
    add("data_type", rendered("data_type"));
    add("shape", json!(array.shape));
    add(
        "dimension_names",
        match array.dimension_names.as_slice() {
            [] => Value::Null,
            names => json!(names),
        },
    );
    add("chunk_shape", json!(array.chunk_shape));
    add("inner_chunk_shapes", json!(array.inner_chunk_shapes));
    add("grid", json!(array.grid.as_ref().ok()));
    add("chunk_key_encoding", rendered("chunk_key_encoding"));
    add("codecs", json!(codecs));
    add("fill_value", rendered("fill_value"));
    add("decoded_bytes", json!(array.bytes));
    add("element_bytes", json!(array.element));
    add(
        "undecodable",
        json!(array.undecodable.as_ref().map(Error::to_string)),
    );
    let cost = |cost: &ReadCost| json!({"memory_bytes": cost.memory, "requests": cost.requests});
    add(
        "reads",
        array.costs.as_ref().map_or(
            Value::Null,
            |costs| json!({"point": cost(&costs.point), "sequential": cost(&costs.sequential)}),
        ),
    );
    add("files", json!(array.files));
    members
}

pub(super) fn stored_json(stored: &ChunkTotals) -> Value {
    let chunk = |chunk: &Option<ChunkLength>| match chunk {
        None => Value::Null,
        Some(chunk) => json!({"key": text(&chunk.key), "bytes": chunk.bytes}),
    };
    json!({
        "chunks": stored.total,
        "present": stored.present,
        "missing": stored.is_whole.then(|| stored.total.saturating_sub(stored.present)),
        "bytes": stored.bytes,
        "smallest": chunk(&stored.smallest),
        "largest": chunk(&stored.largest),
        "is_whole": stored.is_whole,
    })
}

/// Formats a number of bytes in the largest unit that needs no rounding, such as `1M`.
pub(super) fn size(bytes: u64) -> String {
    let units = [("T", 40), ("G", 30), ("M", 20), ("K", 10)];
    let fits = |shift: u32| bytes != 0 && bytes.trailing_zeros() >= shift;
    match units.iter().find(|(_, shift)| fits(*shift)) {
        Some((unit, shift)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}

/// Formats a number with its noun in the singular or plural: `1 conflict`, `2 conflicts`.
pub(super) fn count(number: u64, what: &str) -> String {
    let end = if number == 1 { "" } else { "s" };
    format!("{number} {what}{end}")
}

/// Formats a duration in seconds or milliseconds.
pub(super) fn duration(duration: Duration) -> String {
    match duration.subsec_millis() {
        0 => format!("{}s", duration.as_secs()),
        _ => format!("{}ms", duration.as_millis()),
    }
}

pub(super) fn element(data_type: &DataType, element: &[u8]) -> String {
    let value = fill::render(data_type, element);
    match (&value, data_type) {
        (Value::String(word), DataType::Float(_) | DataType::Small(_)) => word.clone(),
        _ => printable(&value.to_string()),
    }
}

/// Converts an integer to a float; the lost digits do not matter in rates, colours and times.
#[expect(clippy::cast_precision_loss, reason = "digits that nobody sees")]
pub(super) fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_rounded_up() {
        let expected = [
            (0, "0 bytes"),
            (1, "1 byte"),
            (1023, "1023 bytes"),
            (1024, "1.0 KiB"),
            (1025, "1.1 KiB"),
            (124_416, "121.5 KiB"),
            (1 << 30, "1.0 GiB"),
            (u64::MAX, "16.0 EiB"),
        ];
        for (number, text) in expected {
            assert_eq!(bytes(number), text);
        }
        assert_eq!(size(256 << 20), "256M");
        assert_eq!(size(1500), "1500");
        assert_eq!(duration(Duration::from_millis(1500)), "1500ms");
    }

    #[test]
    fn shapes_are_formatted_as_in_python() {
        assert_eq!(shape(&[]), "()");
        assert_eq!(shape(&[3]), "(3,)");
        assert_eq!(shape(&[3, 4]), "(3, 4)");
        assert_eq!(ratio(100, 30).unwrap(), "3.3");
        assert_eq!(ratio(1, 0), None);
    }
}
