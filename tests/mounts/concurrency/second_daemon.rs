//! Tests two daemons over one store, each with its own upper folder.
//!
//! A daemon overwrites changes that the other daemon has committed only if forced to, and no written data is lost.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::thread;

use tempfile::TempDir;
use zarr_format::error::{Kind, Result};
use zarrfs_overlay::Overlay;
use zarrfs_overlay::commit::{CommitConfig, Outcome};
use zarrfs_store::backend::local::LocalStore;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::tree::{Credentials, OpenMode, RenameMode, Tree};
use zarrfs_store::{Condition, Key, PutBody, Store, StoreConfig};

use crate::common::needs;
use crate::concurrency::fixture::{LOWERS, Lower, fill, key, open_overlay};
use crate::concurrency::mounted::{MountPoint, Mounted};
use crate::concurrency::world::World;
use zarrfs_store::request_context::UNLIMITED;

const MAKER: Credentials = Credentials {
    uid: 0,
    gid: 0,
    mode: 0o644,
};

const SHARED: [&str; 3] = ["s/0", "s/1", "s/2"];

/// A store, and two overlays over it, as two daemons have them.
struct Pair {
    store: Arc<dyn Store>,
    overlays: [Overlay; 2],
    _folder: TempDir,
}

impl Pair {
    /// Creates the overlays in a folder on disk, because disk file systems reuse inode numbers.
    fn new(lower: Lower, write_through: bool) -> Pair {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        fs::create_dir(&path).unwrap();
        let memory: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let open = || -> Arc<dyn Store> {
            match lower {
                Lower::Memory => memory.clone(),
                Lower::Local => Arc::new(opened(&path)),
            }
        };
        let upper = |number: usize| {
            let upper = folder.path().join(format!("upper{number}"));
            open_overlay(&upper, open(), write_through)
        };
        Pair {
            store: open(),
            overlays: [upper(0), upper(1)],
            _folder: folder,
        }
    }

    fn put(&self, path: &str, content: &str) {
        let body = PutBody::Bytes(content.as_bytes());
        self.store
            .put(&UNLIMITED, &key(path), body, &Condition::Any)
            .unwrap();
    }
}

fn opened(path: &Path) -> LocalStore {
    LocalStore::open(path, &StoreConfig::default()).unwrap()
}

fn content(store: &dyn Store, path: &str) -> String {
    let object = store.get(&UNLIMITED, &key(path), 100).unwrap().unwrap();
    String::from_utf8(object.bytes).unwrap()
}

fn replace(overlay: &Overlay, path: &str, content: &str) {
    let temporary = key(&format!("{path}.tmp"));
    fill(
        &*overlay.create(&UNLIMITED, &temporary, &MAKER).unwrap(),
        content,
    );
    let renamed = overlay.rename(&UNLIMITED, &temporary, &key(path), RenameMode::Replace);
    renamed.unwrap();
}

fn commit(overlay: &Overlay, force: bool) -> Outcome {
    let config = CommitConfig {
        dry_run: false,
        force,
    };
    overlay
        .commit(&UNLIMITED, config, &|_, _| {})
        .and_then(Outcome::or_failed)
        .unwrap()
}

fn both<T: Send>(pair: &Pair, work: impl Fn(usize, &Overlay) -> T + Sync) -> [T; 2] {
    let (work, start) = (&work, &Barrier::new(2));
    thread::scope(|scope| {
        let run = |number: usize| {
            let overlay = &pair.overlays[number];
            scope.spawn(move || {
                start.wait();
                work(number, overlay)
            })
        };
        let [first, second] = [run(0), run(1)];
        [first.join().unwrap(), second.join().unwrap()]
    })
}

