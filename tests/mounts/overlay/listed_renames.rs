//! Listings in the middle of a commit that stores renamed files.

use std::cell::Cell;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use zarr_format::error::Result;
use zarrfs_overlay::commit::CommitConfig;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::tree::RenameMode;
use zarrfs_store::{Key, Store, Tree};

use crate::overlay::fixture::{folder, key, opened};
use crate::overlay::hooked::{Hook, Hooked};
use zarrfs_store::request_context::{RequestContext, UNLIMITED};

/// An event that happens once, and that other threads can wait for.
#[derive(Default)]
pub(crate) struct Event {
    has_happened: Mutex<bool>,
    changed: Condvar,
}

impl Event {
    pub(crate) fn happen(&self) {
        *self.has_happened.lock() = true;
        self.changed.notify_all();
    }

    pub(crate) fn wait(&self) {
        let mut has_happened = self.has_happened.lock();
        while !*has_happened {
            let waited = self
                .changed
                .wait_for(&mut has_happened, Duration::from_secs(20));
            assert!(!waited.timed_out(), "it does not happen");
        }
    }
}

/// What the current thread does, so that the hook can tell whose call it sees.
#[derive(Clone, Copy)]
enum Doing {
    Nothing,
    /// The thread commits. The commit freezes the layer before its first call of the store.
    Commit,
    List,
}

thread_local! {
    static DOES: Cell<Doing> = const { Cell::new(Doing::Nothing) };
    /// Whether the current call of the store removes the renamed file's old name.
    static REMOVES: Cell<bool> = const { Cell::new(false) };
}

/// A hook that lets a listing ask for the old name before a commit begins. The listing gets its answer after the commit
/// has removed that name.
#[derive(Default)]
struct Meeting {
    is_committing: Event,
    is_listing: Event,
    is_removed: Event,
    is_listed: Event,
}

impl Hook for Meeting {
    fn before(&self, _context: &RequestContext, call: &str, asked: &Key) -> Result<()> {
        let is_old = *asked == key("d/old");
        match DOES.get() {
            Doing::Commit => {
                self.is_committing.happen();
                self.is_listing.wait();
            }
            Doing::List if call == "head" && is_old => {
                self.is_listing.happen();
                self.is_removed.wait();
            }
            _ => {}
        }
        REMOVES.set(call == "erase" && is_old);
        Ok(())
    }

    fn after(&self) -> Result<()> {
        if REMOVES.get() {
            self.is_removed.happen();
            self.is_listed.wait();
        }
        Ok(())
    }
}

/// Invariant (overlay): A renamed file has one name in every listing, also during a commit.
#[test]
fn a_renamed_file_is_listed_once_during_its_commit() {
    let store = Arc::new(MemoryStore::default());
    store.set(key("d/old"), b"content".to_vec());
    let meeting: Arc<Meeting> = Arc::default();
    let below: Arc<dyn Store> = Arc::new(Hooked::new(store, meeting.clone()));
    let upper = folder();
    let overlay = opened(&upper.path().join("upper"), &below, "a store").unwrap();
    let rename = overlay.rename(
        &UNLIMITED,
        &key("d/old"),
        &key("d/new"),
        RenameMode::Replace,
    );
    rename.unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            DOES.set(Doing::Commit);
            overlay
                .commit(&UNLIMITED, CommitConfig::default(), &|_, _| {})
                .and_then(zarrfs_overlay::commit::Outcome::or_failed)
                .unwrap();
        });
        meeting.is_committing.wait();
        DOES.set(Doing::List);
        let mut listing = overlay.list(&UNLIMITED, &key("d")).unwrap();
        let mut names = Vec::new();
        while let Some(name) = listing.next(&UNLIMITED).unwrap() {
            names.push(String::from_utf8(name.name).unwrap());
        }
        meeting.is_listed.happen();
        assert_eq!(names, ["new"]);
    });
}
