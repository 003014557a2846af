//! Live commits on a real mount, beside programs that rename, and beside a file that a child process has open.

use std::env;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::common::needs;
use crate::mounted::Mounted;
use crate::plan::{Class, Plan, Site};
use crate::run::run;
use crate::world::World;
use zarrfs_store::request_context::UNLIMITED;

/// Under `scripts/stress` there are so many.
const COMMITS: u64 = 1000;

const COMMITS_IN_CI: u64 = 60;

/// Two programs write temporary files and rename them while one commit after the other is made: each ends with 0,
/// nothing is left over, nothing is lost.
#[test]
fn one_thousand_live_commits_beside_a_renaming_program() {
    if !needs::mounts() {
        return;
    }
    let is_stress = env::var_os("ZARRFS_STRESS_SECONDS").is_some();
    let commits = if is_stress { COMMITS } else { COMMITS_IN_CI };
    let plan = Plan {
        seed: 1,
        site: Site::Local,
        // The committer alone makes operations here: each of its commits is one.
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

/// A child process that inherited the descriptor of a file ends while its parent goes on writing: the FLUSH of its end
/// does not make the half-written file part of a commit, which names it. Once it is closed, it is.
#[test]
fn the_end_of_a_child_process_makes_no_half_written_file_part_of_a_commit() {
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
        // Of the child's descriptor, which this process has had for a moment, nothing is left either.
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

/// A file that was closed before the commit began is part of it, however short before.
#[test]
fn what_was_just_closed_is_part_of_a_commit() {
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
