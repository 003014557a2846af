//! Checks JSON text and finds the members of its object, without a tree of values.
//!
//! Takes what `value.rs` reads: JSON, and the bare words NaN, Infinity and -Infinity in the place of numbers. It may nest
//! as deep as it likes unless the caller needs values of it (`shallow`); the caller limits the size.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

use crate::error::{Error, Result};

mod deep;

/// How deep objects and lists may lie in each other where values are made of them, as in serde_json. Below that, names that
/// stand twice are not looked for, and the call stack does not grow.
pub(super) const MAX_DEPTH: usize = 127;

/// The longest number that a message has, in bytes.
const MAX_SHOWN: usize = 30;

const WORDS: [&str; 6] = ["true", "false", "null", "NaN", "Infinity", "-Infinity"];

/// Where a member stands in its text.
#[derive(Debug)]
pub(super) struct Member {
    /// Its name, escapes resolved.
    pub(super) name: String,
    /// Where the space before its name begins.
    pub(super) lead: usize,
    /// Its name as it is written, in quotes.
    pub(super) written: Range<usize>,
    pub(super) value: Range<usize>,
    /// Where the comma or the bracket after it stands.
    pub(super) end: usize,
}

/// What a text with an object holds.
#[derive(Debug)]
pub(super) struct ScannedObject {
    pub(super) members: Vec<Member>,
    /// Where its first bracket stands, and its last one.
    pub(super) brackets: (usize, usize),
}

/// What is done with each member of the object of a text, given its name.
type Visit<'v, 'a> = &'v mut dyn FnMut(Cow<'a, str>, Member);

/// Checks a text; `Corrupt`, with line and column, if it is no object or no JSON.
pub(super) fn object(text: &str) -> Result<ScannedObject> {
    let mut members = Vec::new();
    let mut push = |name: Cow<'_, str>, mut member: Member| {
        member.name = name.into_owned();
        members.push(member);
    };
    let brackets = members_of(text, &mut push)?;
    Ok(ScannedObject { members, brackets })
}

/// Checks a text as `object` does, and has each of its members visited; holds nothing of them. Returns where the first
/// bracket stands, and the last one.
pub(super) fn members_of<'a>(text: &'a str, visit: Visit<'_, 'a>) -> Result<(usize, usize)> {
    Scanner::new(text).whole(visit)
}

/// Checks a text as `object` does; `Corrupt`, too, if it nests too deep to make values of it.
pub(super) fn shallow(text: &str) -> Result<()> {
    let mut scanner = Scanner::new(text);
    scanner.is_shallow = true;
    scanner.whole(&mut |_, _| {}).map(drop)
}

/// Returns the error of a text that nests too deep, as it is found at a place.
pub(super) fn too_deep(place: impl std::fmt::Display) -> Error {
    let why = format!(
        "objects and lists nest deeper than the {MAX_DEPTH} levels that are read, at {place}"
    );
    Error::corrupt("", why)
}

/// Returns a name that some object of a text has twice, as far as values could be made of it.
pub(super) fn repeated(text: &str) -> Result<Option<String>> {
    let mut scanner = Scanner::new(text);
    scanner.notes_names = true;
    scanner.whole(&mut |_, _| {})?;
    Ok(scanner.repeated)
}

struct Scanner<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    /// Whether the depth is limited.
    is_shallow: bool,
    /// Whether a name that some object has twice is looked for: the names of an object are held for it.
    notes_names: bool,
    /// The first such name.
    repeated: Option<String>,
}

impl<'a> Scanner<'a> {
    fn new(text: &'a str) -> Scanner<'a> {
        let (at, depth) = (0, 0);
        Scanner {
            text,
            at,
            depth,
            is_shallow: false,
            notes_names: false,
            repeated: None,
        }
    }

    /// Reads the whole text.
    fn whole(&mut self, visit: Visit<'_, 'a>) -> Result<(usize, usize)> {
        self.skip_space();
        let open = self.at;
        if let Some(what) = self.other_value() {
            let why = format!("JSON, but no object: {what}");
            return Err(Error::corrupt("", why));
        }
        self.object(Some(visit))?;
        let close = self.at - 1;
        self.skip_space();
        match self.peek() {
            None => Ok((open, close)),
            Some(_) => Err(self.expected("the end")),
        }
    }

    /// Returns what the text is, if it is JSON and no object.
    fn other_value(&self) -> Option<&'a str> {
        let mut ahead = Scanner::new(self.text);
        ahead.at = self.at;
        let first = self.peek().filter(|&first| first != b'{')?;
        ahead.value().ok()?;
        let value = self.text.get(self.at..ahead.at)?;
        ahead.skip_space();
        let is_whole = ahead.peek().is_none();
        is_whole.then_some(match first {
            b'[' => "a list",
            b'"' => "text",
            _ if value.len() > MAX_SHOWN => "a number",
            _ => value,
        })
    }