/// Invariant (overlay): Two daemons over one store never overwrite each other's commits.
#[test]
fn concurrent_commits_of_two_upper_folders_lose_nothing() {
    const ROUNDS: usize = 30;
    let mut conflicts = 0;
    for lower in LOWERS {
        let pair = Pair::new(lower, false);
        SHARED.iter().for_each(|path| pair.put(path, "old"));
        for round in 0..ROUNDS {
            let text = |number: usize| format!("{number} in round {round}");
            for (number, overlay) in pair.overlays.iter().enumerate() {
                replace(overlay, &format!("own{number}"), &text(number));
                SHARED
                    .iter()
                    .for_each(|path| replace(overlay, path, &text(number)));
            }
            let outcomes = both(&pair, |_, overlay| commit(overlay, false));
            let is_met = outcomes.each_ref().map(|done| !done.conflicts.is_empty());
            assert!(is_met != [false, false], "round {round}");
            for number in 0..2 {
                let names = outcomes[number].conflicts.iter().map(|(key, _)| key);
                let names: Vec<String> = names.map(Key::to_string).collect();
                assert!(names.iter().all(|name| SHARED.contains(&name.as_str())));
                let overlay = &pair.overlays[number];
                for path in SHARED {
                    // The upper folder still shows the content that was not committed.
                    assert_eq!(content(overlay, path), text(number));
                    if !is_met[number] {
                        assert_eq!(content(&*pair.store, path), text(number));
                    }
                }
            }
            for number in (0..2).filter(|number| is_met[*number]) {
                conflicts += 1;
                let overlay = &pair.overlays[number];
                assert_eq!(commit(overlay, true).conflicts, []);
                // The forced commit also puts the keys that this daemon had put before its conflicts, and that the
                // other daemon has overwritten by force since.
                for path in SHARED {
                    assert_eq!(content(&*pair.store, path), text(number));
                }
            }
            for (number, overlay) in pair.overlays.iter().enumerate() {
                assert_eq!(content(&*pair.store, &format!("own{number}")), text(number));
                assert_eq!(overlay.changes(&UNLIMITED).unwrap().keys, []);
            }
        }
    }
    assert!(conflicts >= ROUNDS * LOWERS.len());
}

/// Invariant of `concurrent_commits_of_two_upper_folders_lose_nothing`.
///
/// A commit puts a key and then finds a conflict. If another program changes the key now, the key is in conflict when
/// the commit continues.
#[test]
fn a_continued_commit_conflicts_on_keys_overwritten_since() {
    for lower in LOWERS {
        let pair = Pair::new(lower, false);
        pair.put("a", "old");
        let [ours, theirs] = &pair.overlays;
        replace(ours, "a", "ours");
        replace(ours, "zarr.json", "ours");
        // The metadata document is put after the chunk; another program creates the document between the two puts.
        let put = |done: usize, _: usize| {
            if done == 1 {
                pair.put("zarr.json", "made in between");
            }
        };
        let met = ours
            .commit(&UNLIMITED, CommitConfig::default(), &put)
            .and_then(Outcome::or_failed)
            .unwrap();
        assert_eq!(keys(&met), ["zarr.json"]);
        assert_eq!(content(&*pair.store, "a"), "ours");
        replace(theirs, "a", "theirs");
        assert_eq!(commit(theirs, false).conflicts, []);
        assert_eq!(keys(&commit(ours, false)), ["a", "zarr.json"], "{lower:?}");
        assert_eq!(content(&*pair.store, "a"), "theirs");
        let dry = CommitConfig {
            dry_run: true,
            force: false,
        };
        assert_eq!(
            keys(
                &ours
                    .commit(&UNLIMITED, dry, &|_, _| {})
                    .and_then(Outcome::or_failed)
                    .unwrap()
            ),
            ["a", "zarr.json"]
        );
        let forced = commit(ours, true);
        assert_eq!((keys(&forced), forced.put), (vec![], 2));
        for path in ["a", "zarr.json"] {
            assert_eq!(content(&*pair.store, path), "ours", "{lower:?}");
            assert_eq!(content(ours, path), "ours", "{lower:?}");
        }
    }
}

fn keys(outcome: &Outcome) -> Vec<String> {
    let keys = outcome.conflicts.iter().map(|(key, _)| key.to_string());
    let mut keys: Vec<String> = keys.collect();
    keys.sort();
    keys
}

