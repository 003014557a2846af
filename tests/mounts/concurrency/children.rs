//! Runs actors in processes of their own, which append each record to a file.
//!
//! A child process is this test program again; its environment has the plan of the run and the folder of the mount.

use std::env;
use std::fs;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::concurrency::actors::{Actor, Places, Shared};
use crate::concurrency::history::Record;
use crate::concurrency::mounted::MountPoint;
use crate::concurrency::plan::Plan;
use crate::concurrency::run::{Role, act, cast};
use crate::concurrency::world::OutsideFolder;

const PLAN: &str = "ZARRFS_CONCURRENCY_PLAN";
const FOLDER: &str = "ZARRFS_CONCURRENCY_FOLDER";
const NUMBER: &str = "ZARRFS_CONCURRENCY_NUMBER";

/// The name of a file whose existence tells the child processes to end.
const END: &str = "end";

pub(crate) struct Children {
    folder: PathBuf,
    children: Vec<(u8, Child)>,
}

fn records_of(folder: &Path, number: u8) -> PathBuf {
    folder.join(format!("records-{number}"))
}

impl Children {
    pub(crate) fn start(plan: &Plan, folder: &Path, actors: &[(Role, u8)]) -> Children {
        let children = actors.iter().map(|(_, number)| {
            let mut command = Command::new(env::current_exe().unwrap());
            command
                .args(["--ignored", "--exact"])
                .arg(crate::common::child_test(module_path!(), "child_that_acts"))
                .env(PLAN, plan.to_string())
                .env(FOLDER, folder)
                .env(NUMBER, number.to_string())
                .stdout(Stdio::null());
            (*number, command.spawn().unwrap())
        });
        Children {
            folder: folder.to_path_buf(),
            children: children.collect(),
        }
    }

    /// Ends all child processes; returns the operations that they have recorded.
    pub(crate) fn end(mut self) -> Vec<Record> {
        File::create(self.folder.join(END)).unwrap();
        let mut records = Vec::new();
        for (number, child) in &mut self.children {
            let status = child.wait().unwrap();
            let text = fs::read_to_string(records_of(&self.folder, *number)).unwrap_or_default();
            let lines = text
                .lines()
                .filter_map(|line| serde_json::from_str(line).ok());
            records.extend(without_intents(lines.collect()));
            // A killed mount ends a process that uses a mapping of its files with SIGBUS.
            let is_killed =
                std::os::unix::process::ExitStatusExt::signal(&status) == Some(libc::SIGBUS);
            if !status.success() && !is_killed {
                let why = format!("the process of actor {number} ended with {status}");
                records.push(Record::Wrong(why));
            }
        }
        records
    }
}

/// Drops the records of intended operations that were made, because the next record has their outcome.
fn without_intents(records: Vec<Record>) -> Vec<Record> {
    let last = records.len().saturating_sub(1);
    let is_intent = |record: &Record| match record {
        Record::Operation(operation) => operation.is_intent(),
        _ => false,
    };
    let numbered = records.into_iter().enumerate();
    numbered
        .filter(|(place, record)| *place == last || !is_intent(record))
        .map(|(_, record)| record)
        .collect()
}

#[test]
#[ignore = "the entry point of a child process"]
fn child_that_acts() {
    let plan: Plan = serde_json::from_str(&env::var(PLAN).unwrap()).unwrap();
    let folder = PathBuf::from(env::var_os(FOLDER).unwrap());
    let number: u8 = env::var(NUMBER).unwrap().parse().unwrap();
    let (role, _) = cast(&plan)
        .into_iter()
        .find(|(_, each)| *each == number)
        .unwrap();
    let point = MountPoint::attached(&folder);
    let outside = OutsideFolder(point.store());
    let places = Places {
        world: &point,
        outside: &outside,
    };
    let parent = rustix::process::getppid();
    // The child process ends with its parent, or when the file `end` exists.
    let goes_on = || rustix::process::getppid() == parent && !folder.join(END).exists();
    let shared = Shared::new(u64::MAX >> 1);
    let mut file = File::create(records_of(&folder, number)).unwrap();
    let sink = Box::new(move |record: Record| {
        let line = format!("{}\n", serde_json::to_string(&record).unwrap());
        file.write_all(line.as_bytes()).unwrap();
    });
    let mut actor = Actor::new(number, &plan, places, &shared, sink);
    actor.is_process = true;
    thread::scope(|scope| {
        scope.spawn(|| {
            while shared.goes_on() && goes_on() {
                thread::sleep(Duration::from_millis(5));
            }
            shared.end();
        });
        act(role, actor);
        shared.end();
    });
}