    fn rest(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.rest().first().copied()
    }

    fn skip_space(&mut self) {
        let space = |byte: &&u8| matches!(**byte, b' ' | b'\t' | b'\n' | b'\r');
        self.at += self.rest().iter().take_while(space).count();
    }

    /// Goes on if this byte is next; returns whether it is.
    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn take_digits(&mut self) -> usize {
        let digits = self.rest().iter().take_while(|byte| byte.is_ascii_digit());
        let count = digits.count();
        self.at += count;
        count
    }

    /// Returns the error of a text that has something else here.
    fn expected(&self, what: &str) -> Error {
        let why = match self.peek() {
            Some(_) => format!("not JSON: expected {what} at {}", self.place()),
            None => format!("not JSON: it ends where {what} is expected"),
        };
        Error::corrupt("", why)
    }

    /// Returns where the scanner is, as a person finds it.
    fn place(&self) -> String {
        let before = self.text.get(..self.at).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.len() - before.rfind('\n').map_or(0, |at| at + 1) + 1;
        format!("line {line} column {column}")
    }

    fn value(&mut self) -> Result<()> {
        match self.peek() {
            Some(b'{' | b'[') if self.depth >= MAX_DEPTH => self.deep_value(),
            Some(b'{') => self.object(None),
            Some(b'[') => self.list(),
            Some(b'"') => self.string().map(drop),
            _ => self.word_or_number(),
        }
    }

