//! The sources as text: what is code in them, and which modules they name.
//!
//! No parser of Rust: comments, literals and what is compiled for tests alone are taken out.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::LazyLock;

/// A file of `src/`.
pub(crate) struct Source {
    /// Its path from `src/`.
    pub(crate) file: String,
    /// Its module's path from the crate; that of its folder for a `mod.rs`.
    pub(crate) module: Vec<String>,
    /// Its code: no comments, no literals, nothing that only tests have.
    pub(crate) code: String,
}

/// Returns all sources but those of tests, sorted by path.
pub(crate) fn sources() -> &'static [Source] {
    static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(read_sources);
    &SOURCES
}

fn read_sources() -> Vec<Source> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let mut folders = vec![src.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap();
            if name == "tests" {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let file = path.strip_prefix(&src).unwrap().to_str().unwrap();
                found.push(Source::new(file, &std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found.sort_by(|a, b| a.file.cmp(&b.file));
    found
}

impl Source {
    fn new(file: &str, text: &str) -> Source {
        let path = file.trim_end_matches(".rs");
        let path = path.strip_suffix("/mod").unwrap_or(path);
        Source {
            file: file.to_string(),
            module: path.split('/').map(str::to_string).collect(),
            code: without_tests(&without_literals(text)),
        }
    }

    /// Returns the paths from the crate that the code names, by `use` or in place.
    pub(crate) fn paths(&self) -> BTreeSet<Vec<String>> {
        let mut found = BTreeSet::new();
        let mut rest = String::new();
        for (number, statement) in self.code.split("use ").enumerate() {
            let is_use = number > 0 && !rest.ends_with(|c: char| c.is_alphanumeric() || c == '_');
            let (tree, after) = match statement.split_once(';') {
                Some((tree, after)) if is_use => (tree, after),
                _ => ("", statement),
            };
            expand(&[], tree, &mut found);
            rest.push_str(after);
        }
        found.extend(paths_in(&rest));
        found
            .into_iter()
            .filter_map(|path| self.absolute(path))
            .collect()
    }

    /// Returns a path from the crate; nothing for one into another crate.
    fn absolute(&self, path: Vec<String>) -> Option<Vec<String>> {
        let mut base = self.module.clone();
        let mut words = path.into_iter().peekable();
        if words.next_if_eq("crate").is_some() {
            return Some(words.collect());
        }
        let is_own = words.next_if_eq("self").is_some();
        let mut ups = 0;
        while words.next_if_eq("super").is_some() {
            base.pop();
            ups += 1;
        }
        base.extend(words);
        (is_own || ups > 0).then_some(base)
    }
}

/// Adds every path of a tree of `use`: `a::{b, c::D}` is `a::b` and `a::c::D`.
fn expand(before: &[String], tree: &str, found: &mut BTreeSet<Vec<String>>) {
    let tree = tree.trim();
    let (head, group) = match tree.split_once('{') {
        Some((head, group)) => (head, Some(group.trim_end().trim_end_matches('}'))),
        None => (tree.split(" as ").next().unwrap_or_default(), None),
    };
    let mut path = before.to_vec();
    let names = head.split("::").map(str::trim);
    path.extend(names.filter(|name| !name.is_empty()).map(str::to_string));
    match group {
        Some(group) => branches(group).for_each(|branch| expand(&path, branch, found)),
        None if path.len() > before.len() => drop(found.insert(path)),
        None => {}
    }
}

/// Splits at the commas that no braces enclose.
fn branches(group: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    group.split(move |c| {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
}

/// Returns the paths in code that begin with `crate`, `super` or `self`.
fn paths_in(code: &str) -> Vec<Vec<String>> {
    let is_part = |c: char| c.is_alphanumeric() || "_:".contains(c);
    let names = code.split(|c: char| !is_part(c));
    names
        .filter(|name| {
            ["crate::", "super::", "self::"]
                .iter()
                .any(|start| name.starts_with(start))
        })
        .map(|name| name.split("::").map(str::to_string).collect())
        .collect()
}

/// Returns the text without comments; strings and characters become empty ones.
fn without_literals(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let skipped = literal(
            rest,
            code.ends_with(|c: char| c.is_alphanumeric() || c == '_'),
        );
        if skipped > 0 {
            code.push(' ');
            rest = &rest[skipped..];
        } else {
            code.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    code
}

/// Returns the length of the comment or literal that a text begins with; 0 if it begins with neither.
fn literal(text: &str, in_word: bool) -> usize {
    let through = |end: &str, from: usize| {
        text[from..]
            .find(end)
            .map_or(text.len(), |place| from + place + end.len())
    };
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if text.starts_with("/*") {
        return through("*/", 2);
    }
    if !text.starts_with(['b', 'r', '"', '\'']) {
        return 0;
    }
    let raw = text.trim_start_matches('b').trim_start_matches('r');
    let hashes = raw.len() - raw.trim_start_matches('#').len();
    if !in_word
        && raw.len() < text.len()
        && raw[hashes..].starts_with('"')
        && text[..2].contains('r')
    {
        let start = text.len() - raw.len() + hashes + 1;
        return through(&format!("\"{}", &raw[..hashes]), start);
    }
    match text.as_bytes() {
        [b'"', ..] => quoted(text, '"'),
        [b'\'', b'\\', ..] => quoted(text, '\''),
        [b'\'', _, b'\'', ..] => 3,
        _ => 0,
    }
}

/// Returns the length of a literal up to the quote that no backslash escapes.
fn quoted(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (place, c) in text.char_indices().skip(1) {
        if c == quote && !is_escaped {
            return place + 1;
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    text.len()
}

/// Returns the code without the items that are compiled for tests alone.
fn without_tests(code: &str) -> String {
    let mut parts = code.split("#[cfg(test)]");
    let mut kept = parts.next().unwrap_or_default().to_string();
    for part in parts {
        kept.push_str(&part[item(part)..]);
    }
    kept
}

/// Returns the length of the item that a text begins with: up to a semicolon or the end of its braces.
fn item(text: &str) -> usize {
    let mut depth = 0;
    for (place, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => return place + 1,
            '}' => depth -= 1,
            ';' if depth == 0 => return place + 1,
            _ => {}
        }
    }
    text.len()
}

#[test]
fn code_is_what_is_neither_comment_nor_literal_nor_test() {
    let text = r##"
        //! use crate::comment;
        use crate::a::{B, c::{D, e as f}, self};
        pub use super::g;
        /* crate::no */ fn h<'a>(x: &'a str) { let y = ("crate::s", 'c', '\'', b"q", r#"cr"ate::r"#); super::i(y) }
        #[cfg(test)]
        mod tests { use crate::test; struct Hidden; }
        struct Seen { own: crate::j::K }
        impl L { type M = u8; }
        #[cfg(test)]
        mod more;
        type N = u8;
    "##;
    let source = Source::new("x/y.rs", text);
    let paths: Vec<String> = source.paths().iter().map(|path| path.join("::")).collect();
    let expected = [
        "a::B", "a::c::D", "a::c::e", "a::self", "j::K", "x::g", "x::i",
    ];
    assert_eq!(paths, expected);
}
