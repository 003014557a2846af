//! Compares the documents in `docs`, README.md and ARCHITECTURE.md with the program.
//!
//! Each test takes a list from the program (kinds of errors, counters, options, files of a mount) or from the source
//! tree, and looks for each item in the text. Reviewers check the descriptions.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use zarr_format::dialect::typestr;
use zarr_format::error::Kind;
use zarr_format::model::DataType;
use zarrfs::mount::open::{ViewKind, ViewsConfig, open_views};
use zarrfs::view::View;
use zarrfs_array::array::SpillConfig;
use zarrfs_export::formats::npy;
use zarrfs_store::request_context::UNLIMITED;
use zarrfs_store::stats::Stats;
use zarrfs_store::{EntryKind, Key};

const ERRORS_PAGE: &str = "docs/reference/errors.md";
const FILES_PAGE: &str = "docs/reference/files.md";
pub(crate) const FORMATS_PAGE: &str = "docs/reference/formats.md";
const MOUNT_PAGE: &str = "man/zarrfs-mount.1";
pub(crate) const INVARIANTS: &str = "docs/invariants.md";

/// The folders with sources and documents. Others, such as `target` and `.git`, are left out.
const FOLDERS: [&str; 9] = [
    ".ci",
    "crates",
    "docs",
    "man",
    "packaging",
    "python",
    "scripts",
    "src",
    "tests",
];

pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

pub(crate) fn files_below(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                let name = path.file_name().unwrap().to_string_lossy();
                if !name.starts_with(['.', '_']) {
                    folders.push(path);
                }
            } else {
                let short = path.strip_prefix(root()).unwrap();
                found.push(short.to_str().unwrap().to_string());
            }
        }
    }
    found.sort();
    found
}

pub(crate) fn section<'a>(text: &'a str, heading: &str) -> &'a str {
    let mark = heading.split_once(' ').unwrap().0;
    let start = text.find(&format!("\n{heading}\n")).expect(heading) + heading.len() + 2;
    let end = text[start..].find(&format!("\n{mark} "));
    &text[start..end.map_or(text.len(), |end| start + end)]
}

