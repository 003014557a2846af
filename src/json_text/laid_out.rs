//! A document laid out as the reference implementation does, made piece by piece as it is read.
//!
//! Nothing is held but the text that it is made of, which others may hold too, and every so many bytes where the layout
//! stands. A long document so takes no more memory than its text.

use std::hash::Hasher;
use std::ops::Range;

use bytes::Bytes;
use twox_hash::XxHash64;

use crate::error::Result;
use crate::json_text::find_member;
use crate::json_text::layout::{TokenLayout, UNIT};

/// How far marks lie apart in the document, in bytes: a read lays out at most so much before its own part.
const STRIDE: u64 = 64 << 10;

/// A part of a document.
struct DocumentPart {
    text: Bytes,
    /// On which level its tokens stand; nothing if it is shown as it is.
    depth: Option<usize>,
}

/// A place in the document from which its layout can go on.
struct Mark {
    /// The place, in bytes.
    at: u64,
    part: usize,
    /// How many bytes of the part's text come from there on, and how many of these are shown as they are.
    rest: usize,
    plain: usize,
    depth: usize,
}

/// A document that is laid out where it is read.
pub struct LaidOut {
    parts: Vec<DocumentPart>,
    /// In order; one begins the document.
    marks: Vec<Mark>,
    len: u64,
}

impl LaidOut {
    /// Lays out the text of an object.
    pub fn of(text: Bytes) -> LaidOut {
        LaidOut::build(vec![tokens(text, 0), plain("\n")])
    }

    /// Lays out an object of which one member has another value than in its text. Fails if the text is no object or has
    /// no such member.
    pub fn with_member(text: &str, name: &str, value: Bytes) -> Result<LaidOut> {
        let text = super::layout::pretty(text, UNIT, 0);
        let old = find_member(&text, name)?.unwrap_or(text.len()..text.len());
        let (before, after) = (&text[..old.start], &text[old.end..]);
        let parts = vec![plain(before), tokens(value, 1), plain(after), plain("\n")];
        Ok(LaidOut::build(parts))
    }

    fn build(parts: Vec<DocumentPart>) -> LaidOut {
        let mut document = LaidOut {
            parts,
            marks: Vec::new(),
            len: 0,
        };
        for part in 0..document.parts.len() {
            document.measure(part);
        }
        document
    }

    /// Finds the marks of a part.
    fn measure(&mut self, number: usize) {
        let Some(DocumentPart { text, depth }) = self.parts.get(number) else {
            return;
        };
        let (text, mut at) = (text.clone(), self.len);
        let mark = |at, rest, plain, depth| Mark {
            at,
            part: number,
            rest,
            plain,
            depth,
        };
        let Some(depth) = *depth else {
            self.marks.push(mark(at, text.len(), text.len(), 0));
            self.len += text.len() as u64;
            return;
        };
        let mut layout = TokenLayout::new(&text, UNIT, depth);
        let mut last = at;
        self.marks.push(mark(at, text.len(), 0, depth));
        loop {
            let before = at;
            let Some(token) = layout.step(&mut |part| at += part.len() as u64) else {
                break;
            };
            let (depth, rest) = layout.place();
            if token.len() as u64 >= STRIDE {
                // Its end is not looked for again.
                let from = rest + token.len();
                self.marks.push(mark(before, from, token.len(), depth));
                last = before;
            }
            if at - last >= STRIDE {
                self.marks.push(mark(at, rest, 0, depth));
                last = at;
            }
        }
        self.len = at;
    }

