//! Tests the overlay under shuttle: three threads in many schedules.
//!
//! Threads are switched at uses of locks (`sync/locks.rs`), of files in the upper folder and of the store. A failing
//! schedule is printed; `ZARRFS_SCHEDULE=... cargo test -p zarrfs-overlay --lib schedules::NAME` replays it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shuttle::scheduler::{
    PctScheduler, RandomScheduler, ReplayScheduler, Schedule, Scheduler, Task, TaskId,
};
use shuttle::{Config, MaxSteps, Runner, thread};

use crate::Overlay;
use crate::commit::CommitConfig;
use crate::open_file::{OpenFile, opener};
use crate::testing::open;
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::request_context::UNLIMITED;
use zarrfs_store::tree::{AttrChange, OpenMode, RenameMode, Tree, TreeFile};
use zarrfs_store::{Condition, Key, PutBody, Reader, Store};

/// A mode that no file has until it is set.
const MODE: u32 = 0o604;

/// The contents that an actor has read, in order.
type Reads = Vec<Option<u8>>;

/// The actions of one actor.
type Actor = fn(&Arc<Core>) -> Reads;

/// Whether the reads of three actors and the final state of the store are allowed.
type Judge = fn(&[Reads; 3], &[(char, u8)]) -> bool;

/// The initial state, and the actions of three actors.
#[derive(Clone, Copy)]
struct Scenario {
    /// Files of the upper folder.
    files: &'static [(char, u8)],
    /// Whether these files are large enough to be changed in place.
    is_large: bool,
    /// Objects of the store.
    objects: &'static [(char, u8)],
    /// A rename before the actors start.
    renamed: Option<(char, char)>,
    actors: [Actor; 3],
    /// Whether the last commit overwrites another mount's commit.
    force: bool,
    /// Whether the reads of each actor and the state of the store after a last commit are allowed.
    is_right: Judge,
}

/// An overlay whose contents are single numbers.
struct Core {
    overlay: Overlay,
    store: Arc<MemoryStore>,
    upper: PathBuf,
}

/// A file that is open for reading.
struct ScenarioReader(Arc<OpenFile>);

/// A handle for writing.
struct ScenarioWriter(Arc<dyn TreeFile>);

fn key(name: char) -> Key {
    Key::new(name.to_string()).unwrap()
}

/// Returns a folder that only this test uses, in memory if possible.
fn unused_folder() -> PathBuf {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    let memory = PathBuf::from("/dev/shm");
    let folder = Some(memory).filter(|memory| memory.is_dir());
    let folder = folder.unwrap_or_else(std::env::temp_dir);
    folder.join(format!("zarrfs-schedule-{}-{number}", std::process::id()))
}

fn put(overlay: &Overlay, name: char, bytes: &[u8]) {
    let body = PutBody::Bytes(bytes);
    Store::put(overlay, &UNLIMITED, &key(name), body, &Condition::Any).unwrap();
}

/// Commits; returns whether there was no conflict.
fn has_committed(overlay: &Overlay) -> bool {
    let done = overlay
        .commit(&UNLIMITED, CommitConfig::default(), &|_, _| {})
        .and_then(crate::commit::Outcome::or_failed);
    done.unwrap().conflicts.is_empty()
}

/// Returns the result, or `None` if the file is missing; retries if it was replaced.
fn found<T>(mut done: impl FnMut() -> Result<T>) -> Option<T> {
    loop {
        match done() {
            Err(error) if error.kind() == Kind::NotFound => return None,
            Err(error) if error.kind() == Kind::Changed => {}
            done => return Some(done.unwrap()),
        }
    }
}

impl Core {
    fn new(scenario: &Scenario) -> Arc<Core> {
        let upper = unused_folder();
        let store = Arc::new(MemoryStore::default());
        for &(name, content) in scenario.objects {
            store.set(key(name), vec![content]);
        }
        let overlay = open(&upper, &store);
        let core = Core {
            overlay,
            store,
            upper,
        };
        for &(name, content) in scenario.files {
            let length = if scenario.is_large { 128 << 10 } else { 1 };
            core.put(name, &vec![content; length]);
        }
        if let Some((from, to)) = scenario.renamed {
            assert!(core.rename(from, to));
        }
        Arc::new(core)
    }

