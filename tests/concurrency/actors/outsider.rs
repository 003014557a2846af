//! Committers, and another program, which knows the store alone.

use std::thread;
use std::time::Duration;

use crate::actors::{Actor, seen};
use crate::history::{Act, CommitRecord, Record, Span, now};
use crate::plan::{Class, PlannedKey};
use crate::value::Value;

impl Actor<'_> {
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
        self.shared.count(true);
        if record.failure.is_some() {
            self.wait_until_up();
        }
        record
    }

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