    /// Returns the length of the document in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is nothing in it, which no document of an object is.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns up to `len` bytes at `offset`; fewer only at the end.
    pub fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let end = offset.saturating_add(len as u64).min(self.len);
        let wanted = offset..end.max(offset);
        let mut bytes =
            Vec::with_capacity(usize::try_from(end.saturating_sub(offset)).unwrap_or(0));
        self.each_piece(wanted, &mut |piece| bytes.extend_from_slice(piece));
        bytes
    }

    /// Returns the whole document.
    pub fn to_vec(&self) -> Vec<u8> {
        self.read(0, usize::try_from(self.len).unwrap_or(usize::MAX))
    }

    /// Returns a number that names the content, the same as `XxHash64` gives for all of its bytes.
    pub fn hash(&self) -> u64 {
        let mut hasher = XxHash64::with_seed(0);
        self.each_piece(0..self.len, &mut |piece| hasher.write(piece));
        hasher.finish()
    }

    /// Gives the bytes in a range to `out`, piece by piece.
    fn each_piece(&self, wanted: Range<u64>, out: &mut dyn FnMut(&[u8])) {
        let first = self.marks.partition_point(|mark| mark.at <= wanted.start);
        for number in first.saturating_sub(1)..self.marks.len() {
            let Some(mark) = self.marks.get(number).filter(|mark| mark.at < wanted.end) else {
                return;
            };
            let next = self.marks.get(number + 1).map_or(self.len, |next| next.at);
            self.lay_out(mark, wanted.start..wanted.end.min(next), out);
        }
    }

    /// Lays a part out from a mark on, and gives what lies in a range to `out`.
    fn lay_out(&self, mark: &Mark, wanted: Range<u64>, out: &mut dyn FnMut(&[u8])) {
        let Some(DocumentPart { text, .. }) = self.parts.get(mark.part) else {
            return;
        };
        let rest = text.get(text.len() - mark.rest..).unwrap_or_default();
        let (plain, rest) = rest.split_at(mark.plain.min(rest.len()));
        let mut at = mark.at;
        let mut give = |piece: &[u8]| {
            let place = |wanted: u64| usize::try_from(wanted.saturating_sub(at)).unwrap_or(0);
            let (start, end) = (place(wanted.start), place(wanted.end).min(piece.len()));
            if let Some(piece) = piece.get(start..end).filter(|piece| !piece.is_empty()) {
                out(piece);
            }
            at += piece.len() as u64;
            at
        };
        let mut reached = give(plain);
        let mut layout = TokenLayout::new(rest, UNIT, mark.depth);
        while reached < wanted.end {
            if layout.step(&mut |piece| reached = give(piece)).is_none() {
                return;
            }
        }
    }
}

/// Returns a part whose tokens are laid out on a level.
fn tokens(text: Bytes, depth: usize) -> DocumentPart {
    let depth = Some(depth);
    DocumentPart { text, depth }
}

/// Returns a part that is shown as it is.
fn plain(text: &str) -> DocumentPart {
    DocumentPart {
        text: text.to_string().into(),
        depth: None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::json_text::document;

    fn shared(value: &Value) -> Bytes {
        value.to_string().into()
    }

    /// Returns an object whose document is much longer than the stride.
    fn long() -> Value {
        let words = "a string that is longer than the stride ".repeat(4000);
        json!({"a": (0..40_000).collect::<Vec<_>>(), "b": {"c": words, "d": []}, "e": [[{}], 1]})
    }

    #[test]
    fn any_range_is_that_of_the_whole() {
        let whole = document(&long().to_string());
        let made = LaidOut::of(shared(&long()));
        assert!(made.to_vec() == whole && made.marks.len() > 5);
        assert_eq!(made.len(), whole.len() as u64);
        assert_eq!(made.hash(), XxHash64::oneshot(0, &whole));
        for offset in (0..whole.len()).step_by(4999) {
            for len in [1, 4096, 200_000] {
                let end = (offset + len).min(whole.len());
                assert!(
                    made.read(offset as u64, len) == whole[offset..end],
                    "{offset} {len}"
                );
            }
        }
        assert!(made.read(made.len(), 10).is_empty() && made.read(u64::MAX, 10).is_empty());
    }

    #[test]
    fn a_member_is_laid_out_in_its_object() {
        let object = |value: Value| json!({"x": 1, "attributes": value, "y": [2]});
        let text = object(json!({})).to_string();
        let made = LaidOut::with_member(&text, "attributes", shared(&long())).unwrap();
        assert!(made.to_vec() == document(&object(long()).to_string()));
        let none = LaidOut::with_member(&text, "attributes", shared(&json!({}))).unwrap();
        assert!(none.to_vec() == document(&text));
    }

    #[test]
    fn a_long_document_holds_little_beside_its_text() {
        let text = shared(&long());
        let made = LaidOut::of(text.clone());
        let marks = made.marks.capacity() * size_of::<Mark>();
        assert!(marks < text.len() / 100, "{marks} bytes");
    }

    proptest! {
        #[test]
        fn whatever_the_text_is_each_byte_is_shown_once(text in r#"[{}\[\]",:a0 \\]{0,40}"#) {
            let made = LaidOut::of(text.into_bytes().into());
            let bytes: Vec<u8> = (0..made.len()).flat_map(|at| made.read(at, 1)).collect();
            prop_assert_eq!(bytes, made.to_vec());
        }
    }
}