    /// Reads an object, and has its members visited where they are asked for.
    fn object(&mut self, mut visit: Option<Visit<'_, 'a>>) -> Result<()> {
        if !self.take(b'{') {
            return Err(self.expected("an object"));
        }
        self.depth += 1;
        let mut names = HashSet::new();
        let mut lead = self.at;
        self.skip_space();
        let mut has_more = !self.take(b'}');
        while has_more {
            let (name, mut member) = self.member(lead)?;
            member.end = self.at;
            has_more = self.take(b',');
            if has_more {
                lead = self.at;
                self.skip_space();
            } else if !self.take(b'}') {
                return Err(self.expected(", or }"));
            }
            self.note_name(&mut names, &name);
            if let Some(visit) = &mut visit {
                visit(name, member);
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// Reads a member and the space after it; its name is left to the caller.
    fn member(&mut self, lead: usize) -> Result<(Cow<'a, str>, Member)> {
        let (name, written) = self.name()?;
        let start = self.at;
        self.value()?;
        let value = start..self.at;
        self.skip_space();
        let member = Member {
            name: String::new(),
            lead,
            written,
            value,
            end: 0,
        };
        Ok((name, member))
    }

    /// Reads the name of a member, and up to its value; returns it and where it is written.
    fn name(&mut self) -> Result<(Cow<'a, str>, Range<usize>)> {
        let start = self.at;
        let name = self.string()?;
        let written = start..self.at;
        self.skip_space();
        if !self.take(b':') {
            return Err(self.expected(":"));
        }
        self.skip_space();
        Ok((name, written))
    }

    fn note_name(&mut self, names: &mut HashSet<String>, name: &str) {
        if self.notes_names
            && let Some(twice) = names.replace(name.to_string())
        {
            self.repeated.get_or_insert(twice);
        }
    }

    fn list(&mut self) -> Result<()> {
        self.at += 1;
        self.depth += 1;
        self.skip_space();
        let mut has_more = !self.take(b']');
        while has_more {
            self.skip_space();
            self.value()?;
            self.skip_space();
            has_more = self.take(b',');
            if !has_more && !self.take(b']') {
                return Err(self.expected(", or ]"));
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// Reads a string; returns it with its escapes resolved.
    fn string(&mut self) -> Result<Cow<'a, str>> {
        let start = self.at;
        if !self.take(b'"') {
            return Err(self.expected("a string"));
        }
        let mut has_escapes = false;
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    has_escapes = true;
                    self.escape()?;
                }
                Some(0..0x20) | None => return Err(self.expected("a letter")),
                Some(_) => self.at += 1,
            }
        }
        self.at += 1;
        let written = self.text.get(start..self.at).unwrap_or_default();
        let plain = written.get(1..written.len() - 1).unwrap_or_default();
        if !has_escapes {
            return Ok(Cow::Borrowed(plain));
        }
        Ok(serde_json::from_str(written).map_or(Cow::Borrowed(plain), Cow::Owned))
    }

    fn escape(&mut self) -> Result<()> {
        let length = match self.rest().get(1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => 2,
            Some(b'u') => 6,
            _ => return Err(self.expected("an escape")),
        };
        let digits = self.rest().get(2..length);
        if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
            return Err(self.expected("an escape of four digits"));
        }
        self.at += length;
        Ok(())
    }

    fn word_or_number(&mut self) -> Result<()> {
        let is_next = |word: &&&str| self.rest().starts_with(word.as_bytes());
        match WORDS.iter().find(is_next) {
            Some(word) => {
                self.at += word.len();
                Ok(())
            }
            None => self.number(),
        }
    }

    /// Reads a number (RFC 8259, section 6).
    fn number(&mut self) -> Result<()> {
        let start = self.at;
        self.take(b'-');
        let is_zero = self.peek() == Some(b'0');
        let whole = self.take_digits();
        let is_whole = whole == 1 || (whole > 1 && !is_zero);
        let has_fraction = !self.take(b'.') || self.take_digits() > 0;
        let is_plain = !self.take(b'e') && !self.take(b'E');
        let _ = !is_plain && (self.take(b'+') || self.take(b'-'));
        if is_whole && has_fraction && (is_plain || self.take_digits() > 0) {
            return Ok(());
        }
        self.at = start;
        Err(self.expected("a value"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::json_text::value;

    fn names(text: &str) -> Vec<String> {
        let found = object(text).unwrap();
        found
            .members
            .into_iter()
            .map(|member| member.name)
            .collect()
    }

    #[test]
    fn members_are_found_with_their_places() {
        let text = r#" { "a":1 , "\u0062" : [NaN, {"x": -Infinity}] } "#;
        let found = object(text).unwrap();
        let places = |member: &Member| (&text[member.written.clone()], &text[member.value.clone()]);
        let places: Vec<_> = found.members.iter().map(places).collect();
        let list = r#"[NaN, {"x": -Infinity}]"#;
        assert_eq!(places, [("\"a\"", "1"), (r#""\u0062""#, list)]);
        assert_eq!(names(text), ["a", "b"]);
        let (open, close) = found.brackets;
        assert_eq!((&text[open..=open], &text[close..=close]), ("{", "}"));
        assert_eq!(names("{}"), [] as [&str; 0]);
    }

    #[test]
    fn names_that_stand_twice_are_found_at_any_depth() {
        let repeated = |text: &str| repeated(text).unwrap();
        assert_eq!(repeated(r#"{"a": 1, "b": {"a": 2}}"#), None);
        assert_eq!(repeated(r#"{"a": 1, "\u0061": 2}"#), Some("a".into()));
        assert_eq!(repeated(r#"{"a": [{"b": 1, "b": 1}]}"#), Some("b".into()));
    }

    #[test]
    fn faults_have_a_place() {
        for (text, what) in [
            ("", "it ends where an object is expected"),
            ("3", "JSON, but no object: 3"),
            (" null\n", "JSON, but no object: null"),
            ("[1, {}]", "JSON, but no object: a list"),
            ("\"a\"", "JSON, but no object: text"),
            ("nul", "not JSON: expected an object at line 1 column 1"),
            ("[1] x", "not JSON: expected an object at line 1 column 1"),
            ("{\"a\": 1,\n }", "expected a string at line 2 column 2"),
            ("{\"a\": 01}", "expected a value at line 1 column 7"),
            ("{\"a\": [1 2]}", "expected , or ] at line 1 column 10"),
            ("{\"a\": 1", "it ends where , or } is expected"),
            ("{} x", "expected the end at line 1 column 4"),
            ("{\"a\": \"\\x\"}", "expected an escape"),
        ] {
            let error = object(text).unwrap_err().to_string();
            assert!(error.contains(what), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_taken_is_read_too(text in r#"[{}\[\]",:0-9eE+.\\unat \-]{0,24}"#) {
            let text = format!("{{\"a\": {text}}}");
            let (scanned, read) = (object(&text).is_ok(), value::parse(text.as_bytes()));
            // An escaped half of a pair, and a number beyond all floats, are text though no value.
            let is_value = read.is_ok() || text.contains("\\u") || text.contains(['e', 'E']);
            prop_assert!(!scanned || is_value, "{text}");
            prop_assert!(scanned || read.is_err(), "{text}");
        }
    }
}
