//! Actors that read any key in both views, by name and through open descriptors.

use std::collections::{BTreeSet, VecDeque};

use crate::concurrency::actors::{Actor, TEMPORARY, seen};
use crate::concurrency::history::{Act, Span, now};
use crate::concurrency::plan::{PlannedKey, STAYS};
use crate::concurrency::value::{Seen, Value};
use crate::concurrency::world::Held;
use zarrfs_store::request_context::UNLIMITED;

/// The number of times that a decoded file is reopened if it was replaced during a read.
const REOPENS: usize = 20;

struct HeldFile {
    key: u16,
    /// The begin and end of the call that opened the file.
    span: Span,
    file: Box<dyn Held>,
    /// The content that the last read of the descriptor returned.
    seen: Option<Seen>,
}

impl Actor<'_> {
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

    /// Reads a random key: its content, its decoded chunk, or its length.
    pub(super) fn look(&mut self) {
        let Some(key) = self.pick(|_| true) else {
            return;
        };
        let planned = self.key(key);
        let path = planned.path.clone();
        let is_decoded = planned.class.is_chunk() && self.places.world.has_decoded();
        match self.random.below(10) {
            0..4 if is_decoded => self.look_decoded(key, &planned),
            4..6 if !planned.class.is_chunk() => {
                self.see("stat", key, |world| {
                    Ok(Seen::Length(world.length(&UNLIMITED, &path)?))
                });
            }
            _ => {
                self.read_stored(key);
            }
        }
    }

    /// Reads a chunk in the files view; opens the file again if the read fails with ESTALE because the content was
    /// replaced.
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

    /// Lists a random folder, and records for each key of the folder whether it is listed.
    fn list(&mut self) {
        let Some(key) = self.pick(|_| true) else {
            return;
        };
        let folder = self.key(key).folder().to_string();
        let begin = now();
        let listed = self.places.world.names(&UNLIMITED, &folder);
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
        left.retain(|name| !name.starts_with(TEMPORARY) && name != "zarr.json" && name != STAYS);
        if !left.is_empty() {
            self.wrong(format!("nobody made what is listed in {folder}: {left:?}"));
        }
    }

    /// Opens a file to read it later, or reads a file that was opened earlier. Such a file must have the content of the
    /// time when it was opened.
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
        let opened = self.places.world.hold(&UNLIMITED, &self.key(key).path);
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

    /// Reads a file that was opened earlier; returns the file if it is to be read again.
    fn read_held(&mut self, mut file: HeldFile) -> Option<HeldFile> {
        let read = file.file.read(&UNLIMITED);
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
                // The read is recorded with the time of the open, because the file must have the content of that time.
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
}
