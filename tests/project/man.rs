//! Compares the manual pages of section 1 with the command line; `BLESS=1` writes them.
//!
//! Their text comes from the definitions of the command line: options, examples and help are the same there and here.
//! Pages of section 7 are made from `docs/reference` by `scripts/docs`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap_mangen::Man;
use zarrfs::cli;

/// The commands that open stores, whose manual pages list environment variables.
const OPEN_STORES: [&str; 13] = [
    "mount", "status", "diff", "commit", "discard", "tree", "ls", "info", "cat", "cp", "map",
    "preview", "check",
];

/// The environment variables in the manual pages of commands on stores, with their descriptions.
const ENVIRONMENT: [(&str, &str); 6] = [
    (
        "AWS_PROFILE, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL",
        "Credentials, region and server of s3:// stores.",
    ),
    (
        "GOOGLE_APPLICATION_CREDENTIALS",
        "File with the credentials of gs:// stores.",
    ),
    (
        "AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY",
        "Account and key of az:// and abfss:// stores.",
    ),
    ("HTTP_PROXY, HTTPS_PROXY, NO_PROXY", "Proxy servers."),
    (
        "SSL_CERT_FILE, SSL_CERT_DIR",
        "Certificates of trusted servers, in place of those of the system.",
    ),
    ("NO_COLOR", "Print without colours."),
];

/// Options that only `-o` accepts, including those from fstab(5), with their descriptions.
const MOUNT_OPTIONS: [(&str, &str); 8] = [
    (
        "NAME, NAME=VALUE",
        "Every long option of this page, with _ for -, such as allow_other or cache_dir=DIR. Lists are joined by : \
         (list=raw:tif). A comma in a value is written \\,",
    ),
    (
        "fsname=NAME",
        "Source in the table of mounts. The default is the store.",
    ),
    (
        "readahead=SIZE",
        "Kernel read-ahead. The default is 1M; only root can change it.",
    ),
    (
        "ro",
        "Refuse changes, also with cow or write_through. Without these a mount is always read-only.",
    ),
    ("noexec, noatime, sync, dirsync", "As in mount(8)."),
    ("verbose", "Log more. You can repeat it."),
    (
        "async, atime, auto, comment, default_permissions, defaults, dev, diratime, exec, group, lazytime, loud, \
         _netdev, noauto, nodev, nodiratime, nofail, nogroup, nolazytime, noowner, norelatime, nostrictatime, nosuid, \
         nouser, nousers, owner, relatime, rw, silent, strictatime, subtype, suid, user, users",
        "Accepted without effect. A mount is always nosuid and nodev.",
    ),
    (
        "x-NAME, X-NAME",
        "Accepted without effect: options of other programs.",
    ),
];

/// Further pages that the page of a command refers to.
const OTHERS: [(&str, &[&str]); 6] = [
    (
        "mount",
        &[
            "zarrfs-umount(1)",
            "zarrfs-status(1)",
            "fstab(5)",
            "fuse(4)",
            "mount(8)",
        ],
    ),
    (
        "umount",
        &["zarrfs-mount(1)", "fusermount3(1)", "umount(8)"],
    ),
    ("list", &["zarrfs-mount(1)", "findmnt(8)"]),
    (
        "status",
        &["zarrfs-diff(1)", "zarrfs-commit(1)", "zarrfs-discard(1)"],
    ),
    (
        "diff",
        &["zarrfs-status(1)", "zarrfs-commit(1)", "zarrfs-discard(1)"],
    ),
    ("check", &["zarrfs-findings(7)", "zarrfs-info(1)"]),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("man")
}

/// Returns the program and each command as clap defines it, with the name of its manual page.
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

/// Returns the file name and the content of each manual page.
fn pages() -> Vec<(String, Vec<u8>)> {
    commands()
        .into_iter()
        .map(|(name, command)| (format!("{name}.1"), page(&name, command)))
        .collect()
}

