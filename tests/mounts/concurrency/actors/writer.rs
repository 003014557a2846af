//! Actors that write to their own keys and to keys that all writers share.

use crate::concurrency::actors::{
    Actor, DISCARD, RENAME_FOLDER, TEMPORARY, WRITE_DECODED, encoded, seen,
};
use crate::concurrency::history::{Act, Failure, INTENT, Operation, Record, Span, now};
use crate::concurrency::plan::{Class, PlannedKey};
use crate::concurrency::value::{Seen, Value};
use crate::concurrency::world::InPlace;
use zarrfs_store::request_context::UNLIMITED;

/// The maximum length in bytes of a file that is only appended to or truncated.
const LONGEST_LOG: u32 = 8192;

impl Actor<'_> {
    pub(crate) fn write(mut self) {
        let number = self.number;
        self.repeat(|actor| {
            let is_own =
                |key: &PlannedKey| key.owner == number || key.owner == 0 && key.class.is_of_all();
            match actor.pick(is_own) {
                Some(key) => actor.write_to(key),
                None => actor.look(),
            }
        });
    }

    fn write_to(&mut self, key: u16) {
        match self.key(key).class {
            Class::Replaced => self.replace_or_remove(key, 75),
            Class::Shared | Class::Contested => self.replace_or_remove(key, 100),
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
                world.remove(&UNLIMITED, &path)
            });
        }
    }

    fn replace(&mut self, key: u16, value: Value, bytes: &[u8]) {
        let PlannedKey { path, .. } = self.key(key);
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let temporary = format!("{folder}/{TEMPORARY}{}-{}", self.number, self.written);
        let synced = self.random.percent(10);
        self.set("replace", &[(key, value)], |world| {
            world.replace(&UNLIMITED, &path, &temporary, bytes, synced)
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
            world.overwrite(&UNLIMITED, &path, &value.bytes(), how)
        });
    }

    /// Records an operation before it is made, because the operation may end this process.
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
                world.overwrite(&UNLIMITED, &path, &value.bytes(), InPlace::Emptied)
            });
        } else if percent < 80 {
            let end = value.bytes()[length as usize..].to_vec();
            self.set("append", &[(key, value)], |world| {
                world.append(&UNLIMITED, &path, &end)
            });
        } else {
            let shortest = 64.min(length);
            let value = held.cut(shortest + self.random.below((length - shortest) as usize) as u32);
            let length = value.length().unwrap_or(0);
            self.set("truncate", &[(key, value)], |world| {
                world.truncate(&UNLIMITED, &path, length)
            });
        }
    }

    /// Renames a file from one of its two names to the other, or replaces its content.
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
            world.rename(&UNLIMITED, &paths[0], &paths[1])
        });
    }

    /// Renames a folder of keys from one of its two names to the other, or replaces a file in the folder.
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
        self.set(RENAME_FOLDER, &values, |world| {
            world.rename(&UNLIMITED, &folders[from], &folders[to])
        });
    }

    fn write_or_discard(&mut self, key: u16) {
        if self.random.percent(70) {
            return self.replace_or_remove(key, 80);
        }
        let path = self.key(key).path;
        let begin = now();
        let done = self.places.world.discard(&UNLIMITED, &path);
        let discarded = Span::since(begin);
        match done {
            Ok(false) => {}
            Ok(true) => {
                // No other actor writes to the key, so the value that is read here is the value that the discard has
                // restored.
                let class = self.key(key).class;
                let read = self.read_from_one_server(&path);
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

    /// Records a failed discard, after which the key may have any of its values so far, or the value that they
    /// replaced.
    fn cannot_tell(&mut self, key: u16, span: Span, failure: Failure) {
        self.known.remove(&key);
        self.push(key, span, DISCARD, Err((Act::Nothing, failure)));
        let begin = span.begin;
        let path = self.key(key).path;
        if let Ok(bytes) = self.read_from_one_server(&path)
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
                self.set(WRITE_DECODED, &[(key, value)], |world| {
                    world.write_decoded(array, chunk, &value.chunk())
                });
            }
            4 if held != Value::Missing => {
                let path = planned.path;
                self.set("remove", &[(key, Value::Missing)], |world| {
                    world.remove(&UNLIMITED, &path)
                });
            }
            _ => self.replace(key, value, &encoded(planned.class, value)),
        }
    }
}
