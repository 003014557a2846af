//! Judges a history: what programs saw, what the store held, which calls failed.

use crate::concurrency::actors::{DISCARD, RENAME_FOLDER};
use crate::concurrency::history::{
    Act, CommitRecord, Failure, History, Operation, Span, lengthen_parts,
};
use crate::concurrency::plan::{Class, Plan, PlannedKey};
use crate::concurrency::register;
use crate::concurrency::value::{Seen, Value};

/// How long the mount may not show another program's change in a remote store, in nanoseconds; the TTL of the mounts in
/// these tests is a millisecond.
const UNSEEN: u64 = 1_000_000_000;

/// Errors with which calls may fail while the mount is killed.
const KILLED: [i32; 8] = [
    // While nothing is mounted, the directory below the mountpoint is empty.
    libc::ENOENT,
    libc::ENOTCONN,
    libc::ECONNABORTED,
    libc::EIO,
    libc::ENODEV,
    libc::EINTR,
    libc::ESTALE,
    libc::ECONNREFUSED,
];

/// Returns the errors in a history: those of commits, the first error of each key, and those that actors have found.
pub(crate) fn judge(plan: &Plan, history: &History) -> Vec<String> {
    let keys = plan.all_keys();
    let mut found: Vec<String> = judge_commits(plan, history).into_iter().collect();
    for (key, operations) in keys.iter().zip(history.by_key(keys.len())) {
        let judge = KeyJudge { plan, key, history };
        found.extend(judge.judge(operations));
    }
    found.extend(history.wrongs.clone());
    found
}

/// Returns an error if a commit failed, or reported a conflict for a key that no other program has changed.
fn judge_commits(plan: &Plan, history: &History) -> Option<String> {
    let keys = plan.all_keys();
    let is_contested = |path: &String| {
        let mut contested = keys.iter().filter(|key| key.class == Class::Contested);
        contested.any(|key| key.path == *path)
    };
    let is_wrong = |commit: &&CommitRecord| match &commit.failure {
        Some(failure) => {
            !plan.site.is_flaky()
                && history.kill_during(&commit.span).is_none()
                && failure.errno != 0
        }
        None => !commit.conflicts.iter().all(is_contested),
    };
    let commit = history.commits.iter().find(is_wrong)?;
    Some(match &commit.failure {
        Some(failure) => failure.to_string(),
        None => format!(
            "a commit met conflicts that nobody made: {:?}",
            commit.conflicts
        ),
    })
}

struct KeyJudge<'a> {
    plan: &'a Plan,
    key: &'a PlannedKey,
    history: &'a History,
}

