//! Decodes and encodes chunks of Python objects as MessagePack (`msgpack2`).
//!
//! A chunk is read value by value, and no allocation depends on the counts that the chunk claims: each value takes at
//! least one byte. `list.rs` checks the data type and the number of elements. In MessagePack the number of values
//! precedes the values, so the values of a JSON list are written to a separate buffer and counted. Integers of more
//! than 64 bits are an error.

use jiter::{Jiter, Peek};
use rmp::decode::RmpRead;
use rmp::{Marker, encode};

use crate::error::{Error, Result};

use super::json_text::push_text;
use super::list::{
    self, ChunkBuilder, ListWriter, MAX_DEPTH, ObjectElement, checked_rows, stored_shape,
};

fn corrupt(error: impl std::fmt::Display) -> Error {
    Error::corrupt("msgpack", error)
}

/// A MessagePack token: a scalar, or the head of a list or map with the number of values or pairs that follow.
enum Token<'a> {
    Nil,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(&'a [u8]),
    Bytes(&'a [u8]),
    List(usize),
    Map(usize),
}

/// Removes the next MessagePack token from `rest` and returns it.
fn take_token<'a>(rest: &mut &'a [u8]) -> Result<Token<'a>> {
    let marker = rmp::decode::read_marker(rest).map_err(|_| truncated())?;
    Ok(match marker {
        Marker::Null => Token::Nil,
        Marker::True => Token::Bool(true),
        Marker::False => Token::Bool(false),
        Marker::FixPos(number) => Token::Unsigned(number.into()),
        Marker::FixNeg(number) => Token::Signed(number.into()),
        Marker::U8 => Token::Unsigned(take_number(rest, 1)?),
        Marker::U16 => Token::Unsigned(take_number(rest, 2)?),
        Marker::U32 => Token::Unsigned(take_number(rest, 4)?),
        Marker::U64 => Token::Unsigned(take_number(rest, 8)?),
        Marker::I8 => Token::Signed(rest.read_data_i8().map_err(|_| truncated())?.into()),
        Marker::I16 => Token::Signed(rest.read_data_i16().map_err(|_| truncated())?.into()),
        Marker::I32 => Token::Signed(rest.read_data_i32().map_err(|_| truncated())?.into()),
        Marker::I64 => Token::Signed(rest.read_data_i64().map_err(|_| truncated())?),
        Marker::F32 => Token::Float(rest.read_data_f32().map_err(|_| truncated())?.into()),
        Marker::F64 => Token::Float(rest.read_data_f64().map_err(|_| truncated())?),
        Marker::FixStr(bytes) => Token::Text(take(rest, bytes.into())?),
        Marker::Str8 => Token::Text(take_counted(rest, 1)?),
        Marker::Str16 => Token::Text(take_counted(rest, 2)?),
        Marker::Str32 => Token::Text(take_counted(rest, 4)?),
        Marker::Bin8 => Token::Bytes(take_counted(rest, 1)?),
        Marker::Bin16 => Token::Bytes(take_counted(rest, 2)?),
        Marker::Bin32 => Token::Bytes(take_counted(rest, 4)?),
        Marker::FixArray(count) => Token::List(count.into()),
        Marker::Array16 => Token::List(take_count(rest, 2)?),
        Marker::Array32 => Token::List(take_count(rest, 4)?),
        Marker::FixMap(count) => Token::Map(count.into()),
        Marker::Map16 => Token::Map(take_count(rest, 2)?),
        Marker::Map32 => Token::Map(take_count(rest, 4)?),
        other => {
            let found = format!("a value of type {other:?} cannot be converted to JSON");
            return Err(Error::unsupported("msgpack", found));
        }
    })
}

fn truncated() -> Error {
    corrupt("the chunk is cut off")
}

/// Removes a big-endian integer of `width` bytes from `rest` and returns it.
fn take_number(rest: &mut &[u8], width: u64) -> Result<u64> {
    let bytes = take(rest, width)?;
    Ok(bytes
        .iter()
        .fold(0, |number, &byte| number << 8 | u64::from(byte)))
}

/// Removes the number of values of a list, or of pairs of a map, from `rest` and returns it.
fn take_count(rest: &mut &[u8], width: u64) -> Result<usize> {
    usize::try_from(take_number(rest, width)?).map_err(|_| truncated())
}

