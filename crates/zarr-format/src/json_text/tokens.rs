//! Formats and compares JSON text token by token.
//!
//! Formatting changes the whitespace between tokens, never the tokens. The input must be valid JSON; other input gives
//! text that is not JSON.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::error::Result;
use crate::json_text::find_member;
use crate::json_text::scan::MAX_DEPTH;

/// Maximum length in bytes of a JSON value that is re-indented when it becomes a part of another document.
const MAX_LAID_OUT: usize = 256 << 10;

pub(super) const UNIT: &str = "  ";

/// Returns JSON text without whitespace between its tokens.
pub fn compact(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    Tokens(text.as_bytes()).for_each(|token| out.extend_from_slice(token));
    in_letters(out)
}

/// Whether two JSON texts have the same tokens, whatever whitespace is between the tokens.
pub fn is_same(one: &str, other: &str) -> bool {
    Tokens(one.as_bytes()).eq(Tokens(other.as_bytes()))
}

/// Whether a JSON object or list is empty.
pub fn is_empty(text: &str) -> bool {
    Tokens(text.as_bytes()).count() <= 2
}

/// Formats JSON as a metadata document: indented as in zarr-python, with a final newline.
pub fn document(text: &str) -> Vec<u8> {
    let mut out = pretty(text, UNIT, 0);
    out.push('\n');
    out.into_bytes()
}

/// Formats a JSON object as a document, with the value of member `name` replaced. A long value is not re-indented,
/// since indentation could make a deeply nested value a hundred times as long. Fails if `text` is not an object.
pub(crate) fn document_with(text: &str, name: &str, value: &str) -> Result<Vec<u8>> {
    let text = pretty(text, UNIT, 0);
    let old = find_member(&text, name)?.unwrap_or(text.len()..text.len());
    let laid_out = (value.len() <= MAX_LAID_OUT).then(|| pretty(value, UNIT, 1));
    let value = laid_out.as_deref().unwrap_or(value);
    Ok([&text[..old.start], value, &text[old.end..], "\n"]
        .concat()
        .into_bytes())
}

/// Formats JSON with one member or item on each line, indented by `unit` per level from level `depth` on.
pub(super) fn pretty(text: &str, unit: &str, mut depth: usize) -> String {
    let mut out = Vec::with_capacity(text.len());
    let break_line = |out: &mut Vec<u8>, depth: usize| {
        // Values nested deeper than `MAX_DEPTH` stay on one line, so that indentation cannot lengthen the text without
        // bounds.
        if depth <= MAX_DEPTH {
            out.push(b'\n');
            out.extend(unit.bytes().cycle().take(unit.len() * depth));
        }
    };
    let mut tokens = Tokens(text.as_bytes());
    while let Some(token) = tokens.next() {
        match token {
            b"{" | b"[" => {
                out.extend_from_slice(token);
                match tokens.next_closing() {
                    Some(closing) => out.extend_from_slice(closing),
                    None => {
                        depth += 1;
                        break_line(&mut out, depth);
                    }
                }
            }
            b"}" | b"]" => {
                depth = depth.saturating_sub(1);
                break_line(&mut out, depth);
                out.extend_from_slice(token);
            }
            b"," => {
                out.extend_from_slice(token);
                break_line(&mut out, depth);
            }
            b":" => out.extend_from_slice(b": "),
            other => out.extend_from_slice(other),
        }
    }
    in_letters(out)
}

/// Removes the indentation that a nested JSON value has because of its parent; the first line has none.
pub fn dedented(text: &str) -> Cow<'_, str> {
    let last = text.rsplit('\n').next().unwrap_or_default();
    let indent = &last[..last.len() - last.trim_start_matches([' ', '\t']).len()];
    let mut lines = text.split('\n').skip(1);
    if indent.is_empty() || !lines.all(|line| line.starts_with(indent)) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace(&format!("\n{indent}"), "\n"))
}

fn in_letters(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_default()
}

/// A JSON value, reduced to what every reader takes from it. Members may be in any order, and strings may have any
/// escapes. Integers are compared digit by digit, however long they are. A number with a decimal point or an exponent
/// is not an integer, because programs that distinguish 1 from 1.0 read another type.
#[derive(PartialEq)]
enum Meaning {
    Object(BTreeMap<String, Meaning>),
    List(Vec<Meaning>),
    Text(String),
    Float(f64),
    /// An integer or a word such as `true`, verbatim.
    Word(String),
}