fn page(name: &str, command: clap::Command) -> Vec<u8> {
    let has_subcommands = command.has_subcommands();
    let short = name.trim_start_matches("zarrfs-").to_string();
    let (synopsis, examples) = (synopsis(&command), examples(&command));
    // Show all options, including those that `-h` leaves out.
    let command = command.mut_args(|argument| argument.hide_short_help(false));
    let man = Man::new(command).date("").manual("zarrfs");
    let mut text = Vec::new();
    man.render_title(&mut text).unwrap();
    man.render_name_section(&mut text).unwrap();
    text.extend(synopsis.into_bytes());
    man.render_description_section(&mut text).unwrap();
    if has_subcommands {
        man.render_subcommands_section(&mut text).unwrap();
    }
    man.render_options_section(&mut text).unwrap();
    if short == "mount" {
        text.extend(format!(".SH \"MOUNT OPTIONS\"\n{}", entries(&MOUNT_OPTIONS)).into_bytes());
    }
    if OPEN_STORES.contains(&short.as_str()) {
        text.extend(format!(".SH ENVIRONMENT\n{}", entries(&ENVIRONMENT)).into_bytes());
    }
    text.extend(examples.into_bytes());
    text.extend(see_also(name, &short).into_bytes());
    text
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\e")
        .replace('-', "\\-")
        .replace('\'', "\\(aq")
}

/// Formats names and their descriptions as troff list entries.
fn entries(list: &[(&str, &str)]) -> String {
    let entries = list
        .iter()
        .map(|(name, text)| format!(".TP\n.B \"{}\"\n{}\n", escaped(name), escaped(text)));
    entries.collect()
}

/// Formats the synopsis of a command: the options that `-h` shows with their values, and the arguments.
fn synopsis(command: &clap::Command) -> String {
    if command.has_subcommands() {
        let lines = "zarrfs COMMAND [OPTIONS] ...\n.br\nzarrfs STORE DIR [OPTIONS]";
        return format!(".SH SYNOPSIS\n{lines}\n");
    }
    let mut words = vec![command.get_display_name().unwrap().replace('-', " ")];
    let arguments = || {
        command
            .get_arguments()
            .filter(|argument| !argument.is_hide_set())
    };
    for option in arguments().filter(|argument| !argument.is_positional()) {
        if option.is_hide_short_help_set() {
            continue;
        }
        let name = match (option.get_short(), option.get_long()) {
            (_, Some(long)) => format!("--{long}"),
            (short, None) => format!("-{}", short.unwrap()),
        };
        let takes_value = option.get_action().takes_values();
        let value = option.get_value_names().filter(|_| takes_value);
        words.push(match value.and_then(|names| names.first()) {
            Some(value) => format!("[{name} {value}]"),
            None => format!("[{name}]"),
        });
    }
    words.push("[OPTIONS]".to_string());
    for argument in arguments().filter(|argument| argument.is_positional()) {
        let name = argument.get_value_names().unwrap()[0].to_string();
        words.push(if argument.is_required_set() {
            name
        } else {
            format!("[{name}]")
        });
    }
    // Keep an option and its value on one line with an unbreakable space.
    let words: Vec<String> = words
        .iter()
        .map(|word| escaped(word).replace(' ', "\\~"))
        .collect();
    format!(".SH SYNOPSIS\n{}\n", words.join(" "))
}

/// Returns the example command lines in the long help of a command.
fn examples_of(command: &clap::Command) -> Vec<String> {
    let help = command
        .get_after_long_help()
        .map(ToString::to_string)
        .unwrap_or_default();
    let lines = help.lines().filter_map(|line| line.strip_prefix("  "));
    lines.map(str::to_string).collect()
}

