//! Who acts: writers, readers, committers, another program. Each makes operations until enough were made, and
//! records them.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

use crate::history::{Act, CommitRecord, Failure, INTENT, Operation, Record, Span, now};
use crate::plan::{Class, Plan, PlannedKey, Random};
use crate::value::{CHUNK, Seen, Tag, Value};
use crate::world::{Held, InPlace, Outside, Tried, World};

/// What the actors of a process share.
pub(crate) struct Shared {
    /// Operations that are still to be made.
    left: AtomicI64,
    /// How many more operations saw something than there should be beside those that set something.
    ahead: AtomicI64,
    has_ended: AtomicBool,
}

/// How many operations see something for each that sets something.
const READS_A_WRITE: i64 = 4;

/// How far readers may get ahead of writers.
const MOST_AHEAD: i64 = 200;

impl Shared {
    pub(crate) fn new(operations: u64) -> Shared {
        Shared {
            left: AtomicI64::new(operations as i64),
            ahead: AtomicI64::new(0),
            has_ended: AtomicBool::new(false),
        }
    }

    /// Whether there are operations to be made.
    pub(crate) fn goes_on(&self) -> bool {
        !self.has_ended.load(Ordering::Relaxed) && self.left.load(Ordering::Relaxed) > 0
    }

    fn count(&self, is_write: bool) {
        self.left.fetch_sub(1, Ordering::Relaxed);
        let ahead = if is_write { -READS_A_WRITE } else { 1 };
        self.ahead.fetch_add(ahead, Ordering::Relaxed);
    }

    /// Has a reader wait for writers that are slower.
    fn pace(&self) {
        if self.ahead.load(Ordering::Relaxed) > MOST_AHEAD {
            thread::sleep(Duration::from_micros(300));
        }
    }

    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }
}

/// The places that an actor works in.
#[derive(Clone, Copy)]
pub(crate) struct Places<'a> {
    pub(crate) world: &'a dyn World,
    pub(crate) outside: &'a dyn Outside,
}

/// Takes records as they are made.
pub(crate) type Sink<'a> = dyn FnMut(Record) + Send + 'a;

/// Somebody who makes operations.
pub(crate) struct Actor<'a> {
    /// The number of the actor; that of a writer is that of its writes.
    pub(crate) number: u8,
    plan: &'a Plan,
    keys: Vec<PlannedKey>,
    places: Places<'a>,
    shared: &'a Shared,
    random: Random,
    sink: Box<Sink<'a>>,
    /// Whether nobody else is in this process: a mapping of a file of a mount that is killed ends it.
    pub(crate) is_process: bool,
    /// How many writes were made.
    written: u32,
    /// What a writer knows that its keys hold.
    known: HashMap<u16, Value>,
}

/// How many bytes of one log there are at most.
const LONGEST_LOG: u32 = 8192;

/// How often a decoded file is opened again that was replaced while it was read.
const REOPENS: usize = 20;

