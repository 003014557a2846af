//! JSON as values, for what is read and not written back.
//!
//! Python writes NaN and the infinities as bare words, which JSON does not know; they are read as the
//! strings that Zarr uses for them. The parser limits the depth; the caller limits the size.

use serde_json::Value;

use crate::error::{Error, Result};

/// Parses a document; `Corrupt` with line and column if it is not JSON.
pub fn parse(bytes: &[u8]) -> Result<Value> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    match serde_json::from_slice(bytes) {
        Ok(value) => Ok(value),
        Err(error) => match quote_bare_words(bytes) {
            Some(quoted) => serde_json::from_slice(&quoted).map_err(not_json),
            None => Err(not_json(error)),
        },
    }
}

/// Renders a new document as the reference implementation does: two spaces, a newline at the end.
pub fn render(value: &Value) -> Vec<u8> {
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text.into_bytes()
}

fn not_json(error: serde_json::Error) -> Error {
    Error::corrupt("", format!("not JSON: {error}"))
}

/// Puts the bare words NaN, Infinity and -Infinity in quotes; nothing if there are none.
fn quote_bare_words(bytes: &[u8]) -> Option<Vec<u8>> {
    const WORDS: [&[u8]; 3] = [b"NaN", b"Infinity", b"-Infinity"];
    let mut quoted = Vec::with_capacity(bytes.len() + 16);
    let (mut rest, mut in_string, mut found) = (bytes, false, false);
    while let Some((&byte, after)) = rest.split_first() {
        let word = WORDS
            .iter()
            .find(|word| !in_string && rest.starts_with(word));
        if let Some(word) = word {
            quoted.push(b'"');
            quoted.extend_from_slice(word);
            quoted.push(b'"');
            rest = rest.get(word.len()..).unwrap_or_default();
            found = true;
            continue;
        }
        quoted.push(byte);
        rest = after;
        match (byte, in_string) {
            (b'"', _) => in_string = !in_string,
            (b'\\', true) => {
                if let Some((&escaped, after)) = rest.split_first() {
                    quoted.push(escaped);
                    rest = after;
                }
            }
            _ => {}
        }
    }
    found.then_some(quoted)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bare_words_of_python_are_read() {
        let read = parse(br#"{"a": NaN, "b": [-Infinity, Infinity], "c": "NaN \" NaN"}"#).unwrap();
        assert_eq!(
            read,
            json!({"a": "NaN", "b": ["-Infinity", "Infinity"], "c": "NaN \" NaN"})
        );
    }

    #[test]
    fn depth_and_bad_bytes_are_errors() {
        assert!(parse("[".repeat(200_000).as_bytes()).is_err());
        assert!(parse(b"\"\xff\"").is_err());
        assert!(parse(b"").is_err());
    }

    #[test]
    fn the_last_of_equal_members_counts() {
        assert_eq!(parse(br#"{"a": 1, "a": 2}"#).unwrap(), json!({"a": 2}));
    }
}