/// Writes the next number and closes the file. The content also has the writer's number, because two daemons that write
/// equal contents have no conflict.
fn count_up(overlay: &Overlay, whose: usize) -> Result<()> {
    let file = Tree::open(overlay, &UNLIMITED, &key("n"), OpenMode::Write)?;
    let before = file.read_at(&UNLIMITED, 0, 4)?;
    let before: u64 = String::from_utf8(before).unwrap().parse().unwrap();
    file.write_at(
        &UNLIMITED,
        0,
        format!("{} of {whose}", before + 1).as_bytes(),
    )?;
    file.flush(&UNLIMITED)
}

/// Invariant of `concurrent_commits_of_two_upper_folders_lose_nothing`.
///
/// Two daemons with write-through increment one number. A daemon that at its close finds the number changed discards
/// its change and retries.
#[test]
fn concurrent_increments_by_two_daemons_are_all_counted() {
    const COUNTED: u64 = 150;
    for lower in LOWERS {
        let pair = Pair::new(lower, true);
        pair.put("n", "1000 of nobody");
        let refused = both(&pair, |number, overlay| {
            let (mut counted, mut refused) = (0, 0);
            while counted < COUNTED {
                match count_up(overlay, number) {
                    Ok(()) => counted += 1,
                    Err(error) => {
                        assert_eq!(error.kind(), Kind::Changed, "{error}");
                        // A refused change is in the upper folder, unless the daemon had not written anything yet.
                        match overlay.discard(&UNLIMITED, &key("n")) {
                            Err(error) if error.kind() == Kind::NotFound => {}
                            discarded => assert_eq!(discarded.unwrap().dropped, 1),
                        }
                        refused += 1;
                    }
                }
            }
            refused
        });
        let stored = content(&*pair.store, "n");
        let counted = format!("{} of ", 1000 + 2 * COUNTED);
        assert!(stored.starts_with(&counted), "{lower:?}: {stored}");
        println!("{lower:?}: {refused:?} closes were refused");
        for overlay in &pair.overlays {
            assert_eq!(content(overlay, "n"), stored);
            assert_eq!(overlay.changes(&UNLIMITED).unwrap().keys, []);
        }
    }
}

/// The daemon of a mount is killed during commits, while another mount of the same store also commits.
#[test]
fn a_daemon_killed_beside_another_one_loses_nothing() {
    const ROUNDS: usize = 4;
    if !needs::mounts() {
        return;
    }
    let first = Mounted::new(|store| store.to_string_lossy().into_owned());
    let store = first.point.store();
    let second = Mounted::new(|_| store.to_string_lossy().into_owned());
    first.mount();
    second.mount();
    let write = |point: &MountPoint, number: usize, round: usize| {
        for file in 0..40 {
            let path = format!("{number}-{file}");
            let temporary = format!("{path}.tmp");
            let content = format!("{round}");
            let written = point.replace(&UNLIMITED, &path, &temporary, content.as_bytes(), false);
            written.unwrap();
        }
    };
    for round in 0..ROUNDS {
        write(&first.point, 0, round);
        write(&second.point, 1, round);
        thread::scope(|scope| {
            // The daemon of the first mount is killed during this commit: its result is ignored, and the next commit
            // continues.
            scope.spawn(|| first.point.commit(&UNLIMITED).map(drop).unwrap_or_default());
            scope.spawn(|| {
                assert!(
                    second
                        .point
                        .commit(&UNLIMITED)
                        .unwrap()
                        .conflicts
                        .is_empty()
                )
            });
            thread::sleep(std::time::Duration::from_millis(5 * round as u64));
            first.point.kill();
        });
        let again = first.point.commit(&UNLIMITED).unwrap();
        assert!(again.conflicts.is_empty(), "{again:?}");
        for name in (0..40).flat_map(|file| [format!("0-{file}"), format!("1-{file}")]) {
            let stored = fs::read_to_string(store.join(&name)).unwrap();
            assert_eq!(stored, round.to_string(), "{name}");
        }
    }
    assert_eq!(first.point.left_over(&UNLIMITED), [""; 0]);
    assert_eq!(second.point.left_over(&UNLIMITED), [""; 0]);
}
