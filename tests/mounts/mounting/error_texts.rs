//! Tests full error texts for unusable paths and for commands that have nothing to do.

use std::fs;
use std::net::TcpListener;
use std::process::{Command, Output};
use std::thread;

use crate::mounting::fixture::{Fixture, PROGRAM, stderr};

fn zarrfs(words: &[&str]) -> Output {
    Command::new("timeout")
        .args(["60", PROGRAM])
        .args(words)
        .output()
        .unwrap()
}

fn said(words: &[&str]) -> (Option<i32>, String, String) {
    let output = zarrfs(words);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code(), text, stderr(&output))
}

fn fault(words: &[&str], expected: &str) {
    let expected = (Some(2), String::new(), format!("zarrfs: {expected}\n"));
    assert_eq!(said(words), expected, "{words:?}");
}

fn answer(words: &[&str], expected: &str) {
    assert_eq!(
        said(words),
        (Some(0), format!("{expected}\n"), String::new()),
        "{words:?}"
    );
}

#[test]
fn control_characters_in_a_mountpoint_name_are_escaped() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let odd = fixture.path("odd \u{1b}[2J\nname");
    fs::create_dir(&odd).unwrap();
    fs::write(fixture.store.join("a/c/0"), [7; 3]).unwrap();
    let (store, place) = (fixture.store.to_str().unwrap(), odd.to_str().unwrap());
    let mounted = zarrfs(&["mount", store, place]);
    assert!(mounted.status.success());
    let failed = fs::read(odd.join(".zarrfs/files/a/a.npy"));
    let status = said(&["status", place]);
    assert!(zarrfs(&["umount", place]).status.success());
    assert_eq!(failed.unwrap_err().raw_os_error(), Some(5), "EIO");
    let shown = fixture.path("odd \\u{1b}[2J\\nname/.zarrfs/errors");
    let expected = format!(
        "{store}: mounted read-only\n1 failure, see {}\n",
        shown.display()
    );
    assert_eq!(status, (Some(0), expected, String::new()));
}

#[test]
fn changes_in_the_control_directory_are_refused_and_explained() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let (upper, dir) = (fixture.path("upper"), &fixture.dir);
    fixture.mount(&["--cow", upper.to_str().unwrap()]);
    let control = dir.join(".zarrfs");
    let refused = [
        fs::write(control.join("new"), ""),
        fs::write(control.join("errors"), ""),
        fs::rename(dir.join("zarr.json"), control.join("new")),
        fs::rename(control.join("errors"), dir.join("new")),
        fs::remove_file(control.join("errors")),
        fs::remove_dir(&control),
        fs::create_dir(control.join("folder")),
    ];
    for (place, refused) in refused.into_iter().enumerate() {
        assert_eq!(
            refused.unwrap_err().raw_os_error(),
            Some(30),
            "{place}: EROFS"
        );
    }
    let errors = fs::read_to_string(control.join("errors")).unwrap();
    let causes: Vec<&str> = errors
        .lines()
        .filter_map(|line| line.split('\t').nth(4))
        .collect();
    assert!(!causes.is_empty());
    let is_told = |cause: &&str| *cause == "the directory .zarrfs cannot be changed";
    assert!(causes.iter().all(is_told), "{errors}");
}

#[test]
fn discarding_without_changes_is_no_error() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let (upper, dir) = (fixture.path("upper"), fixture.dir.to_str().unwrap());
    fixture.mount(&["--cow", upper.to_str().unwrap()]);
    answer(&["discard", dir], "nothing to discard");
    fault(
        &["discard", dir, "a"],
        "a: no changes at this path; 'zarrfs diff' lists the paths",
    );
    fs::write(fixture.dir.join("new"), [0; 3000]).unwrap();
    let store = fixture.store.display();
    answer(
        &["status", dir],
        &format!("{store}: 1 new, 0 changed, 0 removed, 3.0 KiB to write"),
    );
    answer(
        &["commit", "--dry-run", dir],
        "dry run: 1 put (3.0 KiB), 0 removed",
    );
    for path in ["", "/", ".", "./"] {
        let why = "discard: this path would discard all changes: name another path, or use --all";
        fault(&["discard", dir, path], why);
    }
    let why = "discard: 1 change would be lost: name a path, or use --all to discard all changes";
    fault(&["discard", dir], why);
    answer(&["discard", dir, "--all"], "1 change discarded");
    answer(&["discard", dir, "--all"], "nothing to discard");
}

