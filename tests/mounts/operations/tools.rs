//! Common programs (cp, tar, ...) on a kernel mount.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::needs;
use crate::common::sample::{Sample, arrays, places};
use crate::operations::fixture::{Fixture, PATIENT, name};
use crate::operations::mounted::Mounted;

/// Runs a program in a folder. The paths in `more` follow its arguments.
fn run(folder: &Path, command: &str, more: &[&Path]) -> Output {
    let mut words = command.split(' ');
    let mut program = Command::new(words.next().unwrap());
    program
        .args(words)
        .args(more)
        .current_dir(folder)
        .env("LC_ALL", "C");
    program.output().unwrap()
}

/// Runs a program that must succeed and print nothing on stderr; returns its stdout.
fn succeed(folder: &Path, command: &str, more: &[&Path]) -> String {
    let output = run(folder, command, more);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.is_empty(),
        "{command}: {said}"
    );
    String::from_utf8(output.stdout).unwrap()
}

fn sorted(lines: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = lines.lines().collect();
    lines.sort();
    lines
}

#[test]
fn programs_copy_the_store_byte_for_byte() {
    if !needs::mounts() {
        return;
    }
    let fixture = Fixture::new();
    std::os::unix::fs::symlink("plain/zarr.json", fixture.store().join("link")).unwrap();
    let mount = Mounted::new(fixture.views.stored.clone(), PATIENT, false);
    let (store, dir) = (fixture.store(), mount.dir());
    let same = |copy: &Path| assert_eq!(succeed(&store, "diff -r --no-dereference .", &[copy]), "");
    same(dir);
    let found = succeed(dir, "find .", &[]);
    assert_eq!(sorted(&found), sorted(&succeed(&store, "find .", &[])));
    assert!(found.lines().count() > 100);
    let files = "find . -type f -size +0 -newermt 2000-01-01";
    assert_eq!(
        sorted(&succeed(dir, files, &[])),
        sorted(&succeed(&store, files, &[]))
    );
    let (copied, unpacked) = (fixture.beside("copied"), fixture.beside("unpacked"));
    succeed(dir, "cp -r .", &[&copied]);
    same(&copied);
    fs::create_dir(&unpacked).unwrap();
    succeed(dir, "tar -c . -f", &[&fixture.beside("archive")]);
    succeed(&unpacked, "tar -xf", &[&fixture.beside("archive")]);
    same(&unpacked);
}

#[test]
fn programs_copy_decoded_files() {
    if !needs::mounts() {
        return;
    }
    let fixture = Fixture::new();
    let mount = Mounted::new(fixture.views.files.clone(), PATIENT, false);
    let (copied, unpacked) = (fixture.beside("copied"), fixture.beside("unpacked"));
    // Everything can be copied, except for arrays that cannot be decoded (`strange`) and broken nodes.
    let output = run(mount.dir(), "cp -r .", &[&copied]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said.lines()
            .all(|line| line.contains("strange") || line.contains("broken")),
        "{said}"
    );
    fs::create_dir(&unpacked).unwrap();
    let archive = fixture.beside("archive");
    succeed(
        mount.dir(),
        "tar -c --exclude=strange --exclude=broken . -f",
        &[&archive],
    );
    succeed(&unpacked, "tar -xf", &[&archive]);
    for copy in [&copied, &unpacked] {
        for (path, sample) in arrays() {
            let raw = copy.join(path).join(name(path)).with_extension("raw");
            assert_eq!(fs::read(raw).unwrap(), sample.whole(), "{path}");
        }
        assert!(!copy.join(".zarrfs").exists());
    }
    let last = fs::read(copied.join("plain/chunks/3.3.raw")).unwrap();
    assert_eq!(last.len(), 7 * 5 * 2);
    let skipped = "-path ./broken -prune -o -path ./strange -prune";
    let counted = succeed(
        mount.dir(),
        &format!("find . {skipped} -o -name *.raw -print"),
        &[],
    );
    let stored = |sample: &Sample| {
        let counts = sample.counts();
        places(&counts)
            .filter(|chunk| sample.is_stored(chunk))
            .count()
    };
    let expected: usize = arrays().iter().map(|(_, sample)| 1 + stored(sample)).sum();
    assert_eq!(counted.lines().count(), expected);
}
