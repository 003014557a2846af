//! Finds the members of JSON text with jiter, without a tree of values.
//!
//! The accepted text is that of `value.rs`: JSON, the bare words NaN, Infinity and -Infinity in place of numbers, and
//! escapes of lone surrogates. Values may nest to any depth unless the caller needs to parse them into values
//! (`check_object`). The caller limits the length of the text.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

use jiter::{Jiter, JiterResult, Peek};

use crate::error::{Error, Result};
use crate::json_text::value::replace_lone_surrogates;

/// Maximum nesting of JSON objects and lists that are parsed into values, as in `serde_json`.
pub(super) const MAX_DEPTH: usize = 127;

/// Positions of a JSON member in its text.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: String,
    /// Start of the whitespace before the JSON member.
    pub(super) lead: usize,
    /// Position of the quoted name of the JSON member.
    pub(super) written: Range<usize>,
    pub(super) value: Range<usize>,
    /// Position of the comma or bracket after the JSON member.
    pub(super) end: usize,
}

#[derive(Debug)]
pub(super) struct ScannedObject {
    pub(super) members: Vec<Member>,
    /// Positions of the opening and closing bracket of a JSON object.
    pub(super) brackets: (usize, usize),
}

/// Position of a JSON member in its text.
pub struct MemberPlace {
    /// Range of the whole JSON member, from its name to the end of its value.
    pub whole: Range<usize>,
    /// Byte range of the JSON member's value in the text.
    pub value: Range<usize>,
}

/// A function called with each member of a JSON object and the name of the member.
type Visit<'v> = &'v mut dyn FnMut(&str, Member);

/// Finds the members of a JSON object. Fails with `Corrupt`, with line and column, if the text is not an object or not
/// JSON.
pub(super) fn object(text: &str) -> Result<ScannedObject> {
    let mut members = Vec::new();
    let brackets = scan_members(text, &mut |name, mut member| {
        member.name = name.to_string();
        members.push(member);
    })?;
    Ok(ScannedObject { members, brackets })
}

/// Calls `visit` for each member of a JSON object. Returns the positions of the opening and closing brackets.
fn scan_members(text: &str, visit: Visit<'_>) -> Result<(usize, usize)> {
    let letters = replace_lone_surrogates(text);
    Scanner::new(text, &letters).whole(visit)
}

/// Calls `visit` with the name and the position of each member of a JSON object. Fails with `Corrupt`, with line and
/// column, if the text is not an object or not JSON; `visit` may be called before the error is found.
pub fn visit_members(text: &str, visit: &mut dyn FnMut(&str, MemberPlace)) -> Result<()> {
    let mut visit = |name: &str, member: Member| {
        let whole = member.written.start..member.value.end;
        let value = member.value;
        visit(name, MemberPlace { whole, value });
    };
    scan_members(text, &mut visit).map(drop)
}

/// Returns the range of the value of a JSON member, or `None` if there is no such member. Of members with equal names
/// the last one counts.
pub fn find_member(text: &str, name: &str) -> Result<Option<Range<usize>>> {
    let mut value = None;
    visit_members(text, &mut |other, place| {
        if other == name {
            value = Some(place.value);
        }
    })?;
    Ok(value)
}

/// Checks that text is a JSON object and can be parsed into values. Fails with `Corrupt` if it is not an object or
/// nests too deep.
pub fn check_object(text: &str) -> Result<()> {
    let letters = replace_lone_surrogates(text);
    let mut scanner = Scanner::new(text, &letters);
    scanner.whole(&mut |_, _| {})?;
    match scanner.too_deep {
        Some(place) => Err(too_deep(scanner.jiter.error_position(place))),
        None => Ok(()),
    }
}

pub(super) fn too_deep(place: impl std::fmt::Display) -> Error {
    let why = format!("objects and lists nest deeper than {MAX_DEPTH} levels at {place}");
    Error::corrupt("", why)
}

/// Returns a name that occurs twice in a JSON object of the text, or `None`.
pub(super) fn find_duplicate_name(text: &str) -> Result<Option<String>> {
    let letters = replace_lone_surrogates(text);
    let mut scanner = Scanner::new(text, &letters);
    scanner.names = Some(Vec::new());
    scanner.whole(&mut |_, _| {})?;
    Ok(scanner.duplicate)
}

struct Scanner<'a> {
    text: &'a str,
    jiter: Jiter<'a>,
    /// Position of the first JSON value that nests too deep.
    too_deep: Option<usize>,
    /// Names in each open JSON object; `None` unless duplicate names are searched.
    names: Option<Vec<HashSet<String>>>,
    duplicate: Option<String>,
}

