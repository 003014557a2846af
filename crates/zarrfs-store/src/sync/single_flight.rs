//! Joins concurrent calls for one key: one caller works, the others share its result.
//!
//! Results are shared, errors too, but not cached: a call that starts after the end of the last one works again. If the
//! working caller panics, the waiting ones get an error. If it stops because its own request was answered already, a
//! waiting caller repeats the work.

use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::request_context::{RequestContext, abandoned};
use crate::sync::pool::StalledJob;
use zarr_format::error::{Error, Kind, Result};

/// How long a caller waits for another caller's request to a store: far longer than the request's own time limit.
pub(crate) const JOIN_TIMEOUT: Duration = Duration::from_secs(600);

/// The running calls by key, so that another call for the same key can join them.
pub struct SingleFlight<K, V> {
    calls: Mutex<HashMap<K, Arc<Call<V>>>>,
}

/// A running call, whose result other callers wait for.
struct Call<V> {
    result: Mutex<Option<Result<V>>>,
    done: Condvar,
}

impl<K, V> Default for SingleFlight<K, V> {
    fn default() -> SingleFlight<K, V> {
        SingleFlight {
            calls: Mutex::default(),
        }
    }
}

impl<K: Clone + Eq + Hash, V: Clone> SingleFlight<K, V> {
    /// Whether a call for the key is running.
    pub fn is_running(&self, key: &K) -> bool {
        self.calls.lock().contains_key(key)
    }

    /// Returns the number of callers that share the running call for the key.
    #[cfg(test)]
    pub(crate) fn callers(&self, key: &K) -> usize {
        // One of the references to the call is the table's own, not a caller's.
        let call = self.calls.lock().get(key).map(Arc::strong_count);
        call.map_or(0, |holders| holders - 1)
    }

    /// Returns the result of `work`, or that of the running call for the same key. The error is `Unavailable` if a
    /// running call has no result by `deadline` (which does not limit `work` itself), or `WouldWait` if the request may
    /// not wait.
    pub fn run(
        &self,
        context: &RequestContext,
        key: &K,
        deadline: Instant,
        work: impl FnOnce() -> Result<V>,
    ) -> Result<V> {
        self.run_accepting(context, key, deadline, |_| true, work)
    }

    /// Returns the result of `work`, or that of a running call for the same key if `is_valid` accepts it. If it does
    /// not, the caller joins the next call or does the work itself.
    pub(crate) fn run_accepting(
        &self,
        context: &RequestContext,
        key: &K,
        deadline: Instant,
        is_valid: impl Fn(&V) -> bool,
        work: impl FnOnce() -> Result<V>,
    ) -> Result<V> {
        match self.join(context, key, deadline, is_valid) {
            Turn::Joined(result) => result,
            Turn::Works(call) => call.end(work(), |_| ()),
        }
    }

    /// Returns the result of `work` or of the running call for the same key, and calls `publish` with it in the step
    /// that ends the call: every caller finds either the running call or the published result. `publish` must not use
    /// this object.
    pub(crate) fn run_and_publish(
        &self,
        context: &RequestContext,
        key: &K,
        deadline: Instant,
        work: impl FnOnce() -> Result<V>,
        publish: impl FnOnce(&Result<V>),
    ) -> Result<V> {
        match self.join(context, key, deadline, |_| true) {
            Turn::Joined(result) => result,
            Turn::Works(call) => call.end(work(), publish),
        }
    }

    /// Joins the running call for the key, or begins a call if none is running or if its result is not valid.
    fn join<'a>(
        &'a self,
        context: &RequestContext,
        key: &'a K,
        deadline: Instant,
        is_valid: impl Fn(&V) -> bool,
    ) -> Turn<'a, K, V> {
        if let Err(error) = context.check_may_wait() {
            return Turn::Joined(Err(error));
        }
        let mut calls = self.calls.lock();
        while let Some(call) = calls.get(key).cloned() {
            drop(calls);
            match call.wait(context, deadline) {
                Ok(value) if !is_valid(&value) => {}
                Err(error) if is_abandoned(context, &error) => {}
                result => return Turn::Joined(result),
            }
            calls = self.calls.lock();
        }
        let call = Arc::new(Call {
            result: Mutex::default(),
            done: Condvar::new(),
        });
        calls.insert(key.clone(), call.clone());
        drop(calls);
        Turn::Works(CallGuard {
            calls: &self.calls,
            key,
            call,
        })
    }
}

