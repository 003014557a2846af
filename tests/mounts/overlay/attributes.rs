//! Owner, mode, times and extended attributes are kept without a copy of the content.
//!
//! So the mount still shows the content that other programs write to the store.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tempfile::TempDir;
use zarr_format::error::{Error, Kind, Result};
use zarrfs_overlay::Overlay;
use zarrfs_overlay::commit::{CommitConfig, Outcome};
use zarrfs_store::backend::local::LocalStore;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::tree::{AttrChange, OpenMode, RenameMode, Setting, Stat, Time, Tree as _};
use zarrfs_store::{Condition, Key, PutBody, Store, StoreConfig};

use crate::overlay::fixture::{Lower, MAKER, NAME, folder, key, opened_with};
use crate::overlay::hooked::{Hook, Hooked};
use zarrfs_store::request_context::{RequestContext, UNLIMITED};

const NAME_OF_XATTR: &[u8] = b"user.note";

fn time(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

/// An overlay over a store that other programs change at the same time.
struct Mount {
    folder: TempDir,
    lower: Arc<dyn Store>,
    write_through: bool,
    overlay: Option<Overlay>,
}

impl Mount {
    fn new(lower: Lower, write_through: bool) -> Mount {
        let folder = folder();
        let lower: Arc<dyn Store> = match lower {
            Lower::Memory => Arc::new(MemoryStore::default()),
            Lower::Local => {
                let path = folder.path().join("store");
                std::fs::create_dir(&path).unwrap();
                Arc::new(LocalStore::open(&path, &StoreConfig::default()).unwrap())
            }
        };
        let mut mount = Mount {
            folder,
            lower,
            write_through,
            overlay: None,
        };
        for name in ["a/0", "a/1", "b"] {
            mount.write_to_store(name, b"old");
        }
        mount.remount();
        mount
    }

    /// Calls `test` with overlays of a store in memory and of a local folder, with and without write-through.
    fn each(test: impl Fn(Mount)) {
        for lower in [Lower::Memory, Lower::Local] {
            for write_through in [false, true] {
                test(Mount::new(lower, write_through));
            }
        }
    }

    fn upper(&self) -> PathBuf {
        self.folder.path().join("upper")
    }

    fn remount(&mut self) {
        self.overlay = None;
        let overlay = opened_with(&self.upper(), &self.lower, NAME, self.write_through);
        self.overlay = Some(overlay.unwrap());
    }

    fn overlay(&self) -> &Overlay {
        self.overlay.as_ref().unwrap()
    }

    fn write_to_store(&self, name: &str, bytes: &[u8]) {
        let body = PutBody::Bytes(bytes);
        self.lower
            .put(&UNLIMITED, &key(name), body, &Condition::Any)
            .unwrap();
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let file =
            zarrfs_store::Tree::open(self.overlay(), &UNLIMITED, &key(name), OpenMode::Truncate)
                .unwrap();
        file.write_at(&UNLIMITED, 0, bytes).unwrap();
        file.flush(&UNLIMITED).unwrap();
    }

    fn change(&self, name: &str, change: AttrChange) {
        self.overlay()
            .change(&UNLIMITED, &key(name), &change)
            .unwrap();
    }

    fn set_mode(&self, name: &str, mode: u32) {
        let mode = Some(mode);
        self.change(
            name,
            AttrChange {
                mode,
                ..AttrChange::default()
            },
        );
    }

    fn set_xattr(&self, name: &str, value: &[u8]) {
        let overlay = self.overlay();
        let set = overlay.set_attribute(&UNLIMITED, &key(name), NAME_OF_XATTR, value, Setting::Any);
        set.unwrap();
    }

    fn xattr(&self, name: &str) -> Option<Vec<u8>> {
        let overlay = self.overlay();
        overlay
            .attribute(&UNLIMITED, &key(name), NAME_OF_XATTR)
            .unwrap()
    }

    fn stat(&self, name: &str) -> Stat {
        let stat = zarrfs_store::Tree::stat(self.overlay(), &UNLIMITED, &key(name)).unwrap();
        stat.unwrap()
    }

    fn mode(&self, name: &str) -> Option<u32> {
        let posix = self.stat(name).posix;
        posix.map(|posix| posix.mode & 0o7777)
    }

    fn shown(&self, name: &str) -> Vec<u8> {
        let object = self
            .overlay()
            .get(&UNLIMITED, &key(name), 100)
            .unwrap()
            .unwrap();
        let file = zarrfs_store::Tree::open(self.overlay(), &UNLIMITED, &key(name), OpenMode::Read)
            .unwrap();
        assert_eq!(file.read_at(&UNLIMITED, 0, 100).unwrap(), object.bytes);
        assert_eq!(file.stat(&UNLIMITED).unwrap(), self.stat(name));
        object.bytes
    }

    fn commit(&self) -> Outcome {
        let config = CommitConfig::default();
        let done = self.overlay().commit(&UNLIMITED, config, &|_, _| {});
        let outcome = done.and_then(Outcome::or_failed).unwrap();
        assert_eq!(outcome.conflicts, []);
        outcome
    }

    /// Returns the keys whose content is in the upper folder.
    fn held(&self) -> Vec<String> {
        let mut held = Vec::new();
        let mut folders = vec![self.upper().join("keys"), self.upper().join("pending")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    held.push(path.file_name().unwrap().to_str().unwrap().to_string());
                }
            }
        }
        held
    }

    /// Returns the keys whose attributes were set and are listed by `status`.
    fn kept(&self) -> Vec<Key> {
        let changes = self.overlay().changes(&UNLIMITED).unwrap();
        let what = "owner, mode, times or extended attributes";
        assert!(changes.uncommittable.iter().all(|(_, why)| *why == what));
        changes
            .uncommittable
            .into_iter()
            .map(|(key, _)| key)
            .collect()
    }
}

