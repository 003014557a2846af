//! A scenario: three actors on an overlay, and a judge of what they read.

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

/// A file mode that is never a default, to recognize that it was set.
const MODE: u32 = 0o604;

/// The contents that one thread has read, in order.
pub(super) type Reads = Vec<Option<u8>>;

/// What one thread of a scenario does.
pub(super) type Actor = fn(&Arc<Core>) -> Reads;

/// Decides whether the reads of the three threads and the final state of the store are allowed.
pub(super) type Judge = fn(&[Reads; 3], &[(char, u8)]) -> bool;

/// A test with three threads: the initial state, what the threads do, and which results are allowed.
#[derive(Clone, Copy)]
pub(super) struct Scenario {
    /// The upper folder's files at the start, by name and content.
    pub(super) files: &'static [(char, u8)],
    /// Whether the upper folder's files are large enough to be changed in place.
    pub(super) is_large: bool,
    /// The store's objects at the start, by name and content.
    pub(super) objects: &'static [(char, u8)],
    /// A rename that is made before the threads start: the old and the new name.
    pub(super) renamed: Option<(char, char)>,
    pub(super) actors: [Actor; 3],
    /// Whether the commit at the end is forced, because another mount may have changed the store.
    pub(super) force: bool,
    /// Decides whether the reads of each thread, and the store after a last commit, are allowed.
    pub(super) is_right: Judge,
}

/// An overlay whose files each contain one number.
pub(super) struct Core {
    pub(super) overlay: Overlay,
    pub(super) store: Arc<MemoryStore>,
    pub(super) upper: PathBuf,
}

pub(super) struct ScenarioReader(Arc<OpenFile>);

pub(super) struct ScenarioWriter(Arc<dyn TreeFile>);

pub(super) fn key(name: char) -> Key {
    Key::new(name.to_string()).unwrap()
}

/// Returns a folder that no other test uses, in memory if possible.
pub(super) fn unused_folder() -> PathBuf {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    let memory = PathBuf::from("/dev/shm");
    let folder = Some(memory).filter(|memory| memory.is_dir());
    let folder = folder.unwrap_or_else(std::env::temp_dir);
    folder.join(format!("zarrfs-schedule-{}-{number}", std::process::id()))
}

pub(super) fn put(overlay: &Overlay, name: char, bytes: &[u8]) {
    let body = PutBody::Bytes(bytes);
    Store::put(overlay, &UNLIMITED, &key(name), body, &Condition::Any).unwrap();
}

/// Commits all changes; returns whether there was no conflict.
pub(super) fn has_committed(overlay: &Overlay) -> bool {
    let done = overlay
        .commit(&UNLIMITED, CommitConfig::default(), &|_, _| {})
        .and_then(crate::commit::Outcome::or_failed);
    done.unwrap().conflicts.is_empty()
}

/// Returns the result of `done`, or `None` if the file is missing. It is retried if the file was replaced meanwhile.
pub(super) fn found<T>(mut done: impl FnMut() -> Result<T>) -> Option<T> {
    loop {
        match done() {
            Err(error) if error.kind() == Kind::NotFound => return None,
            Err(error) if error.kind() == Kind::Changed => {}
            done => return Some(done.unwrap()),
        }
    }
}

