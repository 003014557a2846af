//! Writes lists of objects as MessagePack.
//!
//! The number of values is written before them, so the values of a JSON list are written to a separate buffer and
//! counted. Integers of more than 64 bits are an error.

use jiter::{Jiter, Peek};
use rmp::encode;

use crate::error::{Error, Result};

use super::element::ObjectElement;
use super::list::{self, ListWriter, MAX_DEPTH};
use super::message_pack::NAME;

/// Writes a chunk.
pub(super) fn write(elements: &[ObjectElement<'_>], dtype: &str, shape: &[u64]) -> Result<Vec<u8>> {
    let mut out = MessagePackWriter(Vec::new());
    list::write(&mut out, elements, dtype, shape)?;
    Ok(out.0)
}

/// Writes a list as MessagePack.
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
    Error::invalid(NAME, error)
}

fn write_list_length(out: &mut Vec<u8>, count: u64) -> Result<()> {
    let count = u32::try_from(count).map_err(|error| Error::too_large(NAME, error))?;
    encode::write_array_len(out, count).map_err(invalid)?;
    Ok(())
}

/// Writes a JSON value, whose numbers may be `NaN` or infinite.
fn write_value(json: &mut Jiter<'_>, peek: Peek, depth: usize, out: &mut Vec<u8>) -> Result<()> {
    if depth > MAX_DEPTH {
        return Err(invalid(format!("a value nests deeper than {MAX_DEPTH}")));
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

/// Writes a list. Its length comes first but is known only after the values.
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

/// Writes a signed or unsigned integer of 64 bits, or a float; `Invalid` for a longer integer.
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
        _ => Err(invalid(format!("{text} does not fit 64 bits"))),
    }
}

#[cfg(test)]
mod tests {
    use crate::codec::object::tests::{msgpack2, records};
    use crate::error::Kind;

    #[test]
    fn whole_numbers_of_64_bits_are_written_and_longer_ones_are_not() {
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
