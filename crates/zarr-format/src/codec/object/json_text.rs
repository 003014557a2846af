//! Decodes and encodes chunks of Python objects as JSON text (`json2`).
//!
//! A chunk is read value by value, without a tree in memory. `NaN` and the infinities are numbers, as Python writes
//! them. `list.rs` checks the type and the number of elements.

use jiter::{Jiter, JiterError, Peek};

use crate::error::{Error, Result};

use super::list::{self, ChunkBuilder, ListWriter, ObjectElement, checked_rows, stored_shape};

fn corrupt(error: impl std::fmt::Display) -> Error {
    Error::corrupt("json", error)
}

impl From<JiterError> for Error {
    fn from(error: JiterError) -> Error {
        corrupt(error)
    }
}

pub(super) fn read(encoded: &[u8], chunk: &mut ChunkBuilder<'_>) -> Result<()> {
    let (shape, count) = read_trailer(encoded, chunk)?;
    let (rows, row) = checked_rows(&shape, count)?;
    let mut reader = JsonReader {
        json: Jiter::new(encoded).with_allow_inf_nan(),
        chunk,
        value: Vec::new(),
    };
    let mut next = reader.json.next_array()?;
    for _ in 0..rows {
        let peek = next.ok_or_else(|| corrupt("the chunk is cut off"))?;
        reader.read_nested(peek, row)?;
        next = reader.json.array_step()?;
    }
    Ok(())
}

/// Reads the data type and the shape, which follow the elements in a JSON chunk. Returns the shape in which the
/// elements are nested, and the number of values before the data type.
fn read_trailer(encoded: &[u8], chunk: &ChunkBuilder<'_>) -> Result<(Vec<u64>, u64)> {
    let mut json = Jiter::new(encoded).with_allow_inf_nan();
    let mut last: [&[u8]; 2] = [&[], &[]];
    let mut values = 0_u64;
    let mut next = json.next_array()?;
    while let Some(peek) = next {
        let start = json.current_index();
        json.known_skip(peek)?;
        values += 1;
        last = [last[1], json.slice_to_current(start)];
        next = json.array_step()?;
    }
    json.finish()?;
    let text = |part: &[u8]| serde_json::from_slice::<String>(part);
    let (dtype, shape, behind) = match text(last[1]) {
        Ok(dtype) => (dtype, None, 1),
        Err(_) => {
            let expected = |error| {
                corrupt(format!(
                    "the chunk does not end in a data type and a shape: {error}"
                ))
            };
            let shape = serde_json::from_slice(last[1]).map_err(expected)?;
            (text(last[0]).map_err(expected)?, Some(shape), 2)
        }
    };
    let shape = stored_shape(chunk.repr(), &dtype, shape)?;
    Ok((shape, values - behind))
}

struct JsonReader<'j, 'c, 'r> {
    json: Jiter<'j>,
    chunk: &'c mut ChunkBuilder<'r>,
    /// JSON of the current element, without whitespace between its tokens.
    value: Vec<u8>,
}

impl JsonReader<'_, '_, '_> {
    /// Reads elements from lists that are nested as `shape` states.
    fn read_nested(&mut self, peek: Peek, shape: &[u64]) -> Result<()> {
        let Some((&rows, row)) = shape.split_first() else {
            return self.read_element(peek);
        };
        let wrong = || corrupt("the nesting of the elements does not match the shape");
        let mut next = match peek {
            Peek::Array => self.json.known_array()?,
            _ => return Err(wrong()),
        };
        for _ in 0..rows {
            self.read_nested(next.ok_or_else(wrong)?, row)?;
            next = self.json.array_step()?;
        }
        next.map_or(Ok(()), |_| Err(wrong()))
    }

    fn read_element(&mut self, peek: Peek) -> Result<()> {
        if peek == Peek::String {
            let text = self.json.known_str()?;
            return self.chunk.add(&ObjectElement::Text(text.into()));
        }
        self.value.clear();
        self.copy_value(peek, 0)?;
        let text = std::str::from_utf8(&self.value).map_err(corrupt)?;
        self.chunk.add(&ObjectElement::Json(text.into()))
    }

    fn copy_value(&mut self, peek: Peek, depth: usize) -> Result<()> {
        self.chunk.check_value(self.value.len(), depth)?;
        match peek {
            Peek::Array => self.copy_list(depth)?,
            Peek::Object => self.copy_map(depth)?,
            Peek::String => push_text(&mut self.value, self.json.known_str()?)?,
            Peek::Null | Peek::True | Peek::False => {
                let start = self.json.current_index();
                self.json.known_skip(peek)?;
                let word = self.json.slice_to_current(start);
                self.value.extend_from_slice(word);
            }
            number => {
                let digits = self.json.known_number_bytes(number)?;
                self.value.extend_from_slice(digits);
            }
        }
        Ok(())
    }

    fn copy_list(&mut self, depth: usize) -> Result<()> {
        self.value.push(b'[');
        let mut next = self.json.known_array()?;
        while let Some(peek) = next {
            self.copy_value(peek, depth + 1)?;
            next = self.json.array_step()?;
            self.value.extend(next.map(|_| b','));
        }
        self.value.push(b']');
        Ok(())
    }

    fn copy_map(&mut self, depth: usize) -> Result<()> {
        self.value.push(b'{');
        let mut key = self.json.known_object()?.map(str::to_string);
        while let Some(name) = key {
            push_text(&mut self.value, &name)?;
            self.value.push(b':');
            let peek = self.json.peek()?;
            self.copy_value(peek, depth + 1)?;
            key = self.json.next_key()?.map(str::to_string);
            self.value.extend(key.as_ref().map(|_| b','));
        }
        self.value.push(b'}');
        Ok(())
    }
}

