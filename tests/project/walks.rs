//! The walks of `ARCHITECTURE.md` are those of the sources: each function is there, and a cached read takes few.

use std::collections::BTreeSet;
use std::path::Path;

use crate::sources::{Source, sources};

/// The most functions of a cached read, and the most files that these are in.
const MAX_FUNCTIONS: usize = 8;
const MAX_FILES: usize = 6;

/// Returns the names that a paragraph of `ARCHITECTURE.md` has between backquotes.
fn names(paragraph: &str) -> Vec<String> {
    paragraph
        .split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_string)
        .collect()
}

fn walks() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, after) = text.split_once("## Five walks").unwrap();
    after.split("\n## ").next().unwrap().to_string()
}

/// Returns the text of each function of a name in a source.
fn bodies<'a>(source: &'a Source, name: &'a str) -> impl Iterator<Item = &'a str> {
    let starts = source.code.match_indices("fn ");
    starts.filter_map(move |(at, start)| {
        let rest = &source.code[at + start.len()..];
        let after = rest.strip_prefix(name)?;
        after.starts_with(['(', '<']).then(|| body(after)).flatten()
    })
}

/// Returns a function from its arguments to the end of its braces; nothing if it has none.
fn body(text: &str) -> Option<&str> {
    let open = text
        .find(['{', ';'])
        .filter(|&at| text[at..].starts_with('{'))?;
    let mut depth = 0;
    for (place, sign) in text[open..].char_indices() {
        match sign {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(&text[..open + place]);
        }
    }
    None
}

/// Returns the sources that have the functions of a type, a trait or a module by this name.
fn files_of(function: &str) -> Vec<&'static Source> {
    let (owner, name) = function.split_once("::").unwrap_or(("", function));
    let is_of = |source: &&Source| {
        let mut headers = source.code.split("\nimpl").skip(1);
        owner.is_empty()
            || headers.any(|rest| implemented(rest) == owner)
            || source.code.contains(&format!("trait {owner}"))
            || source.module.iter().any(|module| module == owner)
    };
    let with_name = |source: &&Source| bodies(source, name).next().is_some();
    sources().iter().filter(is_of).filter(with_name).collect()
}

/// Returns the type of an `impl`, whose word was taken off.
fn implemented(rest: &str) -> &str {
    let header = rest.split('{').next().unwrap_or_default();
    let header = match header.strip_prefix('<') {
        Some(generics) => generics.split_once("> ").map_or("", |(_, after)| after),
        None => header.trim_start(),
    };
    let target = header.rsplit(" for ").next().unwrap_or_default();
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    target.split(|c| !is_part(c)).next().unwrap_or_default()
}

/// Returns the functions that a text names and the sources do not have. A name in small letters is that of a function, with
/// its owner before `::` or alone, or that of a module.
fn missing(text: &str) -> (usize, Vec<String>) {
    let is_function = |name: &String| {
        let last = name.rsplit("::").next().unwrap_or_default();
        last.starts_with(|c: char| c.is_ascii_lowercase())
            && last.chars().all(|c| c.is_alphanumeric() || c == '_')
    };
    let is_module = |name: &str| {
        let modules = sources().iter().filter_map(|source| source.module.last());
        modules.into_iter().any(|module| module == name)
    };
    let functions: BTreeSet<String> = names(text).into_iter().filter(is_function).collect();
    let count = functions.len();
    let is_there = |name: &String| {
        let is_owned = name.contains("::");
        !files_of(name).is_empty()
            || (is_owned && (is_trait_call(name) || is_field(name)))
            || (!is_owned && is_module(name))
    };
    (
        count,
        functions
            .into_iter()
            .filter(|name| !is_there(name))
            .collect(),
    )
}

#[test]
fn every_function_of_a_walk_is_there() {
    let (count, missing) = missing(&walks());
    assert!(count > 50, "{count}");
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn functions_that_are_made_up_are_missing() {
    // Names of fields and of other types' functions are none of the functions that are named.
    let walk = "`Vfs::read_now` -> `Export::key` -> `Overlay::read_now` (`no_such_step`, `shard_group`), \
                then `Store::get` -> `Store::no_such_step`";
    let expected = [
        "Export::key",
        "Overlay::read_now",
        "Store::no_such_step",
        "no_such_step",
    ];
    assert_eq!(missing(walk), (7, expected.map(str::to_string).to_vec()));
}

/// Whether a struct has a field by this name, which holds the function.
fn is_field(function: &str) -> bool {
    let (owner, name) = function.split_once("::").unwrap_or(("", function));
    sources().iter().any(|source| {
        let fields = source.code.split_once(&format!("struct {owner} {{"));
        let fields = fields.and_then(|(_, after)| after.split_once("\n}"));
        fields.is_some_and(|(fields, _)| fields.contains(&format!(" {name}: ")))
    })
}

/// Whether a trait declares the method.
fn is_trait_call(function: &str) -> bool {
    let (owner, name) = function.split_once("::").unwrap_or(("", function));
    sources().iter().any(|source| {
        source.code.contains(&format!("trait {owner}"))
            && source.code.contains(&format!("fn {name}("))
    })
}

#[test]
fn a_cached_read_takes_few_functions() {
    let walks = walks();
    let (_, walk) = walks.split_once("**A cached read").unwrap();
    let arrows = walk.split_once(". ").unwrap().0;
    let functions = names(arrows);
    assert!(functions.len() <= MAX_FUNCTIONS, "{functions:?}");
    let mut files = BTreeSet::new();
    let mut before: Vec<&str> = Vec::new();
    for function in &functions {
        let name = function.rsplit("::").next().unwrap();
        let found = files_of(function);
        assert!(!found.is_empty(), "{function}");
        let call = format!("{name}(");
        let is_called = before.iter().any(|body| body.contains(&call));
        assert!(before.is_empty() || is_called, "nothing calls {function}");
        files.extend(found.iter().map(|source| &source.file));
        before.extend(found.iter().flat_map(|source| bodies(source, name)));
    }
    assert!(files.len() <= MAX_FILES, "{files:#?}");
}