/// Returns the cells of a Markdown table by row, without the heading and without backticks.
pub(crate) fn table_rows(text: &str) -> Vec<Vec<String>> {
    let rows = text.lines().filter(|line| line.starts_with("| "));
    let rows = rows.map(|row| {
        let row = row.trim().trim_start_matches("| ").trim_end_matches(" |");
        let cells = row.split(" | ");
        let plain = |cell: &str| cell.trim().trim_matches('`').replace("\\|", "|");
        cells.map(plain).collect()
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let body = rows.iter().position(|cells| cells[0].starts_with("---"));
    rows.into_iter()
        .skip(body.map_or(0, |place| place + 1))
        .collect()
}

/// Returns the words of a manual page. A word may contain letters, digits, `_`, `-` and `.`.
fn words(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !(c.is_alphanumeric() || "_-.".contains(c)))
        .map(|word| word.trim_end_matches('.'))
        .collect()
}

/// Returns the parts of a text that stand between quotes.
fn quoted(text: &str, quote: char) -> Vec<&str> {
    text.split(quote).skip(1).step_by(2).collect()
}

fn number_of(errno: &str) -> i32 {
    macro_rules! known {
        ($($name:ident),+) => {
            [$((stringify!($name), libc::$name)),+]
        };
    }
    let known = known!(
        EACCES,
        EAGAIN,
        EBUSY,
        EEXIST,
        EFBIG,
        EINTR,
        EINVAL,
        EIO,
        EISDIR,
        ELOOP,
        EMLINK,
        ENAMETOOLONG,
        ENFILE,
        ENODATA,
        ENOENT,
        ENOSPC,
        ENOSYS,
        ENOTDIR,
        ENOTEMPTY,
        EOPNOTSUPP,
        EPERM,
        EROFS,
        ESTALE,
        ETIMEDOUT,
        EXDEV
    );
    let found = known.iter().find(|(name, _)| *name == errno);
    found.unwrap_or_else(|| panic!("{errno} is no errno")).1
}

/// Invariant (texts): The documents say what the program does.
#[test]
fn the_errno_table_matches_the_program() {
    let page = read(ERRORS_PAGE);
    let rows = table_rows(section(&page, "## Errors"))
        .into_iter()
        .map(|cells| {
            let [kind, errno, when] = &cells[..] else {
                panic!("{cells:?}")
            };
            assert!(when.len() > 10, "{kind}: no word about when");
            (kind.clone(), number_of(errno))
        });
    let program = Kind::ALL.map(|kind| (format!("{kind:?}"), kind.errno()));
    assert_eq!(rows.collect::<Vec<_>>(), program);
}

/// Returns the type, `descr` and number of bytes of each data type in a document's table.
fn data_types(page: &str) -> Vec<(String, String, usize)> {
    let rows = table_rows(section(page, "## Data types")).into_iter();
    let rows = rows.filter_map(|cells| {
        let [name, descr, bytes, ..] = &cells[..] else {
            panic!("{cells:?}")
        };
        Some((name.clone(), descr.clone(), bytes.parse().ok()?))
    });
    rows.collect()
}

#[test]
fn the_table_of_data_types_matches_the_program() {
    let rows = data_types(&read(FORMATS_PAGE));
    for (name, descr, bytes) in &rows {
        let typed = typestr::parse(&json!(descr)).unwrap();
        let found = npy::descr(&typed.data_type);
        assert_eq!(found, Some(format!("'{descr}'")), "{name}");
        assert_eq!(typed.data_type.size(), Some(*bytes), "{name}");
        if let known @ (DataType::Small(_) | DataType::Float(_)) = DataType::from_v3(name) {
            assert_eq!(npy::descr(&known), found, "{name}");
        }
    }
    let numbers = read("crates/zarr-format/src/model/number_type.rs");
    let table = numbers.split("const NUMBERS").nth(1).unwrap();
    let table = table.split("\n];").next().unwrap();
    let names = quoted(table, '"')
        .into_iter()
        .filter(|name| !name.starts_with('|'));
    for name in names {
        assert!(
            rows.iter().any(|(row, ..)| row == name),
            "no row for {name}"
        );
    }
    assert!(rows.len() >= 38, "{} rows", rows.len());
}

#[test]
fn every_counter_is_documented() {
    let page = read(ERRORS_PAGE);
    let entries: Vec<&str> = section(&page, "## Counters")
        .lines()
        .filter_map(|line| line.strip_prefix("- `")?.split('`').next())
        .collect();
    let snapshot = Stats::default().snapshot();
    let counters: Vec<&str> = snapshot.iter().map(|(name, _)| *name).collect();
    assert_eq!(entries, counters);
}

/// Returns the strings in a constant list of `src/cli/options.rs`.
fn options(list: &str) -> Vec<String> {
    let source = read("src/cli/options.rs");
    let start = source.find(&format!("const {list}: ")).expect(list);
    let text = source[start..].split("];").next().unwrap();
    let names = quoted(text, '"');
    assert!(names.len() > 10);
    names.into_iter().map(str::to_string).collect()
}

#[test]
fn every_mount_option_is_documented() {
    let page = read(MOUNT_PAGE);
    let text = section(&page, ".SH \"MOUNT OPTIONS\"").replace("\\-", "-");
    let words = words(&text);
    let command = zarrfs::cli::command();
    let mount = command.find_subcommand("mount").unwrap();
    let is_long = |name: &str| {
        let name = name.replace('_', "-");
        let mut options = mount.get_arguments();
        options.any(|option| option.get_long() == Some(name.as_str()))
    };
    for name in options("KNOWN").iter().chain(&options("IGNORED")) {
        assert!(is_long(name) || words.contains(name.as_str()), "{name}");
    }
}

/// Collects the names of a view. An array's own name becomes NAME, a group's becomes GROUP, and chunk indices become
/// 0.3.1.
fn collect_names(view: &dyn View, path: &Key, found: &mut BTreeSet<String>) {
    let mut listing = view.list(&UNLIMITED, path).unwrap();
    let names = std::iter::from_fn(|| listing.next(&UNLIMITED).unwrap());
    let names: Vec<_> = names.collect();
    let is_array = names.iter().any(|name| name.name == b"chunks");
    let kind = if is_array { "NAME" } else { "GROUP" };
    for name in names {
        let child = path.child(&name.name).unwrap();
        let text = String::from_utf8(name.name).unwrap();
        let parent = match path.name() {
            b"" => "climate".to_string(),
            name => String::from_utf8_lossy(name).into_owned(),
        };
        if name.kind == EntryKind::Directory {
            if text == "chunks" {
                found.insert(text);
            }
            collect_names(view, &child, found);
        } else if parent == "chunks" {
            let (place, extension) = text.rsplit_once('.').unwrap();
            assert!(place.split('.').all(|index| index.parse::<u64>().is_ok()));
            found.insert(format!("chunks/0.3.1.{extension}"));
        } else {
            let extension = text.strip_prefix(&format!("{parent}."));
            found.insert(extension.map_or(text.clone(), |end| format!("{kind}.{end}")));
        }
    }
}

#[test]
fn every_file_of_a_mount_is_documented() {
    let config = ViewsConfig {
        source: root().join("samples/climate.zarr").display().to_string(),
        list: vec!["all".parse().unwrap()],
        memory: 1 << 20,
        max_chunk: 1 << 20,
        spill: SpillConfig::default(),
        timeout: Duration::from_secs(60),
        hierarchy: zarrfs_array::hierarchy::HierarchyConfig::default(),
        store: zarrfs_store::StoreConfig::default(),
        overlay: None,
        rebind: false,
        lossy: false,
        options: Vec::new(),
    };
    let faces = open_views(&config, &Arc::default()).unwrap();
    let view = faces.view(ViewKind::Files);
    let mut files = BTreeSet::new();
    collect_names(view.as_ref(), &Key::root(), &mut files);
    assert!(files.contains("chunks") && files.contains("NAME.npy"));
    let control = Key::new(".zarrfs").unwrap();
    let mut listing = view.list(&UNLIMITED, &control).unwrap();
    files.insert(control.to_string());
    while let Some(name) = listing.next(&UNLIMITED).unwrap() {
        files.insert(String::from_utf8(name.name).unwrap());
    }
    let page = ["docs/reference/mounts.md", FILES_PAGE].map(read).concat();
    let named: BTreeSet<&str> = quoted(&page, '`').into_iter().collect();
    for file in &files {
        assert!(named.contains(file.as_str()), "the pages have no {file}");
    }
}

#[test]
fn the_readme_is_short_and_its_scripts_exist() {
    let readme = read("README.md");
    assert!(readme.lines().count() <= 120);
    let commands: BTreeSet<&str> = readme
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|word| word.starts_with("scripts/"))
        .collect();
    assert!(commands.contains("scripts/test") && commands.contains("scripts/try"));
    for command in commands {
        let meta = fs::metadata(root().join(command)).expect(command);
        assert!(
            meta.is_file() && meta.permissions().mode() & 0o111 == 0o111,
            "{command} cannot be run"
        );
    }
}