impl KeyJudge<'_> {
    fn judge(&self, mut operations: Vec<Operation>) -> Option<String> {
        for operation in &mut operations {
            if operation.is_intent() {
                // The operation ended at the latest with the kill of the mount, which ended its process.
                let kills = self.history.kills.iter();
                let later = kills.filter(|kill| kill.end >= operation.span.begin);
                if let Some(kill) = later.min_by_key(|kill| kill.begin) {
                    operation.span.end = kill.end;
                }
            }
            if self.is_beside_mount(operation) || self.is_behind_rename(operation) {
                operation.act = Act::Nothing;
            }
            if let Some(failure) = operation.failure.clone() {
                if !self.is_allowed(operation, &failure) {
                    return Some(self.tell(
                        "A call failed that must not",
                        std::slice::from_ref(operation),
                    ));
                }
                self.extend(operation);
            }
        }
        lengthen_parts(&mut operations);
        if self.key.class == Class::Contested {
            return self.judge_contested(&operations);
        }
        self.judge_shown(&operations)
            .or_else(|| self.judge_stored(&operations))
    }

    /// Whether an operation may fail with this error.
    fn is_allowed(&self, operation: &Operation, failure: &Failure) -> bool {
        let site = self.plan.site;
        let is_killed = self.history.kill_during(&operation.span).is_some();
        // An open object that was replaced in the store can no longer be read.
        let is_open = failure.call.ends_with("read");
        let can_be_replaced = site.is_remote()
            || self.key.class.is_changed_outside()
            || self.key.class.is_in_place()
            || self.key.class.is_chunk();
        match failure.errno {
            errno if is_killed && KILLED.contains(&errno) => true,
            libc::ESTALE if is_open && can_be_replaced => true,
            libc::EIO if site.is_flaky() => true,
            _ => false,
        }
    }

    /// Whether an operation found nothing because the mount was killed and not yet back.
    fn is_beside_mount(&self, operation: &Operation) -> bool {
        let is_nothing = match &operation.act {
            Act::Saw(seen) => seen.is_of(Value::Missing),
            _ => false,
        };
        is_nothing && self.history.kill_during(&operation.span).is_some()
    }

    /// Whether a lookup overlapped the rename of its folder and saw the folder's later content. The kernel may have
    /// resolved the path up to the folder before the folder got its new name.
    fn is_behind_rename(&self, operation: &Operation) -> bool {
        let Act::Saw(seen) = &operation.act else {
            return false;
        };
        if self.key.class != Class::Folder || seen.is_of(Value::Missing) {
            return false;
        }
        let others = self.history.operations.iter();
        let mut others = others.filter(|other| other.span.begin <= operation.span.end);
        let is_own = |other: &Operation| other.key == operation.key;
        let is_rename = |other: &&Operation| {
            let is_away = other.act == Act::Set(Value::Missing) && other.what == RENAME_FOLDER;
            is_own(other) && is_away && other.span.overlaps(&operation.span)
        };
        let is_set = |other: &Operation| match &other.act {
            Act::Set(value) => !is_own(other) && seen.is_of(*value),
            _ => false,
        };
        others.clone().any(|other| is_rename(&other)) && others.any(is_set)
    }

    /// Extends a failed operation until the time when it can no longer take effect.
    fn extend(&self, operation: &mut Operation) {
        if let Some(kill) = self.history.kill_during(&operation.span) {
            operation.span.end = operation.span.end.max(kill.end);
        }
    }

    /// Returns an error if programs on the mount saw contents that the key cannot have had.
    fn judge_shown(&self, operations: &[Operation]) -> Option<String> {
        let initial = self.key.initial;
        let is_late = self.key.class == Class::Foreign && self.plan.site.is_remote();
        let (place, shown) = if is_late {
            let place = register::check_late(initial, operations, UNSEEN).err()?;
            (place, context(operations, &operations[place]))
        } else {
            let place = register::check(initial, operations).err()?;
            (place, register::cut(initial, operations, place))
        };
        let what = "This cannot have been on the mount";
        let last = &operations[place];
        Some(self.tell(&format!("{what} ({})", last.what), &shown))
    }

    /// Returns an error if a key that is changed both in the store and on the mount had a content that nobody has
    /// written.
    fn judge_contested(&self, operations: &[Operation]) -> Option<String> {
        let is_made_up = |each: &&Operation| match &each.act {
            Act::Saw(seen) | Act::Stored(seen) => {
                let written = operations.iter().any(|set| match set.act {
                    Act::Set(value) => seen.is_of(value) && set.span.begin <= each.span.end,
                    _ => false,
                });
                !written && !seen.is_of(self.key.initial)
            }
            _ => false,
        };
        let made_up = operations.iter().find(is_made_up)?;
        let context = context(operations, made_up);
        Some(self.tell("Nobody wrote what was seen", &context))
    }

    /// Returns an error if the store had contents of the key that no commit can have stored.
    fn judge_stored(&self, operations: &[Operation]) -> Option<String> {
        if self.plan.write_through || self.key.class == Class::Foreign {
            return self.judge_written_through(operations);
        }
        let sets = Sets::new(self.key.initial, operations, self.commits());
        let mut floor: (u64, Option<Operation>) = (0, None);
        let mut reads: Vec<&Operation> = operations.iter().filter(|each| is_stored(each)).collect();
        reads.sort_by_key(|read| read.span.begin);
        let mut over: Vec<(Span, u64, &Operation)> = Vec::new();
        for read in reads {
            let Act::Stored(seen) = &read.act else {
                continue;
            };
            let Some((lowest, highest)) = sets.candidates(seen, &read.span) else {
                let context = context(operations, read);
                return Some(self.tell("The store cannot have held this", &context));
            };
            // Earlier reads of the store saw a value that is newer than each value that this read can have seen.
            for (span, lowest, earlier) in &over {
                if span.end < read.span.begin && *lowest > floor.0 {
                    floor = (*lowest, Some((*earlier).clone()));
                }
            }
            over.retain(|(span, _, _)| span.end >= read.span.begin);
            if let (lowest, Some(earlier)) = &floor
                && highest < *lowest
            {
                let mut context = context(operations, read);
                context.insert(0, earlier.clone());
                return Some(self.tell("The store went back to something older", &context));
            }
            over.push((read.span, lowest, read));
        }
        self.judge_discards(&sets, operations)
    }

    /// Returns an error if the content after a discard is older than the content that a commit has stored.
    fn judge_discards(&self, sets: &Sets<'_>, operations: &[Operation]) -> Option<String> {
        let discards = operations.iter().filter(|each| each.what == DISCARD);
        for discard in discards {
            let Act::Set(value) = discard.act else {
                continue;
            };
            let moment = discard.span.begin - 1;
            let before = Span {
                begin: moment,
                end: moment,
            };
            if sets.candidates(&Seen::Value(value), &before).is_none() {
                let context = context(operations, discard);
                return Some(self.tell("A discard showed what was not there", &context));
            }
        }
        None
    }

    /// Judges a store in write-through mode, which gets each change at once, as if the store were the mount.
    fn judge_written_through(&self, operations: &[Operation]) -> Option<String> {
        let stored = operations.iter().filter_map(|each| match &each.act {
            Act::Stored(seen) => Some(Operation {
                act: Act::Saw(seen.clone()),
                ..each.clone()
            }),
            Act::Set(_) => Some(each.clone()),
            _ => None,
        });
        let stored: Vec<Operation> = stored.collect();
        let (initial, what) = (self.key.initial, "This cannot have been in the store");
        if self.key.class != Class::Foreign && (self.plan.kills || self.plan.site.is_flaky()) {
            // A change that could not be stored stays in the upper folder, and is stored with a later change.
            let place = register::check_late(initial, &stored, 0).err()?;
            return Some(self.tell(what, &context(&stored, &stored[place])));
        }
        let place = register::check(initial, &stored).err()?;
        Some(self.tell(what, &register::cut(initial, &stored, place)))
    }

    /// Returns the spans of the commits that have stored all changes of this key.
    fn commits(&self) -> Vec<Span> {
        let commits = self.history.commits.iter();
        let whole = commits.filter(|commit| {
            let is_kept = commit.kept.contains(&self.key.path);
            commit.failure.is_none() && commit.conflicts.is_empty() && !is_kept
        });
        whole.map(|commit| commit.span).collect()
    }

    fn tell(&self, what: &str, operations: &[Operation]) -> String {
        let PlannedKey { path, initial, .. } = self.key;
        let lines = operations.iter().map(|each| format!("    {each}\n"));
        let mut lines: Vec<String> = lines.collect();
        if let (Some(first), Some(last)) = (operations.first(), operations.last()) {
            let span = Span {
                begin: first.span.begin,
                end: last.span.end,
            };
            let commits = self.history.commits.iter();
            let overlapping = commits.filter(|commit| commit.span.overlaps(&span));
            lines.extend(overlapping.take(8).map(|commit| {
                let micros = |time: u64| time % 1_000_000_000_000 / 1000;
                let (begin, end) = (micros(commit.span.begin), micros(commit.span.end));
                format!(
                    "    {begin:>10} {end:>10} us  a commit, kept {:?}\n",
                    commit.kept
                )
            }));
        }
        format!(
            "{what}: {path}, which held {initial} at first\n{}",
            lines.concat()
        )
    }
}

