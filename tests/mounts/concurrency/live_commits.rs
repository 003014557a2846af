//! Commits on a mount beside programs that rename, and beside an inherited descriptor.

use std::env;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::common::needs;
use crate::concurrency::mounted::Mounted;
use crate::concurrency::plan::{Class, Plan, Site};
use crate::concurrency::run::run;
use crate::concurrency::world::World;
use zarrfs_store::request_context::UNLIMITED;

/// The number of commits that the test makes under `scripts/stress`.
const COMMITS: u64 = 1000;

const COMMITS_IN_CI: u64 = 60;

/// Two programs write temporary files and rename them while commits run one after the other. Each commit must exit with
/// 0, leave no files behind and lose nothing.
#[test]
fn live_commits_beside_a_renaming_program_lose_nothing() {
    if !needs::mounts() {
        return;
    }
    let is_stress = env::var_os("ZARRFS_STRESS_SECONDS").is_some();
    let commits = if is_stress { COMMITS } else { COMMITS_IN_CI };
    let plan = Plan {
        seed: 1,
        site: Site::Local,
        // Only the committer makes operations that are counted here, one per commit.
        operations: commits,
        writers: 2,
        readers: 0,
        processes: 2,
        committers: 1,
        outsiders: 0,
        kills: false,
        write_through: false,
        classes: vec![Class::Replaced, Class::Moved, Class::Folder],
        keys: 4,
    };
    match run(&plan) {
        Ok(done) => assert!(done.commits as u64 >= commits, "{done:?}"),
        Err(why) => panic!("{plan}\n{why}"),
    }
}

/// A child process that inherited the descriptor of a file ends while its parent continues to write. The FLUSH at the
/// child's end must not make the half-written file part of a commit; the commit names the file. After its close the
/// file is committed.
#[test]
fn a_child_exit_does_not_commit_a_half_written_file() {
    if !needs::mounts() {
        return;
    }
    let mounted = Mounted::new(|store| store.to_string_lossy().into_owned());
    let point = &mounted.point;
    fs::write(point.store().join("old"), "as it was").unwrap();
    mounted.mount();
    for name in ["old", "new"] {
        let mut file = fs::File::create(point.path(name)).unwrap();
        file.write_all(b"half").unwrap();
        let mut child = Command::new("true");
        child.stdin(Stdio::from(file.try_clone().unwrap()));
        assert!(child.status().unwrap().success());
        // `Command` has a copy of the descriptor, which has to be closed, too.
        drop(child);
        let before = fs::read(point.store().join(name)).ok();
        let committed = point.commit(&UNLIMITED).unwrap();
        assert_eq!(committed.kept, [name]);
        assert_eq!(fs::read(point.store().join(name)).ok(), before);
        file.write_all(b" and half").unwrap();
        drop(file);
        let committed = point.commit(&UNLIMITED).unwrap();
        assert!(committed.kept.is_empty(), "{committed:?}");
        let stored = fs::read(point.store().join(name)).unwrap();
        assert_eq!(stored, b"half and half");
    }
    assert_eq!(point.left_over(&UNLIMITED), [""; 0]);
}

/// A file that was closed before the commit began is part of the commit, even if it was closed immediately before.
#[test]
fn a_file_closed_just_before_a_commit_is_part_of_it() {
    const CLOSES: usize = 20;
    if !needs::mounts() {
        return;
    }
    let mounted = Mounted::new(|store| store.to_string_lossy().into_owned());
    mounted.mount();
    let point = &mounted.point;
    for number in 0..CLOSES {
        let content = number.to_string();
        fs::write(point.path("file"), &content).unwrap();
        let committed = point.commit(&UNLIMITED).unwrap();
        assert!(committed.kept.is_empty(), "{committed:?}");
        let stored = fs::read_to_string(point.store().join("file")).unwrap();
        assert_eq!(stored, content);
    }
}
