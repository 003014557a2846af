//! Checks that the history of a key is linearizable, with the key as a register.
//!
//! All orders of overlapping writes are followed side by side. A configuration is the value of the key, and the set of
//! running operations that have taken effect. A read takes effect as soon as the key has the value that the read saw; a
//! write takes effect when some other operation needs it. If no configuration is left when an operation ends, the
//! operation saw or did something impossible. A failed write takes effect at some moment before its end, or never.

use std::collections::HashSet;

use crate::concurrency::history::{Act, Operation, Span};
use crate::concurrency::value::{Seen, Value};

/// The maximum number of operations on one key that run at the same time.
const SLOTS: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Configuration {
    value: Value,
    /// A bit for each slot of a running operation; set if that operation has taken effect.
    done: u64,
}

struct Checker<'a> {
    operations: &'a [Operation],
    /// The indices of the running operations; a slot is `None` if it is free.
    slots: [Option<usize>; SLOTS],
    configurations: HashSet<Configuration>,
}

/// Checks the operations on a key that had the value `initial` at first. The error is the index of the first impossible
/// operation.
pub(crate) fn check(initial: Value, operations: &[Operation]) -> Result<(), usize> {
    let gradual: Vec<&Operation> = operations.iter().filter(|each| each.is_gradual).collect();
    let overlaps_gradual = |span: &Span| gradual.iter().any(|each| each.span.overlaps(span));
    let mut events = Vec::new();
    for (place, operation) in operations.iter().enumerate() {
        match &operation.act {
            Act::Saw(seen) if overlaps_gradual(&operation.span) => {
                if !are_parts_plausible(seen, &operation.span, initial, operations) {
                    return Err(place);
                }
            }
            Act::Set(_) | Act::Saw(_) => {
                events.push((operation.span.begin, false, place));
                events.push((operation.span.end, true, place));
            }
            Act::Stored(_) | Act::Nothing => {}
        }
    }
    // Begins sort before ends at the same time, so an operation that begins when another one ends overlaps it.
    events.sort_unstable();
    let first = Configuration {
        value: initial,
        done: 0,
    };
    let mut checker = Checker {
        operations,
        slots: [None; SLOTS],
        configurations: HashSet::from([first]),
    };
    for (_, is_end, place) in events {
        if !is_end {
            checker.begin(place);
        } else if !checker.end(place) {
            return Err(place);
        }
    }
    Ok(())
}

/// Whether each of the writes whose parts were seen can have been the key's value at some moment in `span`.
fn are_parts_plausible(seen: &Seen, span: &Span, initial: Value, operations: &[Operation]) -> bool {
    let is_of = |tag| move |value: Value| value.tag() == Some(tag);
    seen.tags()
        .all(|tag| is_plausible(&is_of(tag), span, initial, operations))
}

/// Checks the operations on a key whose changes readers may see up to `unseen` nanoseconds late. The error is the index
/// of the first impossible operation.
pub(crate) fn check_late(
    initial: Value,
    operations: &[Operation],
    unseen: u64,
) -> Result<(), usize> {
    let is_impossible = |operation: &&Operation| {
        let Act::Saw(seen) = &operation.act else {
            return false;
        };
        let span = Span {
            begin: operation.span.begin.saturating_sub(unseen),
            ..operation.span
        };
        let has_parts = operations.iter().any(|each| each.leaves_parts_at(&span));
        let is_left = || are_parts_plausible(seen, &span, initial, operations);
        let was_there = is_plausible(&|value| seen.is_of(value), &span, initial, operations);
        !was_there && (!has_parts || !is_left())
    };
    let mut all = operations.iter();
    match all.position(|operation| is_impossible(&operation)) {
        Some(place) => Err(place),
        None => Ok(()),
    }
}

