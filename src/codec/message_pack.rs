//! Lists of objects as MessagePack.
//!
//! Read value by value from the bytes of a chunk, never by the counts that it claims: each value takes a byte
//! at least. Which types and how many elements there may be is `objects.rs`'s business.

use jiter::Jiter;
use jiter::Peek;
use rmp::Marker;
use rmp::decode::RmpRead;
use rmp::encode;

use crate::error::Error;
use crate::error::Result;

use super::json_text::push_text;
use super::objects::Element;
use super::objects::Elements;
use super::objects::MAX_DEPTH;
use super::objects::stored_shape;

const NAME: &str = "msgpack";

fn corrupt(error: impl std::fmt::Display) -> Error {
    Error::corrupt(NAME, error)
}

/// The start of a value: all of it, or how many values follow.
enum Token<'a> {
    Nil,
    Truth(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(&'a [u8]),
    Bytes(&'a [u8]),
    List(usize),
    Map(usize),
}

/// Takes the next token off.
fn token<'a>(rest: &mut &'a [u8]) -> Result<Token<'a>> {
    let marker = rmp::decode::read_marker(rest).map_err(|_| cut())?;
    Ok(match marker {
        Marker::Null => Token::Nil,
        Marker::True => Token::Truth(true),
        Marker::False => Token::Truth(false),
        Marker::FixPos(number) => Token::Unsigned(number.into()),
        Marker::FixNeg(number) => Token::Signed(number.into()),
        Marker::U8 => Token::Unsigned(length(rest, 1)?),
        Marker::U16 => Token::Unsigned(length(rest, 2)?),
        Marker::U32 => Token::Unsigned(length(rest, 4)?),
        Marker::U64 => Token::Unsigned(length(rest, 8)?),
        Marker::I8 => Token::Signed(rest.read_data_i8().map_err(|_| cut())?.into()),
        Marker::I16 => Token::Signed(rest.read_data_i16().map_err(|_| cut())?.into()),
        Marker::I32 => Token::Signed(rest.read_data_i32().map_err(|_| cut())?.into()),
        Marker::I64 => Token::Signed(rest.read_data_i64().map_err(|_| cut())?),
        Marker::F32 => Token::Float(rest.read_data_f32().map_err(|_| cut())?.into()),
        Marker::F64 => Token::Float(rest.read_data_f64().map_err(|_| cut())?),
        Marker::FixStr(bytes) => Token::Text(take(rest, bytes.into())?),
        Marker::Str8 => Token::Text(counted(rest, 1)?),
        Marker::Str16 => Token::Text(counted(rest, 2)?),
        Marker::Str32 => Token::Text(counted(rest, 4)?),
        Marker::Bin8 => Token::Bytes(counted(rest, 1)?),
        Marker::Bin16 => Token::Bytes(counted(rest, 2)?),
        Marker::Bin32 => Token::Bytes(counted(rest, 4)?),
        Marker::FixArray(count) => Token::List(count.into()),
        Marker::Array16 => Token::List(length(rest, 2)? as usize),
        Marker::Array32 => Token::List(length(rest, 4)? as usize),
        Marker::FixMap(count) => Token::Map(count.into()),
        Marker::Map16 => Token::Map(length(rest, 2)? as usize),
        Marker::Map32 => Token::Map(length(rest, 4)? as usize),
        other => {
            let found = format!("a value of kind {other:?} has no form as JSON");
            return Err(Error::unsupported(NAME, found));
        }
    })
}

fn cut() -> Error {
    corrupt("the chunk ends within a value")
}

/// Reads a number of so many bytes, most significant first.
fn length(rest: &mut &[u8], width: u64) -> Result<u64> {
    let bytes = take(rest, width)?;
    Ok(bytes
        .iter()
        .fold(0, |number, &byte| number << 8 | u64::from(byte)))
}

fn counted<'a>(rest: &mut &'a [u8], width: u64) -> Result<&'a [u8]> {
    let bytes = length(rest, width)?;
    take(rest, bytes)
}

fn take<'a>(rest: &mut &'a [u8], bytes: u64) -> Result<&'a [u8]> {
    let bytes = usize::try_from(bytes).map_err(|_| cut())?;
    let (taken, after) = rest.split_at_checked(bytes).ok_or_else(cut)?;
    *rest = after;
    Ok(taken)
}