    fn put(&self, name: char, bytes: &[u8]) {
        put(&self.overlay, name, bytes);
    }

    fn commit(&self) {
        assert!(has_committed(&self.overlay), "wrong: a conflict");
    }

    /// Returns whether there was a change to discard.
    fn discard(&self, name: char) -> bool {
        found(|| self.overlay.discard(&UNLIMITED, &key(name))).is_some()
    }

    fn publish(&self, name: char, content: u8) {
        self.put(name, &[content]);
    }

    fn rename(&self, from: char, to: char) -> bool {
        let rename = || {
            Tree::rename(
                &self.overlay,
                &UNLIMITED,
                &key(from),
                &key(to),
                RenameMode::Replace,
            )
        };
        found(rename).is_some()
    }

    /// Sets a mode that no other file has; returns whether the file existed.
    fn set_mode(&self, name: char) -> bool {
        let mode = AttrChange {
            mode: Some(MODE),
            ..AttrChange::default()
        };
        found(|| Tree::change(&self.overlay, &UNLIMITED, &key(name), &mode)).is_some()
    }

    /// Returns whether the file has that mode.
    fn has_mode(&self, name: char) -> Option<bool> {
        let stat = Tree::stat(&self.overlay, &UNLIMITED, &key(name)).unwrap()?;
        Some(stat.posix.is_some_and(|posix| posix.mode & 0o7777 == MODE))
    }

    fn remove(&self, name: char) -> bool {
        found(|| Tree::unlink(&self.overlay, &UNLIMITED, &key(name))).is_some()
    }

    fn is_there(&self, name: char) -> bool {
        let there = self
            .overlay
            .0
            .with_top(|top| top.find(&UNLIMITED, &key(name)));
        there.unwrap().is_some()
    }

    fn get(&self, name: char) -> Option<u8> {
        let get = || {
            let object = Store::get(&self.overlay, &UNLIMITED, &key(name), 1 << 20)?;
            object.ok_or_else(|| Error::not_found(name))
        };
        found(get).map(|object| object.bytes[0])
    }

    fn open_file(&self, name: char) -> Option<ScenarioReader> {
        found(|| opener::open(&self.overlay.0, &UNLIMITED, &key(name))).map(ScenarioReader)
    }

    fn open_writer(&self, name: char) -> Option<ScenarioWriter> {
        found(|| Tree::open(&self.overlay, &UNLIMITED, &key(name), OpenMode::Write))
            .map(ScenarioWriter)
    }

    fn all_registered(&self) -> Vec<Arc<OpenFile>> {
        self.overlay.0.registered_below(&Key::root())
    }

    /// Returns the contents of the store.
    fn stored(&self) -> Vec<(char, u8)> {
        let content = |name: char| {
            let object = Store::get(&*self.store, &UNLIMITED, &key(name), 1 << 20).unwrap()?;
            Some((name, object.bytes[0]))
        };
        ['a', 'b', 'c'].into_iter().filter_map(content).collect()
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        // A thread that removes committed files may remove the folder first.
        let _ = std::fs::remove_dir_all(&self.upper);
    }
}

impl ScenarioReader {
    fn read(&self) -> u8 {
        Reader::read_at(&*self.0, &UNLIMITED, 0, 1).unwrap()[0]
    }
}

impl ScenarioWriter {
    /// Writes; returns `false` if the write is refused.
    fn write(&self, content: u8) -> bool {
        match self.0.write_at(&UNLIMITED, 0, &[content]) {
            Err(error) if error.kind() == Kind::Changed => false,
            done => done.map(|()| true).unwrap(),
        }
    }

    fn close(self) {
        self.0.flush(&UNLIMITED).unwrap();
    }
}

/// Runs each thread for some steps before it switches to a random one: many faults need one thread to progress far
/// while another is stopped.
struct Bursts {
    random: RandomScheduler,
    /// Average number of steps that a thread runs.
    length: u64,
}

