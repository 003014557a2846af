//! The locks of the overlay, which shuttle schedules in unit tests.
//!
//! Without the feature `shuttle`, which tests alone turn on, these are parking_lot's locks, and `step` does nothing. In a
//! run of shuttle, where all threads share one thread of the system, a lock that is taken gives way to the other threads
//! until it is free.

pub use locking::{Condvar, Mutex, RwLock, is_scheduled, pause, step};
pub use parking_lot::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

#[cfg(not(feature = "shuttle"))]
mod locking {
    use std::time::Duration;

    pub use parking_lot::{Condvar, Mutex, RwLock};

    /// Lets another thread of a schedule run. To be called where something is shared that no lock guards, as files are.
    pub fn step() {}

    /// Waits for a while.
    pub fn pause(duration: Duration) {
        std::thread::sleep(duration);
    }

    /// Whether shuttle runs this thread. It would not schedule the threads that this one starts.
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

    /// As outside of tests.
    pub fn step() {
        if is_scheduled() {
            thread::sleep(Duration::ZERO);
        }
    }

    /// Waits for a while; in a schedule, until others had a turn.
    pub fn pause(duration: Duration) {
        if is_scheduled() {
            thread::yield_now();
        } else {
            std::thread::sleep(duration);
        }
    }

    /// As outside of tests.
    pub fn is_scheduled() -> bool {
        try_get_current_task().is_some()
    }

    /// Takes a lock by `attempt`, or by `wait` outside of a schedule.
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

    /// As parking_lot's.
    #[derive(Default)]
    pub struct Mutex<T>(parking_lot::Mutex<T>);

    impl<T> Mutex<T> {
        /// Returns a lock that is free.
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

        /// Returns the value.
        pub fn get_mut(&mut self) -> &mut T {
            self.0.get_mut()
        }
    }

    /// As parking_lot's.
    #[derive(Default)]
    pub struct RwLock<T>(parking_lot::RwLock<T>);

    impl<T> RwLock<T> {
        /// Returns a lock that is free.
        pub const fn new(value: T) -> RwLock<T> {
            RwLock(parking_lot::RwLock::new(value))
        }

        /// Takes the lock beside other readers.
        pub fn read(&self) -> RwLockReadGuard<'_, T> {
            acquire(|| self.0.try_read(), || self.0.read())
        }

        /// Takes the lock alone.
        pub fn write(&self) -> RwLockWriteGuard<'_, T> {
            acquire(|| self.0.try_write(), || self.0.write())
        }
    }

    /// As parking_lot's. In a schedule each wait may end for no reason.
    #[derive(Default)]
    pub struct Condvar(parking_lot::Condvar);

    impl Condvar {
        /// Returns one that no thread waits for.
        pub const fn new() -> Condvar {
            Condvar(parking_lot::Condvar::new())
        }

        /// Waits without the lock.
        pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            if is_scheduled() {
                give_way(guard);
            } else {
                self.0.wait(guard);
            }
        }

        /// Waits without the lock, at most for a while.
        pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, at_most: Duration) {
            if is_scheduled() {
                give_way(guard);
            } else {
                self.0.wait_for(guard, at_most);
            }
        }

        /// Wakes all threads that wait.
        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    /// Lets the other threads of a schedule run without the lock.
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