impl<'a> Scanner<'a> {
    /// Begins to scan `text`. `letters` is `text` with lone surrogates, which jiter rejects, replaced by characters of
    /// the same length.
    fn new(text: &'a str, letters: &'a [u8]) -> Scanner<'a> {
        Scanner {
            text,
            jiter: Jiter::new(letters).with_allow_inf_nan(),
            too_deep: None,
            names: None,
            duplicate: None,
        }
    }

    fn whole(&mut self, visit: Visit<'_>) -> Result<(usize, usize)> {
        let scanned = self.object(visit);
        scanned.map_err(|error| match self.other_value() {
            Some(what) => Error::corrupt("", format!("JSON, but not an object: {what}")),
            None => Error::corrupt("", format!("not JSON: {}", error.description(&self.jiter))),
        })
    }

    /// Describes the text for an error message, if it is JSON but not an object.
    fn other_value(&self) -> Option<&'a str> {
        let mut jiter = Jiter::new(self.text.as_bytes()).with_allow_inf_nan();
        let first = jiter.peek().ok().filter(|&first| first != Peek::Object)?;
        let start = jiter.current_index();
        jiter.known_skip(first).ok()?;
        let value = self.text.get(start..jiter.current_index())?;
        jiter.finish().ok()?;
        Some(match first {
            Peek::Array => "a list",
            Peek::String => "a string",
            // Leave out a long number, to keep the error message short.
            _ if value.len() > 30 => "a number",
            _ => value,
        })
    }

    fn object(&mut self, visit: Visit<'_>) -> JiterResult<(usize, usize)> {
        self.jiter.peek()?;
        let open = self.jiter.current_index();
        let mut lead = open + 1;
        let mut key = self.jiter.next_object_bytes()?.map(<[u8]>::len);
        self.enter();
        while let Some(length) = key {
            let rest = self.text.get(lead..).unwrap_or_default();
            let start = lead + rest.len() - rest.trim_ascii_start().len();
            let written = start..start + length + 2;
            let name = name_of(self.text.get(written.clone()).unwrap_or_default());
            self.record_name(&name);
            let first = self.jiter.peek()?;
            let start = self.jiter.current_index();
            self.skip(first)?;
            let value = start..self.jiter.current_index();
            let rest = self.text.get(value.end..).unwrap_or_default();
            let end = value.end + rest.len() - rest.trim_ascii_start().len();
            key = self.jiter.next_key_bytes()?.map(<[u8]>::len);
            let member = Member {
                name: String::new(),
                lead,
                written,
                value,
                end,
            };
            visit(&name, member);
            lead = end + 1;
        }
        let close = self.jiter.current_index() - 1;
        self.jiter.finish()?;
        Ok((open, close))
    }

    /// Skips a JSON value of any depth; jiter's own `known_skip` fails beyond 200 levels.
    fn skip(&mut self, first: Peek) -> JiterResult<()> {
        // One entry per open bracket: true for an object, false for a list.
        let mut open = Vec::new();
        let mut next = Some(first);
        loop {
            next = match next {
                Some(Peek::Array) => {
                    self.record_depth(open.len());
                    open.push(false);
                    self.jiter.known_array()?
                }
                Some(Peek::Object) => {
                    self.record_depth(open.len());
                    open.push(true);
                    let key = self.jiter.next_object_bytes()?.map(<[u8]>::len);
                    self.enter();
                    self.begin_member(key)?
                }
                Some(other) => {
                    self.jiter.known_skip(other)?;
                    self.step(&open)?
                }
                None => {
                    if open.pop() == Some(true) {
                        self.leave();
                    }
                    self.step(&open)?
                }
            };
            if next.is_none() && open.is_empty() {
                return Ok(());
            }
        }
    }

    /// Moves past a JSON value. Returns the first token of the next value in the same brackets, or `None` at the
    /// closing bracket.
    fn step(&mut self, open: &[bool]) -> JiterResult<Option<Peek>> {
        match open.last() {
            None => Ok(None),
            Some(false) => self.jiter.array_step(),
            Some(true) => {
                let key = self.jiter.next_key_bytes()?.map(<[u8]>::len);
                self.begin_member(key)
            }
        }
    }

    /// Moves past a name of `key` bytes, which jiter has just read, to the value of the member.
    fn begin_member(&mut self, key: Option<usize>) -> JiterResult<Option<Peek>> {
        let Some(length) = key else {
            return Ok(None);
        };
        if self.names.is_some() {
            let before = self.text.get(..self.jiter.current_index());
            let before = before.unwrap_or_default().trim_end_matches(':');
            let before = before.trim_ascii_end();
            let written = before.get(before.len().saturating_sub(length + 2)..);
            let name = name_of(written.unwrap_or_default());
            self.record_name(&name);
        }
        self.jiter.peek().map(Some)
    }

    fn record_depth(&mut self, open: usize) {
        // The outermost JSON object is a level too, but is not counted in `open`.
        if open + 1 >= MAX_DEPTH {
            self.too_deep.get_or_insert(self.jiter.current_index());
        }
    }

    fn enter(&mut self) {
        if let Some(names) = &mut self.names {
            names.push(HashSet::new());
        }
    }

    fn leave(&mut self) {
        if let Some(names) = &mut self.names {
            names.pop();
        }
    }

    fn record_name(&mut self, name: &str) {
        if let Some(names) = self.names.as_mut().and_then(|names| names.last_mut())
            && !names.insert(name.to_string())
        {
            self.duplicate.get_or_insert(name.to_string());
        }
    }
}