/// Reads a chunk.
pub(super) fn read(encoded: &[u8], elements: &mut Elements<'_>) -> Result<()> {
    let mut rest = encoded;
    let Token::List(values) = token(&mut rest)? else {
        return Err(corrupt("expected a list"));
    };
    let (shape, behind) = trailer(rest, values, elements)?;
    let (rows, row) = match shape.split_first() {
        Some((&rows, row)) => (rows, row),
        None => (1, &shape[..]),
    };
    if rows != (values - behind) as u64 {
        return Err(corrupt("another number of elements than the shape says"));
    }
    let mut scratch = Vec::new();
    for _ in 0..rows {
        nested(&mut rest, row, elements, &mut scratch)?;
    }
    Ok(())
}

/// Reads what stands behind the elements of a list of `values`, and returns the shape in which they are nested
/// and how many values are none of them.
fn trailer(mut rest: &[u8], values: usize, elements: &Elements<'_>) -> Result<(Vec<u64>, usize)> {
    let mut last = [rest; 2];
    for _ in 0..values {
        last = [last[1], rest];
        skip(&mut rest)?;
    }
    if !rest.is_empty() {
        return Err(corrupt(format!("{} bytes after the list", rest.len())));
    }
    let [mut dtype, mut end] = last;
    let (shape, behind) = match token(&mut end)? {
        Token::Text(_) if values > 0 => (None, 1),
        Token::List(rank) if values > 1 => {
            let lengths = (0..rank).map(|_| match token(&mut end)? {
                Token::Unsigned(length) => Ok(length),
                _ => Err(corrupt("the shape is no list of lengths")),
            });
            (Some(lengths.collect::<Result<Vec<u64>>>()?), 2)
        }
        _ => return Err(corrupt("the end is no type and shape")),
    };
    if behind == 1 {
        dtype = last[1];
    }
    let dtype = match token(&mut dtype)? {
        Token::Text(text) => std::str::from_utf8(text).map_err(corrupt)?,
        _ => return Err(corrupt("the end is no type and shape")),
    };
    Ok((stored_shape(elements.form(), dtype, shape)?, behind))
}

/// Passes over a value.
fn skip(rest: &mut &[u8]) -> Result<()> {
    let mut due = 1_usize;
    while due > 0 {
        let inside = match token(rest)? {
            Token::List(count) => count,
            Token::Map(count) => count.saturating_mul(2),
            _ => 0,
        };
        due = (due - 1).saturating_add(inside);
    }
    Ok(())
}

/// Reads elements that are nested as `shape` says.
fn nested(
    rest: &mut &[u8],
    shape: &[u64],
    elements: &mut Elements<'_>,
    scratch: &mut Vec<u8>,
) -> Result<()> {
    let Some((&rows, row)) = shape.split_first() else {
        return element(rest, elements, scratch);
    };
    match token(rest)? {
        Token::List(count) if count as u64 == rows => {}
        _ => return Err(corrupt("elements are not nested as the shape says")),
    }
    (0..rows).try_for_each(|_| nested(rest, row, elements, scratch))
}

fn element(rest: &mut &[u8], elements: &mut Elements<'_>, scratch: &mut Vec<u8>) -> Result<()> {
    scratch.clear();
    match token(rest)? {
        // Python's `raw` takes text for bytes, so it need not be UTF-8.
        Token::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => elements.add(&Element::Text(text.into())),
            Err(_) => elements.add(&Element::Bytes(bytes)),
        },
        Token::Bytes(bytes) => elements.add(&Element::Bytes(bytes)),
        other => {
            copy(other, rest, elements, scratch, 0)?;
            let text = std::str::from_utf8(scratch).map_err(corrupt)?;
            elements.add(&Element::Json(text.into()))
        }
    }
}