fn is_stored(operation: &Operation) -> bool {
    matches!(operation.act, Act::Stored(_))
}

/// Returns the writes that best explain an operation, followed by the operation.
fn context(operations: &[Operation], last: &Operation) -> Vec<Operation> {
    let mut found = register::telling(operations, last);
    found.push(last.clone());
    found
}

/// Returns the earliest begin and the latest end of some writes, or `None` if there are no writes.
fn bounds<'a>(writes: impl Iterator<Item = &'a (Span, Value)>) -> Option<(u64, u64)> {
    writes.fold(None, |found, (set, _)| {
        let (begin, end) = found.unwrap_or((u64::MAX, 0));
        Some((set.begin.min(begin), set.end.max(end)))
    })
}

/// The values that were set on a key, and the commits that may have stored them.
struct Sets<'a> {
    initial: Value,
    sets: Vec<(&'a Operation, Value)>,
    commits: Vec<Span>,
}

impl<'a> Sets<'a> {
    fn new(initial: Value, operations: &'a [Operation], commits: Vec<Span>) -> Sets<'a> {
        let sets = operations.iter().filter_map(|each| match each.act {
            Act::Set(value) => Some((each, value)),
            _ => None,
        });
        Sets {
            initial,
            sets: sets.collect(),
            commits,
        }
    }

    /// Returns the earliest begin and the latest end of the writes of the value `seen` that the store can have during
    /// `span`, or `None` if there are no such writes. A write is impossible if a later write ended before the begin of
    /// a commit that has ended.
    fn candidates(&self, seen: &Seen, span: &Span) -> Option<(u64, u64)> {
        let over = self.commits.iter().filter(|each| each.end < span.begin);
        let taken = over.map(|each| each.begin).max().unwrap_or(0);
        let sure = self
            .sets
            .iter()
            .filter(|(set, _)| set.failure.is_none() && set.span.end < taken);
        let newest = sure.map(|(set, _)| set.span.begin).max().unwrap_or(0);
        let first = Span { begin: 0, end: 0 };
        let initial = std::iter::once((first, self.initial));
        let written = self.sets.iter().map(|(set, value)| (set.span, *value));
        let possible = initial.chain(written);
        let possible: Vec<(Span, Value)> = possible
            .filter(|(set, _)| set.begin <= span.end && set.end >= newest)
            .collect();
        let whole = possible.iter().filter(|(_, value)| seen.is_of(*value));
        let found = bounds(whole);
        let since = Span {
            begin: newest,
            end: span.end,
        };
        let mut sets = self.sets.iter();
        if found.is_some() || !sets.any(|(set, _)| set.leaves_parts_at(&since)) {
            return found;
        }
        let is_there = |tag| possible.iter().any(|(_, value)| value.tag() == Some(tag));
        let mut tags = seen.tags();
        tags.all(is_there).then_some((newest, span.end))
    }
}
