//! Locks of the overlay that shuttle schedules in unit tests.
//!
//! Without the feature `shuttle`, which only tests enable, these are parking_lot's locks, and `step` does nothing. In a
//! shuttle run all threads share one system thread; a thread that needs a taken lock yields until it is free.

pub use locking::{Condvar, Mutex, RwLock, is_scheduled, pause, step};
pub use parking_lot::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

#[cfg(not(feature = "shuttle"))]
mod locking {
    use std::time::Duration;

    pub use parking_lot::{Condvar, Mutex, RwLock};

    /// Lets shuttle switch to another thread. Call it around shared state that no lock guards, such as files.
    pub fn step() {}

    /// Sleeps.
    pub fn pause(duration: Duration) {
        std::thread::sleep(duration);
    }

    /// Whether shuttle runs this thread. It would not schedule threads that this thread starts.
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

    /// See the version without shuttle.
    pub fn step() {
        if is_scheduled() {
            thread::sleep(Duration::ZERO);
        }
    }

    /// Sleeps; under shuttle, yields to the other threads.
    pub fn pause(duration: Duration) {
        if is_scheduled() {
            thread::yield_now();
        } else {
            std::thread::sleep(duration);
        }
    }

    /// See the version without shuttle.
    pub fn is_scheduled() -> bool {
        try_get_current_task().is_some()
    }

    /// Takes a lock by `attempt` under shuttle, or by `wait` otherwise.
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

    /// Like `parking_lot::Mutex`.
    #[derive(Default)]
    pub struct Mutex<T>(parking_lot::Mutex<T>);

    impl<T> Mutex<T> {
        /// Builds an unlocked mutex.
        pub const fn new(value: T) -> Mutex<T> {
            Mutex(parking_lot::Mutex::new(value))
        }

        /// Takes the lock.
        pub fn lock(&self) -> MutexGuard<'_, T> {
            acquire(|| self.0.try_lock(), || self.0.lock())
        }

        /// Takes the lock if it is free.
        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            step();
            self.0.try_lock()
        }

        /// Returns the value without locking.
        pub fn get_mut(&mut self) -> &mut T {
            self.0.get_mut()
        }
    }

    /// Like `parking_lot::RwLock`.
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

    /// Like `parking_lot::Condvar`. Under shuttle every wait may wake spuriously.
    #[derive(Default)]
    pub struct Condvar(parking_lot::Condvar);

    impl Condvar {
        /// Builds a condition variable.
        pub const fn new() -> Condvar {
            Condvar(parking_lot::Condvar::new())
        }

        /// Releases the lock and waits.
        pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            if is_scheduled() {
                give_way(guard);
            } else {
                self.0.wait(guard);
            }
        }

        /// Releases the lock and waits, at most for the given time.
        pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, at_most: Duration) {
            if is_scheduled() {
                give_way(guard);
            } else {
                self.0.wait_for(guard, at_most);
            }
        }

        /// Wakes all waiting threads.
        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    /// Releases the lock and lets the other threads of the schedule run.
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