impl Core {
    pub(super) fn new(scenario: &Scenario) -> Arc<Core> {
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

    pub(super) fn put(&self, name: char, bytes: &[u8]) {
        put(&self.overlay, name, bytes);
    }

    pub(super) fn commit(&self) {
        assert!(has_committed(&self.overlay), "wrong: a conflict");
    }

    pub(super) fn discard(&self, name: char) -> bool {
        found(|| self.overlay.discard(&UNLIMITED, &key(name))).is_some()
    }

    pub(super) fn publish(&self, name: char, content: u8) {
        self.put(name, &[content]);
    }

    pub(super) fn rename(&self, from: char, to: char) -> bool {
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

    /// Sets the mode `MODE`, which no other file has; returns whether the file existed.
    pub(super) fn set_mode(&self, name: char) -> bool {
        let mode = AttrChange {
            mode: Some(MODE),
            ..AttrChange::default()
        };
        found(|| Tree::change(&self.overlay, &UNLIMITED, &key(name), &mode)).is_some()
    }

    /// Whether a file has the mode `MODE`; `None` if the file is missing.
    pub(super) fn has_mode(&self, name: char) -> Option<bool> {
        let stat = Tree::stat(&self.overlay, &UNLIMITED, &key(name)).unwrap()?;
        Some(stat.posix.is_some_and(|posix| posix.mode & 0o7777 == MODE))
    }

    pub(super) fn remove(&self, name: char) -> bool {
        found(|| Tree::unlink(&self.overlay, &UNLIMITED, &key(name))).is_some()
    }

    pub(super) fn is_there(&self, name: char) -> bool {
        let there = self
            .overlay
            .0
            .with_top(|top| top.find(&UNLIMITED, &key(name)));
        there.unwrap().is_some()
    }

    pub(super) fn get(&self, name: char) -> Option<u8> {
        let get = || {
            let object = Store::get(&self.overlay, &UNLIMITED, &key(name), 1 << 20)?;
            object.ok_or_else(|| Error::not_found(name))
        };
        found(get).map(|object| object.bytes[0])
    }

    pub(super) fn open_file(&self, name: char) -> Option<ScenarioReader> {
        found(|| opener::open(&self.overlay.0, &UNLIMITED, &key(name))).map(ScenarioReader)
    }

    pub(super) fn open_writer(&self, name: char) -> Option<ScenarioWriter> {
        found(|| Tree::open(&self.overlay, &UNLIMITED, &key(name), OpenMode::Write))
            .map(ScenarioWriter)
    }

    pub(super) fn all_registered(&self) -> Vec<Arc<OpenFile>> {
        self.overlay.0.registered_below(&Key::root())
    }

    pub(super) fn stored(&self) -> Vec<(char, u8)> {
        let content = |name: char| {
            let object = Store::get(&*self.store, &UNLIMITED, &key(name), 1 << 20).unwrap()?;
            Some((name, object.bytes[0]))
        };
        ['a', 'b', 'c'].into_iter().filter_map(content).collect()
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        // Ignore a failure, because a thread may be removing a committed layer from the folder at the same time.
        let _ = std::fs::remove_dir_all(&self.upper);
    }
}

impl ScenarioReader {
    pub(super) fn read(&self) -> u8 {
        Reader::read_at(&*self.0, &UNLIMITED, 0, 1).unwrap()[0]
    }
}

impl ScenarioWriter {
    /// Writes to the file; returns `false` if the write is refused, because the file was replaced.
    pub(super) fn write(&self, content: u8) -> bool {
        match self.0.write_at(&UNLIMITED, 0, &[content]) {
            Err(error) if error.kind() == Kind::Changed => false,
            done => done.map(|()| true).unwrap(),
        }
    }

    pub(super) fn close(self) {
        self.0.flush(&UNLIMITED).unwrap();
    }
}

/// A scheduler that runs each thread for many steps before it switches to a random other thread. Many faults show only
/// if one thread makes much progress while another is stopped.
struct Bursts {
    random: RandomScheduler,
    /// Average number of steps that a thread runs before the switch.
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
    /// A scenario without files and objects, whose threads do nothing.
    pub(super) const EMPTY: Scenario = Scenario {
        files: &[],
        is_large: false,
        objects: &[],
        renamed: None,
        actors: [|_| Reads::new(); 3],
        force: false,
        is_right: |_, _| true,
    };

    /// Runs the scenario in many schedules, or only in the schedule in `ZARRFS_SCHEDULE`, which a failed run has
    /// printed.
    pub(super) fn explore(self) {
        let run = move || self.run();
        let mut config = Config::new();
        config.stack_size = 1 << 20;
        // A schedule with this many steps is a livelock, because scenarios need far fewer.
        config.max_steps = MaxSteps::FailAfter(100_000);
        if let Ok(schedule) = std::env::var("ZARRFS_SCHEDULE") {
            let scheduler = ReplayScheduler::new_from_encoded(&schedule);
            Runner::new(scheduler, config).run(run);
            return;
        }
        Runner::new(Bursts::new(150), config.clone()).run(run);
        // Probabilistic concurrency testing switches threads at random at most 3 times, besides where a thread must
        // wait.
        Runner::new(PctScheduler::new(3, 500), config).run(run);
    }

    pub(super) fn run(&self) {
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
