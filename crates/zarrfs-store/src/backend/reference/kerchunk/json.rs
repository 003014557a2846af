//! Reads JSON text piece by piece, without building a tree.
//!
//! A reference file may have a gigabyte, so its text is never in memory as a whole. Values are returned as written,
//! since Python writes NaN into metadata, which is not JSON.

use zarr_format::error::{Error, Result};

/// Gives a JSON text piece by piece.
pub(super) trait Pieces {
    /// Returns the next piece of the JSON text; empty at its end.
    fn next(&mut self) -> Result<Vec<u8>>;
}

/// A JSON text that is in memory as a whole.
pub(super) struct WholeText(pub(super) Vec<u8>);

impl Pieces for WholeText {
    fn next(&mut self) -> Result<Vec<u8>> {
        Ok(std::mem::take(&mut self.0))
    }
}

pub(super) struct JsonReader<P> {
    pieces: P,
    piece: Vec<u8>,
    /// The position in the current piece.
    at: usize,
    /// The total length of the pieces before the current one.
    before: u64,
    /// Maximum length of a string or value, in bytes.
    limit: u64,
}

/// Whether a JSON value is a string. The value itself is in the caller's buffer.
pub(super) enum Scalar {
    /// A string, without its quotes and escapes.
    Text,
    /// Any value except a string, as it is written.
    Other,
}

impl<P: Pieces> JsonReader<P> {
    /// Starts to read a JSON text. A string or value longer than `limit` bytes is an error.
    pub(super) fn new(pieces: P, limit: u64) -> JsonReader<P> {
        JsonReader {
            pieces,
            piece: Vec::new(),
            at: 0,
            before: 0,
            limit,
        }
    }

    /// Returns the error for a damaged JSON text, which names the current position.
    pub(super) fn damaged(&self, what: &str) -> Error {
        let position = self.before.saturating_add(self.at as u64);
        Error::corrupt("", format!("{what} at byte {position}"))
    }

    /// Returns the unread rest of the current piece. It is empty only at the end of the JSON text.
    fn rest(&mut self) -> Result<&[u8]> {
        if self.at >= self.piece.len() {
            self.before = self.before.saturating_add(self.piece.len() as u64);
            self.at = 0;
            self.piece = self.pieces.next()?;
        }
        Ok(self.piece.get(self.at..).unwrap_or_default())
    }

    fn next_byte(&mut self) -> Result<u8> {
        let byte = self.rest()?.first().copied();
        let byte = byte.ok_or_else(|| self.damaged("the JSON text ends"))?;
        self.at += 1;
        Ok(byte)
    }

    /// Skips white space and returns the next byte without consuming it; `None` at the end of the JSON text.
    fn peek(&mut self) -> Result<Option<u8>> {
        loop {
            let rest = self.rest()?;
            let length = rest.len();
            let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
            let spaces = rest.iter().take_while(|byte| is_space(byte)).count();
            let found = rest.get(spaces).copied();
            self.at += spaces;
            if found.is_some() || length == 0 {
                return Ok(found);
            }
        }
    }

    /// Skips white space and returns the first byte of the next value without consuming it.
    pub(super) fn begins(&mut self) -> Result<u8> {
        let byte = self.peek()?;
        byte.ok_or_else(|| self.damaged("the JSON text ends"))
    }

    /// Consumes one byte after white space, which must be `expected`.
    pub(super) fn expect(&mut self, expected: u8) -> Result<()> {
        if self.begins()? != expected {
            let what = format!("not JSON: no '{}'", char::from(expected));
            return Err(self.damaged(&what));
        }
        self.at += 1;
        Ok(())
    }

    /// Skips white space, and fails unless the JSON text ends.
    pub(super) fn end(&mut self) -> Result<()> {
        match self.peek()? {
            None => Ok(()),
            Some(_) => Err(self.damaged("not JSON: text after the end")),
        }
    }

    /// Moves to the next element of a JSON object or array that ends with `close`. Returns false at its end. `is_first`
    /// says that no comma precedes the element, and is set to false.
    pub(super) fn next_item(&mut self, close: u8, is_first: &mut bool) -> Result<bool> {
        let byte = self.begins()?;
        if byte == close {
            self.at += 1;
            return Ok(false);
        }
        if !std::mem::replace(is_first, false) {
            self.expect(b',')?;
            self.begins()?;
        }
        Ok(true)
    }

    /// Moves to the next name-value pair of a JSON object and reads the name. Returns false at the object's end.
    pub(super) fn next_member(&mut self, is_first: &mut bool, name: &mut Vec<u8>) -> Result<bool> {
        if !self.next_item(b'}', is_first)? {
            return Ok(false);
        }
        self.string(name)?;
        self.expect(b':')?;
        Ok(true)
    }

    /// Reads a JSON string into `out`.
    pub(super) fn string(&mut self, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        self.expect(b'"')?;
        loop {
            self.copy_until(out, |byte| byte == b'"' || byte == b'\\')?;
            match self.next_byte()? {
                b'"' => return Ok(()),
                _ => self.escape(out)?,
            }
        }
    }

    /// Copies bytes to `out` up to the first one that `ends` accepts, which is not consumed.
    fn copy_until(&mut self, out: &mut Vec<u8>, ends: impl Fn(u8) -> bool) -> Result<()> {
        loop {
            let limit = self.limit;
            let rest = self.rest()?;
            let end = rest.iter().position(|&byte| ends(byte));
            let part = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
            if (out.len() as u64).saturating_add(part.len() as u64) > limit {
                return Err(too_long(limit));
            }
            out.extend_from_slice(part);
            let (length, at_end) = (part.len(), rest.is_empty());
            self.at += length;
            if end.is_some() || at_end {
                return Ok(());
            }
        }
    }

