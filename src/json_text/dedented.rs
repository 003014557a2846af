//! The text of a member as a document of its own: its lines without the indentation that they have in the document around
//! them, so that it is as most writers store it.
//!
//! Nothing is held but the text, which others may hold too; lines are shortened where they are read.

use bytes::Bytes;
use parking_lot::Mutex;

/// A place at the beginning of a line: in the document, and in the text behind the indentation, in bytes.
#[derive(Clone, Copy, Default)]
struct LineStart {
    at: u64,
    from: usize,
}

/// A text whose lines are shown without their common indentation.
pub struct Dedented {
    text: Bytes,
    /// How many bytes each line but the first begins with that are not shown.
    indent: usize,
    len: u64,
    /// The line that was read last, at which a reader in order goes on.
    last: Mutex<LineStart>,
}

impl Dedented {
    /// Takes the text of a member. The indentation is that of its last line; where another line begins otherwise the text
    /// is shown as it is.
    pub fn of(text: Bytes) -> Dedented {
        let (indent, lines) = indentation(&text);
        Dedented {
            len: (text.len() - indent * lines) as u64,
            text,
            indent,
            last: Mutex::default(),
        }
    }

    /// Returns the length of the document in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns up to `len` bytes at an offset; fewer at the end.
    pub fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let end = offset.saturating_add(len as u64).min(self.len);
        let mut bytes = Vec::new();
        let mut line = *self.last.lock();
        if line.at > offset {
            line = LineStart::default();
        }
        while line.at < end {
            let shown = self.line(line);
            let next = line.at + shown.len() as u64;
            let place = |place: u64| {
                usize::try_from(place.clamp(line.at, next) - line.at).unwrap_or(usize::MAX)
            };
            bytes.extend_from_slice(shown.get(place(offset)..place(end)).unwrap_or_default());
            if next > end || shown.is_empty() {
                break;
            }
            let from = line.from + shown.len() + self.indent;
            line = LineStart { at: next, from };
        }
        *self.last.lock() = line;
        bytes
    }

    /// Returns what is shown of a line, its end included.
    fn line(&self, line: LineStart) -> &[u8] {
        let rest = self.text.get(line.from..).unwrap_or_default();
        if self.indent == 0 {
            return rest;
        }
        let end = rest.iter().position(|&byte| byte == b'\n');
        rest.get(..end.map_or(rest.len(), |end| end + 1))
            .unwrap_or_default()
    }
}

/// Returns the length of the indentation that all lines but the first have, and how many lines these are.
fn indentation(text: &[u8]) -> (usize, usize) {
    let is_end = |byte: &u8| *byte == b'\n';
    let last = text.rsplit(is_end).next().unwrap_or_default();
    let depth = last.iter().take_while(|byte| b" \t".contains(byte)).count();
    let indent = last.get(..depth).unwrap_or_default();
    let mut lines = text.split(is_end).skip(1);
    if lines.clone().all(|line| line.starts_with(indent)) {
        (depth, lines.by_ref().count())
    } else {
        (0, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dedented(text: &str) -> String {
        let document = Dedented::of(text.as_bytes().to_vec().into());
        let whole = document.read(0, text.len());
        assert_eq!(whole.len() as u64, document.len());
        String::from_utf8(whole).unwrap()
    }

    #[test]
    fn lines_lose_what_all_of_them_begin_with() {
        let text = "{\n      \"x\": [\n        1\n      ]\n    }";
        assert_eq!(dedented(text), "{\n  \"x\": [\n    1\n  ]\n}");
        assert_eq!(dedented("{\n\t\"x\": 1\n\t}"), "{\n\"x\": 1\n}");
    }

    #[test]
    fn other_texts_are_shown_as_they_are() {
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

    #[test]
    fn any_range_is_the_slice_of_the_whole() {
        let lines: String = (0..40)
            .map(|line| format!("    \"{line}\": {line},\n"))
            .collect();
        let text = format!("{{\n{lines}  }}");
        let whole = dedented(&text).into_bytes();
        let document = Dedented::of(text.into_bytes().into());
        for (offset, len) in (0..whole.len() + 2).flat_map(|offset| {
            [
                (offset, 1),
                (offset, 30),
                (whole.len() - offset.min(whole.len()), 7),
            ]
        }) {
            let end = (offset + len).min(whole.len());
            let expected = &whole[offset.min(end)..end];
            assert_eq!(
                document.read(offset as u64, len),
                expected,
                "{offset} {len}"
            );
        }
        assert_eq!(document.read(u64::MAX, 1), b"");
    }
}
