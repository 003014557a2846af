//! Serializes read-modify-write edits of the documents in a folder.
//!
//! An edit holds one lock at a time. Only edits of documents in the same folder block each other, however long the
//! store takes.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use zarrfs_store::Key;

/// The locks of the folders whose documents are being edited.
#[derive(Default)]
pub(super) struct DocumentLocks(Mutex<HashMap<Key, Arc<Mutex<()>>>>);

impl DocumentLocks {
    /// Calls `edit` while no other edit of documents in this folder runs.
    pub(super) fn with<T>(&self, folder: &Key, edit: impl FnOnce() -> T) -> T {
        let lock = self.0.lock().entry(folder.clone()).or_default().clone();
        let locked = lock.lock();
        let done = edit();
        drop(locked);
        drop(lock);
        let mut locks = self.0.lock();
        if locks
            .get(folder)
            .is_some_and(|lock| Arc::strong_count(lock) == 1)
        {
            locks.remove(folder);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn edits_of_one_folder_take_turns_and_leave_nothing_behind() {
        let (locks, key) = (DocumentLocks::default(), Key::new("a").unwrap());
        let count = Mutex::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        locks.with(&key, || {
                            let mut count = count.try_lock().expect("two edits at once");
                            thread::yield_now();
                            *count += 1;
                        });
                    }
                });
            }
        });
        assert_eq!(*count.lock(), 800);
        assert!(locks.0.lock().is_empty());
    }

    #[test]
    fn an_edit_of_another_folder_does_not_wait() {
        let locks = DocumentLocks::default();
        let [a, b] = ["a", "b"].map(|key| Key::new(key).unwrap());
        let done = locks.with(&a, || locks.with(&b, || 7));
        assert_eq!(done, 7);
    }
}
