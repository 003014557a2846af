//! Runs a plan: all actors at once, then a last commit and the checks.
//!
//! After the last commit the store must equal the mount, the upper folder must be empty, and the history must be
//! possible.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use zarrfs_store::backend::local::is_reserved_name;

use crate::concurrency::actors::{Actor, Places, Shared, TEMPORARY};
use crate::concurrency::children::Children;
use crate::concurrency::history::{Act, History, Record, Span, now};
use crate::concurrency::judge::judge;
use crate::concurrency::plan::{Plan, Random, Site};
use crate::concurrency::run_fixture::RunFixture;
use crate::concurrency::value::{Seen, Value};
use zarrfs_store::request_context::UNLIMITED;

/// The number of the first actor of each role; writers are numbered from 1.
const READERS: u8 = 20;
const COMMITTERS: u8 = 40;
const OUTSIDERS: u8 = 60;
const LAST: u8 = 80;

/// The number of times that the last commit is tried after conflicts or server failures.
const LAST_COMMITS: usize = 20;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    pub(crate) operations: usize,
    pub(crate) commits: usize,
    pub(crate) kills: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Writer,
    Reader,
    Committer,
    Outsider,
}

pub(crate) fn cast(plan: &Plan) -> Vec<(Role, u8)> {
    let numbered = |role, first, count| (first..first + count).map(move |number| (role, number));
    numbered(Role::Writer, 1, plan.writers)
        .chain(numbered(Role::Reader, READERS, plan.readers))
        .chain(numbered(Role::Committer, COMMITTERS, plan.committers))
        .chain(numbered(Role::Outsider, OUTSIDERS, plan.outsiders))
        .collect()
}

/// Whether an actor runs in a process of its own; the first writers and readers do.
fn is_process(plan: &Plan, role: Role, number: u8) -> bool {
    match role {
        Role::Writer => number <= plan.processes,
        Role::Reader => number < READERS + plan.processes,
        _ => false,
    }
}

pub(crate) fn act(role: Role, actor: Actor<'_>) {
    match role {
        Role::Writer => actor.write(),
        Role::Reader => actor.read(),
        Role::Committer => actor.commit(),
        Role::Outsider => actor.work_outside(),
    }
}

/// Runs a plan and judges its history; the error describes what was wrong.
pub(crate) fn run(plan: &Plan) -> Result<Done, String> {
    let fixture = RunFixture::new(plan);
    let mut history = History::default();
    history.extend(act_all(plan, &fixture));
    fixture.calm();
    let records = Mutex::new(Vec::new());
    finish(plan, fixture.places(), &history, &records);
    history.extend(records.into_inner().unwrap());
    let found = judge(plan, &history);
    if found.is_empty() {
        return Ok(Done {
            operations: history.operations.len(),
            commits: history.commits.len(),
            kills: history.kills.len(),
        });
    }
    const SHOWN: usize = 5;
    let shown = found[..found.len().min(SHOWN)].join("\n");
    Err(format!("{} things are wrong:\n{shown}", found.len()))
}

