//! parking_lot's locks, of which each use is a step of a schedule (`schedule`), for unit tests. In a thread that belongs
//! to none they are what they are.

use std::ops::{Deref, DerefMut};

use std::time::Duration;

use super::schedule::{is_scheduled, note_release, step, wait_for_release};

/// Takes a lock by `attempt`; outside of a schedule by `wait`.
fn acquire<G>(attempt: impl Fn() -> Option<G>, wait: impl FnOnce() -> G) -> G {
    if !is_scheduled() {
        return wait();
    }
    step();
    loop {
        match attempt() {
            Some(guard) => return guard,
            None => wait_for_release(),
        }
    }
}

/// As parking_lot's.
#[derive(Default)]
pub struct Mutex<T>(parking_lot::Mutex<T>);

/// As parking_lot's.
pub struct MutexGuard<'a, T> {
    lock: &'a parking_lot::Mutex<T>,
    /// Nothing while it waits.
    guard: Option<parking_lot::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    /// Returns a lock that is free.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(parking_lot::Mutex::new(value))
    }

    /// Takes the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard {
            lock: &self.0,
            guard: Some(acquire(|| self.0.try_lock(), || self.0.lock())),
        }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        step();
        let guard = Some(self.0.try_lock()?);
        Some(MutexGuard {
            lock: &self.0,
            guard,
        })
    }

    /// Returns the value, which no other actor has.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.guard.as_deref().expect("it is locked")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.guard.as_deref_mut().expect("it is locked")
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.guard = None;
        note_release();
    }
}

/// As parking_lot's; it may wake for nothing.
#[derive(Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// Returns one for which no actor waits.
    pub const fn new() -> Condvar {
        Condvar(parking_lot::Condvar::new())
    }

    /// Waits without the lock.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        if !is_scheduled() {
            return self.0.wait(guard.guard.as_mut().expect("it is locked"));
        }
        let lock = guard.lock;
        guard.guard = None;
        note_release();
        wait_for_release();
        guard.guard = Some(acquire(|| lock.try_lock(), || lock.lock()));
    }

    /// Waits without the lock, for a while at most; in a schedule until something is released.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, at_most: Duration) {
        if is_scheduled() {
            return self.wait(guard);
        }
        self.0
            .wait_for(guard.guard.as_mut().expect("it is locked"), at_most);
    }

    /// Wakes all that wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
        note_release();
    }
}

/// As parking_lot's.
#[derive(Default)]
pub struct RwLock<T>(parking_lot::RwLock<T>);

/// As parking_lot's.
pub struct RwLockReadGuard<'a, T>(Option<parking_lot::RwLockReadGuard<'a, T>>);

/// As parking_lot's.
pub struct RwLockWriteGuard<'a, T>(Option<parking_lot::RwLockWriteGuard<'a, T>>);

impl<T> RwLock<T> {
    /// Returns a lock that is free.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock(parking_lot::RwLock::new(value))
    }

    /// Takes the lock beside others that read.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let guard = acquire(|| self.0.try_read(), || self.0.read());
        RwLockReadGuard(Some(guard))
    }

    /// Takes the lock alone.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let guard = acquire(|| self.0.try_write(), || self.0.write());
        RwLockWriteGuard(Some(guard))
    }
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().expect("it is locked")
    }
}

impl<T> Drop for RwLockReadGuard<'_, T> {
    fn drop(&mut self) {
        self.0 = None;
        note_release();
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().expect("it is locked")
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_deref_mut().expect("it is locked")
    }
}

impl<T> Drop for RwLockWriteGuard<'_, T> {
    fn drop(&mut self) {
        self.0 = None;
        note_release();
    }
}