type Setter = (&'static str, fn(&Mount));

/// The ways to set attributes of the file `b`.
const SETTERS: [Setter; 5] = [
    ("touch", |mount| {
        let modified = Some(Time::Now);
        mount.change(
            "b",
            AttrChange {
                modified,
                ..AttrChange::default()
            },
        );
    }),
    ("chmod", |mount| mount.set_mode("b", 0o640)),
    ("chown", |mount| {
        let own = rustix::process::getegid().as_raw();
        let gid = rustix::process::geteuid().is_root().then_some(7);
        mount.change(
            "b",
            AttrChange {
                gid: gid.or(Some(own)),
                ..AttrChange::default()
            },
        );
        let found = mount.stat("b").posix.unwrap().gid;
        assert_eq!(found, gid.unwrap_or(own));
    }),
    ("setfattr", |mount| mount.set_xattr("b", b"x")),
    ("an open file", |mount| {
        let file =
            zarrfs_store::Tree::open(mount.overlay(), &UNLIMITED, &key("b"), OpenMode::Write)
                .unwrap();
        file.change(
            &UNLIMITED,
            &AttrChange {
                mode: Some(0o600),
                accessed: Some(Time::At(time(1))),
                modified: Some(Time::At(time(2))),
                ..AttrChange::default()
            },
        )
        .unwrap();
        let stat = file.stat(&UNLIMITED).unwrap();
        assert_eq!(stat.meta.modified, time(2));
        assert_eq!(stat.posix.unwrap().accessed, time(1));
        file.flush(&UNLIMITED).unwrap();
        file.sync(&UNLIMITED).unwrap();
    }),
];

/// Invariant (overlay): Setting attributes copies no content into the upper folder and hides none of the store's.
#[test]
fn setting_attributes_does_not_hide_later_store_writes() {
    for (name, set) in SETTERS {
        Mount::each(|mut mount| {
            set(&mount);
            assert_eq!(mount.held(), [""; 0], "{name}");
            assert_eq!(mount.shown("b"), b"old");
            assert_eq!(mount.kept(), [key("b")]);
            assert_eq!(mount.overlay().changes(&UNLIMITED).unwrap().keys, []);
            mount.write_to_store("b", b"by others");
            assert_eq!(mount.shown("b"), b"by others", "{name}");
            mount.write("a/0", b"own");
            let kept = mount.commit().uncommittable;
            assert_eq!(kept.len(), 1, "{name}: {kept:?}");
            mount.write_to_store("b", b"again");
            assert_eq!(mount.shown("b"), b"again", "{name}");
            mount.remount();
            assert_eq!(mount.shown("b"), b"again", "{name}");
            mount.write_to_store("b", b"and again");
            assert_eq!(mount.shown("b"), b"and again", "{name}");
            assert_eq!(mount.kept(), [key("b")]);
            assert_eq!(mount.held(), [""; 0], "{name}");
        });
    }
}

/// Invariant of `setting_attributes_does_not_hide_later_store_writes`.
#[test]
fn attributes_survive_store_writes_commits_and_remounts() {
    Mount::each(|mut mount| {
        mount.set_mode("b", 0o640);
        mount.set_xattr("b", b"x");
        for turn in 0..3 {
            mount.write_to_store("b", b"by others");
            mount.write("a/0", &[turn]);
            mount.commit();
            mount.remount();
            assert_eq!(mount.mode("b"), Some(0o640));
            assert_eq!(mount.xattr("b").as_deref(), Some(&b"x"[..]));
        }
        let names = mount.overlay().attributes(&UNLIMITED, &key("b")).unwrap();
        assert!(names.iter().any(|name| name == NAME_OF_XATTR));
        let replaced = mount.overlay().set_attribute(
            &UNLIMITED,
            &key("b"),
            NAME_OF_XATTR,
            b"y",
            Setting::Create,
        );
        assert!(replaced.is_err(), "it is there");
        let overlay = mount.overlay();
        overlay
            .remove_attribute(&UNLIMITED, &key("b"), NAME_OF_XATTR)
            .unwrap();
        assert!(
            overlay
                .remove_attribute(&UNLIMITED, &key("b"), NAME_OF_XATTR)
                .is_err()
        );
        assert_eq!(mount.xattr("b"), None);
        assert_eq!(mount.mode("b"), Some(0o640));
    });
}

/// A modification time that a program has set belongs to one content, and is not shown for a later one.
#[test]
fn a_time_that_was_set_is_shown_until_the_content_changes() {
    Mount::each(|mut mount| {
        let touched = AttrChange {
            accessed: Some(Time::At(time(10))),
            modified: Some(Time::At(time(20))),
            ..AttrChange::default()
        };
        mount.change("b", touched);
        mount.set_mode("b", 0o600);
        for _ in 0..2 {
            let stat = mount.stat("b");
            assert_eq!(stat.meta.modified, time(20));
            assert_eq!(stat.posix.unwrap().accessed, time(10));
            assert_eq!(
                mount
                    .overlay()
                    .head(&UNLIMITED, &key("b"))
                    .unwrap()
                    .unwrap()
                    .modified,
                time(20)
            );
            mount.remount();
        }
        mount.write_to_store("b", b"by others");
        let stored = mount
            .lower
            .head(&UNLIMITED, &key("b"))
            .unwrap()
            .unwrap()
            .modified;
        let stat = mount.stat("b");
        assert_eq!(stat.meta.modified, stored);
        let posix = stat.posix.unwrap();
        assert_eq!((posix.mode & 0o7777, posix.accessed), (0o600, stored));
        assert!(posix.changed >= stored);
        // Setting another attribute does not restore the time that was set for the old content.
        mount.set_mode("b", 0o644);
        assert_eq!(mount.stat("b").meta.modified, stored);
    });
}

/// The commit has a conflict, so the file remains in the frozen layer.
#[test]
fn a_removed_attribute_of_a_frozen_file_stays_removed() {
    for lower in [Lower::Memory, Lower::Local] {
        let mount = Mount::new(lower, false);
        mount.write("a/0", b"own");
        mount.set_xattr("a/0", b"x");
        mount.write("b", b"own");
        mount.write_to_store("b", b"others");
        let outcome = mount
            .overlay()
            .commit(&UNLIMITED, CommitConfig::default(), &|_, _| {});
        assert_eq!(outcome.unwrap().conflicts.len(), 1);
        let removed = mount
            .overlay()
            .remove_attribute(&UNLIMITED, &key("a/0"), NAME_OF_XATTR);
        removed.unwrap();
        assert_eq!(mount.xattr("a/0"), None);
        let file =
            zarrfs_store::Tree::open(mount.overlay(), &UNLIMITED, &key("a/0"), OpenMode::Write)
                .unwrap();
        file.write_at(&UNLIMITED, 1, b"wn").unwrap();
        file.flush(&UNLIMITED).unwrap();
        assert_eq!(mount.xattr("a/0"), None);
    }
}

#[test]
fn a_write_keeps_the_attributes_set_before() {
    for lower in [Lower::Memory, Lower::Local] {
        let mut mount = Mount::new(lower, false);
        for (name, write) in [("a/0", 0), ("a/1", 1), ("b", 2)] {
            mount.set_mode(name, 0o640);
            mount.set_xattr(name, b"x");
            let (overlay, at) = (mount.overlay(), key(name));
            match write {
                0 => mount.write(name, b"own"),
                1 => {
                    let file = zarrfs_store::Tree::open(overlay, &UNLIMITED, &at, OpenMode::Write)
                        .unwrap();
                    file.write_at(&UNLIMITED, 1, b"wn").unwrap();
                    file.flush(&UNLIMITED).unwrap();
                }
                _ => {
                    let body = PutBody::Bytes(b"own");
                    overlay.put(&UNLIMITED, &at, body, &Condition::Any).unwrap();
                }
            }
            let has_xattrs = write < 2;
            for _ in 0..2 {
                assert_eq!(mount.mode(name), Some(0o640), "{name}");
                assert_eq!(mount.xattr(name).is_some(), has_xattrs, "{name}");
                assert_eq!(mount.kept(), [], "{name}: it has a content");
                mount.remount();
            }
            // A later change of attributes is made on the file in the upper folder, and not recorded in the journal.
            mount.set_mode(name, 0o604);
            assert_eq!((mount.mode(name), mount.kept()), (Some(0o604), Vec::new()));
        }
        mount.commit();
        if lower == Lower::Local {
            use std::os::unix::fs::MetadataExt as _;
            let stored = mount.folder.path().join("store/b").metadata().unwrap();
            assert_eq!(stored.mode() & 0o7777, 0o604);
        }
        assert_eq!((mount.held(), mount.kept()), (Vec::new(), Vec::new()));
    }
}

#[test]
fn attributes_move_with_a_rename() {
    Mount::each(|mut mount| {
        mount.set_mode("a/0", 0o600);
        mount.set_xattr("a/0", b"x");
        mount.set_mode("a/1", 0o640);
        let rename = |mount: &Mount, from: &str, to: &str| {
            let done =
                mount
                    .overlay()
                    .rename(&UNLIMITED, &key(from), &key(to), RenameMode::Replace);
            done.unwrap();
        };
        rename(&mount, "a", "c");
        rename(&mount, "c/0", "b");
        for turn in 0..3 {
            assert_eq!(mount.mode("b"), Some(0o600), "turn {turn}");
            assert_eq!(mount.xattr("b").as_deref(), Some(&b"x"[..]));
            assert_eq!(mount.mode("c/1"), Some(0o640));
            assert_eq!(mount.shown("b"), b"old");
            if turn == 1 {
                mount.commit();
                assert_eq!(mount.held(), [""; 0]);
            }
            mount.remount();
        }
        // The attributes must be shown neither at the old name nor for another file that is renamed over the new name.
        mount.write_to_store("a/0", b"by others");
        assert_eq!(mount.mode("a/0"), None);
        mount.write_to_store("d", b"plain");
        rename(&mount, "d", "b");
        for _ in 0..2 {
            assert_eq!((mount.mode("b"), mount.xattr("b")), (None, None));
            mount.remount();
        }
    });
}

#[test]
fn an_unlink_or_a_discard_removes_attributes() {
    Mount::each(|mut mount| {
        for name in ["a/0", "a/1", "b"] {
            mount.set_mode(name, 0o600);
        }
        let overlay = mount.overlay();
        overlay.unlink(&UNLIMITED, &key("b")).unwrap();
        overlay.discard(&UNLIMITED, &key("a/1")).unwrap();
        assert!(
            overlay.discard(&UNLIMITED, &key("a/1")).is_err(),
            "nothing is left"
        );
        assert_eq!((mount.mode("a/1"), mount.mode("a/0")), (None, Some(0o600)));
        mount
            .overlay()
            .create(&UNLIMITED, &key("b"), &MAKER)
            .unwrap()
            .flush(&UNLIMITED)
            .unwrap();
        mount.commit();
        mount.remount();
        assert_ne!(mount.mode("b"), Some(0o600));
        assert_eq!(mount.kept(), [key("a/0")]);
        mount.overlay().discard(&UNLIMITED, &Key::root()).unwrap();
        assert_eq!((mount.mode("a/0"), mount.kept()), (None, Vec::new()));
    });
}

#[test]
fn a_hard_link_has_the_attributes_of_its_source() {
    Mount::each(|mount| {
        mount.change(
            "b",
            AttrChange {
                mode: Some(0o600),
                modified: Some(Time::At(time(5))),
                ..AttrChange::default()
            },
        );
        mount
            .overlay()
            .link(&UNLIMITED, &key("b"), &key("c"))
            .unwrap();
        if mount.write_through {
            return assert_eq!(
                mount
                    .lower
                    .get(&UNLIMITED, &key("c"), 9)
                    .unwrap()
                    .unwrap()
                    .bytes,
                b"old"
            );
        }
        let stat = mount.stat("c");
        assert_eq!(stat.posix.unwrap().mode & 0o7777, 0o600);
        assert_eq!(stat.meta.modified, time(5));
        assert_eq!(mount.kept(), [key("b")]);
    });
}

/// The process is killed after a new file has taken over recorded attributes, and before a sync.
#[test]
fn attributes_kept_beside_a_written_file_are_dropped_at_mount() {
    let mut mount = Mount::new(Lower::Local, false);
    mount.set_mode("b", 0o600);
    mount.remount();
    mount.write("b", b"own");
    let copy = mount.folder.path().join("copy");
    let copied = std::process::Command::new("cp")
        .args(["-a"])
        .args([&mount.upper(), &copy])
        .status();
    assert!(copied.unwrap().success());
    let again = opened_with(&copy, &mount.lower, NAME, false).unwrap();
    let found = zarrfs_store::Tree::stat(&again, &UNLIMITED, &key("b"))
        .unwrap()
        .unwrap();
    assert_eq!(found.posix.unwrap().mode & 0o7777, 0o600);
    assert_eq!(again.changes(&UNLIMITED).unwrap().uncommittable, []);
    again
        .commit(&UNLIMITED, CommitConfig::default(), &|_, _| {})
        .unwrap();
    let found = zarrfs_store::Tree::stat(&again, &UNLIMITED, &key("b"))
        .unwrap()
        .unwrap();
    assert_eq!(found.posix, None, "the store has the content");
}

/// A new file takes over recorded attributes. Then a commit, a discard or write-through removes the file before a sync.
#[test]
fn attributes_do_not_come_back_after_a_commit_or_discard() {
    Mount::each(|mut mount| {
        mount.set_mode("b", 0o600);
        mount.set_xattr("b", b"x");
        mount.write("b", b"own");
        mount.commit();
        for _ in 0..2 {
            assert_eq!((mount.xattr("b"), mount.kept()), (None, Vec::new()));
            mount.remount();
        }
        mount.set_xattr("a/0", b"x");
        if !mount.write_through {
            mount.write("a/0", b"own");
        }
        let dropped = mount
            .overlay()
            .discard(&UNLIMITED, &key("a/0"))
            .unwrap()
            .dropped;
        assert_eq!((dropped, mount.xattr("a/0")), (1, None));
    });
}

/// A hook that makes the next put of a key fail.
struct RefusedPut(Key, AtomicBool);

impl Hook for RefusedPut {
    fn before(&self, _context: &RequestContext, call: &str, asked: &Key) -> Result<()> {
        if call == "put" && *asked == self.0 && self.1.swap(false, SeqCst) {
            return Err(Error::new(Kind::Unavailable, asked, "made to fail"));
        }
        Ok(())
    }
}

/// The content was copied to the upper folder only for the put, so the copy is not a change of the file.
#[test]
fn attributes_survive_a_rename_that_the_store_refuses() {
    for is_mounted_again in [false, true] {
        let memory = Arc::new(MemoryStore::default());
        memory.set(key("a/0"), b"old".to_vec());
        let hook = Arc::new(RefusedPut(key("c/0"), AtomicBool::new(true)));
        let folder = folder();
        let mut mount = Mount {
            folder,
            lower: Arc::new(Hooked::new(memory, hook.clone())),
            write_through: true,
            overlay: None,
        };
        mount.remount();
        mount.change(
            "a/0",
            AttrChange {
                mode: Some(0o640),
                modified: Some(Time::At(time(5))),
                ..AttrChange::default()
            },
        );
        mount.set_xattr("a/0", b"x");
        let overlay = mount.overlay();
        overlay.make_folder(&UNLIMITED, &key("c"), &MAKER).unwrap();
        let (from, to) = (key("a/0"), key("c/0"));
        let renamed = overlay.rename(&UNLIMITED, &from, &to, RenameMode::Replace);
        assert_eq!((renamed.is_err(), hook.1.load(SeqCst)), (true, false));
        let found = |mount: &Mount| {
            let stat = mount.stat("c/0");
            let mode = stat.posix.unwrap().mode & 0o7777;
            (mode, mount.xattr("c/0"), stat.meta.modified)
        };
        let x = Some(b"x".to_vec());
        assert_eq!(found(&mount), (0o640, x.clone(), time(5)));
        mount.set_mode("c/0", 0o604);
        if is_mounted_again {
            mount.overlay().sync(&UNLIMITED).unwrap();
            mount.remount();
        }
        assert_eq!(found(&mount), (0o604, x.clone(), time(5)));
        assert_eq!(mount.overlay().changes(&UNLIMITED).unwrap().lost, []);
        let outcome = mount.commit();
        assert_eq!(
            (outcome.put, outcome.erased, outcome.lost),
            (1, 1, Vec::new())
        );
        for _ in 0..2 {
            let (mode, xattr, _) = found(&mount);
            assert_eq!((mode, xattr), (0o604, x.clone()));
            assert_eq!(mount.kept(), std::slice::from_ref(&to));
            assert_eq!(mount.shown("c/0"), b"old");
            mount.remount();
        }
        mount.write_to_store("c/0", b"by others");
        assert_eq!(mount.shown("c/0"), b"by others");
    }
}

/// An older version copied the content when attributes were set. In its journal, this is a change of the content.
#[test]
fn a_journal_of_an_older_version_is_read() {
    let mut mount = Mount::new(Lower::Memory, false);
    mount.overlay = None;
    let version = mount
        .lower
        .etag(&UNLIMITED, &key("b"))
        .unwrap()
        .unwrap()
        .version
        .number();
    let text = format!(r#"[{{"held":"b","version":"{version:016x}","same":true}}]"#);
    let line = format!("{:08x} {text}\n", crc32c::crc32c(text.as_bytes()));
    let mark = r#"[{"file":"b","inode":1,"length":3,"digest":null},{"closed":true}]"#;
    let closed = format!("{:08x} {mark}\n", crc32c::crc32c(mark.as_bytes()));
    std::fs::write(mount.upper().join("journal"), line + &closed).unwrap();
    std::fs::write(mount.upper().join("keys/b"), "old").unwrap();
    mount.remount();
    assert_eq!(mount.shown("b"), b"old");
    mount.commit();
    assert_eq!(mount.held(), [""; 0]);
}

/// A hook that sets a file's mode while the file's content is copied from the store.
#[derive(Default)]
struct ModeDuringCopy(Mutex<Option<Overlay>>);

impl Hook for ModeDuringCopy {
    fn before(&self, context: &RequestContext, call: &str, asked: &Key) -> Result<()> {
        let overlay = match call {
            "read_at" => self.0.lock().unwrap().take(),
            _ => None,
        };
        overlay.map_or(Ok(()), |overlay| {
            let mode = AttrChange {
                mode: Some(0o604),
                ..AttrChange::default()
            };
            overlay.change(context, asked, &mode)
        })
    }
}

#[test]
fn a_mode_set_during_a_copy_up_applies_to_the_written_file() {
    let memory = Arc::new(MemoryStore::default());
    memory.set(key("b"), b"old".to_vec());
    let hook: Arc<ModeDuringCopy> = Arc::default();
    let lower: Arc<dyn Store> = Arc::new(Hooked::new(memory, hook.clone()));
    let folder = folder();
    let overlay = opened_with(&folder.path().join("upper"), &lower, NAME, false).unwrap();
    let file = zarrfs_store::Tree::open(&overlay, &UNLIMITED, &key("b"), OpenMode::Write).unwrap();
    *hook.0.lock().unwrap() = Some(overlay.clone());
    file.write_at(&UNLIMITED, 1, b"wn").unwrap();
    file.flush(&UNLIMITED).unwrap();
    assert!(hook.0.lock().unwrap().is_none());
    let stat = zarrfs_store::Tree::stat(&overlay, &UNLIMITED, &key("b"))
        .unwrap()
        .unwrap();
    assert_eq!(stat.posix.unwrap().mode & 0o7777, 0o604);
    assert_eq!(overlay.changes(&UNLIMITED).unwrap().uncommittable, []);
}
