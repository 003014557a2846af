//! Spaces between the tokens of JSON text; the tokens themselves stay as they are.
//!
//! Expects text that was checked: of any other the outcome is text too, but not JSON.

/// How many levels are laid out; what lies deeper stands in the line of the last one, so that a text cannot grow without
/// bounds.
const MAX_LEVELS: usize = 127;

/// How far a level is indented where no other text shows it.
pub(super) const UNIT: &str = "  ";

/// Returns a text without spaces between its tokens.
pub fn compact(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    Tokens(text.as_bytes()).for_each(|token| out.extend_from_slice(token));
    in_letters(out)
}

/// Whether two texts have the same tokens, whatever is between these.
pub fn is_same(one: &str, other: &str) -> bool {
    Tokens(one.as_bytes()).eq(Tokens(other.as_bytes()))
}

/// Whether the text of an object or list has nothing in it.
pub fn is_empty(text: &str) -> bool {
    Tokens(text.as_bytes()).count() <= 2
}

/// Returns a text as a document of its own: laid out as the reference implementation does, a newline at the end.
pub fn document(text: &str) -> Vec<u8> {
    let mut out = pretty(text, UNIT, 0);
    out.push('\n');
    out.into_bytes()
}

/// Returns a text with a member or an item a line, each level indented by `unit`, from the level `depth` on.
pub(super) fn pretty(text: &str, unit: &str, depth: usize) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut layout = TokenLayout::new(text.as_bytes(), unit, depth);
    while layout
        .step(&mut |part| out.extend_from_slice(part))
        .is_some()
    {}
    in_letters(out)
}

/// Returns bytes that are tokens of a text, and so are letters.
fn in_letters(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_default()
}

/// A text that is laid out token by token; nothing of it is held.
pub(super) struct TokenLayout<'a> {
    tokens: Tokens<'a>,
    unit: &'a str,
    depth: usize,
}

impl<'a> TokenLayout<'a> {
    /// Begins at a token that stands on the level `depth`.
    pub(super) fn new(rest: &'a [u8], unit: &'a str, depth: usize) -> TokenLayout<'a> {
        let tokens = Tokens(rest);
        TokenLayout {
            tokens,
            unit,
            depth,
        }
    }

    /// Returns the level of the next token, and how many bytes of the text come from there on.
    pub(super) fn place(&self) -> (usize, usize) {
        (self.depth, self.tokens.0.len())
    }

    /// Gives the next token to `out`, and what is to stand after it, or before it if it closes a bracket. Returns the
    /// token.
    pub(super) fn step(&mut self, out: &mut dyn FnMut(&[u8])) -> Option<&'a [u8]> {
        let token = self.tokens.next()?;
        match token {
            b"{" | b"[" => {
                out(token);
                match self.tokens.next_closing() {
                    Some(closing) => out(closing),
                    None => {
                        self.depth += 1;
                        self.break_line(out);
                    }
                }
            }
            b"}" | b"]" => {
                self.depth = self.depth.saturating_sub(1);
                self.break_line(out);
                out(token);
            }
            b"," => {
                out(token);
                self.break_line(out);
            }
            b":" => out(b": "),
            other => out(other),
        }
        Some(token)
    }

    fn break_line(&self, out: &mut dyn FnMut(&[u8])) {
        if self.depth > MAX_LEVELS {
            return;
        }
        out(b"\n");
        (0..self.depth).for_each(|_| out(self.unit.as_bytes()));
    }
}

/// The tokens of a text: brackets, commas, colons, strings, and all else between them.
pub(super) struct Tokens<'a>(pub(super) &'a [u8]);

impl<'a> Tokens<'a> {
    /// Takes the bracket that closes an empty object or list, if it is next.
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

/// Returns the length of the string that a text begins with.
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
    fn a_deep_text_does_not_grow_without_bounds() {
        let text = ["[".repeat(100_000), "]".repeat(100_000)].concat();
        let laid_out = pretty(&text, UNIT, 0);
        assert!(laid_out.len() < text.len() + 40_000, "{}", laid_out.len());
        assert_eq!(compact(&laid_out), text);
    }

    #[test]
    fn what_is_no_json_is_text_still() {
        for text in ["", "\"", "}}]", "{\"a\\", "\u{e4}:"] {
            let _ = (compact(text), pretty(text, UNIT, 1));
        }
    }
}
