//! Generates `docs/invariants.md` from the tests that hold the invariants.
//!
//! The comment above a test states an invariant: `/// Invariant (overlay): ...` up to the end of the paragraph, in
//! Python `# Invariant (overlay): ...`. Further tests of the same invariant have ``/// Invariant of `first_test`.``
//! above them.

use std::collections::BTreeMap;
use std::env;
use std::fs;

use crate::documents::{INVARIANTS, files_below, read, root};

/// The sections of the document: the word that a comment uses, and the heading.
const SECTIONS: [(&str, &str); 12] = [
    ("texts", "The sources and the texts"),
    ("reading", "Reading decoded files"),
    ("formats", "Formats and selections"),
    ("plain", "The plain views"),
    ("metadata", "Metadata"),
    ("stores", "Stores"),
    ("caches", "Memory, caches and freshness"),
    ("mount", "The mount"),
    ("writing", "Writing decoded files and documents"),
    ("overlay", "The overlay and its commits"),
    ("checks", "Checks"),
    ("unlisted", "Stores without listings"),
];

const PREAMBLE: &str = "# Invariants

What always holds, and the tests that fail where it does not. Made from the comments of these tests:
`BLESS=1 cargo test --test project` writes this file. `ARCHITECTURE.md` has the invariants that a newcomer needs.
";

struct Test {
    file: String,
    name: String,
}

/// An invariant with its section, its sentence and the tests that check it.
struct Invariant {
    section: String,
    sentence: String,
    tests: Vec<Test>,
}

/// The comment above a test that states or names an invariant.
struct Comment {
    text: String,
    file: String,
    test: String,
}

fn comments(file: &str, mark: &str, function: &str) -> Vec<Comment> {
    let is_first =
        |line: &str| line.starts_with("Invariant (") || line.starts_with("Invariant of ");
    let text = read(file);
    let mut texts: Vec<String> = Vec::new();
    let mut is_open = false;
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        match line.strip_prefix(mark) {
            Some(comment) if is_first(comment) => {
                texts.push(comment.to_string());
                is_open = true;
                continue;
            }
            Some(comment) if is_open => {
                let text = texts.last_mut().unwrap();
                text.push(' ');
                text.push_str(comment);
                continue;
            }
            _ => is_open = false,
        }
        if let Some((_, after)) = line.split_once(function)
            && !line.starts_with(mark.trim())
        {
            let name = after.split(['(', '<']).next().unwrap();
            found.extend(texts.drain(..).map(|text| Comment {
                text,
                file: file.to_string(),
                test: name.to_string(),
            }));
        }
    }
    assert!(texts.is_empty(), "{file}: no test after {texts:?}");
    found
}

fn invariants() -> Vec<Invariant> {
    let mut found: Vec<Invariant> = Vec::new();
    let mut others: BTreeMap<String, Vec<Test>> = BTreeMap::new();
    let files = ["crates", "src", "tests"].map(files_below).concat();
    let comments = files.iter().flat_map(|file| match file.rsplit_once('.') {
        Some((_, "rs")) => comments(file, "/// ", "fn "),
        Some((_, "py")) => comments(file, "# ", "def "),
        _ => Vec::new(),
    });
    for Comment { text, file, test } in comments {
        let test = Test { file, name: test };
        if let Some(rest) = text.strip_prefix("Invariant of ") {
            let first = rest.trim_matches(['`', '.']).to_string();
            others.entry(first).or_default().push(test);
            continue;
        }
        let (section, sentence) = text
            .strip_prefix("Invariant (")
            .and_then(|rest| rest.split_once("): "))
            .unwrap_or_else(|| panic!("{}: {text}", test.file));
        found.push(Invariant {
            section: section.to_string(),
            sentence: sentence.to_string(),
            tests: vec![test],
        });
    }
    for invariant in &mut found {
        let first = &invariant.tests[0].name;
        if let Some(more) = others.remove(first) {
            invariant.tests.extend(more);
        }
    }
    assert!(
        others.is_empty(),
        "no invariant has these tests: {:?}",
        others.keys()
    );
    found
}

/// Formats a text as a Markdown list item with lines of at most 120 characters.
fn wrapped(text: &str) -> String {
    let mut lines = String::from("-");
    let mut length = lines.len();
    for word in text.split_whitespace() {
        if length + 1 + word.len() > 120 {
            lines.push_str("\n ");
            length = 1;
        }
        lines.push(' ');
        lines.push_str(word);
        length += 1 + word.len();
    }
    lines + "\n"
}

fn document(invariants: &[Invariant]) -> String {
    let mut text = PREAMBLE.to_string();
    for (word, heading) in SECTIONS {
        text.push_str(&format!("\n## {heading}\n\n"));
        for invariant in invariants.iter().filter(|one| one.section == word) {
            let mut by_file: BTreeMap<&str, Vec<String>> = BTreeMap::new();
            for Test { file, name } in &invariant.tests {
                by_file.entry(file).or_default().push(format!("`{name}`"));
            }
            let tests = by_file
                .iter()
                .map(|(file, names)| format!("`{file}`: {}", names.join(", ")));
            let tests: Vec<String> = tests.collect();
            text.push_str(&wrapped(&format!(
                "{} {}",
                invariant.sentence,
                tests.join("; ")
            )));
        }
    }
    text
}

#[test]
fn the_invariants_document_matches_the_tests() {
    let invariants = invariants();
    for Invariant { section, tests, .. } in &invariants {
        assert!(
            SECTIONS.iter().any(|(word, _)| word == section),
            "{}: no section {section:?}",
            tests[0].file
        );
    }
    let text = document(&invariants);
    if env::var_os("BLESS").is_some() {
        fs::write(root().join(INVARIANTS), &text).unwrap();
    }
    assert!(
        read(INVARIANTS) == text,
        "{INVARIANTS} is not what the tests say; run BLESS=1 cargo test --test project"
    );
}