/// Returns a quoted JSON name with its escapes resolved. Escapes remain if one is not a valid character.
fn name_of(written: &str) -> Cow<'_, str> {
    let plain = written.get(1..written.len().saturating_sub(1));
    let plain = plain.unwrap_or_default();
    if !plain.contains('\\') {
        return Cow::Borrowed(plain);
    }
    serde_json::from_str(written).map_or(Cow::Borrowed(plain), Cow::Owned)
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
    fn members_are_found_with_their_byte_ranges() {
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
    fn duplicate_names_are_found_at_any_depth() {
        let duplicate = |text: &str| find_duplicate_name(text).unwrap();
        assert_eq!(duplicate(r#"{"a": 1, "b": {"a": 2}}"#), None);
        assert_eq!(duplicate(r#"{"a": 1, "\u0061": 2}"#), Some("a".into()));
        assert_eq!(duplicate(r#"{"a": [{"b": 1, "b": 1}]}"#), Some("b".into()));
    }

    #[test]
    fn invalid_json_objects_give_a_precise_error() {
        for (text, what) in [
            ("", "EOF while parsing a value at line 1 column 0"),
            ("3", "JSON, but not an object: 3"),
            (" null\n", "JSON, but not an object: null"),
            ("[1, {}]", "JSON, but not an object: a list"),
            ("\"a\"", "JSON, but not an object: a string"),
            (
                "nul",
                "not JSON: expected object but found null at line 1 column 1",
            ),
            (
                "[1] x",
                "not JSON: expected object but found array at line 1 column 1",
            ),
            ("{\"a\": 1,\n }", "trailing comma at line 2 column 2"),
            ("{\"a\": 01}", "invalid number at line 1 column 8"),
            ("{\"a\": [1 2]}", "expected `,` or `]` at line 1 column 10"),
            ("{\"a\": 1", "EOF while parsing an object"),
            ("{} x", "trailing characters at line 1 column 4"),
            ("{\"a\": \"\\x\"}", "invalid escape"),
        ] {
            let error = object(text).unwrap_err().to_string();
            assert!(error.contains(what), "{text}: {error}");
        }
    }

    /// Returns a JSON object with `value` inside `levels` nested lists or objects.
    fn nested(levels: usize, open: &str, value: &str, close: &str) -> String {
        format!(
            "{{\"a\": {}{value}{}, \"b\": 1}}",
            open.repeat(levels),
            close.repeat(levels)
        )
    }

    #[test]
    fn scanning_accepts_any_depth_and_parsing_127_levels() {
        for (open, close) in [("[", "]"), ("{\"x\": ", "}"), ("[{\"x\": [1, ", ", {}]} ]")] {
            for levels in [100, 126, 127, 128, 100_000] {
                let text = nested(levels, open, "[ ]", close);
                assert_eq!(names(&text), ["a", "b"], "{open} {levels}");
                assert_eq!(find_duplicate_name(&text).unwrap(), None);
                for (value, close) in [("1 1", close), ("01", close), ("[,]", close), ("{}", "]}")]
                {
                    assert!(
                        object(&nested(levels, open, value, close)).is_err(),
                        "{open} {value}"
                    );
                }
            }
            assert!(check_object(&nested(41, open, "1", close)).is_ok());
            let error = check_object(&nested(100_000, open, "1", close))
                .unwrap_err()
                .to_string();
            assert!(error.contains("nest deeper than 127 levels"), "{error}");
        }
        assert!(check_object(&nested(126, "[", "1", "]")).is_ok());
        assert!(check_object(&nested(127, "[", "1", "]")).is_err());
        assert!(object(&format!("{{\"a\": {}", "[".repeat(200_000))).is_err());
    }

    proptest! {
        #[test]
        fn the_scanner_and_the_parser_accept_the_same_text(text in r#"[{}\[\]",:0-9eE+.\\unat \-]{0,24}"#) {
            let text = format!("{{\"a\": {text}}}");
            let (scanned, read) = (object(&text).is_ok(), value::parse(text.as_bytes()));
            // The scanner, but not the parser, accepts lone surrogates (`\u`) and numbers beyond all floats.
            let is_value = read.is_ok() || text.contains("\\u") || text.contains(['e', 'E']);
            prop_assert!(!scanned || is_value, "{text}");
            prop_assert!(scanned || read.is_err(), "{text}");
        }
    }

    #[test]
    fn the_last_of_duplicate_members_is_found() {
        let text = r#"{"a": 1, "\u0061": [2], "b": {"a": 3}}"#;
        let found = find_member(text, "a").unwrap().unwrap();
        assert_eq!(&text[found], "[2]");
        assert_eq!(find_member(text, "c").unwrap(), None);
        assert!(find_member("{\"a\": 1", "a").is_err());
        assert!(check_object("[]").is_err() && check_object("{}").is_ok());
    }
}