impl Bursts {
    fn new(schedules: usize) -> Bursts {
        Bursts {
            random: RandomScheduler::new(schedules),
            length: 1,
        }
    }
}

impl Scheduler for Bursts {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.length = if self.length < 64 { self.length * 2 } else { 1 };
        self.random.new_execution()
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        let is_ready = runnable.iter().any(|task| Some(task.id()) == current);
        let goes_on = is_ready && !is_yielding && !self.next_u64().is_multiple_of(self.length);
        let next = self.random.next_task(runnable, current, is_yielding);
        if goes_on { current } else { next }
    }

    fn next_u64(&mut self) -> u64 {
        self.random.next_u64()
    }
}

impl Scenario {
    /// Three actors that do nothing, and neither files nor objects.
    const EMPTY: Scenario = Scenario {
        files: &[],
        is_large: false,
        objects: &[],
        renamed: None,
        actors: [|_| Reads::new(); 3],
        force: false,
        is_right: |_, _| true,
    };

    /// Runs the scenario in many schedules, or only in `ZARRFS_SCHEDULE`, as printed by a failure.
    fn explore(self) {
        let run = move || self.run();
        let mut config = Config::new();
        config.stack_size = 1 << 20;
        // Far more steps than any scenario has: detects livelocks.
        config.max_steps = MaxSteps::FailAfter(100_000);
        if let Ok(schedule) = std::env::var("ZARRFS_SCHEDULE") {
            let scheduler = ReplayScheduler::new_from_encoded(&schedule);
            Runner::new(scheduler, config).run(run);
            return;
        }
        Runner::new(Bursts::new(150), config.clone()).run(run);
        // Probabilistic concurrency testing: at most 3 preemptions, besides the points where a thread waits.
        Runner::new(PctScheduler::new(3, 500), config).run(run);
    }

    fn run(&self) {
        let core = Core::new(self);
        let actors = self.actors.map(|actor| {
            let core = core.clone();
            thread::spawn(move || actor(&core))
        });
        let reads = actors.map(|actor| actor.join().unwrap());
        let shown = ['a', 'b', 'c'].map(|name| Some((name, core.get(name)?)));
        let shown: Vec<(char, u8)> = shown.into_iter().flatten().collect();
        let config = CommitConfig {
            dry_run: false,
            force: self.force,
        };
        let last = core
            .overlay
            .commit(&UNLIMITED, config, &|_, _| {})
            .and_then(crate::commit::Outcome::or_failed)
            .unwrap();
        assert_eq!(last.conflicts, [], "wrong: a conflict");
        let stored = core.stored();
        assert_eq!(shown, stored, "wrong: a commit changes what shows");
        assert!(
            (self.is_right)(&reads, &stored),
            "wrong: {reads:?}, then {stored:?}"
        );
        let left = core.overlay.changes(&UNLIMITED).unwrap();
        let is_of_attributes = |why: &str| why.starts_with("owner, mode");
        let are_kept = left
            .uncommittable
            .iter()
            .all(|(_, why)| is_of_attributes(why));
        assert!(left.keys.is_empty() && are_kept, "wrong: {left:?}");
    }
}

fn commit(core: &Arc<Core>) -> Reads {
    core.commit();
    Reads::new()
}

fn rename(core: &Arc<Core>) -> Reads {
    assert!(core.rename('a', 'b'));
    Reads::new()
}

fn read_both(core: &Arc<Core>) -> Reads {
    vec![core.get('a'), core.get('b')]
}

fn read(core: &Arc<Core>) -> Reads {
    vec![core.get('a')]
}

fn open_and_read(core: &Arc<Core>) -> Reads {
    vec![core.open_file('a').map(|file| file.read())]
}

/// Opens the file and holds it while others look it up.
fn hold(core: &Arc<Core>) -> Reads {
    let file = core.open_file('a');
    drop(core.all_registered());
    vec![file.map(|file| file.read())]
}