/// Removes bytes and the length before them, an integer of `width` bytes, from `rest`; returns the bytes.
fn take_counted<'a>(rest: &mut &'a [u8], width: u64) -> Result<&'a [u8]> {
    let bytes = take_number(rest, width)?;
    take(rest, bytes)
}

fn take<'a>(rest: &mut &'a [u8], bytes: u64) -> Result<&'a [u8]> {
    let bytes = usize::try_from(bytes).map_err(|_| truncated())?;
    let (taken, after) = rest.split_at_checked(bytes).ok_or_else(truncated)?;
    *rest = after;
    Ok(taken)
}

pub(super) fn read(encoded: &[u8], chunk: &mut ChunkBuilder<'_>) -> Result<()> {
    let mut rest = encoded;
    let Token::List(values) = take_token(&mut rest)? else {
        return Err(corrupt("expected a list"));
    };
    let (shape, behind) = read_trailer(rest, values, chunk)?;
    let (rows, row) = checked_rows(&shape, (values - behind) as u64)?;
    let mut reader = MessagePackReader {
        rest,
        chunk,
        value: Vec::new(),
    };
    (0..rows).try_for_each(|_| reader.read_nested(row))
}

/// Reads the data type and the shape, which follow the elements in a list of `values`. Returns the shape in which the
/// elements are nested, and the number of values after the elements.
fn read_trailer(
    mut rest: &[u8],
    values: usize,
    chunk: &ChunkBuilder<'_>,
) -> Result<(Vec<u64>, usize)> {
    let mut last = [rest; 2];
    for _ in 0..values {
        last = [last[1], rest];
        skip(&mut rest)?;
    }
    if !rest.is_empty() {
        return Err(corrupt(format!(
            "{} unexpected bytes after the list",
            rest.len()
        )));
    }
    let [mut dtype, mut end] = last;
    let (shape, behind) = match take_token(&mut end)? {
        Token::Text(_) if values > 0 => (None, 1),
        Token::List(rank) if values > 1 => {
            let lengths = (0..rank).map(|_| match take_token(&mut end)? {
                Token::Unsigned(length) => Ok(length),
                _ => Err(corrupt("the shape is not a list of lengths")),
            });
            (Some(lengths.collect::<Result<Vec<u64>>>()?), 2)
        }
        _ => return Err(corrupt("the chunk does not end in a data type and a shape")),
    };
    if behind == 1 {
        dtype = last[1];
    }
    let dtype = match take_token(&mut dtype)? {
        Token::Text(text) => std::str::from_utf8(text).map_err(corrupt)?,
        _ => return Err(corrupt("the chunk does not end in a data type and a shape")),
    };
    Ok((stored_shape(chunk.repr(), dtype, shape)?, behind))
}

/// Skips a MessagePack value, with all values inside it.
fn skip(rest: &mut &[u8]) -> Result<()> {
    let mut due = 1_usize;
    while due > 0 {
        let inside = match take_token(rest)? {
            Token::List(count) => count,
            Token::Map(count) => count.saturating_mul(2),
            _ => 0,
        };
        due = (due - 1).saturating_add(inside);
    }
    Ok(())
}

struct MessagePackReader<'e, 'c, 'r> {
    rest: &'e [u8],
    chunk: &'c mut ChunkBuilder<'r>,
    /// The current element, as JSON.
    value: Vec<u8>,
}

impl<'e> MessagePackReader<'e, '_, '_> {
    /// Reads elements from lists that are nested as `shape` states.
    fn read_nested(&mut self, shape: &[u64]) -> Result<()> {
        let Some((&rows, row)) = shape.split_first() else {
            return self.read_element();
        };
        match take_token(&mut self.rest)? {
            Token::List(count) if count as u64 == rows => {}
            _ => {
                return Err(corrupt(
                    "the nesting of the elements does not match the shape",
                ));
            }
        }
        (0..rows).try_for_each(|_| self.read_nested(row))
    }

    fn read_element(&mut self) -> Result<()> {
        self.value.clear();
        match take_token(&mut self.rest)? {
            // With the option `raw`, Python's msgpack writes bytes as text, so text may not be UTF-8.
            Token::Text(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => self.chunk.add(&ObjectElement::Text(text.into())),
                Err(_) => self.chunk.add(&ObjectElement::Bytes(bytes)),
            },
            Token::Bytes(bytes) => self.chunk.add(&ObjectElement::Bytes(bytes)),
            other => {
                self.copy_value(other, 0)?;
                let text = std::str::from_utf8(&self.value).map_err(corrupt)?;
                self.chunk.add(&ObjectElement::Json(text.into()))
            }
        }
    }

