//! The actors of a concurrency test: writers, readers, committers, and users of the store.
//!
//! Each actor makes operations until the run has enough of them, and records every operation.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

use crate::concurrency::history::{Act, Failure, Operation, Record, Span, now};
use crate::concurrency::plan::{Class, Plan, PlannedKey, Random};
use crate::concurrency::value::{CHUNK, Seen, Tag, Value};
use crate::concurrency::world::{Outside, Tried, World};
use zarrfs_store::request_context::UNLIMITED;

/// The number of times that a read is tried until a mount answers it.
const MAX_READS: usize = 100;

mod outsider;
mod reader;
mod writer;

/// Counters that all actors of a process share.
pub(crate) struct Shared {
    left: AtomicI64,
    /// The number of reads, minus `READS_A_WRITE` for each write, so that reads do not get far ahead.
    ahead: AtomicI64,
    has_ended: AtomicBool,
}

/// The number of reads that are made for each write.
const READS_A_WRITE: i64 = 4;

/// The number of reads that readers may be ahead of the writers.
const MOST_AHEAD: i64 = 200;

impl Shared {
    pub(crate) fn new(operations: u64) -> Shared {
        Shared {
            left: AtomicI64::new(operations as i64),
            ahead: AtomicI64::new(0),
            has_ended: AtomicBool::new(false),
        }
    }

    pub(crate) fn goes_on(&self) -> bool {
        !self.has_ended.load(Ordering::Relaxed) && self.left.load(Ordering::Relaxed) > 0
    }

    fn count(&self, is_write: bool) {
        self.left.fetch_sub(1, Ordering::Relaxed);
        let ahead = if is_write { -READS_A_WRITE } else { 1 };
        self.ahead.fetch_add(ahead, Ordering::Relaxed);
    }

    /// Pauses a reader that is too far ahead of the writers.
    fn pace(&self) {
        if self.ahead.load(Ordering::Relaxed) > MOST_AHEAD {
            thread::sleep(Duration::from_micros(300));
        }
    }

    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }
}

/// The mount and the store that an actor works on.
#[derive(Clone, Copy)]
pub(crate) struct Places<'a> {
    pub(crate) world: &'a dyn World,
    pub(crate) outside: &'a dyn Outside,
}

/// A function that gets each record of an actor when it is made.
pub(crate) type Sink<'a> = dyn FnMut(Record) + Send + 'a;

/// A thread or process of a concurrency test that makes random operations and records them.
pub(crate) struct Actor<'a> {
    /// The number of the actor; a writer's number is also in the values that it writes.
    pub(crate) number: u8,
    plan: &'a Plan,
    keys: Vec<PlannedKey>,
    places: Places<'a>,
    shared: &'a Shared,
    random: Random,
    sink: Box<Sink<'a>>,
    /// Whether the actor runs in its own process. If its mount is killed while it uses a mapped file, SIGBUS ends the
    /// process.
    pub(crate) is_process: bool,
    written: u32,
    /// The values of a writer's keys, for those keys whose present value it knows.
    known: HashMap<u16, Value>,
}

const COMES_BACK: Duration = Duration::from_secs(60);