/// Copies a value as JSON.
fn copy(
    value: Token<'_>,
    rest: &mut &[u8],
    elements: &Elements<'_>,
    out: &mut Vec<u8>,
    depth: usize,
) -> Result<()> {
    elements.check_room(out.len())?;
    if depth > MAX_DEPTH {
        return Err(corrupt(format!("a value nests deeper than {MAX_DEPTH}")));
    }
    match value {
        Token::Nil => out.extend(b"null"),
        Token::Truth(truth) => out.extend(truth.to_string().bytes()),
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
                out.extend((n > 0).then_some(b','));
                copy(token(rest)?, rest, elements, out, depth + 1)?;
            }
            out.push(b']');
        }
        Token::Map(count) => {
            out.push(b'{');
            for n in 0..count {
                out.extend((n > 0).then_some(b','));
                let (Token::Text(key) | Token::Bytes(key)) = token(rest)? else {
                    return Err(corrupt("a key of a map is no text"));
                };
                push_text(out, std::str::from_utf8(key).map_err(corrupt)?)?;
                out.push(b':');
                copy(token(rest)?, rest, elements, out, depth + 1)?;
            }
            out.push(b'}');
        }
    }
    Ok(())
}

/// Returns a number as JSON has it, and Python's words for what JSON has not.
fn float(number: f64) -> String {
    match serde_json::Number::from_f64(number) {
        Some(number) => number.to_string(),
        None if number.is_nan() => "NaN".to_string(),
        None if number > 0.0 => "Infinity".to_string(),
        None => "-Infinity".to_string(),
    }
}

/// Writes a chunk of as many elements as its shape says.
pub(super) fn write(elements: &[Element<'_>], dtype: &str, shape: &[u64]) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut rest = elements.iter();
    let (rows, row) = match shape.split_first() {
        Some((&rows, row)) => (rows, row),
        None => (1, shape),
    };
    list(&mut out, rows.saturating_add(2))?;
    for _ in 0..rows {
        write_nested(&mut rest, row, &mut out)?;
    }
    encode::write_str(&mut out, dtype).map_err(invalid)?;
    list(&mut out, shape.len() as u64)?;
    for &length in shape {
        encode::write_uint(&mut out, length).map_err(invalid)?;
    }
    Ok(out)
}

fn invalid(error: impl std::fmt::Display) -> Error {
    Error::invalid(NAME, error)
}

fn list(out: &mut Vec<u8>, count: u64) -> Result<()> {
    let count = u32::try_from(count).map_err(|error| Error::too_large(NAME, error))?;
    encode::write_array_len(out, count).map_err(invalid)?;
    Ok(())
}

fn write_nested(
    rest: &mut std::slice::Iter<'_, Element<'_>>,
    shape: &[u64],
    out: &mut Vec<u8>,
) -> Result<()> {
    let Some((&rows, row)) = shape.split_first() else {
        return match rest.next() {
            Some(Element::Text(text)) => encode::write_str(out, text).map_err(invalid),
            Some(Element::Bytes(bytes)) => encode::write_bin(out, bytes).map_err(invalid),
            Some(Element::Json(text)) => {
                let mut json = Jiter::new(text.as_bytes()).with_allow_inf_nan();
                let peek = json.peek()?;
                write_value(&mut json, peek, 0, out)
            }
            None => Err(invalid("too few elements")),
        };
    };
    list(out, rows)?;
    (0..rows).try_for_each(|_| write_nested(rest, row, out))
}

/// Writes a JSON value, whose numbers may be those of Python.
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
            let truth = json.known_bool(peek)?;
            encode::write_bool(out, truth).map_err(invalid)
        }
        Peek::String => encode::write_str(out, json.known_str()?).map_err(invalid),
        Peek::Array => write_list(json, depth, out),
        Peek::Object => write_map(json, depth, out),
        number => write_number(json.known_number_bytes(number)?, out),
    }
}

/// Writes a list: how many values there are stands before them, and is known after them.
fn write_list(json: &mut Jiter<'_>, depth: usize, out: &mut Vec<u8>) -> Result<()> {
    let (mut count, mut values) = (0, Vec::new());
    let mut next = json.known_array()?;
    while let Some(peek) = next {
        write_value(json, peek, depth + 1, &mut values)?;
        count += 1;
        next = json.array_step()?;
    }
    list(out, count)?;
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

/// Writes a whole number of 64 bits, with or without a sign, or a float.
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