/// Whether a key can have had a value that `fits` at some moment in `span`: a write of that value began before the end
/// of `span`, and no later write ended before its begin.
fn is_plausible(
    fits: &dyn Fn(Value) -> bool,
    span: &Span,
    initial: Value,
    operations: &[Operation],
) -> bool {
    let sets = operations.iter().filter_map(|each| match each.act {
        Act::Set(value) => Some((each, value)),
        _ => None,
    });
    let others = sets.clone().filter(|(each, value)| {
        each.span.end < span.begin && each.failure.is_none() && !fits(*value)
    });
    let newest = others.map(|(each, _)| each.span.begin).max().unwrap_or(0);
    let first = fits(initial).then_some(Span { begin: 0, end: 0 });
    let written = sets.filter(|(_, value)| fits(*value));
    first
        .into_iter()
        .chain(written.map(|(each, _)| each.span))
        .any(|write| write.begin <= span.end && write.end >= newest)
}

impl Checker<'_> {
    fn begin(&mut self, place: usize) {
        let slot = self.slots.iter().position(Option::is_none);
        let slot = slot.expect("too many operations on one key at a time");
        self.slots[slot] = Some(place);
        if let Act::Saw(seen) = &self.operations[place].act {
            let configurations = self.configurations.drain();
            self.configurations = configurations
                .map(|mut each| {
                    each.done |= u64::from(seen.is_of(each.value)) << slot;
                    each
                })
                .collect();
        }
    }

    /// Ends an operation; returns false if in no configuration it can have taken effect.
    fn end(&mut self, place: usize) -> bool {
        let slot = self.slots.iter().position(|each| *each == Some(place));
        let slot = slot.expect("an operation ends that did not begin");
        let mut found = self.with_done(slot);
        let operation = &self.operations[place];
        if operation.failure.is_some() && matches!(operation.act, Act::Set(_)) {
            found.extend(&self.configurations);
        }
        self.slots[slot] = None;
        let without = |mut each: Configuration| {
            each.done &= !(1 << slot);
            each
        };
        self.configurations = found.into_iter().map(without).collect();
        !self.configurations.is_empty()
    }

    /// Returns the configurations in which the operation in `slot` has taken effect, after other writes if necessary.
    fn with_done(&self, slot: usize) -> HashSet<Configuration> {
        let mut known = self.configurations.clone();
        let mut todo: Vec<Configuration> = known.iter().copied().collect();
        let mut found = HashSet::new();
        while let Some(each) = todo.pop() {
            if each.done & (1 << slot) != 0 {
                found.insert(each);
                continue;
            }
            for next in self.steps(each) {
                if known.insert(next) {
                    todo.push(next);
                }
            }
        }
        found
    }

    /// Returns the configurations that follow from `from` if one of the running writes takes effect.
    fn steps(&self, from: Configuration) -> impl Iterator<Item = Configuration> + '_ {
        self.slots
            .iter()
            .enumerate()
            .filter_map(move |(slot, place)| {
                let Act::Set(value) = self.operations[(*place)?].act else {
                    return None;
                };
                let done = from.done | 1 << slot;
                (done != from.done).then(|| self.settled(Configuration { value, done }))
            })
    }

    /// Marks all running reads that saw the configuration's value as having taken effect.
    fn settled(&self, mut each: Configuration) -> Configuration {
        for (slot, place) in self.slots.iter().enumerate() {
            if let Some(place) = place
                && let Act::Saw(seen) = &self.operations[*place].act
            {
                each.done |= u64::from(seen.is_of(each.value)) << slot;
            }
        }
        each
    }
}

/// Returns a short history that shows why the operation at `place` is impossible: the reads that matter, and the writes
/// that `telling` returns.
pub(crate) fn cut(initial: Value, operations: &[Operation], place: usize) -> Vec<Operation> {
    const MOST_SHOWN: usize = 24;
    let last = &operations[place];
    let before = operations.iter().filter(|each| {
        let matters = matches!(each.act, Act::Set(_) | Act::Saw(_));
        matters && each.span.begin <= last.span.end
    });
    let mut kept: Vec<Operation> = before.cloned().collect();
    let mut length = kept.len();
    while length > 0 {
        kept = without_reads(initial, kept, length);
        length /= 2;
    }
    let sets = telling(&kept, last);
    kept.retain(|each| !matches!(each.act, Act::Set(_)) || sets.contains(each));
    kept.split_off(kept.len().saturating_sub(MOST_SHOWN))
}

