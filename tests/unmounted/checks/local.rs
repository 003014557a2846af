//! Tests checks of local folders: symbolic links, pipes, empty folders, and hidden leftovers of writers.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use zarr_check::{Finding, Severity};

use crate::checks::fixture::{How, open, run};
use crate::checks::stores::{v2, v3, write_to};

/// Writes a v3 store, damages its folder, and checks it. Returns the severity, the code and the key of each finding.
fn findings(damage: impl Fn(&Path)) -> Vec<(Severity, &'static str, String)> {
    let folder = tempfile::tempdir().unwrap();
    let top = folder.path().join("s.zarr");
    write_to(&v3(), &top);
    damage(&top);
    let how = How {
        data: true,
        is_remote: false,
    };
    let found = run(open(&top), how).0;
    let told = |finding: &Finding| (finding.severity, finding.code, finding.key.to_string());
    found.iter().map(told).collect()
}

#[test]
fn a_healthy_folder_has_no_findings() {
    assert_eq!(findings(|_| ()), []);
}

#[test]
fn links_that_lead_nowhere_or_outside_are_errors() {
    let error = |code, key: &str| vec![(Severity::Error, code, key.to_string())];
    let outside = tempfile::NamedTempFile::new().unwrap();
    let target = outside.path().to_path_buf();
    assert_eq!(
        findings(|top| symlink("none", top.join("a/x")).unwrap()),
        error("link-dangling", "a/x")
    );
    assert_eq!(
        findings(|top| symlink(&target, top.join("a/x")).unwrap()),
        error("link-leaves-store", "a/x")
    );
    assert_eq!(
        findings(|top| symlink("x", top.join("a/x")).unwrap()),
        error("link-in-circle", "a/x")
    );
    let chunk = findings(|top| {
        let chunk = top.join("a/b/c/0/0");
        fs::remove_file(&chunk).unwrap();
        symlink("../../../../none", chunk).unwrap();
    });
    assert_eq!(chunk, error("link-dangling", "a/b/c/0/0"));
}

#[test]
fn a_link_to_a_chunk_of_the_store_is_a_chunk() {
    let found = findings(|top| {
        let chunk = top.join("a/b/c/0/0");
        fs::rename(&chunk, top.join("a/b/c/0/2")).unwrap();
        symlink("2", chunk).unwrap();
    });
    assert_eq!(found, []);
}

#[test]
fn circular_links_end() {
    for target in ["..", "../a", "."] {
        let found = findings(|top| symlink(target, top.join("a/loop")).unwrap());
        assert_eq!(
            found,
            [(Severity::Warning, "link-to-folder", "a/loop".to_string())]
        );
    }
    let found = findings(|top| symlink(top, top.join("a/loop")).unwrap());
    let codes: Vec<&str> = found.iter().map(|(_, code, _)| *code).collect();
    assert!(
        codes.iter().all(|code| *code == "link-to-folder") && !codes.is_empty(),
        "{found:?}"
    );
}

#[test]
fn leftovers_of_writers_are_a_warning() {
    let warning = |code, key: &str| vec![(Severity::Warning, code, key.to_string())];
    assert_eq!(
        findings(|top| fs::create_dir(top.join("a/empty")).unwrap()),
        warning("empty-folder", "a/empty")
    );
    assert_eq!(
        findings(|top| fs::create_dir(top.join("a/b/c/2")).unwrap()),
        warning("empty-folder", "a/b/c/2")
    );
    let name = "a/b/c/0/.zarrfs-arriving-1-2";
    assert_eq!(
        findings(|top| fs::write(top.join(name), "x").unwrap()),
        warning("leftover", name)
    );
    let found = findings(|top| {
        let path = top.join("a/pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            path,
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .unwrap();
    });
    assert_eq!(found, warning("special-file", "a/pipe"));
}

#[test]
fn nested_chunks_without_a_stated_separator_are_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    write_to(&v2(), folder.path());
    let array = folder.path().join("a/b");
    for entry in fs::read_dir(&array).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if let Some((row, column)) = name.split_once('.').filter(|(row, _)| !row.is_empty()) {
            fs::create_dir_all(array.join(row)).unwrap();
            fs::rename(array.join(&name), array.join(row).join(column)).unwrap();
        }
    }
    let found = run(open(folder.path()), How::default()).0;
    let [finding] = found.as_slice() else {
        panic!("{found:#?}")
    };
    assert_eq!(
        (finding.severity, finding.code),
        (Severity::Warning, "separator-not-stated")
    );
    assert!(finding.habit.is_some());
}

#[test]
fn unfetched_content_of_git_annex_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("s.zarr");
    write_to(&v3(), &place);
    let content = folder.path().join(".git/annex/objects/zz/SHA256E-s9");
    let chunk = place.join("a/b/c/0/0");
    let bytes = fs::read(&chunk).unwrap();
    fs::remove_file(&chunk).unwrap();
    symlink("../../../../../.git/annex/objects/zz/SHA256E-s9", &chunk).unwrap();
    let told = || {
        let (findings, _) = run(open(&place), How::default());
        let lines = findings.iter().map(zarr_check::Finding::to_text);
        lines.collect::<Vec<_>>().join("\n")
    };
    let line = "error: a/b/c/0/0: symbolic link to git-annex content that was not downloaded\n    \
                run 'git annex get' or 'datalad get'";
    assert_eq!(told(), line);
    // After `git annex get`, the target of the link exists, but is outside the store.
    fs::create_dir_all(content.parent().unwrap()).unwrap();
    fs::write(&content, bytes).unwrap();
    assert!(told().contains("--follow-symlinks"), "{}", told());
}
