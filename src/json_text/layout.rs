//! Spaces between the tokens of JSON text; the tokens themselves stay as they are.
//!
//! Expects text that was checked: of any other the outcome is text too, but not JSON.

use std::iter::Peekable;

/// How far a level is indented where no other text shows it.
pub(super) const UNIT: &str = "  ";

/// Returns a text without spaces between its tokens.
pub fn compact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    Tokens(text).for_each(|token| out.push_str(token));
    out
}

/// Returns a text as a document of its own: laid out as the reference implementation does, a newline at the end.
pub fn document(text: &str) -> Vec<u8> {
    let mut out = pretty(text, UNIT, 0);
    out.push('\n');
    out.into_bytes()
}

/// Returns a text with a member or an item a line, each level indented by `unit`, from the level `depth` on.
pub(super) fn pretty(text: &str, unit: &str, depth: usize) -> String {
    let mut out = String::with_capacity(text.len());
    let mut tokens = Tokens(text).peekable();
    let mut depth = depth;
    while let Some(token) = tokens.next() {
        match token {
            "{" | "[" => {
                out.push_str(token);
                if !push_closing(&mut out, &mut tokens) {
                    depth += 1;
                    break_line(&mut out, unit, depth);
                }
            }
            "}" | "]" => {
                depth = depth.saturating_sub(1);
                break_line(&mut out, unit, depth);
                out.push_str(token);
            }
            "," => {
                out.push(',');
                break_line(&mut out, unit, depth);
            }
            ":" => out.push_str(": "),
            other => out.push_str(other),
        }
    }
    out
}

/// Writes the bracket that closes an empty object or list; returns whether it is empty.
fn push_closing(out: &mut String, tokens: &mut Peekable<Tokens<'_>>) -> bool {
    let closing = tokens.next_if(|next| matches!(*next, "}" | "]"));
    closing.is_some_and(|closing| {
        out.push_str(closing);
        true
    })
}

fn break_line(out: &mut String, unit: &str, depth: usize) {
    out.push('\n');
    (0..depth).for_each(|_| out.push_str(unit));
}

/// The tokens of a text: brackets, commas, colons, strings, and all else between them.
struct Tokens<'a>(&'a str);

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let rest = self.0.trim_start_matches(is_space);
        let first = rest.chars().next()?;
        let length = match first {
            '"' => string_length(rest),
            '{' | '}' | '[' | ']' | ',' | ':' => 1,
            _ => rest.find(ends_word).unwrap_or(rest.len()),
        };
        let (token, rest) = rest.split_at(length);
        self.0 = rest;
        Some(token)
    }
}

fn is_space(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\n' | '\r')
}

fn ends_word(letter: char) -> bool {
    is_space(letter) || "{}[],:\"".contains(letter)
}

/// Returns the length of the string that a text begins with.
fn string_length(text: &str) -> usize {
    let mut is_escaped = false;
    let end = text.bytes().enumerate().skip(1).find(|&(_, byte)| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    });
    end.map_or(text.len(), |(at, _)| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ODD: &str =
        r#" {"a" : [1.0,-0, 1e5 , NaN,-Infinity],"b":{ },"\"c\\":"{ , }" , "d":[ ]} "#;

    #[test]
    fn tokens_stay_and_spaces_go() {
        let expected = r#"{"a":[1.0,-0,1e5,NaN,-Infinity],"b":{},"\"c\\":"{ , }","d":[]}"#;
        assert_eq!(compact(ODD), expected);
        assert_eq!(compact(&pretty(ODD, "\t", 3)), expected);
    }

    #[test]
    fn documents_are_laid_out_as_others_lay_them_out() {
        let value = serde_json::json!({"a": [1, {"b": []}], "c": {}, "d": "x: [1, 2]"});
        let expected = serde_json::to_string_pretty(&value).unwrap() + "\n";
        assert_eq!(document(&value.to_string()), expected.as_bytes());
    }

    #[test]
    fn what_is_no_json_is_text_still() {
        for text in ["", "\"", "}}]", "{\"a\\", "\u{e4}:"] {
            let _ = (compact(text), pretty(text, UNIT, 1));
        }
    }
}