#[test]
fn every_path_in_a_document_exists() {
    let mut documents = files_below("docs");
    documents.retain(|path| path.ends_with(".md"));
    documents.extend(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(String::from));
    for document in documents {
        let text = read(&document);
        let words = text.split(|c: char| c.is_whitespace() || "`(),:;".contains(c));
        let ours = |word: &&str| {
            FOLDERS
                .iter()
                .any(|folder| word.starts_with(&format!("{folder}/")))
                && !word.contains(['*', '<', '$'])
                && !word.contains("NAME")
        };
        for path in words.filter(ours) {
            let path = path.trim_end_matches(['.', '\'']);
            assert!(root().join(path).exists(), "{document} names {path}");
        }
    }
}

fn has_test(path: &str, name: &str) -> bool {
    let text = read(path);
    if path.ends_with(".py") {
        return name.starts_with("test_") && text.contains(&format!("def {name}("));
    }
    let before = text.split(&format!("fn {name}(")).next().unwrap();
    // Operations on mounts lack `#[test]`, because a table calls them for each backend.
    let is_called = path.starts_with("tests/mounts/operations/");
    before.len() < text.len() && (is_called || before.trim_end().ends_with("#[test]"))
}

/// Returns the paragraphs and list items of a document between two headings, without code and tables.
fn paragraphs(page: &str, from: &str, to: Option<&str>) -> Vec<String> {
    let begin = page.find(&format!("\n## {from}\n")).expect(from);
    let end = to.map_or(page.len(), |to| {
        page.find(&format!("\n## {to}\n")).expect(to)
    });
    let code = page[begin..end].split("\n```");
    // After the split, every second part is a code block.
    let text: String = code.step_by(2).collect::<Vec<_>>().join("\n\n");
    let mut paragraphs: Vec<String> = Vec::new();
    for part in text.replace("\n- ", "\n\n- ").split("\n\n") {
        let part = part.trim();
        match paragraphs.last_mut() {
            // Add a comment to the paragraph before it, for which it names the tests.
            Some(last) if part.starts_with("<!--") => *last += part,
            _ if part.is_empty() || part.starts_with(['#', '|']) => {}
            _ => paragraphs.push(part.to_string()),
        }
    }
    paragraphs
}

