//! Parses JSON into values, if the text is not written back.
//!
//! Python writes NaN and the infinities as bare words, which JSON lacks; they are read as the strings "NaN", "Infinity"
//! and "-Infinity", as Zarr writes them. Numbers beyond all floats become infinities, as in Python, and each lone
//! surrogate, which Python writes for a byte that is not UTF-8, becomes U+FFFD. The parser limits the nesting; the
//! caller limits the length.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::json_text::scan::too_deep;

/// Parses a JSON document; fails with `Corrupt`, with line and column, if it is not JSON.
pub fn parse(bytes: &[u8]) -> Result<Value> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    match serde_json::from_slice(bytes) {
        Ok(value) => Ok(value),
        Err(error) => match mended(bytes) {
            Some(mended) => serde_json::from_slice(&mended).map_err(not_json),
            None => Err(not_json(error)),
        },
    }
}

/// Formats a JSON value as a new document, as zarr-python does: indented by two spaces, with a final newline.
pub fn render(value: &Value) -> Vec<u8> {
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text.into_bytes()
}

fn not_json(error: serde_json::Error) -> Error {
    if error.to_string().starts_with("recursion limit exceeded") {
        return too_deep(format_args!(
            "line {} column {}",
            error.line(),
            error.column()
        ));
    }
    Error::corrupt("", format!("not JSON: {error}"))
}

/// Replaces Python's extensions of JSON: the bare words NaN, Infinity and -Infinity are quoted, numbers beyond all
/// floats become infinities, lone surrogates U+FFFD. Returns `None` if the text has no such extension.
fn mended(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut mended = Vec::with_capacity(bytes.len() + 16);
    let (mut rest, mut found) = (bytes, false);
    while let Some(&first) = rest.first() {
        let (length, replacement) = match first {
            b'"' => {
                let length = string_length(rest);
                let string = rest.get(..length).unwrap_or_default();
                (length, without_lone_surrogates(string))
            }
            _ => number_or_word(rest),
        };
        let (part, after) = rest.split_at_checked(length).unwrap_or((rest, b""));
        found |= replacement.is_some();
        mended.extend_from_slice(replacement.as_deref().unwrap_or(part));
        rest = after;
    }
    found.then_some(mended)
}

/// Returns the length of the JSON string at the start of `bytes`, with its quotes.
fn string_length(bytes: &[u8]) -> usize {
    let mut at = 1;
    while let Some(byte) = bytes.get(at) {
        at += match byte {
            b'"' => return at + 1,
            b'\\' => 2,
            _ => 1,
        };
    }
    bytes.len()
}

/// Returns the length of the number, word or byte at the start of `bytes`, and the quoted word that replaces it, or
/// `None` if it needs no replacement.
fn number_or_word(bytes: &[u8]) -> (usize, Option<Vec<u8>>) {
    let words = ["NaN", "Infinity", "-Infinity"];
    let word = words.iter().find(|word| bytes.starts_with(word.as_bytes()));
    if let Some(word) = word {
        return (word.len(), Some(in_quotes(word)));
    }
    let is_part = |byte: &&u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
    let length = bytes.iter().take_while(is_part).count();
    let number = bytes.get(..length).unwrap_or_default();
    let replacement = is_too_large(number).then(|| match number.first() {
        Some(b'-') => in_quotes("-Infinity"),
        _ => in_quotes("Infinity"),
    });
    (length.max(1), replacement)
}

fn in_quotes(word: &str) -> Vec<u8> {
    format!("\"{word}\"").into_bytes()
}