/// Whether the reads of both names are possible during a rename of 1 over 2.
fn is_rename([_, _, reads]: &[Reads; 3], stored: &[(char, u8)]) -> bool {
    let is_seen = match reads[..] {
        [Some(1), b] => b == Some(2) || b == Some(1),
        [None, b] => b == Some(1),
        _ => false,
    };
    is_seen && stored == [('b', 1)]
}

/// Opens, writes and closes. The write goes to the file that was opened.
fn write(core: &Arc<Core>) -> Reads {
    let writer = core.open_writer('a').unwrap();
    let is_written = writer.write(3);
    writer.close();
    vec![is_written.then_some(3)]
}

/// A commit, a rename of the layer's file over an object, and a reader of both names.
#[test]
fn commit_and_rename_in_the_layer() {
    Scenario {
        files: &[('a', 1)],
        objects: &[('a', 9), ('b', 2)],
        actors: [commit, rename, read_both],
        is_right: is_rename,
        ..Scenario::EMPTY
    }
    .explore();
}

/// The same with an object of the store, renamed over a file of the layer.
#[test]
fn commit_and_rename_in_the_store() {
    Scenario {
        files: &[('b', 2)],
        objects: &[('a', 1)],
        actors: [commit, rename, read_both],
        is_right: is_rename,
        ..Scenario::EMPTY
    }
    .explore();
}

/// A commit of a renamed object, a reader that opens it, and one that does not.
#[test]
fn commit_of_renamed_key() {
    Scenario {
        objects: &[('b', 1)],
        renamed: Some(('b', 'a')),
        actors: [commit, open_and_read, |core| vec![core.get('a')]],
        is_right: |[_, opened, read], stored| {
            [opened, read].iter().all(|reads| reads[..] == [Some(1)]) && stored == [('a', 1)]
        },
        ..Scenario::EMPTY
    }
    .explore();
}

/// A commit, a publication and a reader.
#[test]
fn commit_and_publication() {
    Scenario {
        files: &[('a', 1)],
        actors: [
            commit,
            |core| {
                core.publish('a', 2);
                vec![core.get('a')]
            },
            read,
        ],
        is_right: |[_, own, reads], stored| {
            own[..] == [Some(2)] && matches!(reads[..], [Some(1 | 2)]) && stored == [('a', 2)]
        },
        ..Scenario::EMPTY
    }
    .explore();
}

/// A commit, a removal and a reader.
#[test]
fn commit_and_removal() {
    Scenario {
        files: &[('a', 1)],
        actors: [
            commit,
            |core| {
                assert!(core.remove('a'));
                vec![core.get('a')]
            },
            read,
        ],
        is_right: |[_, own, reads], stored| {
            own[..] == [None] && matches!(reads[..], [Some(1) | None]) && stored.is_empty()
        },
        ..Scenario::EMPTY
    }
    .explore();
}

/// A commit, a discard of the change, and a reader.
#[test]
fn commit_and_discard() {
    Scenario {
        files: &[('a', 1)],
        objects: &[('a', 9)],
        actors: [commit, |core| vec![core.discard('a').then_some(9)], read],
        is_right: |[_, discarded, read], stored| {
            let is_last = match discarded[..] {
                [Some(_)] => stored == [('a', 9)],
                _ => stored == [('a', 1)],
            };
            is_last && matches!(read[..], [Some(1 | 9)])
        },
        ..Scenario::EMPTY
    }
    .explore();
}

/// A commit of another key, a rename of an object of the store, and a change of its mode, which must survive the
/// rename.
#[test]
fn commit_attributes_and_rename() {
    Scenario {
        files: &[('c', 2)],
        objects: &[('a', 1)],
        actors: [commit, rename, |core| {
            assert!(core.set_mode('a') || core.set_mode('b'));
            let has_mode = core.has_mode('a').or_else(|| core.has_mode('b'));
            vec![has_mode.map(u8::from)]
        }],
        is_right: |[_, _, has_mode], stored| {
            has_mode[..] == [Some(1)] && stored == [('b', 1), ('c', 2)]
        },
        ..Scenario::EMPTY
    }
    .explore();
}

