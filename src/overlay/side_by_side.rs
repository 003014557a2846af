//! The same work on many things, several at a time: a store that is far away answers them together.

use std::sync::Mutex;
use std::thread;

use super::lock;

/// How many things are worked on at a time.
const SIDE_BY_SIDE: usize = 16;

/// Does the same with each of many things, several at a time, in their order.
pub(super) fn side_by_side<T: Send, R: Send>(
    things: Vec<T>,
    work: &(dyn Fn(T) -> R + Sync),
) -> Vec<R> {
    let count = things.len();
    let queue = Mutex::new(things.into_iter().enumerate());
    let done = Mutex::new(Vec::with_capacity(count));
    thread::scope(|scope| {
        for _ in 0..SIDE_BY_SIDE.min(count) {
            scope.spawn(|| {
                loop {
                    let next = lock(&queue).next();
                    let Some((place, thing)) = next else { return };
                    let result = work(thing);
                    lock(&done).push((place, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(|done| done.into_inner());
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, result)| result).collect()
}
