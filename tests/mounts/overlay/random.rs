//! Random steps on an overlay and a plain directory: both must show the same tree.

use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use zarrfs_overlay::commit::CommitConfig;
use zarrfs_store::Key;

use crate::overlay::fixture::{Fixture, Lower, key, shown};
use crate::overlay::reference::{Reference, Shown, Tree};
use crate::overlay::steps;
use crate::overlay::steps::{Held, Step, first_bytes};
use zarrfs_store::request_context::UNLIMITED;

/// Number of steps between two remounts, and maximum number of steps in a run.
const TURN: usize = 100;
const STEPS: usize = 250;
/// Number of runs for each kind of store. $ZARRFS_TEST_RUNS overrides it, and $ZARRFS_TEST_SEED sets the seed.
const RUNS: u32 = 40;

fn number_of(variable: &str, default: u32) -> u32 {
    let value = std::env::var(variable).ok();
    value.map_or(default, |value| value.parse().unwrap())
}

/// Runs `test` with random stores and steps, which depend only on the seed. If a run fails, its steps are reduced and
/// printed.
pub(crate) fn run(runs: u32, step: impl Strategy<Value = Step>, test: &dyn Fn(&[Held], &[Step])) {
    let mut seed = [0; 32];
    seed[..4].copy_from_slice(&number_of("ZARRFS_TEST_SEED", 1).to_le_bytes());
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(Config::default(), random);
    let strategy = (steps::held(), prop::collection::vec(step, STEPS / 2..STEPS));
    for number in 0..number_of("ZARRFS_TEST_RUNS", runs) {
        let (held, steps) = strategy.new_tree(&mut runner).unwrap().current();
        let Some(mut why) = failure(test, &held, &steps) else {
            continue;
        };
        let steps = shrunk(steps, &mut |steps: &[Step]| {
            let found = failure(test, &held, steps);
            found.map(|found| why = found).is_some()
        });
        let held = shrunk(held, &mut |held: &[Held]| {
            failure(test, held, &steps).is_some()
        });
        panic!("run {number}: {why}\nover {held:?}\nafter {steps:#?}");
    }
}

/// Runs a test; returns its panic message, or `None` if it passed.
fn failure(test: &dyn Fn(&[Held], &[Step]), held: &[Held], steps: &[Step]) -> Option<String> {
    let done = catch_unwind(AssertUnwindSafe(|| test(held, steps)));
    let why = done.err()?;
    let text = why.downcast_ref::<String>().cloned();
    Some(text.unwrap_or_else(|| format!("{:?}", why.downcast_ref::<&str>())))
}

/// Removes parts of a list as long as `fails` is still true for the rest, to find a minimal failing case.
fn shrunk<T: Clone>(mut list: Vec<T>, fails: &mut dyn FnMut(&[T]) -> bool) -> Vec<T> {
    let mut size = list.len() / 2;
    while size > 0 {
        let mut at = 0;
        while at < list.len() {
            let end = (at + size).min(list.len());
            let less = [&list[..at], &list[end..]].concat();
            if fails(&less) { list = less } else { at = end }
        }
        size /= 2;
    }
    list
}

struct Pair {
    kind: Lower,
    fixture: Fixture,
    model: Reference,
}

impl Pair {
    fn new(kind: Lower, held: &[Held]) -> Pair {
        let objects: Vec<(&str, Vec<u8>)> = held
            .iter()
            .map(|(path, size)| (path.as_str(), first_bytes(path, *size)))
            .collect();
        let objects: Vec<(&str, &[u8])> = objects
            .iter()
            .map(|(path, bytes)| (*path, bytes.as_slice()))
            .collect();
        let fixture = Fixture::new(kind, &objects);
        let root = fixture.folder.path().join("model");
        std::fs::create_dir(&root).unwrap();
        let model = Reference::new(&root);
        model.become_like(&shown(&*fixture.lower, false));
        Pair {
            kind,
            fixture,
            model,
        }
    }

    /// Makes a step on the overlay and on the directory, and compares them.
    fn take(&mut self, step: &Step) {
        match step {
            Step::Remount => {
                self.fixture.flush_all();
                self.fixture.remount();
                self.model.open = Default::default();
            }
            Step::Commit(closed) => self.commit(*closed),
            Step::Discard => {
                self.close_files();
                if self
                    .fixture
                    .overlay()
                    .discard(&UNLIMITED, &Key::root())
                    .is_ok()
                {
                    self.model.become_like(&shown(&*self.fixture.lower, false));
                }
            }
            Step::DiscardPath(path) => self.discard(path),
            step => self.take_both(step),
        }
        self.compare();
    }

