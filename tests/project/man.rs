//! Compares the manual pages of section 1 with the command line; `BLESS=1` writes them.
//!
//! Their text comes from the definitions of the command line and from `man_texts`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap_mangen::Man;
use zarrfs::cli;

use super::man_texts::{
    EXAMPLES, FILES, MOUNT_OPTIONS, MOUNT_OPTIONS_FRAME, OTHERS, PAGES_OF_SECTION_7,
};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("man")
}

/// Returns the command-line definitions of the program and of each command, by page name.
fn commands() -> Vec<(String, clap::Command)> {
    let mut command = cli::command();
    command.build();
    let subcommands = command.get_subcommands().cloned().collect::<Vec<_>>();
    std::iter::once(command)
        .chain(subcommands)
        .map(|command| {
            let name = command.get_display_name().unwrap_or(command.get_name());
            (name.to_string(), command)
        })
        .collect()
}

/// Returns the file names of the pages and their contents.
fn pages() -> Vec<(String, Vec<u8>)> {
    commands()
        .into_iter()
        .map(|(name, command)| (format!("{name}.1"), page(&name, command)))
        .collect()
}

fn page(name: &str, command: clap::Command) -> Vec<u8> {
    let has_subcommands = command.has_subcommands();
    let man = Man::new(command).date("").manual("zarrfs");
    let mut text = Vec::new();
    man.render_title(&mut text).unwrap();
    man.render_name_section(&mut text).unwrap();
    man.render_synopsis_section(&mut text).unwrap();
    man.render_description_section(&mut text).unwrap();
    man.render_options_section(&mut text).unwrap();
    if has_subcommands {
        man.render_subcommands_section(&mut text).unwrap();
    }
    if name == "zarrfs-mount" {
        text.extend(mount_options().into_bytes());
    }
    man.render_version_section(&mut text).unwrap();
    text.extend(files().into_bytes());
    text.extend(examples(name).into_bytes());
    text.extend(see_also(name).into_bytes());
    text
}

/// Escapes text for troff: backslashes, literal hyphens, and quotes.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\e")
        .replace('-', "\\-")
        .replace('\'', "\\(aq")
}

/// Formats a list of names with their descriptions.
fn entries(list: &[(&str, &str)]) -> String {
    let entries = list
        .iter()
        .map(|(name, text)| format!(".TP\n.B \"{}\"\n{}\n", escaped(name), escaped(text)));
    entries.collect()
}

fn files() -> String {
    format!(".SH FILES\n{}", entries(&FILES))
}

fn mount_options() -> String {
    let [before, after] = MOUNT_OPTIONS_FRAME.map(escaped);
    let options = entries(&MOUNT_OPTIONS);
    format!(".SH \"MOUNT OPTIONS\"\n{before}\n{options}.PP\n{after}\n")
}

fn examples_of(name: &str) -> &'static [(&'static str, &'static str)] {
    let found = EXAMPLES.iter().find(|(page, _)| *page == name);
    found.unwrap_or_else(|| panic!("{name} has no examples")).1
}

fn examples(name: &str) -> String {
    let mut text = String::from(".SH EXAMPLES\n");
    for (purpose, lines) in examples_of(name) {
        let (purpose, lines) = (escaped(purpose), escaped(lines));
        text += &format!(".PP\n{purpose}:\n.PP\n.nf\n.RS\n{lines}\n.RE\n.fi\n");
    }
    text
}

fn see_also(name: &str) -> String {
    let others = OTHERS.iter().find(|(page, _)| *page == name);
    let pages: Vec<String> = EXAMPLES
        .iter()
        .filter(|(page, _)| *page != name)
        .map(|(page, _)| format!("{page}(1)"))
        .chain(PAGES_OF_SECTION_7.map(String::from))
        .chain(
            others
                .iter()
                .flat_map(|(_, names)| names.iter().map(|name| name.to_string())),
        )
        .map(|reference| escaped(&reference))
        .collect();
    format!(".SH \"SEE ALSO\"\n{}\n", pages.join(",\n"))
}