pub(super) fn push_text(out: &mut Vec<u8>, text: &str) -> Result<()> {
    serde_json::to_writer(out, text).map_err(corrupt)
}

pub(super) fn write(elements: &[ObjectElement<'_>], dtype: &str, shape: &[u64]) -> Result<Vec<u8>> {
    let mut out = JsonWriter(Vec::new());
    list::write(&mut out, elements, dtype, shape)?;
    Ok(out.0)
}

struct JsonWriter(Vec<u8>);

impl ListWriter for JsonWriter {
    fn begin(&mut self, _: u64) -> Result<()> {
        self.0.push(b'[');
        Ok(())
    }

    fn separate(&mut self) {
        self.0.push(b',');
    }

    fn end(&mut self) {
        self.0.push(b']');
    }

    fn element(&mut self, element: &ObjectElement<'_>) -> Result<()> {
        match element {
            ObjectElement::Text(text) => self.text(text)?,
            ObjectElement::Json(text) => self.0.extend_from_slice(text.as_bytes()),
            ObjectElement::Bytes(_) => {
                return Err(Error::invalid("json", "an element is not a string"));
            }
        }
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<()> {
        push_text(&mut self.0, text)
    }

    fn length(&mut self, length: u64) -> Result<()> {
        self.0.extend(length.to_string().bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::codec::object::tests::{json2, records};
    use crate::error::Kind;

    #[test]
    fn text_is_unquoted_and_other_values_are_compact_json() {
        let stored =
            br#" [ "a\u00e9" , {"b": [1, 2.50, null ]} , NaN, "1", -Infinity, [], "|O", [6] ] "#;
        let elements = [
            "a\u{e9}",
            r#"{"b":[1,2.50,null]}"#,
            "NaN",
            "1",
            "-Infinity",
            "[]",
        ];
        assert_eq!(
            json2(&[6]).decode(stored.to_vec()).unwrap(),
            records(&elements)
        );
    }

    #[test]
    fn invalid_or_contradictory_json_is_corrupt() {
        for text in [
            "",
            "[]",
            "{}",
            "7",
            "[1,2]",
            r#"["a","|O",[1]]"#,
            r#"["a","b","|O",[3]]"#,
            r#"["a","b","|O",[18446744073709551615,2]]"#,
            r#"["a","b","|O",[-2]]"#,
            r#"["a","b","|O","x",[2]]"#,
            r#"["a","b",[2],"|O"]"#,
            r#"["a","b","|O",[2]] 1"#,
            r#"["a","b","|O",[2]"#,
            r#"["a","b","|O",[1,2]]"#,
            r#"["a","\ud800","|O",[2]]"#,
            "[\"a\",\"\x01\",\"|O\",[2]]",
        ] {
            let error = json2(&[2]).decode(text.as_bytes().to_vec()).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt, "{text}: {error}");
        }
        let latin = json2(&[1])
            .decode(b"[\"\xe9\",\"|O\",[1]]".to_vec())
            .unwrap_err();
        assert_eq!(latin.kind(), Kind::Corrupt);
    }
}
