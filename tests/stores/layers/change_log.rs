//! Checks the history of concurrent writers and readers of one change log.
//!
//! A writer changes a key and then records the change. A reader takes a position in the log, reads the key, and later
//! asks several times whether the key has changed, each time from the position before its last question. If the answer
//! is "unchanged" although a change was recorded before the question, the reader must have read that change.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use zarrfs_store::{ChangeLog, Dependencies, Key, LogPosition};

const WRITERS: usize = 2;
const READERS: usize = 2;
const ROUNDS: usize = 200_000;
/// Number of repetitions. A wrong order of two atomic stores is found in about one run of three.
const WORLDS: usize = 5;

/// The keys and folders that are changed. One key is far below its folder.
const NAMES: [&str; 6] = ["a/0", "a/b/c/d/e/f/g/h/0", "a/b", "b/0", "a", "b"];

/// What all threads share: the log, the values of the keys, and a clock that orders events.
struct World {
    log: ChangeLog,
    keys: Vec<Key>,
    /// The value of each key: the number of its last change.
    held: Vec<AtomicU64>,
    ticks: AtomicU64,
}

/// A change that was recorded in the log. At `tick`, each of `keys` has this change or a later one.
struct Noted {
    tick: u64,
    keys: Vec<usize>,
    change: u64,
}

/// A read whose key the log later called unchanged. `held` is the value that was read, and `tick` the time before the
/// question.
struct Unchanged {
    tick: u64,
    key: usize,
    held: u64,
}

impl World {
    fn new() -> World {
        World {
            log: ChangeLog::default(),
            keys: NAMES.map(|name| Key::new(name).unwrap()).to_vec(),
            held: NAMES.map(|_| AtomicU64::new(0)).into(),
            ticks: AtomicU64::new(1),
        }
    }

    fn tick(&self) -> u64 {
        self.ticks.fetch_add(1, Ordering::SeqCst)
    }

    /// Changes a key, or a folder with everything below it, and records the change in the log.
    fn change(&self, number: usize, is_tree: bool) -> Noted {
        let top = &self.keys[number];
        let is_changed =
            |&other: &usize| other == number || is_tree && self.keys[other].below(top).is_some();
        let keys: Vec<usize> = (0..self.keys.len()).filter(is_changed).collect();
        let change = self.tick();
        for &key in &keys {
            self.held[key].fetch_max(change, Ordering::SeqCst);
        }
        if is_tree {
            self.log.record_tree(top)
        } else {
            self.log.record(top)
        }
        let tick = self.tick();
        Noted { tick, keys, change }
    }

    /// Reads a key, and then asks the log several times whether the key has changed. Returns `None` if it has.
    fn look(&self, key: usize, way: usize) -> Option<Unchanged> {
        let mut position = self.log.position();
        let held = self.held[key].load(Ordering::SeqCst);
        for _ in 0..way % 8 {
            let next = self.log.position();
            if self.has_changed(position, &self.keys[key], way) {
                return None;
            }
            position = next;
        }
        let tick = self.tick();
        let has_changed = self.has_changed(position, &self.keys[key], way);
        (!has_changed).then_some(Unchanged { tick, key, held })
    }

    /// Asks the log whether a key has changed after a position, in one of three ways.
    fn has_changed(&self, since: LogPosition, key: &Key, way: usize) -> bool {
        match way % 3 {
            0 => self.log.changed_since(since, key),
            1 => self.log.below_changed_since(since, key),
            _ => {
                let mut answer = Dependencies::default();
                answer.add_key(key);
                self.log.any_changed_since(since, &answer)
            }
        }
    }
}

fn numbers(seed: usize) -> impl Iterator<Item = usize> {
    let next = |number: &usize| {
        Some(
            number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1),
        )
    };
    std::iter::successors(Some(seed + 1), next).map(|number| number >> 33)
}

/// Invariant (caches): A key counts as changed once its change is recorded.
#[test]
fn no_reader_sees_a_key_unchanged_after_its_change_is_recorded() {
    (0..WORLDS).for_each(|number| run(number * (WRITERS + READERS)));
}

/// Runs writers and readers of one log in parallel, and checks what they saw.
fn run(seeds: usize) {
    let (world, start) = (World::new(), Barrier::new(WRITERS + READERS));
    let write = |seed| {
        let mut numbers = numbers(seed);
        let mut next = || numbers.next().unwrap();
        start.wait();
        let change = |_| world.change(next() % NAMES.len(), next().is_multiple_of(3));
        (0..ROUNDS).map(change).collect::<Vec<_>>()
    };
    let read = |seed| {
        let mut numbers = numbers(seed);
        let mut next = || numbers.next().unwrap();
        start.wait();
        let look = |_| world.look(next() % NAMES.len(), next());
        (0..ROUNDS).filter_map(look).collect::<Vec<_>>()
    };
    let (mut noted, looks) = thread::scope(|scope| {
        let writers: Vec<_> = (seeds..seeds + WRITERS)
            .map(|seed| scope.spawn(move || write(seed)))
            .collect();
        let readers: Vec<_> = (seeds..seeds + READERS)
            .map(|seed| scope.spawn(move || read(WRITERS + seed)))
            .collect();
        let noted = writers
            .into_iter()
            .flat_map(|thread| thread.join().unwrap());
        let noted: Vec<Noted> = noted.collect();
        let looks = readers
            .into_iter()
            .flat_map(|thread| thread.join().unwrap());
        (noted, looks.collect::<Vec<Unchanged>>())
    });
    noted.sort_unstable_by_key(|noted| noted.tick);
    check(&noted, looks);
}

/// Checks that each read saw all changes of its key that were recorded before the question.
fn check(noted: &[Noted], mut looks: Vec<Unchanged>) {
    assert!(!looks.is_empty(), "every key seemed changed each time");
    looks.sort_unstable_by_key(|look| look.tick);
    let mut noted = noted.iter().peekable();
    let mut last = [0; NAMES.len()];
    for look in looks {
        while let Some(change) = noted.next_if(|noted| noted.tick < look.tick) {
            for &key in &change.keys {
                last[key] = last[key].max(change.change);
            }
        }
        let (name, last) = (NAMES[look.key], last[look.key]);
        assert!(look.held >= last, "{name} held {} after {last}", look.held);
    }
}
