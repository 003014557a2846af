//! File attributes set by a user other than root.

use std::os::unix::fs::chown;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::Uid;
use zarrfs_store::Store;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::request_context::UNLIMITED;
use zarrfs_store::tree::{AttrChange, OpenMode, Setting, Time, Tree};

use crate::overlay::fixture::{NAME, folder, key, opened_with};

const NOBODY: u32 = 65534;

/// Changes the user of this thread to an ordinary user, who becomes the owner of the folder.
fn become_nobody(folder: &std::path::Path) {
    if rustix::process::geteuid().is_root() {
        chown(folder, Some(NOBODY), None).unwrap();
        rustix::thread::set_thread_uid(Uid::from_raw(NOBODY)).unwrap();
    }
}

/// Sets attributes of a read-only file as `shutil.copystat`, chmod and touch do.
fn set_attributes_of_a_read_only_file() {
    let folder = folder();
    become_nobody(folder.path());
    let memory = Arc::new(MemoryStore::default());
    memory.set(key("a"), b"old".to_vec());
    let lower: Arc<dyn Store> = memory;
    let overlay = opened_with(&folder.path().join("upper"), &lower, NAME, false).unwrap();
    let change = |change: AttrChange| overlay.change(&UNLIMITED, &key("a"), &change).unwrap();
    let set_mode = |mode| {
        change(AttrChange {
            mode: Some(mode),
            ..AttrChange::default()
        });
    };
    let (name, value) = (b"user.note", b"x");
    let set = overlay.set_attribute(&UNLIMITED, &key("a"), name, value, Setting::Any);
    set.unwrap();
    set_mode(0o444);
    for is_written in [false, true] {
        if is_written {
            let file = Tree::open(&overlay, &UNLIMITED, &key("a"), OpenMode::Write).unwrap();
            file.write_at(&UNLIMITED, 0, b"new").unwrap();
            file.flush(&UNLIMITED).unwrap();
        }
        set_mode(0o440);
        let time = UNIX_EPOCH + Duration::from_secs(5);
        change(AttrChange {
            modified: Some(Time::At(time)),
            ..AttrChange::default()
        });
        let stat = Tree::stat(&overlay, &UNLIMITED, &key("a"))
            .unwrap()
            .unwrap();
        assert_eq!(stat.posix.unwrap().mode & 0o7777, 0o440);
        assert_eq!(stat.meta.modified, time);
        let found = overlay.attribute(&UNLIMITED, &key("a"), name).unwrap();
        assert_eq!(found.as_deref(), Some(&value[..]), "{is_written}");
    }
}

#[test]
fn the_owner_of_a_read_only_file_can_set_its_attributes() {
    // Run the test in a thread of its own, because it changes the thread's user.
    let done = std::thread::spawn(set_attributes_of_a_read_only_file).join();
    done.unwrap();
}