/// Invariant of `the_errno_table_is_that_of_the_program`.
#[test]
fn pages_are_those_of_the_command_line() {
    for (name, text) in pages() {
        let path = folder().join(&name);
        if env::var_os("BLESS").is_some() {
            fs::write(&path, &text).unwrap();
        }
        let committed = fs::read(&path).unwrap_or_default();
        assert!(
            committed == text,
            "man/{name} is not what the program says; run BLESS=1 cargo test --test project"
        );
    }
}

/// Returns the zarrfs command lines in the literal blocks of a text: behind a prompt, or indented as in README.md.
/// Joins lines that end in an escape, and drops comments.
fn typed_commands(text: &str) -> Vec<String> {
    let text = text.replace("\\e\n", " ");
    text.lines()
        .filter(|line| line.starts_with("$ ") || line.starts_with("    "))
        .map(|line| line.trim_start_matches([' ', '$']))
        .filter(|line| line.starts_with("zarrfs "))
        .map(|line| line.split(" #").next().unwrap_or(line).to_string())
        .collect()
}

#[test]
fn examples_are_command_lines_that_parse() {
    let mut lines: Vec<String> = EXAMPLES
        .iter()
        .flat_map(|(_, examples)| examples.iter())
        .flat_map(|(_, lines)| lines.lines())
        // The shell's part of a line is not parsed: process substitution and redirection.
        .map(|line| line.trim_start_matches("source <(").trim_end_matches(')'))
        .filter_map(|line| line.split(" > ").next())
        // The form without a command has a test of its own.
        .filter(|line| line.starts_with("zarrfs ") && !line.starts_with("zarrfs samples/"))
        .map(String::from)
        .collect();
    let count = lines.len();
    for page in [
        "zarrfs.7",
        "zarrfs-stores.7",
        "zarrfs-writing.7",
        "../README.md",
    ] {
        let text = fs::read_to_string(folder().join(page)).unwrap();
        let typed = typed_commands(&text);
        assert!(typed.len() >= 2, "{page}: {typed:?}");
        lines.extend(typed);
    }
    assert!(count >= 13 && lines.len() >= count + 19, "{}", lines.len());
    for line in lines {
        let parsed = cli::command().try_get_matches_from(line.split_whitespace());
        assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
    }
}

/// Commands with examples that need no mount.
const OF_STORES: [&str; 7] = ["tree", "ls", "info", "cat", "cp", "map", "preview"];

#[test]
fn examples_on_the_samples_run() {
    let folder = tempfile::tempdir().unwrap();
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("samples");
    std::os::unix::fs::symlink(samples, folder.path().join("samples")).unwrap();
    for command in OF_STORES {
        for (_, lines) in examples_of(&format!("zarrfs-{command}")) {
            for line in lines.lines() {
                let output = Command::new(env!("CARGO_BIN_EXE_zarrfs"))
                    .args(line.split_whitespace().skip(1))
                    .current_dir(folder.path())
                    .output()
                    .unwrap();
                let error = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{line}: {error}");
                let is_silent = output.stdout.is_empty();
                assert_eq!(is_silent, command == "cp", "{line}");
            }
        }
    }
    // The samples, and a file or folder for each -o and each cp.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 6);
}

#[test]
fn every_page_names_the_control_directory() {
    for (name, _) in EXAMPLES {
        let page = fs::read_to_string(folder().join(format!("{name}.1"))).unwrap();
        let (_, files) = page.split_once(".SH FILES\n").unwrap();
        let names = ["files", "errors"].map(|file| format!("DIR/.zarrfs/{file}"));
        assert!(names.iter().all(|file| files.contains(file)), "{name}");
    }
}

/// Returns a page of section 7.
fn page_7(reference: &str) -> String {
    let name = reference.trim_end_matches("(7)");
    fs::read_to_string(folder().join(format!("{name}.7"))).unwrap()
}

