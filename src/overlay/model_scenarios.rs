//! The scenarios of the model of the lock protocol (`tests/overlay_model`), run by the overlay itself: what the model
//! says of it in all schedules is true of the code in those that are tried here.
//!
//! Every schedule in which a thread is stopped once, and some in which it is stopped more often. Threads take turns at
//! uses of locks, of files in the upper folder and of the store.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::commit::CommitConfig;
use super::open_file::OpenFile;
use super::{Overlay, OverlayConfig};
use crate::error::{Error, Kind, Result};
use crate::store::backend::memory::MemoryStore;
use crate::store::tree::{OpenMode, RenameMode, Tree, TreeFile};
use crate::store::{Condition, Key, PutBody, Reader, Store};
use crate::sync::schedule::{Exploration, ScheduledActor, explore};

#[path = "../../tests/overlay_model/schedules.rs"]
mod schedules;

/// A file that is changed in place is so long, in bytes; others are of one.
const LARGE: usize = 128 << 10;

/// Schedules of each scenario in which threads are stopped more often.
const RANDOM: u64 = 150;

/// What an actor has seen, read by read.
pub(crate) type Reads = Vec<Option<u8>>;

/// What one actor does.
pub(crate) type Actor = fn(&Arc<Core>) -> Reads;

/// Whether what three actors read, and what the store holds in the end, can have been.
type Judge = fn(&[Reads; 3], &[(char, u8)]) -> bool;

/// What is there before three actors come, and what they do: as in the model.
pub(crate) struct Scenario {
    pub(crate) files: &'static [(char, u8)],
    pub(crate) is_large: bool,
    pub(crate) objects: &'static [(char, u8)],
    pub(crate) renamed: Option<(char, char)>,
    pub(crate) actors: [Actor; 3],
    pub(crate) is_right: Judge,
    /// The model's.
    #[allow(dead_code, reason = "the model alone runs so many schedules")]
    pub(crate) preemptions: Option<usize>,
}

/// An overlay whose contents are numbers.
pub(crate) struct Core {
    overlay: Overlay,
    store: Arc<MemoryStore>,
    upper: PathBuf,
}

/// A file that is open for reading.
pub(crate) struct ScenarioReader(Arc<OpenFile>);

/// A handle for writing.
pub(crate) struct ScenarioWriter(Arc<dyn TreeFile>);

fn key(name: char) -> Key {
    Key::new(name.to_string()).unwrap()
}

/// Returns whether there was something; again if it was replaced each time.
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
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let memory = PathBuf::from("/dev/shm");
        let folder = Some(memory).filter(|memory| memory.is_dir());
        let folder = folder.unwrap_or_else(std::env::temp_dir);
        let upper = folder.join(format!("zarrfs-scenario-{}-{number}", std::process::id()));
        let store = Arc::new(MemoryStore::default());
        for &(name, content) in scenario.objects {
            store.set(key(name), vec![content]);
        }
        let config = OverlayConfig {
            uid: 0,
            gid: 0,
            write_through: false,
        };
        let overlay = Overlay::open(&upper, store.clone(), "a store", config).unwrap();
        let core = Core {
            overlay,
            store,
            upper,
        };
        for &(name, content) in scenario.files {
            let length = if scenario.is_large { LARGE } else { 1 };
            core.put(name, &vec![content; length]);
        }
        if let Some((from, to)) = scenario.renamed {
            assert!(core.rename(from, to));
        }
        Arc::new(core)
    }

    fn put(&self, name: char, bytes: &[u8]) {
        let body = PutBody::Bytes(bytes);
        Store::put(&self.overlay, &key(name), body, &Condition::Any).unwrap();
    }

    pub(super) fn commit(&self) {
        let done = self.overlay.commit(CommitConfig::default(), &|_, _| {});
        assert_eq!(done.unwrap().conflicts, [], "wrong: a conflict");
    }

    pub(super) fn publish(&self, name: char, content: u8) {
        self.put(name, &[content]);
    }

    pub(super) fn rename(&self, from: char, to: char) -> bool {
        let rename = || Tree::rename(&self.overlay, &key(from), &key(to), RenameMode::Replace);
        found(rename).is_some()
    }

    pub(super) fn remove(&self, name: char) -> bool {
        found(|| Tree::unlink(&self.overlay, &key(name))).is_some()
    }

    pub(super) fn is_there(&self, name: char) -> bool {
        let there = self.overlay.0.look(|top| top.find(&key(name)));
        there.unwrap().is_some()
    }

    pub(super) fn get(&self, name: char) -> Option<u8> {
        let get = || {
            let object = Store::get(&self.overlay, &key(name), 1 << 20)?;
            object.ok_or_else(|| Error::not_found(name))
        };
        found(get).map(|object| object.bytes[0])
    }

    pub(super) fn open_file(&self, name: char) -> Option<ScenarioReader> {
        found(|| self.overlay.0.open_file(&key(name))).map(ScenarioReader)
    }

    pub(super) fn open_writer(&self, name: char) -> Option<ScenarioWriter> {
        found(|| Tree::open(&self.overlay, &key(name), OpenMode::Write)).map(ScenarioWriter)
    }

    pub(super) fn all_registered(&self) -> Vec<Arc<OpenFile>> {
        self.overlay.0.registered_below(&Key::root())
    }

    /// Returns what the store holds.
    fn stored(&self) -> Vec<(char, u8)> {
        let content = |name: char| {
            let object = Store::get(&*self.store, &key(name), 1 << 20).unwrap()?;
            Some((name, object.bytes[0]))
        };
        ['a', 'b', 'c'].into_iter().filter_map(content).collect()
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        // A thread that removes what was committed may be there first.
        let _ = std::fs::remove_dir_all(&self.upper);
    }
}

impl ScenarioReader {
    pub(super) fn read(&self) -> u8 {
        Reader::read_at(&*self.0, 0, 1).unwrap()[0]
    }
}

impl ScenarioWriter {
    /// Writes; false if that is refused.
    pub(super) fn write(&self, content: u8) -> bool {
        match self.0.write_at(0, &[content]) {
            Err(error) if error.kind() == Kind::Changed => false,
            done => done.map(|()| true).unwrap(),
        }
    }

    pub(super) fn close(self) {
        self.0.flush().unwrap();
    }
}

impl Scenario {
    /// Runs the schedules; nothing can be left out here.
    pub(super) fn explore(self, _without: Option<Infallible>) {
        let exploration = Exploration {
            preemptions: 1,
            random: RANDOM,
        };
        let actors = || {
            let core = Core::new(&self);
            let scheduled = self.actors.map(|actor| -> ScheduledActor<Reads> {
                let core = core.clone();
                Box::new(move || actor(&core))
            });
            (core, scheduled.into())
        };
        let judge = |core: Arc<Core>, reads| self.judge(&core, reads);
        let schedules = explore(exploration, actors, judge);
        println!("{schedules} schedules");
    }

    fn judge(&self, core: &Core, reads: Vec<Reads>) {
        let reads: [Reads; 3] = reads.try_into().unwrap();
        let shown = ['a', 'b', 'c'].map(|name| Some((name, core.get(name)?)));
        let shown: Vec<(char, u8)> = shown.into_iter().flatten().collect();
        core.commit();
        let stored = core.stored();
        assert_eq!(shown, stored, "wrong: a commit changes what shows");
        assert!(
            (self.is_right)(&reads, &stored),
            "wrong: {reads:?}, then {stored:?}"
        );
        let left = core.overlay.changes().unwrap();
        assert!(
            left.keys.is_empty() && left.kept.is_empty(),
            "wrong: {left:?}"
        );
    }
}