    /// Appends a MessagePack value to the JSON of the current element.
    fn copy_value(&mut self, value: Token<'e>, depth: usize) -> Result<()> {
        self.chunk.check_value(self.value.len(), depth)?;
        let out = &mut self.value;
        match value {
            Token::Nil => out.extend(b"null"),
            Token::Bool(boolean) => out.extend(boolean.to_string().bytes()),
            Token::Unsigned(number) => out.extend(number.to_string().bytes()),
            Token::Signed(number) => out.extend(number.to_string().bytes()),
            Token::Float(number) => out.extend(float(number).bytes()),
            Token::Text(bytes) | Token::Bytes(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => push_text(out, text)?,
                Err(_) => serde_json::to_writer(out, bytes).map_err(corrupt)?,
            },
            Token::List(count) => {
                out.push(b'[');
                for n in 0..count {
                    self.value.extend((n > 0).then_some(b','));
                    let value = take_token(&mut self.rest)?;
                    self.copy_value(value, depth + 1)?;
                }
                self.value.push(b']');
            }
            Token::Map(count) => self.copy_map(count, depth)?,
        }
        Ok(())
    }

    fn copy_map(&mut self, count: usize, depth: usize) -> Result<()> {
        self.value.push(b'{');
        for n in 0..count {
            self.value.extend((n > 0).then_some(b','));
            let (Token::Text(key) | Token::Bytes(key)) = take_token(&mut self.rest)? else {
                return Err(corrupt("a key of a map is not a string"));
            };
            let key = std::str::from_utf8(key).map_err(corrupt)?;
            push_text(&mut self.value, key)?;
            self.value.push(b':');
            let value = take_token(&mut self.rest)?;
            self.copy_value(value, depth + 1)?;
        }
        self.value.push(b'}');
        Ok(())
    }
}

/// Returns a float as JSON; `NaN` and the infinities as Python writes them.
fn float(number: f64) -> String {
    match serde_json::Number::from_f64(number) {
        Some(number) => number.to_string(),
        None if number.is_nan() => "NaN".to_string(),
        None if number > 0.0 => "Infinity".to_string(),
        None => "-Infinity".to_string(),
    }
}

