//! Compares the meaning of JSON texts, as every reader takes it.
//!
//! Members may be in any order, and strings may have any escapes. Integers are compared digit by digit, however long
//! they are. A number with a decimal point or an exponent is not an integer: programs that distinguish 1 from 1.0 read
//! another type.

use std::collections::BTreeMap;

use crate::json_text::is_same;
use crate::json_text::layout::Tokens;

/// A value, reduced to its meaning.
#[derive(PartialEq)]
enum Meaning {
    Object(BTreeMap<String, Meaning>),
    List(Vec<Meaning>),
    Text(String),
    Float(f64),
    /// An integer or a word, verbatim.
    Word(String),
}

/// Whether two values have the same meaning.
pub fn is_equivalent(one: &str, other: &str) -> bool {
    if is_same(one, other) {
        return true;
    }
    match (meaning(one), meaning(other)) {
        (Some(one), Some(other)) => one == other,
        _ => false,
    }
}

/// Returns the meaning of a text, or `None` if it is nested too deep, has duplicate names or is not JSON.
fn meaning(text: &str) -> Option<Meaning> {
    let mut tokens = Tokens(text.as_bytes());
    let found = value(&mut tokens, 0)?;
    tokens.next().is_none().then_some(found)
}

fn value(tokens: &mut Tokens<'_>, depth: usize) -> Option<Meaning> {
    // Deeper texts are compared token by token.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_every_reader_takes_for_the_same_is_the_same() {
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
    fn what_a_reader_tells_apart_differs() {
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