/// What a caller has to do: use the result of the call that it has joined, or do the work itself.
enum Turn<'a, K: Eq + Hash, V> {
    Joined(Result<V>),
    Works(CallGuard<'a, K, V>),
}

impl<K: Eq + Hash, V: Clone> CallGuard<'_, K, V> {
    /// Ends the call, and hands its result to the waiting callers.
    fn end(self, result: Result<V>, publish: impl FnOnce(&Result<V>)) -> Result<V> {
        let mut calls = self.calls.lock();
        publish(&result);
        calls.remove(self.key);
        drop(calls);
        // The result is set only after the call has left the table: a caller that gets it and calls again must not join
        // the same call.
        *self.call.result.lock() = Some(result.clone());
        result
    }
}

/// Whether a joined call was abandoned because its own caller no longer waits, while this caller still does.
fn is_abandoned(context: &RequestContext, error: &Error) -> bool {
    error.kind() == Kind::Interrupted && context.is_waited_for()
}

impl<V: Clone> Call<V> {
    fn wait(&self, context: &RequestContext, deadline: Instant) -> Result<V> {
        let mut result = self.result.lock();
        let mut stalled = None;
        loop {
            if let Some(result) = &*result {
                return result.clone();
            }
            // Wakes every 500 ms, since the caller's own request may be answered in the meantime.
            let check = Instant::now() + Duration::from_millis(500);
            self.done.wait_until(&mut result, check.min(deadline));
            if result.is_some() {
                continue;
            }
            if Instant::now() >= deadline {
                return Err(Error::unavailable("", "no response within the time limit"));
            }
            if !context.is_waited_for() {
                return Err(abandoned());
            }
            stalled = stalled.or_else(StalledJob::begin);
        }
    }
}

/// Wakes the callers that wait for a call when it is dropped. If the work has panicked, they get an error.
struct CallGuard<'a, K: Eq + Hash, V> {
    calls: &'a Mutex<HashMap<K, Arc<Call<V>>>>,
    key: &'a K,
    call: Arc<Call<V>>,
}