    /// Reads an escape such as `\n` in a JSON string, after its backslash.
    fn escape(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let byte = match self.next_byte()? {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'b' => 8,
            b'f' => 12,
            b'u' => return self.unicode(out),
            byte @ (b'"' | b'\\' | b'/') => byte,
            _ => return Err(self.damaged("not JSON: an unknown escape")),
        };
        out.push(byte);
        Ok(())
    }

    /// Reads the digits of `\u1234`. After the first half of a surrogate pair, also reads the escape of the second
    /// half.
    fn unicode(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let mut code = self.hex()?;
        if (0xd800..0xdc00).contains(&code) {
            let begins = (self.next_byte()?, self.next_byte()?);
            let low = if begins == (b'\\', b'u') {
                self.hex()?
            } else {
                0
            };
            if !(0xdc00..0xe000).contains(&low) {
                return Err(self.damaged("not JSON: half a character"));
            }
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        }
        let letter =
            char::from_u32(code).ok_or_else(|| self.damaged("not JSON: half a character"))?;
        out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }

    fn hex(&mut self) -> Result<u32> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = char::from(self.next_byte()?).to_digit(16);
            let digit = digit.ok_or_else(|| self.damaged("not JSON: an unknown escape"))?;
            code = code * 16 + digit;
        }
        Ok(code)
    }

    /// Reads a JSON value into `out` as it is written. Brackets are counted, but their kinds are not compared.
    pub(super) fn value(&mut self, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        let (mut depth, mut in_string) = (0u64, false);
        self.begins()?;
        loop {
            if depth == 0 && !in_string && !matches!(self.rest()?.first(), Some(b'{' | b'[' | b'"'))
            {
                return self.word(out);
            }
            let byte = self.next_byte()?;
            out.push(byte);
            match (in_string, byte) {
                (true, b'\\') => out.push(self.next_byte()?),
                (_, b'"') => in_string = !in_string,
                (false, b'{' | b'[') => depth += 1,
                (false, b'}' | b']') => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 && !in_string {
                return Ok(());
            }
            if in_string {
                self.copy_until(out, |byte| byte == b'"' || byte == b'\\')?;
            } else {
                let ends = |byte| matches!(byte, b'"' | b'{' | b'}' | b'[' | b']');
                self.copy_until(out, ends)?;
            }
        }
    }

    /// Reads a JSON number, or a word such as `true`.
    fn word(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let ends = |byte: u8| !(byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
        self.copy_until(out, ends)?;
        if out.is_empty() {
            return Err(self.damaged("not JSON: no value"));
        }
        Ok(())
    }

    /// Reads a JSON string, or another value as it is written.
    pub(super) fn scalar(&mut self, out: &mut Vec<u8>) -> Result<Scalar> {
        if self.begins()? == b'"' {
            self.string(out)?;
            return Ok(Scalar::Text);
        }
        self.value(out)?;
        Ok(Scalar::Other)
    }
}

fn too_long(limit: u64) -> Error {
    let why = format!("a value has more than {limit} bytes: give more --memory");
    Error::too_large("", why)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Small<'a>(&'a [u8], usize);

    impl Pieces for Small<'_> {
        fn next(&mut self) -> Result<Vec<u8>> {
            let (piece, rest) = self.0.split_at(self.1.min(self.0.len()));
            self.0 = rest;
            Ok(piece.to_vec())
        }
    }

    fn members(text: &str, size: usize) -> Result<Vec<(String, String)>> {
        let mut reader = JsonReader::new(Small(text.as_bytes(), size), 1 << 20);
        let (mut is_first, mut name, mut value, mut found) =
            (true, Vec::new(), Vec::new(), Vec::new());
        reader.expect(b'{')?;
        while reader.next_member(&mut is_first, &mut name)? {
            reader.scalar(&mut value)?;
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            found.push((text(&name), text(&value)));
        }
        reader.end()?;
        Ok(found)
    }

    #[test]
    fn strings_are_unescaped_and_other_values_kept_as_text() {
        let text = r#" {"a" : "x\n\u00e9\ud83d\ude00\"" , "b":{"c": [1, NaN, "}\""]},"d":-1.5e3 ,"e":[ ], "":null} "#;
        for size in [1, 2, 3, 7, 1000] {
            let found = members(text, size).unwrap();
            let expected = [
                ("a", "x\n\u{e9}\u{1f600}\""),
                ("b", r#"{"c": [1, NaN, "}\""]}"#),
                ("d", "-1.5e3"),
                ("e", "[ ]"),
                ("", "null"),
            ];
            let expected = expected.map(|(name, value)| (name.to_string(), value.to_string()));
            assert_eq!(found, expected, "{size}");
        }
    }

    #[test]
    fn damaged_texts_are_errors() {
        let text = r#"{"a":"x\u00e9","b":{"c":[1,2]},"d":12}"#;
        for length in 0..text.len() {
            assert!(members(&text[..length], 5).is_err(), "{length}");
        }
        for bad in [
            "[]",
            "{} x",
            "{,}",
            r#"{"a" 1}"#,
            r#"{"a":}"#,
            r#"{"a":"\x"}"#,
            r#"{"a":"\ud800"}"#,
        ] {
            assert!(members(bad, 3).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_value_longer_than_the_limit_is_too_large() {
        let text = format!(r#"{{"a":"{}"}}"#, "x".repeat(100));
        let mut reader = JsonReader::new(WholeText(text.into_bytes()), 50);
        let (mut name, mut value) = (Vec::new(), Vec::new());
        reader.expect(b'{').unwrap();
        assert!(reader.next_member(&mut true, &mut name).unwrap());
        assert_eq!(
            reader.string(&mut value).unwrap_err().kind(),
            zarr_format::error::Kind::TooLarge
        );
    }
}
