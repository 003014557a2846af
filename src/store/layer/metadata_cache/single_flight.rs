//! One flight a question: who asks what somebody is asking already waits for that answer.
//!
//! An answer belongs to those who asked while it was under way, errors too; nothing is kept here. A flight whose
//! leader panics lands with an error, so that nobody waits for ever.

use crate::error::{Error, Result};
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// Questions under way.
pub(super) struct SingleFlight<K, V>(Mutex<HashMap<K, Arc<SharedCall<V>>>>);

struct SharedCall<V> {
    landed: Mutex<Option<Result<V>>>,
    bell: Condvar,
}

impl<K, V> Default for SingleFlight<K, V> {
    fn default() -> SingleFlight<K, V> {
        SingleFlight(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash, V: Clone> SingleFlight<K, V> {
    /// Returns the answer to a question, by `ask` or from somebody who asks already.
    pub(super) fn fly(&self, question: &K, ask: impl FnOnce() -> Result<V>) -> Result<V> {
        let mut flights = self.0.lock();
        if let Some(flight) = flights.get(question).cloned() {
            drop(flights);
            return flight.wait();
        }
        let flight = Arc::new(SharedCall {
            landed: Mutex::default(),
            bell: Condvar::new(),
        });
        flights.insert(question.clone(), flight.clone());
        drop(flights);
        let landing = CallGuard {
            flights: self,
            question,
            flight,
        };
        let answer = ask();
        *landing.flight.landed.lock() = Some(answer.clone());
        drop(landing);
        answer
    }
}

impl<V: Clone> SharedCall<V> {
    fn wait(&self) -> Result<V> {
        let mut landed = self.landed.lock();
        loop {
            if let Some(answer) = &*landed {
                return answer.clone();
            }
            self.bell.wait(&mut landed);
        }
    }
}

/// Ends a flight, however it ends.
struct CallGuard<'a, K: Eq + Hash, V> {
    flights: &'a SingleFlight<K, V>,
    question: &'a K,
    flight: Arc<SharedCall<V>>,
}

impl<K: Eq + Hash, V> Drop for CallGuard<'_, K, V> {
    fn drop(&mut self) {
        self.flights.0.lock().remove(self.question);
        let lost = || Err(Error::unavailable("", "who asked the store has failed"));
        self.flight.landed.lock().get_or_insert_with(lost);
        self.flight.bell.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn a_lost_leader_leaves_nobody_waiting() {
        let flights: SingleFlight<u8, u8> = SingleFlight::default();
        let asked = AtomicUsize::new(0);
        thread::scope(|scope| {
            let leader = scope.spawn(|| {
                flights.fly(&1, || {
                    asked.fetch_add(1, Ordering::SeqCst);
                    // Until the other one waits.
                    while flights.0.lock().get(&1).map_or(0, Arc::strong_count) < 3 {
                        thread::yield_now();
                    }
                    panic!("on purpose")
                })
            });
            while asked.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            assert!(flights.fly(&1, || Ok(2)).is_err());
            assert!(leader.join().is_err());
        });
        assert_eq!(flights.fly(&1, || Ok(3)).unwrap(), 3);
    }
}