pub(super) fn write(elements: &[ObjectElement<'_>], dtype: &str, shape: &[u64]) -> Result<Vec<u8>> {
    let mut out = MessagePackWriter(Vec::new());
    list::write(&mut out, elements, dtype, shape)?;
    Ok(out.0)
}

struct MessagePackWriter(Vec<u8>);

impl ListWriter for MessagePackWriter {
    fn begin(&mut self, count: u64) -> Result<()> {
        write_list_length(&mut self.0, count)
    }

    fn separate(&mut self) {}

    fn end(&mut self) {}

    fn element(&mut self, element: &ObjectElement<'_>) -> Result<()> {
        match element {
            ObjectElement::Text(text) => self.text(text),
            ObjectElement::Bytes(bytes) => encode::write_bin(&mut self.0, bytes).map_err(invalid),
            ObjectElement::Json(text) => {
                let mut json = Jiter::new(text.as_bytes()).with_allow_inf_nan();
                let peek = json.peek()?;
                write_value(&mut json, peek, 0, &mut self.0)
            }
        }
    }

    fn text(&mut self, text: &str) -> Result<()> {
        encode::write_str(&mut self.0, text).map_err(invalid)
    }

    fn length(&mut self, length: u64) -> Result<()> {
        encode::write_uint(&mut self.0, length)
            .map(drop)
            .map_err(invalid)
    }
}

fn invalid(error: impl std::fmt::Display) -> Error {
    Error::invalid("msgpack", error)
}

fn write_list_length(out: &mut Vec<u8>, count: u64) -> Result<()> {
    let count = u32::try_from(count).map_err(|error| Error::too_large("msgpack", error))?;
    encode::write_array_len(out, count).map_err(invalid)?;
    Ok(())
}

/// Converts a JSON value to MessagePack. Its numbers may be `NaN` or infinite.
fn write_value(json: &mut Jiter<'_>, peek: Peek, depth: usize, out: &mut Vec<u8>) -> Result<()> {
    if depth > MAX_DEPTH {
        return Err(invalid(format!(
            "a value nests deeper than {MAX_DEPTH} levels"
        )));
    }
    match peek {
        Peek::Null => {
            json.known_null()?;
            encode::write_nil(out).map_err(invalid)
        }
        Peek::True | Peek::False => {
            let boolean = json.known_bool(peek)?;
            encode::write_bool(out, boolean).map_err(invalid)
        }
        Peek::String => encode::write_str(out, json.known_str()?).map_err(invalid),
        Peek::Array => write_list(json, depth, out),
        Peek::Object => write_map(json, depth, out),
        number => write_number(json.known_number_bytes(number)?, out),
    }
}

/// Converts a JSON list to MessagePack. The length comes first but is known only after all values.
fn write_list(json: &mut Jiter<'_>, depth: usize, out: &mut Vec<u8>) -> Result<()> {
    let (mut count, mut values) = (0, Vec::new());
    let mut next = json.known_array()?;
    while let Some(peek) = next {
        write_value(json, peek, depth + 1, &mut values)?;
        count += 1;
        next = json.array_step()?;
    }
    write_list_length(out, count)?;
    out.append(&mut values);
    Ok(())
}

fn write_map(json: &mut Jiter<'_>, depth: usize, out: &mut Vec<u8>) -> Result<()> {
    let (mut count, mut members) = (0_u32, Vec::new());
    let mut key = json.known_object()?.map(str::to_string);
    while let Some(name) = key {
        encode::write_str(&mut members, &name).map_err(invalid)?;
        let peek = json.peek()?;
        write_value(json, peek, depth + 1, &mut members)?;
        count = count.saturating_add(1);
        key = json.next_key()?.map(str::to_string);
    }
    encode::write_map_len(out, count).map_err(invalid)?;
    out.append(&mut members);
    Ok(())
}

/// Writes a JSON number as an integer of 64 bits or a float; fails with `Invalid` for a longer integer.
fn write_number(digits: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let text = std::str::from_utf8(digits).map_err(invalid)?;
    if let Ok(number) = text.parse() {
        return encode::write_uint(out, number).map(drop).map_err(invalid);
    }
    if let Ok(number) = text.parse() {
        return encode::write_sint(out, number).map(drop).map_err(invalid);
    }
    let is_whole = text
        .bytes()
        .all(|byte| byte == b'-' || byte.is_ascii_digit());
    match text.parse() {
        Ok(number) if !is_whole => encode::write_f64(out, number).map_err(invalid),
        _ => Err(invalid(format!("{text} does not fit in 64 bits"))),
    }
}

#[cfg(test)]
mod tests {
    use crate::codec::object::tests::{msgpack2, records};
    use crate::error::Kind;

    #[test]
    fn invalid_or_contradictory_messages_are_refused() {
        for bytes in [
            &b""[..],
            b"\x07",
            b"\x90",
            b"\xdd\xff\xff\xff\xff",
            b"\x94\xa1a\xa1b\xa2|O\x91\x03",
            b"\x94\xa1a\xa1b\xa2|O\x91\x02\x00",
            b"\x94\xa1a\xdb\xff\xff\xff\xff\xa2|O\x91\x02",
            b"\x94\xa1a\xdf\xff\xff\xff\xff\xa2|O\x91\x02",
            b"\x94\xa1a\x81\x01\x02\xa2|O\x91\x02",
            b"\x94\xa1a\xc1\xa2|O\x91\x02",
            b"\x93\xa1a\xa2|O\x91\x02",
        ] {
            let error = msgpack2(&[2]).decode(bytes.to_vec()).unwrap_err();
            let kinds = [Kind::Corrupt, Kind::Unsupported];
            assert!(kinds.contains(&error.kind()), "{bytes:?}: {error}");
        }
    }

    #[test]
    fn integers_beyond_64_bits_and_deep_lists_cannot_be_encoded() {
        let most = records(&["18446744073709551615", "[-9223372036854775808]", "1e3"]);
        let encoded = msgpack2(&[3]).encode(&most).unwrap();
        let decoded = msgpack2(&[3]).decode(encoded).unwrap();
        let same = ["18446744073709551615", "[-9223372036854775808]", "1000.0"];
        assert_eq!(decoded, records(&same));
        let longer = msgpack2(&[1]).encode(&records(&["18446744073709551616"]));
        assert_eq!(longer.unwrap_err().kind(), Kind::Invalid);
        let deep = format!("{}{}", "[".repeat(150), "]".repeat(150));
        let deep = msgpack2(&[1]).encode(&records(&[&deep]));
        assert_eq!(deep.unwrap_err().kind(), Kind::Invalid);
    }
}
