//! Tests forms of command lines and option values, and the errors for wrong ones.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Output};

use crate::mounting::fixture::{Fixture, PROGRAM, soon, stderr};

/// Runs zarrfs in the fixture's folder, where the store can be named by a relative path.
fn zarrfs(fixture: &Fixture, words: &[&str]) -> Output {
    Command::new(PROGRAM)
        .args(words)
        .current_dir(fixture.path(""))
        .env_remove("AZURE_STORAGE_ACCOUNT_NAME")
        .output()
        .unwrap()
}

fn said(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), stderr(output))
}

#[test]
fn a_store_and_a_directory_are_mounted() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let dir = fixture.dir.to_str().unwrap();
    let mount = |words: &[&str]| {
        let output = zarrfs(&fixture, words);
        assert_eq!(said(&output), (Some(0), String::new()));
        assert!(fixture.dir.join("a").is_dir());
        let output = zarrfs(&fixture, &["unmount", dir]);
        assert_eq!(said(&output), (Some(0), String::new()));
        assert!(soon(|| fixture.daemons().is_empty()));
    };
    mount(&["s.zarr", dir]);
    mount(&["s.zarr", dir, "--memory", "0.5G", "--metadata-ttl=0"]);
    mount(&[&format!("FILE://{}", fixture.store.display()), dir]);
}

#[test]
fn help_is_a_command_and_has_examples() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let commands = "mount umount list status diff commit discard";
    for command in commands.split(' ') {
        let [long, short] = [&["help", command][..], &[command, "-h"]].map(|words| {
            let output = zarrfs(&fixture, words);
            assert!(
                output.status.success() && output.stderr.is_empty(),
                "{command}"
            );
            String::from_utf8(output.stdout).unwrap()
        });
        let (_, examples) = long
            .split_once("\nExamples:\n")
            .unwrap_or_else(|| panic!("{long}"));
        assert!(
            examples.starts_with(&format!("  zarrfs {command}")),
            "{long}"
        );
        let more = format!("Run 'zarrfs {command} --help' for all options and examples.\n");
        assert!(short.ends_with(&more), "{short}");
    }
    let output = zarrfs(&fixture, &["help"]);
    let text = String::from_utf8_lossy(&output.stdout);
    for command in commands.split(' ') {
        assert!(text.contains(&format!("\n  {command} ")), "{text}");
    }
    assert_eq!(zarrfs(&fixture, &[]).stdout, output.stdout);
}

/// Returns the headings of a help text, each with the names of the options below it.
fn groups(text: &str) -> Vec<(String, Vec<String>)> {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for line in text.lines() {
        if let Some(heading) = line.strip_suffix(':').filter(|line| !line.starts_with(' ')) {
            groups.push((heading.to_string(), Vec::new()));
        } else if let (Some((_, names)), true) =
            (groups.last_mut(), line.trim_start().starts_with('-'))
        {
            let name = line.split("--").nth(1).unwrap_or_default();
            let end = name.find(|c: char| !c.is_ascii_lowercase() && c != '-');
            names.push(name[..end.unwrap_or(name.len())].to_string());
        }
    }
    groups
}

#[test]
fn options_are_under_the_right_heading_in_the_help() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    for (command, option, heading) in [
        ("mount", "log", "Log"),
        ("mount", "verbose", "Log"),
        ("mount", "cow", "Changes"),
        ("mount", "read-only", "Changes"),
        ("mount", "memory", "Tuning"),
        ("mount", "uid", "Files"),
        ("mount", "profile", "Remote stores"),
        ("status", "json", "Options"),
        ("diff", "arrays", "Options"),
        ("commit", "to", "Options"),
    ] {
        let output = zarrfs(&fixture, &[command, "--help"]);
        let groups = groups(&String::from_utf8(output.stdout).unwrap());
        let is_in = |(_, names): &&(String, Vec<String>)| names.iter().any(|name| name == option);
        let found: Vec<&str> = groups
            .iter()
            .filter(is_in)
            .map(|(name, _)| &**name)
            .collect();
        assert_eq!(found, [heading], "{command} --{option}");
    }
}

#[test]
fn an_invalid_store_url_is_refused_with_the_cause() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let dir = fixture.dir.to_str().unwrap();
    let known = "use a path, or file://, s3://, gs://, az://, abfss://, http://, https:// (for other S3 servers: s3:// \
                 and --endpoint)";
    let account = "the storage account is missing: use --storage-option account_name=NAME, set \
                   AZURE_STORAGE_ACCOUNT_NAME, or use abfss://CONTAINER@NAME.dfs.core.windows.net/PREFIX";
    for (url, expected) in [
        (
            "r2://b/x",
            format!("r2://b/x: unsupported URL scheme r2://; {known}"),
        ),
        ("az://x", format!("az://x: {account}")),
        ("S3://", "s3://: expected s3://BUCKET/PREFIX".to_string()),
    ] {
        let output = zarrfs(&fixture, &["mount", url, dir]);
        assert_eq!(said(&output), (Some(2), format!("zarrfs: {expected}\n")));
    }
    for (url, host) in [
        ("http://no-such-host.invalid/x.zarr", "no-such-host.invalid"),
        (
            "s3://b/x --endpoint http://no-such-host.invalid",
            "no-such-host.invalid",
        ),
    ] {
        let mut words: Vec<&str> = url.split(' ').collect();
        words.splice(..0, ["mount", "--anon"]);
        words.push(dir);
        let (status, text) = said(&zarrfs(&fixture, &words));
        let url = url.split(' ').next().unwrap();
        let expected = format!("zarrfs: {url}: {host}: failed to lookup address information: ");
        assert!(status == Some(2) && text.starts_with(&expected), "{text}");
        assert_eq!(text.lines().count(), 1);
    }
}