/// Whether the text is a JSON number beyond the range of a float64.
fn is_too_large(number: &[u8]) -> bool {
    let text = str::from_utf8(number).unwrap_or_default();
    let is_infinite = text.parse().is_ok_and(f64::is_infinite);
    // A number that JSON does not allow, such as one with a leading zero, must remain an error.
    is_infinite && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Returns JSON text with each lone surrogate replaced by U+FFFD; the length does not change.
pub(super) fn replace_lone_surrogates(text: &str) -> Cow<'_, [u8]> {
    let has_surrogates = text.contains("\\ud") || text.contains("\\uD");
    let replaced = has_surrogates.then(|| without_lone_surrogates(text.as_bytes()));
    replaced
        .flatten()
        .map_or(text.as_bytes().into(), Cow::Owned)
}

/// Returns a JSON string with each lone surrogate replaced by U+FFFD, or `None` if it has no lone surrogate. The length
/// does not change.
fn without_lone_surrogates(string: &[u8]) -> Option<Vec<u8>> {
    let replacement = br"\ufffd".as_slice();
    let mut replaced = Vec::new();
    let (mut at, mut found) = (0, false);
    while let Some(byte) = string.get(at) {
        let rest = string.get(at..).unwrap_or_default();
        let after = rest.get(replacement.len()..).unwrap_or_default();
        let (length, is_lone) = match (escaped_unit(rest), escaped_unit(after)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => (2 * replacement.len(), false),
            (Some(0xd800..=0xdfff), _) => (replacement.len(), true),
            _ if *byte == b'\\' => (2, false),
            _ => (1, false),
        };
        found |= is_lone;
        let part = rest.get(..length).unwrap_or(rest);
        replaced.extend_from_slice(if is_lone { replacement } else { part });
        at += length;
    }
    found.then_some(replaced)
}

/// Returns the UTF-16 unit of a `\u` escape at the start of `bytes`, or `None` if there is no such escape.
fn escaped_unit(bytes: &[u8]) -> Option<u16> {
    let digits = bytes.strip_prefix(b"\\u")?.get(..4)?;
    let digits = digits.iter().all(u8::is_ascii_hexdigit).then_some(digits)?;
    u16::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bare_nan_and_infinity_of_python_are_read() {
        let read = parse(br#"{"a": NaN, "b": [-Infinity, Infinity], "c": "NaN \" NaN"}"#).unwrap();
        assert_eq!(
            read,
            json!({"a": "NaN", "b": ["-Infinity", "Infinity"], "c": "NaN \" NaN"})
        );
    }

    #[test]
    fn numbers_beyond_float64_are_read_as_infinity() {
        let read = parse(br#"{"a": 1e999, "b": [-2.5E+400, 1e-999, 1e308], "c": "1e999"}"#);
        let expected = json!({"a": "Infinity", "b": ["-Infinity", 0.0, 1e308], "c": "1e999"});
        assert_eq!(read.unwrap(), expected);
        for wrong in ["01e999", "1e999e", "+1e999", "1.e999", "[1e999"] {
            assert!(parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn lone_surrogates_are_replaced() {
        let read = |text: &str| parse(text.as_bytes()).unwrap();
        assert_eq!(read(r#""caf\udce9""#), json!("caf\u{fffd}"));
        assert_eq!(
            read(r#"{"\ud83d": "\ud83d\ude00 \ud83d\u0041"}"#),
            json!({"\u{fffd}": "\u{1f600} \u{fffd}A"})
        );
        assert_eq!(
            read(r#"["\\ud83d", "\udce9\"NaN", NaN]"#),
            json!(["\\ud83d", "\u{fffd}\"NaN", "NaN"])
        );
        assert!(parse(br#""\udce"#).is_err() && parse(br#""\udzzz""#).is_err());
    }

    #[test]
    fn deep_nesting_and_invalid_utf8_are_refused() {
        let error = parse("[".repeat(200_000).as_bytes())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("nest deeper than 127 levels at line 1"),
            "{error}"
        );
        assert!(parse(b"\"\xff\"").is_err());
        assert!(parse(b"").is_err());
    }

    #[test]
    fn the_last_of_duplicate_members_is_used() {
        assert_eq!(parse(br#"{"a": 1, "a": 2}"#).unwrap(), json!({"a": 2}));
    }
}
