//! Locks of the overlay that the model checker shuttle schedules in unit tests.
//!
//! Without the feature `shuttle`, which only tests enable, these are parking_lot's locks, and `step` does nothing. In a
//! shuttle run all threads share one system thread; a thread that needs a taken lock yields until it is free.

pub use locking::{Condvar, Mutex, RwLock, is_scheduled, pause, step};
pub use parking_lot::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

#[cfg(not(feature = "shuttle"))]
mod locking {
    use std::time::Duration;

    pub use parking_lot::{Condvar, Mutex, RwLock};

    /// Lets shuttle switch to another thread. Called around accesses of shared state that no lock guards, such as
    /// files.
    pub fn step() {}

    /// Sleeps; in a shuttle run, only yields to the other threads.
    pub fn pause(duration: Duration) {
        std::thread::sleep(duration);
    }

    /// Whether shuttle schedules this thread. A thread that such a thread starts would not be scheduled.
    pub fn is_scheduled() -> bool {
        false
    }
}

#[cfg(feature = "shuttle")]
mod locking {
    use std::time::Duration;

    use parking_lot::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};
    use shuttle::current::try_get_current_task;
    use shuttle::thread;

    /// Lets shuttle switch to another thread.
    pub fn step() {
        if is_scheduled() {
            thread::sleep(Duration::ZERO);
        }
    }

    /// Sleeps; in a shuttle run, only yields to the other threads.
    pub fn pause(duration: Duration) {
        if is_scheduled() {
            thread::yield_now();
        } else {
            std::thread::sleep(duration);
        }
    }

    /// Whether shuttle schedules this thread.
    pub fn is_scheduled() -> bool {
        try_get_current_task().is_some()
    }

    /// Takes a lock: in a shuttle run by calling `attempt` until it succeeds, otherwise by `wait`.
    fn acquire<G>(attempt: impl Fn() -> Option<G>, wait: impl FnOnce() -> G) -> G {
        if !is_scheduled() {
            return wait();
        }
        step();
        loop {
            match attempt() {
                Some(guard) => return guard,
                None => thread::yield_now(),
            }
        }
    }

    /// A mutex with the interface of `parking_lot::Mutex` that shuttle can schedule.
    #[derive(Default)]
    pub struct Mutex<T>(parking_lot::Mutex<T>);

    impl<T> Mutex<T> {
        /// Builds an unlocked mutex.
        pub const fn new(value: T) -> Mutex<T> {
            Mutex(parking_lot::Mutex::new(value))
        }

        /// Takes the mutex.
        pub fn lock(&self) -> MutexGuard<'_, T> {
            acquire(|| self.0.try_lock(), || self.0.lock())
        }

        /// Takes the mutex if it is free, without waiting.
        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            step();
            self.0.try_lock()
        }

        /// Returns the value. No lock is needed, since the mutex is borrowed mutably.
        pub fn get_mut(&mut self) -> &mut T {
            self.0.get_mut()
        }
    }

    /// A lock with the interface of `parking_lot::RwLock` that shuttle can schedule.
    #[derive(Default)]
    pub struct RwLock<T>(parking_lot::RwLock<T>);

    impl<T> RwLock<T> {
        /// Builds an unlocked lock.
        pub const fn new(value: T) -> RwLock<T> {
            RwLock(parking_lot::RwLock::new(value))
        }

        /// Takes the lock for reading.
        pub fn read(&self) -> RwLockReadGuard<'_, T> {
            acquire(|| self.0.try_read(), || self.0.read())
        }

        /// Takes the lock for writing.
        pub fn write(&self) -> RwLockWriteGuard<'_, T> {
            acquire(|| self.0.try_write(), || self.0.write())
        }
    }

    /// A condition variable with the interface of `parking_lot::Condvar` that shuttle can schedule. In a shuttle run,
    /// every wait may wake spuriously.
    #[derive(Default)]
    pub struct Condvar(parking_lot::Condvar);

    impl Condvar {
        /// Builds a condition variable.
        pub const fn new() -> Condvar {
            Condvar(parking_lot::Condvar::new())
        }

        /// Releases the mutex, waits for a signal, and takes the mutex again.
        pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            if is_scheduled() {
                give_way(guard);
            } else {
                self.0.wait(guard);
            }
        }

        /// Releases the mutex, waits for a signal for at most the given time, and takes the mutex again.
        pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, at_most: Duration) {
            if is_scheduled() {
                give_way(guard);
            } else {
                self.0.wait_for(guard, at_most);
            }
        }

        /// Wakes all threads that wait for a signal.
        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    /// Releases the lock, lets the other threads of the shuttle run go on, and takes the lock again.
    fn give_way<T>(guard: &mut MutexGuard<'_, T>) {
        let lock = MutexGuard::mutex(guard);
        MutexGuard::unlocked(guard, || {
            thread::yield_now();
            while lock.is_locked() {
                thread::yield_now();
            }
        });
    }
}