/// Whether two JSON texts have the same meaning, apart from whitespace, escapes and the order of members.
pub fn is_equivalent(one: &str, other: &str) -> bool {
    if is_same(one, other) {
        return true;
    }
    match (meaning(one), meaning(other)) {
        (Some(one), Some(other)) => one == other,
        _ => false,
    }
}

/// Returns the meaning of JSON text, or `None` if it is nested too deep, has duplicate names or is not JSON.
fn meaning(text: &str) -> Option<Meaning> {
    let mut tokens = Tokens(text.as_bytes());
    let found = value(&mut tokens, 0)?;
    tokens.next().is_none().then_some(found)
}

fn value(tokens: &mut Tokens<'_>, depth: usize) -> Option<Meaning> {
    // Texts nested deeper than 128 levels are compared token by token instead.
    if depth > 128 {
        return None;
    }
    match tokens.next()? {
        b"{" => object(tokens, depth),
        b"[" => list(tokens, depth),
        text if text.starts_with(b"\"") => Some(Meaning::Text(string(text)?)),
        word => number_or_word(word),
    }
}

fn object(tokens: &mut Tokens<'_>, depth: usize) -> Option<Meaning> {
    let mut members = BTreeMap::new();
    if tokens.next_closing().is_some() {
        return Some(Meaning::Object(members));
    }
    loop {
        let name = string(tokens.next()?)?;
        (tokens.next()? == b":").then_some(())?;
        let member = value(tokens, depth + 1)?;
        if members.insert(name, member).is_some() {
            return None;
        }
        match tokens.next()? {
            b"," => {}
            b"}" => return Some(Meaning::Object(members)),
            _ => return None,
        }
    }
}

fn list(tokens: &mut Tokens<'_>, depth: usize) -> Option<Meaning> {
    let mut items = Vec::new();
    if tokens.next_closing().is_some() {
        return Some(Meaning::List(items));
    }
    loop {
        items.push(value(tokens, depth + 1)?);
        match tokens.next()? {
            b"," => {}
            b"]" => return Some(Meaning::List(items)),
            _ => return None,
        }
    }
}

fn string(token: &[u8]) -> Option<String> {
    serde_json::from_slice(token).ok()
}

fn number_or_word(word: &[u8]) -> Option<Meaning> {
    let word = str::from_utf8(word).ok()?;
    let is_number = word.starts_with(|c: char| c == '-' || c.is_ascii_digit());
    let is_float = is_number && word.contains(['.', 'e', 'E']);
    let float = word.parse().ok().filter(|float: &f64| float.is_finite());
    Some(match float.filter(|_| is_float) {
        Some(float) => Meaning::Float(float),
        None => Meaning::Word(word.to_string()),
    })
}

/// Iterates over the tokens of JSON text: brackets, commas, colons, strings, and the numbers and words between them.
pub(super) struct Tokens<'a>(pub(super) &'a [u8]);

impl<'a> Tokens<'a> {
    /// Takes the next token if it is a closing bracket, which ends an empty object or list.
    pub(super) fn next_closing(&mut self) -> Option<&'a [u8]> {
        let rest = self.0.trim_ascii_start();
        matches!(rest, [b'}' | b']', ..])
            .then(|| self.next())
            .flatten()
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.0.trim_ascii_start();
        let length = match rest.first()? {
            b'"' => string_length(rest),
            b'{' | b'}' | b'[' | b']' | b',' | b':' => 1,
            _ => rest.iter().position(ends_word).unwrap_or(rest.len()),
        };
        let (token, rest) = rest.split_at(length);
        self.0 = rest;
        Some(token)
    }
}

fn ends_word(byte: &u8) -> bool {
    byte.is_ascii_whitespace() || b"{}[],:\"".contains(byte)
}