/// Runs all actors at once; returns their records.
fn act_all(plan: &Plan, fixture: &RunFixture) -> Vec<Record> {
    let records = Mutex::new(Vec::new());
    let shared = Shared::new(plan.operations);
    let (children, here): (Vec<_>, Vec<_>) = cast(plan)
        .into_iter()
        .partition(|(role, number)| is_process(plan, *role, *number));
    let folder = fixture.folder.as_deref();
    let children = folder.map(|folder| Children::start(plan, folder, &children));
    thread::scope(|scope| {
        let killer = plan.kills.then(|| {
            scope.spawn(|| kill_again_and_again(plan, fixture.places(), &shared, &records))
        });
        let threads: Vec<_> = here
            .into_iter()
            .map(|(role, number)| {
                let sink = Box::new(|record| records.lock().unwrap().push(record));
                let actor = Actor::new(number, plan, fixture.places(), &shared, sink);
                let (shared, records) = (&shared, &records);
                scope.spawn(move || {
                    let acted = catch_unwind(AssertUnwindSafe(|| act(role, actor)));
                    if acted.is_err() {
                        let why = format!("{role:?} {number} panicked");
                        records.lock().unwrap().push(Record::Wrong(why));
                        shared.end();
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|each| each.join().unwrap());
        shared.end();
        if let Some(killer) = killer {
            killer.join().unwrap();
        }
    });
    let mut records = records.into_inner().unwrap();
    if let Some(children) = children {
        records.extend(children.end());
    }
    records
}

fn kill_again_and_again(
    plan: &Plan,
    places: Places<'_>,
    shared: &Shared,
    records: &Mutex<Vec<Record>>,
) {
    let mut random = Random::new(plan.seed ^ 0x6b69_6c6c);
    while shared.goes_on() {
        thread::sleep(Duration::from_millis(100 + random.below(500) as u64));
        let begin = now();
        places.world.kill();
        let killed = Record::Killed(Span::since(begin));
        records.lock().unwrap().push(killed);
    }
}

/// Commits for the last time, reads all keys before and after, and checks that nothing else is left.
fn finish(plan: &Plan, places: Places<'_>, history: &History, records: &Mutex<Vec<Record>>) {
    remove_temporaries(plan, places, history);
    let shared = Shared::new(u64::MAX >> 1);
    let sink = Box::new(|record| records.lock().unwrap().push(record));
    let mut actor = Actor::new(LAST, plan, places, &shared, sink);
    actor.look_at_all();
    for _ in 0..LAST_COMMITS {
        let commit = actor.commit_once();
        let is_met = !commit.conflicts.is_empty() || plan.site.is_flaky();
        if commit.failure.is_none() && commit.conflicts.is_empty() || !is_met {
            break;
        }
    }
    actor.look_at_all();
    drop(actor);
    let mut wrongs = differences(plan, &records.lock().unwrap());
    wrongs.extend(litter(plan, places));
    let left = places.world.left_over(&UNLIMITED);
    if !left.is_empty() {
        wrongs.push(format!("left in the upper folder after a commit: {left:?}"));
    }
    records
        .lock()
        .unwrap()
        .extend(wrongs.into_iter().map(Record::Wrong));
}

/// Removes the temporary files of failed writes, as the programs that wrote them would.
fn remove_temporaries(plan: &Plan, places: Places<'_>, history: &History) {
    let keys = plan.all_keys();
    for operation in &history.operations {
        if let (Act::Set(Value::Content(tag, _)), Some(_)) = (&operation.act, &operation.failure) {
            let key = &keys[usize::from(operation.key)];
            let name = format!("{TEMPORARY}{}-{}", tag.writer, tag.number);
            // The folder may have been renamed since the write, so the file is removed under each of its names.
            let twins = keys
                .iter()
                .filter(|twin| twin.class == key.class && twin.owner == key.owner);
            let folders: BTreeSet<&str> = twins.map(|twin| twin.folder()).collect();
            for folder in folders {
                // Most of these files were never created, or were renamed to their final names.
                let _ = places.world.remove(&UNLIMITED, &format!("{folder}/{name}"));
            }
        }
    }
}

/// Returns the keys for which the last read of the store differs from the last read of the mount.
fn differences(plan: &Plan, records: &[Record]) -> Vec<String> {
    let keys = plan.all_keys();
    let mut shown: Vec<Option<Seen>> = vec![None; keys.len()];
    let mut stored = shown.clone();
    for record in records {
        let Record::Operation(operation) = record else {
            continue;
        };
        let key = usize::from(operation.key);
        match &operation.act {
            Act::Saw(seen) => shown[key] = Some(seen.clone()),
            Act::Stored(seen) => stored[key] = Some(seen.clone()),
            _ => {}
        }
    }
    let pairs = shown.into_iter().zip(stored).zip(keys);
    let differing = pairs.filter(|((shown, stored), _)| shown != stored);
    differing
        .map(|((shown, stored), key)| {
            let text =
                |seen: Option<Seen>| seen.map_or("an error".to_string(), |seen| seen.to_string());
            let (shown, stored) = (text(shown), text(stored));
            let path = key.path;
            format!("after the last commit {path} shows {shown}, and the store holds {stored}")
        })
        .collect()
}

/// The folders of keys that may be discarded, which are of the classes `Discarded` and `Contested`.
const DISCARDED_FOLDERS: [&str; 2] = ["d", "c"];

/// Whether a path is the temporary name of a file that was renamed over a discarded key. If a commit read the file
/// before the rename, the discard undoes the rename.
fn is_undone_rename(path: &str) -> bool {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let is_discarded = DISCARDED_FOLDERS.contains(&folder);
    is_discarded && name.starts_with(TEMPORARY)
}

/// Whether a path is a temporary name of a put or removal whose process was killed. The next writer of the key removes
/// the file, but there may be none; no listing shows the file.
fn is_left_by_the_killed(path: &str) -> bool {
    let (_, name) = path.rsplit_once('/').unwrap_or(("", path));
    is_reserved_name(name.as_bytes())
}

/// Returns the names on the mount and in the store that no actor has made.
fn litter(plan: &Plan, places: Places<'_>) -> Vec<String> {
    let keys = plan.all_keys();
    let documents = plan.documents();
    let known = keys.iter().map(|key| key.path.as_str());
    let known = known.chain(documents.iter().map(|(path, _)| path.as_str()));
    let known: BTreeSet<&str> = known.collect();
    let stored = places.outside.paths();
    let is_left = |path: &str| plan.kills && is_left_by_the_killed(path);
    let strange = stored
        .iter()
        .filter(|path| !known.contains(path.as_str()) && !is_undone_rename(path) && !is_left(path));
    let mut wrongs: Vec<String> = strange
        .map(|path| format!("nobody made what lies in the store: {path}"))
        .collect();
    let above = |path: &str| {
        path.rsplit_once('/')
            .map_or("", |(folder, _)| folder)
            .to_string()
    };
    let mut folders: BTreeSet<String> = known.iter().map(|path| above(path)).collect();
    for folder in folders.clone() {
        folders.insert(above(&folder));
    }
    for folder in &folders {
        for name in places.world.names(&UNLIMITED, folder).unwrap_or_default() {
            let path = format!("{folder}/{name}")
                .trim_start_matches('/')
                .to_string();
            let is_known = known.contains(path.as_str()) || folders.contains(&path);
            if !is_known && !is_undone_rename(&path) {
                wrongs.push(format!("nobody made what the mount shows: {path}"));
            }
        }
    }
    wrongs
}

/// A killed daemon may leave temporary files in a store, which no listing shows.
#[test]
fn temporary_files_in_the_store_are_allowed_only_after_a_kill() {
    for kills in [true, false] {
        let plan = Plan {
            kills,
            ..Plan::of(1, Site::Folder, 1)
        };
        let fixture = RunFixture::new(&plan);
        let places = fixture.places();
        let left = format!(
            "{}/.zarrfs-arriving-0123456789abcdef",
            plan.all_keys()[0].folder()
        );
        places.outside.put(&UNLIMITED, &left, b"half").unwrap();
        let expected = format!("nobody made what lies in the store: {left}");
        let expected = if kills { vec![] } else { vec![expected] };
        assert_eq!(litter(&plan, places), expected);
    }
}