fn examples(command: &clap::Command) -> String {
    let mut lines = examples_of(command);
    if command.has_subcommands() {
        lines = [
            "zarrfs mount --view files data.zarr /mnt/data",
            "ls /mnt/data",
            "zarrfs umount /mnt/data",
        ]
        .map(str::to_string)
        .into();
    }
    let lines: Vec<String> = lines.iter().map(|line| escaped(line)).collect();
    format!(".SH EXAMPLES\n.nf\n{}\n.fi\n", lines.join("\n"))
}

fn see_also(name: &str, short: &str) -> String {
    let others = OTHERS.iter().find(|(command, _)| *command == short);
    let others = others.iter().flat_map(|(_, names)| names.iter());
    let mut pages: Vec<String> = others.map(|name| escaped(name)).collect();
    if name != "zarrfs" {
        pages.push("zarrfs(1)".to_string());
    }
    let further = [
        "files", "formats", "stores", "caching", "writing", "errors", "admin",
    ];
    pages.push("zarrfs(7)".to_string());
    pages.extend(further.map(|page| escaped(&format!("zarrfs-{page}(7)"))));
    format!(".SH \"SEE ALSO\"\n{}\n", pages.join(",\n"))
}

/// Invariant of `the_errno_table_matches_the_program`.
#[test]
fn manual_pages_match_the_command_line() {
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
    let count = fs::read_dir(folder()).unwrap().count();
    assert_eq!(count, pages().len(), "a page of no command");
}

/// Checks the page of all commands in the book, which is generated from the commands' help.
#[test]
fn the_commands_page_has_the_help_of_each_command() {
    let mut text = String::from(
        "# Commands\n\nThis page is generated: it has what `zarrfs COMMAND --help` prints.\n",
    );
    for (name, mut command) in commands() {
        let help = command.render_long_help().to_string();
        let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
        let name = name.replace('-', " ");
        text += &format!(
            "\n## {name}\n\n```text\n{}\n```\n",
            lines.join("\n").trim_end()
        );
    }
    let path = folder().join("../docs/reference/commands.md");
    if env::var_os("BLESS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == text,
        "docs/reference/commands.md is outdated: run BLESS=1 cargo test --test project"
    );
}

/// Returns the zarrfs command lines in a document, without prompt, comments and redirections.
pub(crate) fn typed_commands(text: &str) -> Vec<String> {
    text.replace("\\\n", " ")
        .lines()
        .map(|line| line.trim_start().trim_start_matches("$ "))
        .filter(|line| line.starts_with("zarrfs "))
        .filter_map(|line| line.split([';', '|', '>', '&']).next())
        .filter_map(|line| line.split(" #").next())
        .map(str::to_string)
        .collect()
}

/// Invariant of `the_errno_table_matches_the_program`.
#[test]
fn examples_are_command_lines_that_parse() {
    let mut lines: Vec<String> = Vec::new();
    for (_, command) in commands() {
        lines.extend(examples_of(&command));
    }
    let lines: Vec<String> = lines.iter().flat_map(|line| typed_commands(line)).collect();
    assert!(lines.len() >= 30, "{}", lines.len());
    for line in lines {
        let words = line.split_whitespace();
        let parsed = cli::command().try_get_matches_from(words);
        assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
    }
}

#[test]
fn examples_on_the_samples_run() {
    let folder = tempfile::tempdir().unwrap();
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("samples/climate.zarr");
    std::os::unix::fs::symlink(sample, folder.path().join("data.zarr")).unwrap();
    let mut count = 0;
    for (name, command) in commands() {
        for line in examples_of(&command)
            .iter()
            .flat_map(|line| typed_commands(line))
        {
            let is_here = line.contains(" data.zarr") && !line.contains("://");
            if !is_here || name == "zarrfs-mount" {
                continue;
            }
            let output = Command::new(env!("CARGO_BIN_EXE_zarrfs"))
                .args(line.split_whitespace().skip(1))
                .current_dir(folder.path())
                .output()
                .unwrap();
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{line}: {error}");
            count += 1;
        }
    }
    assert!(count >= 20, "{count}");
}