#[test]
fn the_manual_begins_with_the_line_of_a_mount() {
    let page = page_7("zarrfs(7)");
    let (_, text) = page.split_once(".Sh DESCRIPTION\n").unwrap();
    let first = ".Xr zarrfs-mount 1\nputs a Zarr store at a directory, and prints a line that says what it found and \
                 where the decoded arrays are.\n";
    assert!(text.starts_with(first), "{text:.300}");
}

#[test]
fn every_page_leads_to_the_manual_and_to_all_that_belongs_to_it() {
    for (name, _) in EXAMPLES {
        let page = fs::read_to_string(folder().join(format!("{name}.1"))).unwrap();
        let (_, references) = page.split_once(".SH \"SEE ALSO\"\n").unwrap();
        let others = EXAMPLES.iter().filter(|(other, _)| other != name);
        let others = others.map(|(other, _)| format!("{other}(1)"));
        for other in others.chain(PAGES_OF_SECTION_7.map(String::from)) {
            let is_there = references
                .lines()
                .any(|line| line.trim_end_matches(',') == escaped(&other));
            assert!(is_there, "{name} does not lead to {other}");
        }
    }
    for name in PAGES_OF_SECTION_7 {
        let page = page_7(name);
        let (_, references) = page.split_once(".Sh SEE ALSO\n").unwrap();
        let others = PAGES_OF_SECTION_7.iter().filter(|other| **other != name);
        for other in others.chain(&["zarrfs-mount(1)"]) {
            let reference = format!(".Xr {}", other.replace('(', " ").replace(')', ""));
            let mut lines = references.lines().map(|line| line.trim_end_matches(" ,"));
            assert!(
                lines.any(|line| line == reference),
                "{name} does not lead to {other}"
            );
        }
        assert!(page.contains(".zarrfs"), "{name}");
    }
}

#[test]
fn what_programs_miss_is_in_the_manual() {
    let page = page_7("zarrfs-files(7)");
    let (_, text) = page.split_once(".Sh DIFFERENCES FROM POSIX\n").unwrap();
    let (text, _) = text.split_once("\n.Sh ").unwrap();
    for sentence in [
        "a file without a name\n.Pq Dv O_TMPFILE\ncannot be made (both EOPNOTSUPP).\n",
        "The flags of\n.Xr chattr 1\nare not there (ENOTTY).\n",
        ".Xr lseek 2\nfinds no holes: with\n.Dv SEEK_HOLE\nit goes to the end of the file.\n",
    ] {
        assert!(text.contains(sentence), "{sentence}");
    }
}

#[test]
fn examples_of_the_help_are_command_lines_that_parse() {
    for (name, command) in commands() {
        let help = command.get_after_help().unwrap().to_string();
        assert!(help.contains("DIR/.zarrfs/files"), "{name}");
        let lines = help
            .lines()
            .filter_map(|line| line.strip_prefix("  zarrfs "));
        let lines: Vec<&str> = lines.collect();
        assert!(!lines.is_empty(), "{name}");
        for line in lines {
            let words = line.split(" #").next().unwrap().split_whitespace();
            let words = std::iter::once("zarrfs").chain(words);
            assert!(cli::command().try_get_matches_from(words).is_ok(), "{line}");
        }
    }
}

#[test]
fn every_page_has_examples_and_leads_on() {
    let mut count = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let (_, rest) = text
            .split_once("H EXAMPLES\n")
            .or_else(|| text.split_once("h EXAMPLES\n"))
            .unwrap_or_else(|| panic!("{} has no examples", path.display()));
        let (examples, references) = rest
            .split_once("SEE ALSO")
            .unwrap_or_else(|| panic!("{} does not lead on", path.display()));
        assert!(examples.lines().count() > 4, "{}", path.display());
        assert!(references.lines().count() > 4, "{}", path.display());
        count += 1;
    }
    assert_eq!(count, EXAMPLES.len() + PAGES_OF_SECTION_7.len());
}