impl<K: Eq + Hash, V> Drop for CallGuard<'_, K, V> {
    fn drop(&mut self) {
        let mut result = self.call.result.lock();
        if result.is_none() {
            self.calls.lock().remove(self.key);
            let text = "loading failed without a result";
            *result = Some(Err(Error::unavailable("", text)));
        }
        self.call.done.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;
    use crate::request_context::{UNLIMITED, WITHOUT_WAITING, is_answer};

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    /// Runs `work` in another thread. Before `work` goes on, a second caller with the same key joins its call.
    fn join_call(
        flights: &SingleFlight<u8, u8>,
        work: impl FnOnce() -> Result<u8> + Send,
    ) -> (Result<u8>, thread::Result<Result<u8>>) {
        let begun = AtomicUsize::new(0);
        thread::scope(|scope| {
            let leader = scope.spawn(|| {
                flights.run(&UNLIMITED, &1, later(), || {
                    begun.fetch_add(1, Ordering::SeqCst);
                    while flights.callers(&1) < 2 {
                        thread::yield_now();
                    }
                    work()
                })
            });
            while begun.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            let joined = flights.run(&UNLIMITED, &1, later(), || Ok(2));
            (joined, leader.join())
        })
    }

    #[test]
    fn callers_of_one_key_share_a_result() {
        let flights = SingleFlight::default();
        let (joined, leader) = join_call(&flights, || Ok(7));
        assert_eq!((joined.unwrap(), leader.unwrap().unwrap()), (7, 7));
        assert_eq!(flights.run(&UNLIMITED, &1, later(), || Ok(3)).unwrap(), 3);
    }

    #[test]
    fn a_panic_is_an_error_for_waiting_callers() {
        let flights = SingleFlight::default();
        let (joined, leader) = join_call(&flights, || panic!("on purpose"));
        assert!(joined.is_err() && leader.is_err());
        assert!(!flights.is_running(&1));
        assert_eq!(flights.run(&UNLIMITED, &1, later(), || Ok(3)).unwrap(), 3);
    }

    #[test]
    fn an_abandoned_call_is_repeated_by_a_waiting_caller() {
        let flights = SingleFlight::default();
        let (joined, leader) = join_call(&flights, || Err(abandoned()));
        assert_eq!(joined.unwrap(), 2);
        assert_eq!(leader.unwrap().unwrap_err().kind(), Kind::Interrupted);
    }

    #[test]
    fn a_caller_that_rejects_a_shared_result_calls_again() {
        let flights = SingleFlight::default();
        let outcome = thread::scope(|scope| {
            let leader = scope.spawn(|| {
                flights.run(&UNLIMITED, &1, later(), || {
                    while flights.callers(&1) < 2 {
                        thread::yield_now();
                    }
                    Ok(7)
                })
            });
            while !flights.is_running(&1) {
                thread::yield_now();
            }
            let is_valid = |&found: &u8| found > 7;
            let joined = flights.run_accepting(&UNLIMITED, &1, later(), is_valid, || Ok(2));
            (joined.unwrap(), leader.join().unwrap().unwrap())
        });
        assert_eq!(outcome, (2, 7));
    }

    #[test]
    fn a_caller_that_may_not_wait_starts_and_joins_no_call() {
        let flights = SingleFlight::default();
        let result = flights.run(&UNLIMITED, &1, later(), || {
            let joined = flights.run(&WITHOUT_WAITING, &1, later(), || Ok(2));
            assert!(!is_answer(&joined));
            Ok(1)
        });
        assert_eq!(result.unwrap(), 1);
        let begun = flights.run(&WITHOUT_WAITING, &1, later(), || Ok(2));
        assert!(!is_answer(&begun));
    }

    #[test]
    fn waiting_ends_at_the_deadline() {
        let flights = SingleFlight::default();
        let result = flights.run(&UNLIMITED, &1, later(), || {
            let soon = Instant::now() + Duration::from_millis(5);
            assert!(flights.run(&UNLIMITED, &1, soon, || Ok(2)).is_err());
            Ok(1)
        });
        assert_eq!(result.unwrap(), 1);
    }

    #[test]
    fn no_caller_joins_a_call_whose_result_is_published() {
        let flights: SingleFlight<u8, u8> = SingleFlight::default();
        let begun = AtomicUsize::new(0);
        let results = thread::scope(|scope| {
            let mut later_call = None;
            let publish = |_: &Result<u8>| {
                later_call = Some(scope.spawn(|| {
                    begun.fetch_add(1, Ordering::SeqCst);
                    flights.run(&UNLIMITED, &1, later(), || Ok(2))
                }));
                while begun.load(Ordering::SeqCst) == 0 {
                    thread::yield_now();
                }
                // Gives another caller time to join the call, which it must not do.
                thread::sleep(Duration::from_millis(20));
            };
            let first = flights.run_and_publish(&UNLIMITED, &1, later(), || Ok(1), publish);
            (first.unwrap(), later_call.unwrap().join().unwrap().unwrap())
        });
        assert_eq!(results, (1, 2));
    }

    #[test]
    fn a_result_is_published_before_joined_callers_get_it() {
        let flights: SingleFlight<u8, u8> = SingleFlight::default();
        let call = Mutex::new(None);
        let work = || {
            *call.lock() = flights.calls.lock().get(&1).cloned();
            Ok(1)
        };
        let publish = |_: &Result<u8>| {
            let call = call.lock();
            assert!(call.as_ref().unwrap().result.lock().is_none());
        };
        assert_eq!(
            flights
                .run_and_publish(&UNLIMITED, &1, later(), work, publish)
                .unwrap(),
            1
        );
    }
}
