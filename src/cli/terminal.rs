//! Colours text, and measures the terminal.

use std::io::IsTerminal;
use std::{env, io};

/// Adds colours to text if the terminal shows colours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paint {
    is_on: bool,
}

impl Paint {
    /// Colours text if stdout is a terminal that shows colours and NO_COLOR is not set.
    pub(super) fn of_stdout() -> Paint {
        let is_refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_dumb = env::var_os("TERM").is_none_or(|term| term == "dumb");
        Paint {
            is_on: io::stdout().is_terminal() && !is_refused && !is_dumb,
        }
    }

    pub(super) fn is_on(self) -> bool {
        self.is_on
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.is_on {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_string()
        }
    }

    /// Colours text by red, green and blue.
    pub(super) fn rgb(self, [red, green, blue]: [u8; 3], text: &str) -> String {
        self.with(&format!("38;2;{red};{green};{blue}"), text)
    }

    /// Colours the name of a group.
    pub(super) fn group(self, text: &str) -> String {
        self.with("1;34", text)
    }

    pub(super) fn array(self, text: &str) -> String {
        self.with("1", text)
    }

    pub(super) fn kind(self, text: &str) -> String {
        self.with("32", text)
    }

    pub(super) fn fault(self, text: &str) -> String {
        self.with("31", text)
    }

    /// Prints less important text in a faint colour.
    pub(super) fn faint(self, text: &str) -> String {
        self.with("2", text)
    }
}

/// Whether the locale uses UTF-8, as setlocale(3) decides; for other locales zarrfs prints only ASCII.
pub(super) fn is_utf8() -> bool {
    let values = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter();
    let mut values = values
        .filter_map(env::var_os)
        .filter(|value| !value.is_empty());
    values.next().is_some_and(|value| {
        let name = value.to_string_lossy().to_ascii_lowercase();
        name.contains("utf-8") || name.contains("utf8")
    })
}

/// Returns the height of the terminal in lines; 24 if it is unknown.
pub(super) fn terminal_height() -> usize {
    let rows = rustix::termios::tcgetwinsize(io::stdout()).map(|size| size.ws_row);
    usize::from(rows.ok().filter(|&rows| rows > 1).unwrap_or(24))
}

/// Returns the width of the terminal in letters; 80 if it is unknown.
pub(super) fn terminal_width() -> usize {
    let columns = rustix::termios::tcgetwinsize(io::stdout()).map(|size| size.ws_col);
    let variable = || env::var("COLUMNS").ok()?.parse().ok();
    let width = columns.ok().filter(|&width| width > 0).or_else(variable);
    usize::from(width.unwrap_or(80).clamp(1, 1000))
}

/// Returns the width at which sentences are wrapped. `None` if stdout is no terminal and `COLUMNS` is not set: other
/// programs expect whole lines.
pub(super) fn wrap_width() -> Option<usize> {
    let is_wrapped = io::stdout().is_terminal() || env::var_os("COLUMNS").is_some();
    is_wrapped.then(terminal_width)
}

/// Breaks a line at spaces into lines of at most `width` characters. A longer word, such as JSON, is broken after
/// commas; without commas, like a path, it stays whole.
pub(super) fn wrapped(line: &str, width: usize) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut piece = String::new();
    for word in line.split(' ') {
        let is_long = word.chars().count() > width;
        let parts = if is_long {
            word.split_inclusive(',').collect()
        } else {
            vec![word]
        };
        for (place, part) in parts.into_iter().enumerate() {
            let is_first = place == 0;
            let length = piece.chars().count() + usize::from(is_first) + part.chars().count();
            if !piece.is_empty() && length > width {
                pieces.push(std::mem::take(&mut piece));
            }
            if !piece.is_empty() && is_first {
                piece.push(' ');
            }
            piece.push_str(part);
        }
    }
    pieces.push(piece);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_wrapped_at_spaces() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("one two three", 4), ["one", "two", "three"]);
        assert_eq!(wrapped("", 10), [""]);
        assert_eq!(wrapped("a /long/path", 4), ["a", "/long/path"]);
    }

    #[test]
    fn long_words_are_cut_after_commas() {
        let text = r#"ome: {"a":1,"b":2,"c":3} end"#;
        let pieces = ["ome:", r#"{"a":1,"#, r#""b":2,"#, r#""c":3}"#, "end"];
        assert_eq!(wrapped(text, 9), pieces);
    }
}