/// How long a mount may take to come back after a kill.
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

    /// Makes operations until enough were made.
    fn repeat(&mut self, mut step: impl FnMut(&mut Self)) {
        while self.shared.goes_on() {
            step(self);
        }
    }

    /// Records an operation; returns whether it did not fail.
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
            is_gradual: matches!(act, Act::Set(_)) && class.is_in_place(),
            act,
            what: what.to_string(),
            failure,
        };
        (self.sink)(Record::Operation(operation));
        is_done
    }

    /// Makes an operation that sets keys; returns whether it did not fail.
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

    /// Makes an operation that sees a key; returns what it saw.
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

    /// Waits until the mount is there again after a kill.
    fn wait_until_up(&self) {
        let end = std::time::Instant::now() + COMES_BACK;
        while !self.places.world.is_up() && std::time::Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn key(&self, key: u16) -> PlannedKey {
        self.keys[usize::from(key)].clone()
    }

    /// Returns a key of which this is true; `None` if there is none.
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

    /// Returns what a key of this writer holds; reads it where that is not known.
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

    /// Reads a key in the store view.
    fn read_stored(&mut self, key: u16) -> Option<Seen> {
        let PlannedKey { path, class, .. } = self.key(key);
        self.see("read", key, |world| {
            Ok(seen(class, world.read(&path)?.as_deref()))
        })
    }

    // A writer.

    /// Writes to the keys of this writer.
    pub(crate) fn write(mut self) {
        let number = self.number;
        self.repeat(|actor| {
            let is_own = |key: &PlannedKey| {
                key.owner == number || key.owner == 0 && key.class == Class::Shared
            };
            match actor.pick(is_own) {
                Some(key) => actor.write_to(key),
                None => actor.look(),
            }
        });
    }

    fn write_to(&mut self, key: u16) {
        match self.key(key).class {
            Class::Replaced => self.replace_or_remove(key, 75),
            Class::Shared => self.replace_or_remove(key, 100),
            Class::InPlace => self.write_in_place(key),
            Class::Log => self.append_or_cut(key),
            Class::Moved => self.move_away(key),
            Class::Folder => self.move_folder(key),
            Class::Discarded => self.write_or_discard(key),
            Class::Chunk | Class::Packed => self.write_chunk(key),
            Class::Foreign => {}
        }
    }

    fn replace_or_remove(&mut self, key: u16, percent: usize) {
        let Some(held) = self.value(key) else { return };
        if held == Value::Missing || self.random.percent(percent) {
            let value = self.next_tag(key).file();
            self.replace(key, value, &value.bytes());
        } else {
            let path = self.key(key).path;
            self.set("remove", &[(key, Value::Missing)], |world| {
                world.remove(&path)
            });
        }
    }

    fn replace(&mut self, key: u16, value: Value, bytes: &[u8]) {
        let PlannedKey { path, .. } = self.key(key);
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let temporary = format!("{folder}/{TEMPORARY}{}-{}", self.number, self.written);
        let synced = self.random.percent(10);
        self.set("replace", &[(key, value)], |world| {
            world.replace(&path, &temporary, bytes, synced)
        });
    }

    fn write_in_place(&mut self, key: u16) {
        let (value, path) = (self.next_tag(key).file(), self.key(key).path);
        let hows = [InPlace::Emptied, InPlace::Patched, InPlace::Mapped];
        let how = *self
            .random
            .one_of(&hows[..2 + usize::from(self.is_process)]);
        let what = format!("{how:?}").to_lowercase();
        if how == InPlace::Mapped {
            self.intend(key, value, &what);
        }
        self.set(&what, &[(key, value)], |world| {
            world.overwrite(&path, &value.bytes(), how)
        });
    }

    /// Records an operation that may end this process.
    fn intend(&mut self, key: u16, value: Value, what: &str) {
        let operation = Operation {
            key,
            actor: self.number,
            span: Span::since(now()),
            act: Act::Set(value),
            what: what.to_string(),
            is_gradual: true,
            failure: Some(Failure::new(INTENT, libc::EIO)),
        };
        (self.sink)(Record::Operation(operation));
    }

    fn append_or_cut(&mut self, key: u16) {
        let Some(held) = self.value(key) else { return };
        let path = self.key(key).path;
        let length = held.length().unwrap_or(0) as u32;
        let (longer, percent) = (length + 32, self.random.below(100));
        let value = held.cut(longer);
        if !matches!(held, Value::Content(..)) || longer > LONGEST_LOG || percent < 5 {
            let value = self.next_tag(key).file().cut(128);
            self.set("begin", &[(key, value)], |world| {
                world.overwrite(&path, &value.bytes(), InPlace::Emptied)
            });
        } else if percent < 80 {
            let end = value.bytes()[length as usize..].to_vec();
            self.set("append", &[(key, value)], |world| world.append(&path, &end));
        } else {
            let shortest = 64.min(length);
            let value = held.cut(shortest + self.random.below((length - shortest) as usize) as u32);
            let length = value.length().unwrap_or(0);
            self.set("truncate", &[(key, value)], |world| {
                world.truncate(&path, length)
            });
        }
    }

    /// Renames to the other name, or replaces what is there.
    fn move_away(&mut self, key: u16) {
        let here = key - u16::from(self.key(key).path.ends_with(".away"));
        let there = here + 1;
        let (Some(first), Some(second)) = (self.value(here), self.value(there)) else {
            return;
        };
        let (from, to, value) = match (first, second) {
            (Value::Missing, Value::Missing) => {
                let value = self.next_tag(here).file();
                return self.replace(here, value, &value.bytes());
            }
            (Value::Missing, value) => (there, here, value),
            (value, _) => (here, there, value),
        };
        if self.random.percent(20) {
            let value = self.next_tag(from).file();
            return self.replace(from, value, &value.bytes());
        }
        let paths = [from, to].map(|key| self.key(key).path);
        self.set("rename", &[(to, value), (from, Value::Missing)], |world| {
            world.rename(&paths[0], &paths[1])
        });
    }

    /// Renames the folder of a key to the other one, or replaces a file in it.
    fn move_folder(&mut self, key: u16) {
        let own = self.key(key);
        let count = u16::from(self.plan.keys);
        let is_of = |folder: &str, keys: &[PlannedKey]| -> Vec<u16> {
            let found = keys.iter().enumerate();
            let found = found.filter(|(_, each)| each.folder() == folder);
            found.map(|(place, _)| place as u16).collect()
        };
        let folders = ["x", "y"].map(|name| format!("f{}/{name}", own.owner));
        let first = is_of(&folders[0], &self.keys)[0];
        let held: Vec<Option<Value>> = (first..first + 2 * count)
            .map(|key| self.value(key))
            .collect();
        let Some(held) = held.into_iter().collect::<Option<Vec<Value>>>() else {
            return;
        };
        let is_there = held[0] != Value::Missing;
        let (from, to) = if is_there { (0, 1) } else { (1, 0) };
        let side = |side: usize, number: u16| first + side as u16 * count + number;
        if self.random.percent(40) {
            let key = side(from, self.random.below(usize::from(count)) as u16);
            let value = self.next_tag(key).file();
            return self.replace(key, value, &value.bytes());
        }
        let mut values = Vec::new();
        for number in 0..count {
            let value = held[from * usize::from(count) + usize::from(number)];
            values.push((side(to, number), value));
            values.push((side(from, number), Value::Missing));
        }
        self.set("rename folder", &values, |world| {
            world.rename(&folders[from], &folders[to])
        });
    }

    fn write_or_discard(&mut self, key: u16) {
        if self.random.percent(70) {
            return self.replace_or_remove(key, 80);
        }
        let path = self.key(key).path;
        let begin = now();
        let done = self.places.world.discard(&path);
        let discarded = Span::since(begin);
        match done {
            Ok(false) => {}
            Ok(true) => {
                // What it holds from then on is known to nobody else: this is its only writer.
                let class = self.key(key).class;
                let read = self.places.world.read(&path);
                match read.map(|bytes| seen(class, bytes.as_deref())) {
                    Ok(Seen::Value(value)) => {
                        self.push(key, discarded, DISCARD, Ok(Act::Set(value)));
                        self.known.insert(key, value);
                    }
                    Ok(mixture) => {
                        self.push(key, discarded, DISCARD, Ok(Act::Saw(mixture)));
                    }
                    Err(failure) => self.cannot_tell(key, discarded, failure),
                }
            }
            Err(failure) => self.cannot_tell(key, discarded, failure),
        }
    }

    /// Records a discard after which nobody knows what the key holds: its values so far, or what they replaced.
    fn cannot_tell(&mut self, key: u16, span: Span, failure: Failure) {
        self.known.remove(&key);
        self.push(key, span, DISCARD, Err((Act::Nothing, failure)));
        self.wait_until_up();
        let begin = span.begin;
        if let Ok(bytes) = self.places.world.read(&self.key(key).path)
            && let Seen::Value(value) = seen(Class::Discarded, bytes.as_deref())
        {
            self.push(key, Span::since(begin), DISCARD, Ok(Act::Set(value)));
            self.known.insert(key, value);
        }
    }

    fn write_chunk(&mut self, key: u16) {
        let planned = self.key(key);
        let value = self.next_tag(key).chunk();
        let (array, chunk) = (planned.array(), planned.chunk());
        let Some(held) = self.value(key) else { return };
        match self.random.below(10) {
            0..4 if self.places.world.has_decoded() => {
                self.set("write npy", &[(key, value)], |world| {
                    world.write_decoded(array, chunk, &value.chunk())
                });
            }
            4 if held != Value::Missing => {
                let path = planned.path;
                self.set("remove", &[(key, Value::Missing)], |world| {
                    world.remove(&path)
                });
            }
            _ => self.replace(key, value, &encoded(planned.class, value)),
        }
    }

    // A reader.

    /// Reads any keys.
    pub(crate) fn read(mut self) {
        let mut held = VecDeque::new();
        self.repeat(|actor| {
            actor.shared.pace();
            match actor.random.below(12) {
                0 => actor.list(),
                1..3 => actor.hold(&mut held),
                _ => actor.look(),
            }
        });
    }

    fn look(&mut self) {
        let Some(key) = self.pick(|_| true) else {
            return;
        };
        let planned = self.key(key);
        let path = planned.path.clone();
        let is_decoded = planned.class.is_chunk() && self.places.world.has_decoded();
        match self.random.below(10) {
            0..4 if is_decoded => self.look_decoded(key, &planned),
            4..6 if !planned.class.is_chunk() => {
                self.see("stat", key, |world| Ok(Seen::Length(world.length(&path)?)));
            }
            _ => {
                self.read_stored(key);
            }
        }
    }

    /// Reads a chunk in the files view: the descriptor is opened again when it says that its content was replaced.
    fn look_decoded(&mut self, key: u16, planned: &PlannedKey) {
        let (array, chunk) = (planned.array(), planned.chunk());
        let begin = now();
        let mut read = self.places.world.read_decoded(array, chunk);
        for _ in 0..REOPENS {
            match &read {
                Err(failure) if failure.errno == libc::ESTALE && failure.call == "read" => {
                    read = self.places.world.read_decoded(array, chunk);
                }
                _ => break,
            }
        }
        let span = Span::since(begin);
        let done = match read {
            Ok(bytes) => Ok(Act::Saw(Seen::of_chunk(&bytes))),
            Err(failure) => Err((Act::Nothing, failure)),
        };
        if !self.push(key, span, "read npy", done) {
            self.wait_until_up();
        }
    }

    /// Lists a folder: each of its keys is seen to be there or not.
    fn list(&mut self) {
        let Some(key) = self.pick(|_| true) else {
            return;
        };
        let folder = self.key(key).folder().to_string();
        let begin = now();
        let listed = self.places.world.names(&folder);
        let span = Span::since(begin);
        let names = match listed {
            Ok(names) => names,
            Err(failure) => {
                self.push(key, span, "list", Err((Act::Nothing, failure)));
                return self.wait_until_up();
            }
        };
        let mut left: BTreeSet<String> = names.iter().cloned().collect();
        if left.len() < names.len() {
            self.wrong(format!("a name is listed twice in {folder}: {names:?}"));
        }
        for place in 0..self.keys.len() {
            if self.keys[place].folder() == folder {
                let name = self.keys[place].path[folder.len() + 1..].to_string();
                let act = Act::Saw(Seen::Listed(left.remove(&name)));
                self.push(place as u16, span, "list", Ok(act));
            }
        }
        left.retain(|name| !name.starts_with(TEMPORARY) && name != "zarr.json");
        if !left.is_empty() {
            self.wrong(format!("nobody made what is listed in {folder}: {left:?}"));
        }
    }

    /// Opens a file, or reads one that was opened a while ago: it has the content that it was opened on.
    fn hold(&mut self, held: &mut VecDeque<HeldFile>) {
        const MOST: usize = 4;
        if held.len() >= MOST || !held.is_empty() && self.random.percent(50) {
            if let Some(file) = held.pop_front()
                && let Some(file) = self.read_held(file)
            {
                held.push_back(file);
            }
            return;
        }
        let Some(key) = self.pick(|key| !key.class.is_in_place()) else {
            return;
        };
        let begin = now();
        let opened = self.places.world.hold(&self.key(key).path);
        let span = Span::since(begin);
        match opened {
            Ok(Some(file)) => held.push_back(HeldFile {
                key,
                span,
                file,
                seen: None,
            }),
            Ok(None) => {
                self.push(key, span, "open", Ok(Act::Saw(Seen::Value(Value::Missing))));
            }
            Err(failure) => {
                self.push(key, span, "open", Err((Act::Nothing, failure)));
                self.wait_until_up();
            }
        }
    }

    /// Reads a file that was opened before; returns it if it is read again later.
    fn read_held(&mut self, mut file: HeldFile) -> Option<HeldFile> {
        let read = file.file.read();
        let class = self.key(file.key).class;
        match read.map(|bytes| seen(class, Some(&bytes))) {
            Ok(now) => {
                if file.seen.as_ref().is_some_and(|before| *before != now) {
                    let path = self.key(file.key).path;
                    let before = file.seen.as_ref().map(ToString::to_string);
                    self.wrong(format!(
                        "a descriptor of {path} read {before:?}, then {now}"
                    ));
                }
                // It is the content of the moment in which it was opened.
                self.push(file.key, file.span, "open, read", Ok(Act::Saw(now.clone())));
                file.seen = Some(now);
                self.random.percent(60).then_some(file)
            }
            Err(failure) => {
                let span = Span::since(file.span.begin);
                self.push(file.key, span, "open, read", Err((Act::Nothing, failure)));
                self.wait_until_up();
                None
            }
        }
    }

    // A committer.

    /// Commits again and again.
    pub(crate) fn commit(mut self) {
        self.repeat(|actor| {
            actor.commit_once();
            let pause = actor
                .random
                .below(if actor.plan.site.is_mounted() { 20 } else { 3 });
            thread::sleep(Duration::from_millis(pause as u64));
        });
    }

    pub(crate) fn commit_once(&mut self) -> CommitRecord {
        let begin = now();
        let done = self.places.world.commit();
        let span = Span::since(begin);
        let failure = done.as_ref().err().cloned();
        let committed = done.unwrap_or_default();
        let record = CommitRecord {
            span,
            conflicts: committed.conflicts,
            kept: committed.kept,
            failure,
        };
        (self.sink)(Record::Commit(record.clone()));
        self.shared.left.fetch_sub(1, Ordering::Relaxed);
        if record.failure.is_some() {
            self.wait_until_up();
        }
        record
    }

    // Another program, which knows the store alone.

    /// Reads keys in the store, and changes those that are its own.
    pub(crate) fn work_outside(mut self) {
        self.repeat(|actor| {
            actor.shared.pace();
            let is_foreign = |key: &PlannedKey| key.class == Class::Foreign;
            match actor
                .random
                .percent(30)
                .then(|| actor.pick(is_foreign))
                .flatten()
            {
                Some(key) => actor.change_outside(key),
                None => actor.look_outside(),
            }
            let pause = if actor.plan.site.is_mounted() {
                400
            } else {
                50
            };
            thread::sleep(Duration::from_micros(actor.random.below(pause) as u64));
        });
    }

    fn change_outside(&mut self, key: u16) {
        let (path, outside) = (self.key(key).path, self.places.outside);
        let is_there = self.known.get(&key) != Some(&Value::Missing);
        if is_there && self.random.percent(20) {
            self.set("erase", &[(key, Value::Missing)], |_| outside.erase(&path));
        } else {
            let value = self.next_tag(key).file();
            self.set("put", &[(key, value)], |_| {
                outside.put(&path, &value.bytes())
            });
        }
    }

    /// Reads a key in the store.
    pub(crate) fn look_outside(&mut self) {
        if let Some(key) = self.pick(|_| true) {
            self.look_outside_at(key);
        }
    }

    pub(crate) fn look_outside_at(&mut self, key: u16) {
        let PlannedKey { path, class, .. } = self.key(key);
        let begin = now();
        let read = self.places.outside.get(&path);
        let span = Span::since(begin);
        let done = match read {
            Ok(bytes) => Ok(Act::Stored(seen(class, bytes.as_deref()))),
            Err(failure) => Err((Act::Nothing, failure)),
        };
        self.push(key, span, "get", done);
    }

    /// Reads every key on the mount and in the store.
    pub(crate) fn look_at_all(&mut self) {
        for key in 0..self.keys.len() as u16 {
            self.read_stored(key);
            self.look_outside_at(key);
        }
    }
}

/// The word for a discard in a history.
pub(crate) const DISCARD: &str = "discard";

/// The beginning of a temporary name.
pub(crate) const TEMPORARY: &str = "t.";

struct HeldFile {
    key: u16,
    /// When it was opened.
    span: Span,
    file: Box<dyn Held>,
    /// What was read before.
    seen: Option<Seen>,
}

/// Returns the bytes of a chunk as it is stored.
pub(crate) fn encoded(class: Class, value: Value) -> Vec<u8> {
    match class {
        Class::Packed => zstd::bulk::compress(&value.chunk(), 1).unwrap(),
        _ => value.chunk(),
    }
}

/// Reads the bytes of a key in the store view.
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

/// Returns the bytes that the store holds of a key at the beginning.
pub(crate) fn first_bytes(key: &PlannedKey) -> Option<Vec<u8>> {
    match key.initial {
        Value::Missing => None,
        value if key.class.is_chunk() => Some(encoded(key.class, value)),
        value => Some(value.bytes()),
    }
}