/// Checks that each paragraph about writing that promises something names its tests in comments: a file, and a test in
/// it.
#[test]
fn every_promise_about_writing_names_a_test() {
    check_promises(
        "docs/reference/writing.md",
        "The store view",
        Some("Examples"),
    );
}

/// Checks that each paragraph about missing keys that promises something names its tests in comments.
#[test]
fn every_promise_about_missing_keys_names_a_test() {
    let page = read("docs/reference/stores.md");
    let after = page.split("\n## Missing keys\n").nth(1).unwrap();
    let next = after.split("\n## ").nth(1).unwrap().lines().next().unwrap();
    check_promises("docs/reference/stores.md", "Missing keys", Some(next));
}

fn check_promises(page: &str, from: &str, to: Option<&str>) {
    for paragraph in paragraphs(&read(page), from, to) {
        let is_introduction = paragraph.ends_with(':');
        assert!(
            is_introduction || paragraph.contains("<!-- "),
            "no test: {paragraph}"
        );
    }
}

/// Checks that each test that a document's comment names exists.
#[test]
fn every_named_test_exists() {
    let mut count = 0;
    for path in files_below("docs/reference") {
        let text = read(&path);
        for comment in text.split("<!-- ").skip(1) {
            let (named, _) = comment.split_once(" -->").expect(&path);
            let (file, name) = named
                .split_once(' ')
                .unwrap_or_else(|| panic!("{path}: {named}"));
            assert!(has_test(file, name), "{path}: {file} has no test {name}");
            count += 1;
        }
    }
    assert!(count > 100, "{count}");
}

/// Endings of files that are not checked because they are no text, or are written by proptest.
const BINARY: [&str; 4] = [".png", ".parq", ".tar.gz", ".proptest-regressions"];

fn texts() -> Vec<String> {
    let beside = fs::read_dir(root()).unwrap().filter_map(|entry| {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let is_ours = !name.starts_with('.') && entry.file_type().unwrap().is_file();
        is_ours.then_some(name)
    });
    let mut texts: Vec<String> = FOLDERS
        .iter()
        .flat_map(|folder| files_below(folder))
        .collect();
    texts.extend(beside);
    texts.push("samples/make.py".to_string());
    let is_text = |path: &String| !BINARY.iter().any(|ending| path.ends_with(ending));
    texts.retain(is_text);
    texts
}

#[test]
fn documents_and_sources_are_ascii() {
    let texts = texts();
    assert!(texts.len() > 100);
    for path in texts {
        let bytes = fs::read(root().join(&path)).unwrap();
        let line = bytes
            .split(|&byte| byte == b'\n')
            .position(|line| !line.is_ascii());
        assert_eq!(
            line.map(|line| line + 1),
            None,
            "{path}: line of the first other letter"
        );
    }
}

#[test]
fn every_source_file_begins_with_a_module_comment() {
    let sources = ["crates", "src", "tests", "scripts"]
        .map(files_below)
        .concat();
    let sources: Vec<_> = sources
        .iter()
        .filter(|path| path.ends_with(".rs"))
        .collect();
    assert!(sources.len() > 60);
    for path in sources {
        let first = read(path).lines().next().unwrap_or_default().to_string();
        assert!(
            first.len() > 10 && first.starts_with("//! "),
            "{path} opens with '{first}'"
        );
    }
}

#[test]
fn every_dependency_says_what_it_is_for() {
    let text = read("Cargo.toml");
    let sources = ["crates", "scripts", "src", "tests"]
        .map(files_below)
        .concat();
    let mut count = 0;
    let mut before = "";
    let (_, dependencies) = text.split_once("\n[workspace.dependencies]\n").unwrap();
    for line in dependencies
        .lines()
        .take_while(|line| !line.starts_with('['))
    {
        if line.starts_with(|c: char| c.is_ascii_alphanumeric()) && line.contains('=') {
            count += 1;
            assert!(
                before.len() > 5 && before.starts_with("# "),
                "no comment before: {line}"
            );
            let words = before
                .split(['(', ')'])
                .filter(|word| word.ends_with(".rs"));
            for path in words {
                let is_there = sources.iter().any(|source| source.ends_with(path));
                assert!(is_there, "{line}: {path}");
            }
        }
        before = line;
    }
    assert!(count > 10);
}