/// A commit, a writer of an object of the store, and a change of its mode: both changes survive.
#[test]
fn commit_attributes_and_writer() {
    Scenario {
        objects: &[('a', 1)],
        actors: [commit, write, |core| {
            assert!(core.set_mode('a'));
            vec![core.get('a')]
        }],
        is_right: |[_, written, read], stored| {
            written[..] == [Some(3)] && matches!(read[..], [Some(1 | 3)]) && stored == [('a', 3)]
        },
        ..Scenario::EMPTY
    }
    .explore();
}

/// A commit, a writer, and a rename over the file that the writer opens.
#[test]
fn commit_writer_and_rename_over() {
    Scenario {
        files: &[('a', 1), ('b', 2)],
        actors: [commit, write, |core| {
            assert!(core.rename('b', 'a'));
            vec![core.get('a')]
        }],
        is_right: |[_, written, read], stored| {
            let is_last = matches!(stored, [('a', 2 | 3)]);
            // Only a later write may replace the content that is visible after the rename.
            let is_kept = read[..] != [Some(3)] || stored == [('a', 3)];
            written[..] == [Some(3)] && matches!(read[..], [Some(2 | 3)]) && is_last && is_kept
        },
        ..Scenario::EMPTY
    }
    .explore();
}

/// A commit, a writer in place, and a reader.
#[test]
fn commit_and_writer_in_place() {
    Scenario {
        files: &[('a', 1)],
        is_large: true,
        actors: [commit, write, open_and_read],
        is_right: |[_, written, read], stored| {
            written[..] == [Some(3)] && matches!(read[..], [Some(1 | 3)]) && stored == [('a', 3)]
        },
        ..Scenario::EMPTY
    }
    .explore();
}

/// A commit, and a writer that opens a name during a rename to it.
#[test]
fn commit_and_writer_of_renamed_key() {
    Scenario {
        files: &[('b', 2)],
        actors: [
            commit,
            |core| match core.open_writer('a') {
                None => vec![None],
                Some(writer) => {
                    let is_written = writer.write(3);
                    writer.close();
                    vec![is_written.then_some(3)]
                }
            },
            |core| {
                assert!(core.rename('b', 'a'));
                Reads::new()
            },
        ],
        is_right: |[_, written, _], stored| match written[..] {
            [None] => stored == [('a', 2)],
            _ => stored == [('a', 3)],
        },
        ..Scenario::EMPTY
    }
    .explore();
}

/// A commit that leaves out the file that a writer has open, and a reader of that file.
#[test]
fn commit_writer_and_reader() {
    Scenario {
        files: &[('a', 1), ('b', 2)],
        actors: [commit, write, read],
        is_right: |[_, written, read], stored| {
            let is_seen = matches!(read[..], [Some(1 | 3)]);
            is_seen && written[..] == [Some(3)] && stored == [('a', 3), ('b', 2)]
        },
        ..Scenario::EMPTY
    }
    .explore();
}

/// A commit of a renamed object, then a writer, and a reader that has the file open all the time.
#[test]
fn commit_then_write_of_renamed_key() {
    Scenario {
        objects: &[('b', 1)],
        renamed: Some(('b', 'a')),
        actors: [
            |core| {
                core.commit();
                write(core)
            },
            hold,
            |_| vec![Some(1)],
        ],
        is_right: |[written, opened, read], stored| {
            let seen = [opened, read];
            let is_seen = seen.iter().all(|reads| matches!(reads[..], [Some(1 | 3)]));
            is_seen && written[..] == [Some(3)] && stored == [('a', 3)]
        },
        ..Scenario::EMPTY
    }
    .explore();
}

/// Two concurrent commits and a writer.
#[test]
fn two_commits_and_writer() {
    Scenario {
        files: &[('a', 1), ('b', 2)],
        objects: &[('a', 9)],
        actors: [commit, commit, write],
        is_right: |[_, _, written], stored| {
            written[..] == [Some(3)] && stored == [('a', 3), ('b', 2)]
        },
        ..Scenario::EMPTY
    }
    .explore();
}