/// Returns the length in bytes of the JSON string at the start of `text`, with its quotes.
fn string_length(text: &[u8]) -> usize {
    let mut is_escaped = false;
    let end = text.iter().enumerate().skip(1).find(|&(_, &byte)| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    });
    end.map_or(text.len(), |(at, _)| at + 1)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn compact_removes_only_whitespace() {
        let text = r#" {"a" : [1.0,-0, 1e5 , NaN,-Infinity],"b":{ },"\"c\\":"{ , }" , "d":[ ]} "#;
        let expected = r#"{"a":[1.0,-0,1e5,NaN,-Infinity],"b":{},"\"c\\":"{ , }","d":[]}"#;
        assert_eq!(compact(text), expected);
        assert_eq!(compact(&pretty(text, "\t", 3)), expected);
    }

    #[test]
    fn dedented_removes_the_common_indentation() {
        let text = "{\n      \"x\": [\n        1\n      ]\n    }";
        assert_eq!(dedented(text), "{\n  \"x\": [\n    1\n  ]\n}");
        assert_eq!(dedented("{\n\t\"x\": 1\n\t}"), "{\n\"x\": 1\n}");
        for text in [
            "{\"y\": 2}",
            "{\n  \"z\": 3\n    }",
            "{\n\"z\": 3\n}",
            "",
            "{\n\n  }",
        ] {
            assert_eq!(dedented(text), text);
        }
    }

    /// Invariant of `attributes_and_copies_are_not_parsed`.
    #[test]
    fn a_member_is_formatted_like_its_document_unless_it_is_long() {
        let object = |value: Value| json!({"x": 1, "attributes": value, "y": [2]});
        let made = |value: &str| {
            document_with(&object(json!({})).to_string(), "attributes", value).unwrap()
        };
        for value in [
            json!({"a": (0..4000).collect::<Vec<_>>(), "b": [[{}], 1]}),
            json!({}),
        ] {
            assert!(made(&value.to_string()) == document(&object(value).to_string()));
        }
        let long = format!("[{}1]", "1, ".repeat(MAX_LAID_OUT));
        let text = String::from_utf8(made(&long)).unwrap();
        assert!(text.contains(&long) && text.ends_with("\n}\n"));
    }

    #[test]
    fn documents_are_formatted_like_serde_json_pretty() {
        let value = json!({"a": [1, {"b": []}], "c": {}, "d": "x: [1, 2]"});
        let expected = serde_json::to_string_pretty(&value).unwrap() + "\n";
        assert_eq!(document(&value.to_string()), expected.as_bytes());
    }

    #[test]
    fn formatting_of_deeply_nested_text_is_bounded() {
        let text = ["[".repeat(100_000), "]".repeat(100_000)].concat();
        let laid_out = pretty(&text, UNIT, 0);
        assert!(laid_out.len() < text.len() + 40_000, "{}", laid_out.len());
        assert_eq!(compact(&laid_out), text);
    }

    #[test]
    fn formatting_of_invalid_json_does_not_panic() {
        for text in ["", "\"", "}}]", "{\"a\\", "\u{e4}:"] {
            let _ = (compact(text), pretty(text, UNIT, 1));
        }
    }

    #[test]
    fn values_that_differ_only_in_spelling_are_equivalent() {
        for (one, other) in [
            (r#"{"a": 1, "b": [1.0, {}]}"#, r#"{"b":[1e0,{ }],"a":1}"#),
            (r#""\u00e9\/""#, "\"\u{e9}/\""),
            ("0.10", "1e-1"),
            ("[NaN, -Infinity]", "[NaN,-Infinity]"),
        ] {
            assert!(is_equivalent(one, other), "{one} {other}");
        }
    }

    #[test]
    fn values_that_some_reader_distinguishes_are_not_equivalent() {
        for (one, other) in [
            ("1", "1.0"),
            ("\"1\"", "1"),
            ("[1, 2]", "[2, 1]"),
            (
                "123456789012345678901234567890",
                "123456789012345678901234567891",
            ),
            ("1e400", "1e401"),
            ("{}", "[]"),
            (r#"{"a": 1}"#, r#"{"a": 1, "b": null}"#),
            (r#"{"a": 1, "a": 2}"#, r#"{"a": 2}"#),
        ] {
            assert!(!is_equivalent(one, other), "{one} {other}");
        }
        let deep = |last: &str| "[".repeat(1_000_000) + last + &"]".repeat(1_000_000);
        assert!(!is_equivalent(&deep("1"), &deep("2")));
    }
}
