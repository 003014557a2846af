//! A slow program opens a file while another program replaces it.

use std::cell::Cell;
use std::sync::Arc;
use std::thread;

use zarr_format::error::Result;
use zarrfs_overlay::Overlay;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::tree::{OpenMode, RenameMode};
use zarrfs_store::{Key, Store, Tree};

use crate::overlay::fixture::{MAKER, folder, key, opened_with};
use crate::overlay::hooked::{Hook, Hooked};
use crate::overlay::listed_renames::Event;
use zarrfs_store::request_context::{RequestContext, UNLIMITED};

thread_local! {
    static IS_LATE: Cell<bool> = const { Cell::new(false) };
    /// Whether the current call of the store opens the file that will be replaced.
    static OPENS: Cell<bool> = const { Cell::new(false) };
}

/// A hook that lets a slow program open the store's old object. The program continues only after the object was
/// replaced.
#[derive(Default)]
struct Meeting {
    is_opened: Event,
    is_replaced: Event,
}

impl Hook for Meeting {
    fn before(&self, _context: &RequestContext, call: &str, asked: &Key) -> Result<()> {
        OPENS.set(IS_LATE.get() && call == "open" && *asked == key("d/x"));
        Ok(())
    }

    fn after(&self) -> Result<()> {
        if OPENS.get() {
            self.is_opened.happen();
            self.is_replaced.wait();
        }
        Ok(())
    }
}

fn content(overlay: &Overlay, path: &str) -> Vec<u8> {
    let file = Tree::open(overlay, &UNLIMITED, &key(path), OpenMode::Read).unwrap();
    let size = file.stat(&UNLIMITED).unwrap().meta.size;
    file.read_at(&UNLIMITED, 0, usize::try_from(size).unwrap())
        .unwrap()
}

fn write(overlay: &Overlay, path: &str, bytes: &[u8]) {
    let file = overlay.create(&UNLIMITED, &key(path), &MAKER).unwrap();
    file.write_at(&UNLIMITED, 0, bytes).unwrap();
    file.flush(&UNLIMITED).unwrap();
}

/// Invariant (overlay): A file whose content was replaced while it was being opened is never taken for the key's later
/// content.
#[test]
fn content_replaced_during_an_open_never_shows_again() {
    let store = Arc::new(MemoryStore::default());
    store.set(key("d/x"), b"old".to_vec());
    let meeting: Arc<Meeting> = Arc::default();
    let below: Arc<dyn Store> = Arc::new(Hooked::new(store, meeting.clone()));
    let upper = folder();
    let overlay = opened_with(&upper.path().join("upper"), &below, "a store", true).unwrap();
    thread::scope(|scope| {
        let late = scope.spawn(|| {
            IS_LATE.set(true);
            Tree::open(&overlay, &UNLIMITED, &key("d/x"), OpenMode::Read).unwrap()
        });
        meeting.is_opened.wait();
        write(&overlay, "d/t", b"a new one");
        let replace =
            |from, to| overlay.rename(&UNLIMITED, &key(from), &key(to), RenameMode::Replace);
        replace("d/t", "d/x").unwrap();
        meeting.is_replaced.happen();
        let held = late.join().unwrap();
        replace("d", "e").unwrap();
        assert_eq!(content(&overlay, "e/x"), b"a new one");
        replace("e", "d").unwrap();
        assert_eq!(content(&overlay, "d/x"), b"a new one");
        drop(held);
    });
}