impl<'a> Actor<'a> {
    pub(crate) fn new(
        number: u8,
        plan: &'a Plan,
        places: Places<'a>,
        shared: &'a Shared,
        sink: Box<Sink<'a>>,
    ) -> Actor<'a> {
        let keys = plan.all_keys();
        let is_own = |key: &PlannedKey| key.owner == number || key.owner == 0;
        let known = keys.iter().enumerate().filter(|(_, key)| is_own(key));
        let known = known.map(|(place, key)| (place as u16, key.initial));
        Actor {
            number,
            plan,
            known: known.collect(),
            keys,
            places,
            shared,
            random: Random::new(plan.seed.wrapping_mul(1000) + u64::from(number)),
            sink,
            is_process: false,
            written: 0,
        }
    }

    fn repeat(&mut self, mut step: impl FnMut(&mut Self)) {
        while self.shared.goes_on() {
            step(self);
        }
    }

    /// Records an operation of the actor; returns whether the operation succeeded.
    fn push(
        &mut self,
        key: u16,
        span: Span,
        what: &str,
        done: Result<Act, (Act, Failure)>,
    ) -> bool {
        let (act, failure) = match done {
            Ok(act) => (act, None),
            Err((act, failure)) => (act, Some(failure)),
        };
        let is_done = failure.is_none();
        self.shared.count(matches!(act, Act::Set(_)));
        let class = self.keys[usize::from(key)].class;
        let operation = Operation {
            key,
            actor: self.number,
            span,
            is_gradual: matches!(act, Act::Set(_))
                && (class.is_in_place() || what == WRITE_DECODED),
            act,
            what: what.to_string(),
            failure,
        };
        (self.sink)(Record::Operation(operation));
        is_done
    }

    /// Makes and records an operation that sets keys; returns whether the operation succeeded.
    fn set(
        &mut self,
        what: &str,
        values: &[(u16, Value)],
        work: impl FnOnce(&dyn World) -> Tried<()>,
    ) -> bool {
        let begin = now();
        let done = work(self.places.world);
        let span = Span::since(begin);
        for (key, value) in values {
            let act = Act::Set(*value);
            match &done {
                Ok(()) => {
                    self.push(*key, span, what, Ok(act));
                    self.known.insert(*key, *value);
                }
                Err(failure) => {
                    self.push(*key, span, what, Err((act, failure.clone())));
                    self.known.remove(key);
                }
            }
        }
        if done.is_err() {
            self.wait_until_up();
        }
        done.is_ok()
    }

    /// Makes and records an operation that reads a key; returns the content that was read.
    fn see(
        &mut self,
        what: &str,
        key: u16,
        work: impl FnOnce(&dyn World) -> Tried<Seen>,
    ) -> Option<Seen> {
        let begin = now();
        let done = work(self.places.world);
        let span = Span::since(begin);
        let seen = done.as_ref().ok().cloned();
        let act = done
            .map(Act::Saw)
            .map_err(|failure| (Act::Nothing, failure));
        if !self.push(key, span, what, act) {
            self.wait_until_up();
        }
        seen
    }

    fn wrong(&mut self, why: String) {
        (self.sink)(Record::Wrong(why));
    }

    fn wait_until_up(&self) {
        let end = std::time::Instant::now() + COMES_BACK;
        while self.places.world.server().is_none() && std::time::Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Reads a file again until the same mount process served the directory from begin to end, because the result of a
    /// read across a kill cannot be judged.
    fn read_from_one_server(&self, path: &str) -> Tried<Option<Vec<u8>>> {
        let world = self.places.world;
        for _ in 0..MAX_READS {
            self.wait_until_up();
            let server = world.server();
            let read = world.read(&UNLIMITED, path);
            if read.is_ok() && server.is_some() && world.server() == server {
                return read;
            }
        }
        world.read(&UNLIMITED, path)
    }

    fn key(&self, key: u16) -> PlannedKey {
        self.keys[usize::from(key)].clone()
    }

    /// Returns a random key for which `fits` is true, or `None` if there is none.
    fn pick(&mut self, fits: impl Fn(&PlannedKey) -> bool) -> Option<u16> {
        let keys = self.keys.iter().enumerate();
        let fitting: Vec<u16> = keys
            .filter(|(_, key)| fits(key))
            .map(|(place, _)| place as u16)
            .collect();
        (!fitting.is_empty()).then(|| *self.random.one_of(&fitting))
    }

    fn next_tag(&mut self, key: u16) -> Tag {
        self.written += 1;
        Tag {
            key,
            writer: self.number,
            number: self.written,
        }
    }

    /// Returns the value of one of this writer's keys; reads the key if the value is not known.
    fn value(&mut self, key: u16) -> Option<Value> {
        if let Some(value) = self.known.get(&key) {
            return Some(*value);
        }
        match self.read_stored(key)? {
            Seen::Value(value) => {
                self.known.insert(key, value);
                Some(value)
            }
            _ => None,
        }
    }

    fn read_stored(&mut self, key: u16) -> Option<Seen> {
        let PlannedKey { path, class, .. } = self.key(key);
        self.see("read", key, |world| {
            Ok(seen(class, world.read(&UNLIMITED, &path)?.as_deref()))
        })
    }
}

/// The name of a write to a decoded file in a history. Other programs see such a write in the kernel's pages first,
/// then in the decoded file, then in the chunk's own file.
pub(crate) const WRITE_DECODED: &str = "write npy";

pub(crate) const DISCARD: &str = "discard";

pub(crate) const RENAME_FOLDER: &str = "rename folder";

/// The prefix of the names of temporary files, which listings are not judged by.
pub(crate) const TEMPORARY: &str = "t.";

pub(crate) fn encoded(class: Class, value: Value) -> Vec<u8> {
    match class {
        Class::Packed => zstd::bulk::compress(&value.chunk(), 1).unwrap(),
        _ => value.chunk(),
    }
}

/// Returns the value that the bytes of a key in the store view stand for.
pub(crate) fn seen(class: Class, bytes: Option<&[u8]>) -> Seen {
    match bytes {
        Some(bytes) if class == Class::Chunk => Seen::of_chunk(bytes),
        Some(bytes) if class == Class::Packed => {
            let decoded = zstd::bulk::decompress(bytes, 2 * CHUNK);
            Seen::of_chunk(&decoded.unwrap_or_default())
        }
        bytes => Seen::of_file(bytes),
    }
}

/// Returns the bytes that a key has in the store at the beginning of a run; `None` if the key is missing.
pub(crate) fn first_bytes(key: &PlannedKey) -> Option<Vec<u8>> {
    match key.initial {
        Value::Missing => None,
        value if key.class.is_chunk() => Some(encoded(key.class, value)),
        value => Some(value.bytes()),
    }
}