/// Drops reads from a history, `length` operations at a time, as long as the rest of the history is still impossible.
fn without_reads(initial: Value, mut kept: Vec<Operation>, length: usize) -> Vec<Operation> {
    const MOST_TRIED: usize = 64;
    let mut end = kept.len();
    for _ in 0..MOST_TRIED {
        let begin = end.saturating_sub(length);
        let mut fewer = kept.clone();
        let mut place = 0;
        fewer.retain(|each| {
            place += 1;
            matches!(each.act, Act::Set(_)) || place <= begin || place > end
        });
        if fewer.len() < kept.len() && check(initial, &fewer).is_err() {
            kept = fewer;
        }
        if begin == 0 {
            break;
        }
        end = begin;
    }
    kept
}

/// Returns the writes that matter for a read: the last write of the value that was seen with the writes after it, the
/// last writes before the read, and the last writes of all.
pub(crate) fn telling(operations: &[Operation], last: &Operation) -> Vec<Operation> {
    const FEW: usize = 3;
    let is_seen = |value: Value| match &last.act {
        Act::Saw(seen) | Act::Stored(seen) => {
            seen.is_of(value) || seen.tags().any(|tag| value.tag() == Some(tag))
        }
        _ => false,
    };
    let sets: Vec<(&Operation, Value)> = operations
        .iter()
        .filter(|each| each.span.begin <= last.span.end)
        .filter_map(|each| match each.act {
            Act::Set(value) => Some((each, value)),
            _ => None,
        })
        .collect();
    let done = sets
        .iter()
        .filter(|(set, _)| set.span.end < last.span.begin);
    let before = done.count();
    let written = sets.iter().rposition(|(_, value)| is_seen(*value));
    let is_near = |place: usize, end: usize| place < end && place + FEW >= end;
    let is_telling = |place: usize| {
        is_near(place, sets.len())
            || is_near(place, before)
            || written.is_some_and(|written| place >= written && place < written + FEW)
    };
    let numbered = sets.iter().enumerate();
    numbered
        .filter(|(place, _)| is_telling(*place))
        .map(|(_, (set, _))| Operation::clone(set))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::concurrency::history::{Failure, lengthen_parts};
    use crate::concurrency::value::Tag;

    fn value(number: u32) -> Value {
        let (key, writer) = (0, 0);
        Tag {
            key,
            writer,
            number,
        }
        .file()
    }

    fn operation(begin: u64, end: u64, act: Act) -> Operation {
        Operation {
            key: 0,
            actor: 0,
            span: Span { begin, end },
            act,
            what: String::new(),
            is_gradual: false,
            failure: None,
        }
    }

    fn set(begin: u64, end: u64, to: Value) -> Operation {
        operation(begin, end, Act::Set(to))
    }

    fn saw(begin: u64, end: u64, what: Value) -> Operation {
        operation(begin, end, Act::Saw(Seen::Value(what)))
    }

    fn failed(operation: Operation) -> Operation {
        let failure = Some(Failure::new("write", 5));
        Operation {
            failure,
            ..operation
        }
    }

    fn is_possible(operations: &[Operation]) -> bool {
        check(Value::Missing, operations).is_ok()
    }

    #[test]
    fn linearizable_histories_are_accepted() {
        let (one, two) = (value(1), value(2));
        let missing = Value::Missing;
        assert!(is_possible(&[
            saw(0, 1, missing),
            set(2, 5, one),
            saw(3, 4, one)
        ]));
        assert!(is_possible(&[
            set(2, 5, one),
            saw(3, 4, missing),
            saw(5, 6, one)
        ]));
        assert!(is_possible(&[
            set(0, 9, one),
            set(0, 9, two),
            saw(1, 2, two),
            saw(3, 4, one)
        ]));
        assert!(is_possible(&[
            set(0, 1, one),
            set(2, 3, missing),
            set(4, 5, one),
            saw(6, 7, one)
        ]));
        assert!(is_possible(&[
            set(0, 1, one),
            set(2, 3, two),
            saw(0, 4, one),
            saw(1, 4, two)
        ]));
        let some = failed(set(2, 20, two));
        assert!(is_possible(&[
            set(0, 1, one),
            some.clone(),
            saw(4, 5, one),
            saw(8, 9, two)
        ]));
        assert!(is_possible(&[set(0, 1, one), some, saw(30, 31, one)]));
    }

    #[test]
    fn non_linearizable_histories_are_rejected() {
        let (one, two, missing) = (value(1), value(2), Value::Missing);
        // A write is lost, or is seen before it began.
        assert!(!is_possible(&[set(0, 1, one), saw(2, 3, missing)]));
        assert!(!is_possible(&[saw(0, 1, one), set(2, 3, one)]));
        // A read sees a value that was overwritten.
        assert!(!is_possible(&[
            set(0, 1, one),
            set(2, 3, two),
            saw(4, 5, one)
        ]));
        // A value comes back after a later value was seen.
        let read = [saw(3, 4, two), saw(5, 6, one)];
        assert!(!is_possible(&[
            set(0, 1, one),
            set(2, 9, two),
            read[0].clone(),
            read[1].clone()
        ]));
        let removed = [set(0, 1, one), set(2, 3, missing), saw(4, 5, one)];
        assert!(!is_possible(&removed));
        // A failed write takes effect after its end, although a read has already seen the old value.
        let late = [
            set(0, 1, one),
            failed(set(2, 5, two)),
            saw(6, 7, one),
            saw(8, 9, two),
        ];
        assert!(!is_possible(&late));
        // The key is missing for a moment while its value is replaced.
        assert!(!is_possible(&[
            set(0, 1, one),
            set(2, 9, two),
            saw(3, 4, missing)
        ]));
        let listed = operation(3, 4, Act::Saw(Seen::Listed(false)));
        assert!(!is_possible(&[set(0, 1, one), set(2, 9, two), listed]));
    }

    #[test]
    fn a_mixture_is_accepted_only_during_a_write_in_place() {
        let (one, two, three) = (value(1), value(2), value(3));
        let tags = |values: &[Value]| {
            let tags = values.iter().filter_map(|value| value.tag());
            Seen::Mixture(tags.collect())
        };
        let in_place = Operation {
            is_gradual: true,
            ..set(4, 9, two)
        };
        let mixed = |begin, end, values: &[Value]| operation(begin, end, Act::Saw(tags(values)));
        let before = [set(0, 1, three), set(2, 3, one), in_place];
        let with = |read| [&before[..], &[read]].concat();
        assert!(is_possible(&with(mixed(5, 6, &[one, two]))));
        assert!(!is_possible(&with(mixed(5, 6, &[one, three]))));
        assert!(!is_possible(&with(mixed(10, 11, &[one, two]))));
    }

    #[test]
    fn parts_of_a_failed_write_in_place_stay_until_the_next_write() {
        let (one, two, three, four) = (value(1), value(2), value(3), value(4));
        let torn = Operation {
            is_gradual: true,
            ..failed(set(4, 9, two))
        };
        let parts = |begin, values: [Value; 2]| {
            let tags = values.iter().filter_map(|value| value.tag()).collect();
            operation(begin, begin + 1, Act::Saw(Seen::Mixture(tags)))
        };
        let with = |read: Operation, others: &[Operation]| {
            let mut all = vec![set(0, 1, three), set(2, 3, one), torn.clone()];
            all.extend_from_slice(others);
            all.push(read);
            all.sort_by_key(|each| each.span.begin);
            lengthen_parts(&mut all);
            check(Value::Missing, &all).is_ok() && check_late(Value::Missing, &all, 0).is_ok()
        };
        let next = [set(20, 21, four)];
        assert!(with(parts(10, [one, two]), &[]));
        assert!(with(parts(10, [one, two]), &next));
        assert!(!with(parts(10, [three, two]), &next));
        assert!(!with(parts(30, [one, two]), &next));
        assert!(!with(saw(30, 31, two), &next));
    }

    #[test]
    fn a_shortened_history_is_still_rejected() {
        let mut operations: Vec<Operation> = Vec::new();
        for number in 0..200u64 {
            let held = value(number as u32);
            operations.push(set(number * 10, number * 10 + 1, held));
            operations.push(saw(number * 10 + 2, number * 10 + 3, held));
        }
        operations.push(saw(1995, 1996, value(198)));
        let place = check(Value::Missing, &operations).unwrap_err();
        assert_eq!(place, 400);
        let cut = cut(Value::Missing, &operations, place);
        assert!(cut.len() <= 12 && cut.last() == operations.last());
    }
}
