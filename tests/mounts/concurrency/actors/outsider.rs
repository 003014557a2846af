//! Actors that commit, and actors that change the store outside of the mount.

use std::thread;
use std::time::Duration;

use crate::concurrency::actors::{Actor, seen};
use crate::concurrency::history::{Act, CommitRecord, Record, Span, now};
use crate::concurrency::plan::{Class, PlannedKey};
use crate::concurrency::value::Value;
use zarrfs_store::request_context::UNLIMITED;

impl Actor<'_> {
    pub(crate) fn commit(mut self) {
        self.repeat(|actor| {
            actor.commit_once();
            let pause = actor
                .random
                .below(if actor.plan.site.is_mounted() { 20 } else { 3 });
            thread::sleep(Duration::from_millis(pause as u64));
        });
    }

    fn try_commit(&mut self) -> CommitRecord {
        let begin = now();
        let done = self.places.world.commit(&UNLIMITED);
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

    /// Commits the changes of the mount; discards the changes that are in conflict, so that the other program's content
    /// stays.
    pub(crate) fn commit_once(&mut self) -> CommitRecord {
        let record = self.try_commit();
        for path in &record.conflicts {
            // The discard may fail, because another actor may have replaced and committed the key by now.
            let _ = self.places.world.discard(&UNLIMITED, path);
        }
        record
    }

    /// Reads keys in the store, without the mount, and changes the keys that belong to this actor.
    pub(crate) fn work_outside(mut self) {
        let pause = if self.plan.site.is_mounted() { 400 } else { 50 };
        self.repeat(|actor| {
            actor.shared.pace();
            if actor.random.percent(30) {
                actor.change_outside();
            } else if let Some(key) = actor.pick(|_| true) {
                actor.look_outside(key);
            }
            thread::sleep(Duration::from_micros(actor.random.below(pause) as u64));
        });
    }

    /// Changes one of the keys in the store that actors outside of the mount may change.
    fn change_outside(&mut self) {
        // Keys that are also changed on the mount are changed so rarely that many commits have no conflict.
        let contested = self.random.percent(20);
        let is_fitting = |key: &PlannedKey| match key.class {
            Class::Contested => contested,
            class => class.is_changed_outside(),
        };
        if let Some(key) = self.pick(is_fitting) {
            self.change_outside_at(key);
        }
    }

    fn change_outside_at(&mut self, key: u16) {
        let (path, outside) = (self.key(key).path, self.places.outside);
        let is_there = self.known.get(&key) != Some(&Value::Missing);
        if is_there && self.random.percent(20) {
            self.set("erase", &[(key, Value::Missing)], |_| {
                outside.erase(&UNLIMITED, &path)
            });
        } else {
            let value = self.next_tag(key).file();
            self.set("put", &[(key, value)], |_| {
                outside.put(&UNLIMITED, &path, &value.bytes())
            });
        }
    }

    /// Reads and records a key in the store, without the mount.
    fn look_outside(&mut self, key: u16) {
        let PlannedKey { path, class, .. } = self.key(key);
        let begin = now();
        let read = self.places.outside.get(&UNLIMITED, &path);
        let span = Span::since(begin);
        let done = match read {
            Ok(bytes) => Ok(Act::Stored(seen(class, bytes.as_deref()))),
            Err(failure) => Err((Act::Nothing, failure)),
        };
        self.push(key, span, "get", done);
    }

    pub(crate) fn look_at_all(&mut self) {
        for key in 0..self.keys.len() as u16 {
            self.read_stored(key);
            self.look_outside(key);
        }
    }
}
