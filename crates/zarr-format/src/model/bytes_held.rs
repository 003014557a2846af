//! Estimates the memory that the metadata of an array take, for budgets.
//!
//! Attributes are not counted: their text may be shared.

use serde_json::Value;

use crate::model::{Array, CodecSpec, Edges};

/// Memory that an allocator takes for a small block, in bytes.
const BLOCK: usize = 32;

/// Memory that a member of an object takes in addition to its name and to the heap of its value, in bytes.
const MEMBER: usize = size_of::<Value>() + size_of::<String>() + 3 * size_of::<usize>();

impl Array {
    /// Returns about how many bytes of memory the array takes without its attributes.
    pub fn metadata_bytes(&self) -> u64 {
        let lengths = 8 * (self.shape.capacity() + self.chunk_shape.capacity());
        let names = self.dimension_names.iter().flatten();
        let parts = [
            size_of::<Array>() + lengths + 4 * BLOCK,
            self.chunk_edges.iter().map(edges_bytes).sum(),
            self.codecs.iter().map(codec_bytes).sum(),
            names.map(|name| 2 * BLOCK + name.len()).sum(),
            self.fill_value.bytes.capacity() + value_bytes(&self.fill_value.json),
            value_bytes(&self.keys.v3) + 2 * BLOCK + 3 * self.keys.prefix.len(),
            // An unsupported type holds its own text.
            BLOCK + format!("{:?}", self.data_type).len(),
        ];
        parts.iter().sum::<usize>() as u64
    }
}

fn edges_bytes(edges: &Edges) -> usize {
    match edges {
        Edges::Every(_) => size_of::<Edges>(),
        Edges::Runs(runs) => size_of::<Edges>() + 16 * runs.capacity(),
    }
}

fn codec_bytes(codec: &CodecSpec) -> usize {
    let members = codec.configuration.iter();
    let members = members.map(|(name, value)| MEMBER + BLOCK + name.len() + value_bytes(value));
    size_of::<CodecSpec>() + 3 * BLOCK + codec.name.len() + members.sum::<usize>()
}

/// Returns the bytes that a value holds on the heap.
fn value_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => BLOCK + text.capacity(),
        Value::Array(values) => {
            let own = BLOCK + size_of::<Value>() * values.capacity();
            own + values.iter().map(value_bytes).sum::<usize>()
        }
        Value::Object(members) => {
            let members = members.iter();
            let members =
                members.map(|(name, value)| MEMBER + BLOCK + name.len() + value_bytes(value));
            2 * BLOCK + members.sum::<usize>()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_count_with_all_that_they_refer_to() {
        let list = json!((0..1000).collect::<Vec<_>>());
        let bytes = value_bytes(&list);
        assert!(bytes >= 1000 * size_of::<Value>() && bytes < 3000 * size_of::<Value>());
        let nested = json!({"a": {"b": "x".repeat(500)}});
        assert!(value_bytes(&nested) > 2 * MEMBER + 500);
        assert_eq!(value_bytes(&json!(1.5)), 0);
    }
}