#[test]
fn an_invalid_option_value_is_refused_with_a_hint() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let dir = fixture.dir.to_str().unwrap();
    let few = "too little memory: use at least 1M, such as 256M";
    let help = "see 'zarrfs mount --help'";
    for (option, value, expected) in [
        ("--memory", "10", format!("--memory 10: {few}; {help}")),
        ("--memory", "0", format!("--memory 0: {few}; {help}")),
        ("-o", "memory=10", format!("-o memory: '10': {few}")),
        (
            "--uid",
            "no.such.user",
            format!("--uid no.such.user: unknown user; {help}"),
        ),
        (
            "-o",
            "gid=no.such.group",
            "-o gid: 'no.such.group': unknown group".to_string(),
        ),
    ] {
        let output = zarrfs(&fixture, &["mount", "s.zarr", dir, option, value]);
        assert_eq!(said(&output), (Some(2), format!("zarrfs: {expected}\n")));
    }
    for words in [["--profile", "lab"], ["-o", "profile=lab"]] {
        let words = ["mount", "s3://b/x", dir].into_iter().chain(words);
        let mut command = Command::new(PROGRAM);
        let output = command.args(words).env("HOME", fixture.path("")).output();
        let expected = "zarrfs: AWS profile lab: no profile found: neither ~/.aws/config nor ~/.aws/credentials exists\n";
        assert_eq!(said(&output.unwrap()), (Some(2), expected.to_string()));
    }
    let output = zarrfs(&fixture, &["umont", dir]);
    let expected = "zarrfs: unknown command 'umont'; did you mean 'umount'?; see 'zarrfs --help'\n";
    assert_eq!(said(&output), (Some(2), expected.to_string()));
    let output = zarrfs(&fixture, &["status", dir]);
    let expected = format!("zarrfs: {dir}: neither a zarrfs mount nor a changes directory\n");
    assert_eq!(said(&output), (Some(2), expected));
}

#[test]
fn owners_are_accepted_by_name() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fixture.mount(&["--uid", "nobody", "-o", "gid=daemon"]);
    let meta = fs::metadata(fixture.dir.join("a")).unwrap();
    assert_eq!((meta.uid(), meta.gid()), (65534, 1));
}

#[test]
fn a_read_only_mount_with_cow_refuses_writes() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let upper = fixture.path("upper");
    fixture.mount(&["--read-only", "--cow", upper.to_str().unwrap()]);
    let refused = fs::write(fixture.dir.join("x"), "").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(30), "EROFS");
}

#[test]
fn one_conflict_is_reported_in_the_singular() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let (upper, dir) = (fixture.path("upper"), fixture.dir.to_str().unwrap());
    fixture.mount(&["--cow", upper.to_str().unwrap()]);
    fs::write(fixture.dir.join("a/c/0"), [1; 16]).unwrap();
    fs::write(fixture.store.join("a/c/0"), [2; 16]).unwrap();
    let output = zarrfs(&fixture, &["commit", dir]);
    let expected = "zarrfs: 1 conflict; nothing was overwritten; use --force to overwrite\n";
    assert_eq!(said(&output), (Some(1), expected.to_string()));
    // With `--to`, the error does not suggest `--force`, because a commit to a copy cannot be forced.
    let other = fixture.path("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("zarr.json"), "another").unwrap();
    let output = zarrfs(&fixture, &["commit", dir, "--to", other.to_str().unwrap()]);
    let expected = "zarrfs: 1 conflict; nothing was overwritten\n";
    assert_eq!(said(&output), (Some(1), expected.to_string()));
    let output = zarrfs(&fixture, &["discard", "--all", dir]);
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "1 change discarded\n"
    );
}

#[test]
fn control_characters_in_names_are_escaped_in_json() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let (upper, dir) = (
        fixture.path("upper \u{9b}2J"),
        fixture.dir.to_str().unwrap(),
    );
    fixture.mount(&["--cow", upper.to_str().unwrap()]);
    fs::write(fixture.dir.join("new\u{9b}2J"), "x").unwrap();
    for args in [
        &["diff", "--json", dir][..],
        &["status", "--json", dir],
        &["diff", "--arrays", "--json", dir],
    ] {
        let text = String::from_utf8(zarrfs(&fixture, args).stdout).unwrap();
        assert!(!text.contains('\u{9b}'), "{args:?}: {text}");
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        let is_named = args[0] == "diff" && args.len() == 3;
        assert!(
            !is_named || read["keys"][0]["key"] == "new\u{9b}2J",
            "{text}"
        );
    }
    let below = fixture.path("below \u{9b}2J");
    fs::create_dir(&below).unwrap();
    let place = below.to_str().unwrap();
    let store = fixture.store.to_str().unwrap();
    assert_eq!(
        zarrfs(&fixture, &["mount", store, place]).status.code(),
        Some(0)
    );
    let listed = String::from_utf8(zarrfs(&fixture, &["list", "--json"]).stdout).unwrap();
    assert_eq!(zarrfs(&fixture, &["umount", place]).status.code(), Some(0));
    assert!(!listed.contains('\u{9b}'), "{listed}");
    assert!(listed.contains("below \\u009b2J"), "{listed}");
}