    fn take_both(&mut self, step: &Step) {
        let has_folder = |path: &String| self.model.has_folder_for(path);
        let can_be = match step {
            Step::Create(path, _)
            | Step::Open(path, ..)
            | Step::ResizePath(path, _)
            | Step::Unlink(path)
            | Step::MakeFolder(path)
            | Step::RemoveFolder(path)
            | Step::Chmod(path, _)
            | Step::Erase(path)
            | Step::Symlink(path, _) => has_folder(path),
            Step::Rename(from, to) | Step::RenameNew(from, to) | Step::Link(from, to) => {
                has_folder(from) && has_folder(to)
            }
            Step::Put(path, ..) if !self.model.can_hold(path) => {
                let refused = self.fixture.take(step);
                return assert!(refused.is_err(), "{step:?}");
            }
            _ => true,
        };
        if !can_be {
            return;
        }
        if let Step::Put(path, ..) = step {
            // Close a file that the put replaces, because further writes to it are refused.
            for slot in self.model.close_file_of(path) {
                self.fixture.put_open(slot, None);
            }
        }
        let done = self.fixture.take(step);
        let expected = self.model.take(step);
        assert_eq!(
            done.is_ok(),
            expected.is_ok(),
            "{step:?}: {done:?}, not {expected:?}"
        );
    }

    fn compare(&self) {
        assert_same(&self.fixture.shown(), &self.model.shown());
        let (found, expected) = (self.fixture.held_open(), self.model.held_open());
        for (slot, (found, expected)) in found.into_iter().zip(expected).enumerate() {
            let shown = |bytes: Option<Vec<u8>>| bytes.map(Shown::File);
            assert_eq!(shown(found), shown(expected), "open as {slot}");
        }
    }

    fn close_files(&mut self) {
        self.fixture.close_files();
        self.model.open = Default::default();
    }

    fn commit(&mut self, closed: bool) {
        if closed {
            self.close_files();
        }
        let config = CommitConfig::default();
        let outcome = self
            .fixture
            .overlay()
            .commit(&UNLIMITED, config, &|_, _| {})
            .and_then(zarrfs_overlay::commit::Outcome::or_failed)
            .unwrap();
        assert_eq!(outcome.conflicts, []);
        self.forget_empty_folders();
        if !closed {
            return;
        }
        let (stored, model) = (shown(&*self.fixture.lower, false), self.model.shown());
        let files = |tree: &Tree| -> Tree {
            let files = tree
                .iter()
                .filter(|(_, shown)| matches!(shown, Shown::File(_)));
            files
                .map(|(path, shown)| (path.clone(), shown.clone()))
                .collect()
        };
        assert_same(&files(&stored), &files(&model));
        for (path, shown) in &stored {
            assert_eq!(Some(shown), model.get(path), "{path} in the store");
        }
        let left = self.fixture.overlay().changes(&UNLIMITED).unwrap();
        assert_eq!(left.keys, []);
    }

    /// Removes empty folders from the directory if the overlay does not have them, because a bucket's folder is gone
    /// with its last key.
    fn forget_empty_folders(&mut self) {
        if self.kind == Lower::Local {
            return;
        }
        let found = self.fixture.shown();
        let model = self.model.shown();
        for (path, shown) in model.iter().rev() {
            if *shown == Shown::Folder && !found.contains_key(path) {
                // The call fails if the folder is not empty, so the test would fail.
                std::fs::remove_dir(self.model.root.join(path)).unwrap();
            }
        }
    }

    /// Discards the changes of a path. Afterwards its keys must be as in the store, and all others unchanged.
    fn discard(&mut self, path: &str) {
        self.close_files();
        if self
            .fixture
            .overlay()
            .discard(&UNLIMITED, &key(path))
            .is_err()
        {
            return;
        }
        let below = |tree: &Tree, is_below: bool| -> Tree {
            let is = |at: &str| at == path || at.starts_with(&format!("{path}/"));
            let some = tree.iter().filter(|(at, _)| is(at) == is_below);
            some.map(|(at, shown)| (at.clone(), shown.clone()))
                .collect()
        };
        let (found, model) = (self.fixture.shown(), self.model.shown());
        assert_same(&below(&found, false), &below(&model, false));
        self.model.become_like(&found);
    }
}

pub(crate) fn assert_same(found: &Tree, expected: &Tree) {
    for (path, expected) in expected {
        assert_eq!(found.get(path), Some(expected), "{path}");
    }
    for (path, found) in found {
        assert_eq!(Some(found), expected.get(path), "{path}");
    }
}

fn take_all(kind: Lower, held: &[Held], steps: &[Step]) {
    let mut pair = Pair::new(kind, held);
    pair.compare();
    for (number, step) in steps.iter().enumerate() {
        pair.take(step);
        if number % TURN == TURN - 1 {
            pair.take(&Step::Remount);
        }
    }
    pair.take(&Step::Remount);
    pair.take(&Step::Commit(true));
}

#[test]
fn an_overlay_over_memory_behaves_as_a_directory() {
    run(RUNS, steps::any_step(), &|held, steps| {
        take_all(Lower::Memory, held, steps)
    });
}

#[test]
fn an_overlay_over_a_folder_behaves_as_a_directory() {
    run(RUNS, steps::any_step(), &|held, steps| {
        take_all(Lower::Local, held, steps)
    });
}