/// Two commits of one key from two mounts: neither overwrites the other's unseen change.
#[test]
fn commits_of_two_mounts() {
    Scenario {
        files: &[('a', 1)],
        objects: &[('a', 9)],
        actors: [
            |core| vec![has_committed(&core.overlay).then_some(1)],
            |core| {
                let upper = unused_folder();
                let other = open(&upper, &core.store);
                put(&other, 'a', &[5]);
                let is_committed = has_committed(&other);
                drop(other);
                let _ = std::fs::remove_dir_all(&upper);
                vec![is_committed.then_some(5)]
            },
            read,
        ],
        force: true,
        is_right: |[first, second, read], stored| {
            let is_last = match (&first[..], &second[..]) {
                ([Some(1)], [None]) | ([None], [Some(5)]) => stored == [('a', 1)],
                // The second mount has changed the key after the first mount's commit.
                ([Some(1)], [Some(5)]) => stored == [('a', 5)],
                _ => false,
            };
            is_last && matches!(read[..], [Some(1 | 5)])
        },
        ..Scenario::EMPTY
    }
    .explore();
}

/// Two renames over one name, and a reader that opens it.
#[test]
fn two_renames_over_one_name() {
    Scenario {
        files: &[('a', 1), ('b', 2)],
        objects: &[('c', 3)],
        actors: [
            |core| {
                assert!(core.rename('b', 'a'));
                vec![core.open_file('a').map(|file| file.read())]
            },
            |core| {
                assert!(core.rename('c', 'a'));
                Reads::new()
            },
            open_and_read,
        ],
        is_right: |[own, _, reads], stored| {
            let is_seen = matches!(reads[..], [Some(1..=3)]);
            is_seen && matches!(own[..], [Some(2 | 3)]) && matches!(stored, [('a', 2 | 3)])
        },
        ..Scenario::EMPTY
    }
    .explore();
}

/// A commit of a renamed object, whose new name must exist at all times.
#[test]
fn renamed_key_is_found() {
    Scenario {
        objects: &[('b', 1)],
        renamed: Some(('b', 'a')),
        actors: [
            commit,
            |_| vec![Some(1)],
            |core| vec![core.is_there('a').then_some(1)],
        ],
        is_right: |[_, opened, read], stored| {
            [opened, read].iter().all(|reads| reads[..] == [Some(1)]) && stored == [('a', 1)]
        },
        ..Scenario::EMPTY
    }
    .explore();
}

/// The same with a reader.
#[test]
fn renamed_key_is_read() {
    Scenario {
        objects: &[('b', 1)],
        renamed: Some(('b', 'a')),
        actors: [commit, |_| vec![Some(1)], read],
        is_right: |[_, opened, read], stored| {
            [opened, read].iter().all(|reads| reads[..] == [Some(1)]) && stored == [('a', 1)]
        },
        ..Scenario::EMPTY
    }
    .explore();
}

/// A rename over a name that another actor opens, and a later open.
#[test]
fn rename_over_opened_file() {
    Scenario {
        files: &[('a', 1), ('b', 2)],
        actors: [
            |core| {
                assert!(core.rename('b', 'a'));
                vec![core.open_file('a').map(|file| file.read())]
            },
            hold,
            |_| Reads::new(),
        ],
        is_right: |[own, reads, _], stored| {
            let is_seen = matches!(reads[..], [Some(1 | 2)]);
            is_seen && own[..] == [Some(2)] && stored == [('a', 2)]
        },
        ..Scenario::EMPTY
    }
    .explore();
}

/// A writer that reads its file before closing it, and another actor that opens the file.
#[test]
fn writer_and_reader_of_one_file() {
    Scenario {
        files: &[('a', 1)],
        actors: [
            |core| {
                let writer = core.open_writer('a').unwrap();
                assert!(writer.write(3));
                let read = core.get('a');
                writer.close();
                vec![read]
            },
            open_and_read,
            |_| Reads::new(),
        ],
        is_right: |[own, reads, _], stored| {
            let is_seen = matches!(reads[..], [Some(1 | 3)]);
            is_seen && own[..] == [Some(3)] && stored == [('a', 3)]
        },
        ..Scenario::EMPTY
    }
    .explore();
}