#[test]
fn a_missing_or_empty_path_is_named_in_the_error() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let none = fixture.path("none");
    let none = none.to_str().unwrap();
    for command in ["status", "commit", "diff", "discard"] {
        let why = format!("{none}: No such file or directory");
        fault(&[command, none], &why);
    }
    let dir = fixture.dir.to_str().unwrap();
    let why = "'': the path or URL of a store is missing";
    fault(&["mount", "", dir], why);
    fault(&["tree", ""], why);
    fault(
        &["mount", fixture.store.to_str().unwrap(), dir, "-o", "cow="],
        "-o cow: '': the path is missing",
    );
}

#[test]
fn an_invalid_owner_number_is_refused() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let (store, dir) = (
        fixture.store.to_str().unwrap(),
        fixture.dir.to_str().unwrap(),
    );
    let none = "4294967295";
    for (option, what) in [("--uid", "user"), ("--gid", "group")] {
        let why = format!("{option} {none}: unknown {what}; see 'zarrfs mount --help'");
        fault(&["mount", store, dir, option, none], &why);
    }
    fault(
        &["mount", store, dir, "-o", "uid=4294967295"],
        "-o uid: '4294967295': unknown user",
    );
}

#[test]
fn reserved_names_are_refused_in_both_views() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let upper = fixture.path("upper");
    fixture.mount(&["--cow", upper.to_str().unwrap()]);
    let name = ".zarrfs-arriving-0123456789abcdef";
    let errors = fixture.dir.join(".zarrfs/errors");
    for view in ["", ".zarrfs/files"] {
        let folder = fixture.dir.join(view);
        let refused = [
            fs::create_dir(folder.join(name)),
            fs::write(folder.join(name), ""),
            fs::rename(folder.join("a"), folder.join(name)),
        ];
        for refused in refused {
            assert_eq!(
                refused.unwrap_err().raw_os_error(),
                Some(1),
                "{view}: EPERM"
            );
        }
    }
    let errors = fs::read_to_string(errors).unwrap();
    let causes: Vec<&str> = errors
        .lines()
        .filter_map(|line| line.split('\t').nth(4))
        .collect();
    let why = "zarrfs reserves names of this form for temporary files";
    assert!(
        causes.len() >= 6 && causes.iter().all(|cause| *cause == why),
        "{errors}"
    );
}

#[test]
fn a_profile_is_refused_for_stores_other_than_s3() {
    let why = "--profile: only s3:// URLs have profiles";
    for url in ["http://localhost:1/x", "gs://b/x"] {
        fault(&["tree", url, "--anon", "--profile", "lab"], why);
    }
}

#[test]
fn errors_show_the_url_scheme_as_typed() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let account = "the storage account is missing: use --storage-option account_name=NAME, set \
                   AZURE_STORAGE_ACCOUNT_NAME, or use abfss://CONTAINER@NAME.dfs.core.windows.net/PREFIX";
    let dir = fixture.dir.to_str().unwrap();
    for (url, expected) in [
        ("abfss://x", format!("abfss://x: {account}")),
        ("azure://x", format!("azure://x: {account}")),
        ("gs://", "gs://: expected gs://BUCKET/PREFIX".to_string()),
        ("s3a://", "s3a://: expected s3a://BUCKET/PREFIX".to_string()),
        ("az://", "az://: expected az://CONTAINER/PREFIX".to_string()),
    ] {
        fault(&["mount", url, dir], &expected);
    }
}

#[test]
fn a_server_without_tls_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            use std::io::{Read, Write};
            let (mut stream, mut bytes) = (stream, [0; 512]);
            let _ = stream.read(&mut bytes);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
        }
    });
    let url = format!("https://127.0.0.1:{port}/x");
    let why = "the server does not speak TLS: use an http:// URL";
    fault(&["tree", &url], &format!("{url}: {why}"));
}
