//! One flight a question: who asks what somebody is asking already waits for that answer.
//!
//! An answer belongs to those who asked while it was under way, errors too; nothing is kept here. A flight whose
//! leader panics lands with an error, so that nobody waits for ever.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::PoisonError;

use super::lock;
use crate::error::Error;
use crate::error::Result;

/// Questions under way.
pub(super) struct Flights<K, V>(Mutex<HashMap<K, Arc<Flight<V>>>>);

struct Flight<V> {
    landed: Mutex<Option<Result<V>>>,
    bell: Condvar,
}

impl<K, V> Default for Flights<K, V> {
    fn default() -> Flights<K, V> {
        Flights(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash, V: Clone> Flights<K, V> {
    /// Returns the answer to a question, by `ask` or from somebody who asks already.
    pub(super) fn fly(&self, question: &K, ask: impl FnOnce() -> Result<V>) -> Result<V> {
        let mut flights = lock(&self.0);
        if let Some(flight) = flights.get(question).cloned() {
            drop(flights);
            return flight.wait();
        }
        let flight = Arc::new(Flight {
            landed: Mutex::default(),
            bell: Condvar::new(),
        });
        flights.insert(question.clone(), flight.clone());
        drop(flights);
        let landing = Landing {
            flights: self,
            question,
            flight,
        };
        let answer = ask();
        *lock(&landing.flight.landed) = Some(answer.clone());
        drop(landing);
        answer
    }
}

impl<V: Clone> Flight<V> {
    fn wait(&self) -> Result<V> {
        let mut landed = lock(&self.landed);
        loop {
            if let Some(answer) = &*landed {
                return answer.clone();
            }
            landed = self
                .bell
                .wait(landed)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Ends a flight, however it ends.
struct Landing<'a, K: Eq + Hash, V> {
    flights: &'a Flights<K, V>,
    question: &'a K,
    flight: Arc<Flight<V>>,
}

impl<K: Eq + Hash, V> Drop for Landing<'_, K, V> {
    fn drop(&mut self) {
        lock(&self.flights.0).remove(self.question);
        let lost = || Err(Error::unavailable("", "who asked the store has failed"));
        lock(&self.flight.landed).get_or_insert_with(lost);
        self.flight.bell.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering;
    use std::thread;

    use super::*;

    #[test]
    fn a_lost_leader_leaves_nobody_waiting() {
        let flights: Flights<u8, u8> = Flights::default();
        let asked = AtomicUsize::new(0);
        thread::scope(|scope| {
            let leader = scope.spawn(|| {
                flights.fly(&1, || {
                    asked.fetch_add(1, Ordering::SeqCst);
                    // Until the other one waits.
                    while lock(&flights.0).get(&1).map_or(0, Arc::strong_count) < 3 {
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
