//! Random operations through the kernel: a --cow mount behaves as a plain directory.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{Mode, XattrFlags};
use rustix::io::Errno;
use tempfile::TempDir;

use crate::overlay::fixture::folder;
use crate::overlay::random::{assert_same, run};
use crate::overlay::reference::{Reference, Shown, Tree};
use crate::overlay::steps;
use crate::overlay::steps::{Held, Step, first_bytes};

const PROGRAM: &str = env!("CARGO_BIN_EXE_zarrfs");
const TURN: usize = 100;
const RUNS: u32 = 8;

/// A mount of a store with an upper folder, and a plain directory that must have the same tree.
struct Mounted {
    folder: TempDir,
    mount: Reference,
    model: Reference,
}

impl Mounted {
    fn new(held: &[Held]) -> Mounted {
        let folder = folder();
        let place = |name: &str| folder.path().join(name);
        for name in ["store", "mount", "model"] {
            std::fs::create_dir(place(name)).unwrap();
        }
        let store = Reference::new(&place("store"));
        let mut tree = Tree::new();
        for (path, size) in held {
            tree.insert(path.clone(), Shown::File(first_bytes(path, *size)));
        }
        store.become_like(&tree);
        let (mount, model) = (
            Reference::new(&place("mount")),
            Reference::new(&place("model")),
        );
        model.become_like(&tree);
        let mounted = Mounted {
            folder,
            mount,
            model,
        };
        mounted.mount();
        mounted
    }

    fn place(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn mount(&self) {
        let [store, mount, upper] = ["store", "mount", "upper"].map(|name| self.place(name));
        let arguments: [&Path; 5] = ["mount".as_ref(), &store, &mount, "--cow".as_ref(), &upper];
        zarrfs(&arguments);
    }

    fn remount(&mut self) {
        self.mount.open = Default::default();
        self.model.open = Default::default();
        zarrfs(&["umount".as_ref(), &self.place("mount")]);
        self.mount();
    }

    fn take(&mut self, step: &Step) {
        let done = self.mount.take(step);
        let expected = self.model.take(step);
        let number = |done: &std::io::Result<()>| {
            let error = done.as_ref().err();
            error.map(|error| (error.raw_os_error(), error.kind()))
        };
        assert_eq!(number(&done), number(&expected), "{step:?}");
    }

    fn compare(&self) {
        assert_same(&self.mount.shown(), &self.model.shown());
        let (found, expected) = (self.mount.held_open(), self.model.held_open());
        for (slot, (found, expected)) in found.into_iter().zip(expected).enumerate() {
            let shown = |bytes: Option<Vec<u8>>| bytes.map(Shown::File);
            assert_eq!(shown(found), shown(expected), "open as {slot}");
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.mount.open = Default::default();
        let mut command = Command::new("umount");
        command.arg("-l").arg(self.place("mount"));
        // Ignore a failure, because the test may have unmounted it already.
        let _ = command.output();
    }
}

fn zarrfs(arguments: &[&Path]) {
    let done = Command::new(PROGRAM).args(arguments).output().unwrap();
    assert!(done.status.success(), "{arguments:?}: {done:?}");
}

fn take_all(held: &[Held], steps: &[Step]) {
    let mut mounted = Mounted::new(held);
    for (number, step) in steps.iter().enumerate() {
        mounted.take(step);
        mounted.compare();
        if number % TURN == TURN - 1 {
            mounted.remount();
            mounted.compare();
        }
    }
    mounted.mount.open = Default::default();
    mounted.model.open = Default::default();
    zarrfs(&["commit".as_ref(), &mounted.place("mount")]);
    let files = |tree: Tree| -> Tree {
        let files = tree.into_iter();
        files
            .filter(|(_, shown)| matches!(shown, Shown::File(_)))
            .collect()
    };
    let stored = files(Reference::new(&mounted.place("store")).shown());
    assert_same(&stored, &files(mounted.model.shown()));
    mounted.compare();
}

#[test]
fn a_cow_mount_behaves_as_a_plain_directory() {
    if crate::common::needs::mounts() {
        run(RUNS, steps::of_programs(), &take_all);
    }
}

#[test]
fn links_have_no_extended_attributes() {
    if !crate::common::needs::mounts() {
        return;
    }
    let mounted = Mounted::new(&[]);
    let place = |name: &str| mounted.place("mount").join(name);
    std::os::unix::fs::symlink("nowhere", place("link")).unwrap();
    // Use a `trusted.` attribute: the kernel itself refuses `user.` attributes of symbolic links.
    let (path, attribute) = (place("link"), "trusted.x");
    let set = rustix::fs::lsetxattr(&path, attribute, b"1", XattrFlags::empty());
    assert_eq!(set, Err(Errno::OPNOTSUPP));
    let removed = rustix::fs::lremovexattr(&path, attribute);
    assert_eq!(removed, Err(Errno::OPNOTSUPP));
    let read = rustix::fs::lgetxattr(&path, attribute, &mut [0; 10][..]);
    assert_eq!(read, Err(Errno::NODATA));
    assert_eq!(rustix::fs::llistxattr(&path, &mut [0; 10][..]), Ok(0));
}

/// Files and renames that a store cannot hold are refused with the same errno as on other Linux file systems.
#[test]
fn unsupported_nodes_modes_and_exchanges_are_refused() {
    use rustix::fs::{CWD, FileType, RenameFlags};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    if !crate::common::needs::mounts() {
        return;
    }
    let mounted = Mounted::new(&[("a".to_string(), 1), ("b".to_string(), 2)]);
    let place = |name: &str| mounted.place("mount").join(name);
    let (mode, special) = (Mode::from_raw_mode(0o600), place("special"));
    for kind in [FileType::Fifo, FileType::Socket, FileType::CharacterDevice] {
        let made = rustix::fs::mknodat(CWD, &special, kind, mode, 0);
        assert_eq!(made, Err(Errno::PERM), "{kind:?}");
    }
    let bound = std::os::unix::net::UnixListener::bind(&special);
    assert_eq!(bound.unwrap_err().raw_os_error(), Some(libc::EPERM));
    rustix::fs::mknodat(CWD, &special, FileType::RegularFile, mode, 0).unwrap();
    let exchanged =
        rustix::fs::renameat_with(CWD, place("a"), CWD, place("b"), RenameFlags::EXCHANGE);
    assert_eq!(exchanged, Err(Errno::INVAL));
    let set = |name: &str, mode| {
        std::fs::set_permissions(place(name), std::fs::Permissions::from_mode(mode))
    };
    for mode in [0o4755, 0o2755] {
        let refused = set("a", mode).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
    }
    set("a", 0o1640).unwrap();
    assert_eq!(
        std::fs::metadata(place("a")).unwrap().mode() & 0o7777,
        0o1640
    );
    // Programs that copy group-shared folders set the setgid bit of each folder, so it is dropped without an error.
    std::fs::create_dir(place("shared")).unwrap();
    set("shared", 0o2775).unwrap();
    let shared = std::fs::metadata(place("shared")).unwrap();
    assert_eq!(shared.mode() & 0o7777, 0o775);
}

/// Invariant (mount): A hard link is a second key: of concurrent links to one name, one succeeds.
///
/// As zarr-python's `set_if_not_exists` and object_store's local store do it.
#[test]
fn a_hard_link_is_a_second_key_with_the_same_bytes() {
    use std::os::unix::fs::MetadataExt;
    if !crate::common::needs::mounts() {
        return;
    }
    let mounted = Mounted::new(&[("stored".to_string(), 9)]);
    let place = |name: &str| mounted.place("mount").join(name);
    std::fs::write(place("new"), "new").unwrap();
    let contents = ["stored", "new"].map(|name| std::fs::read(place(name)).unwrap());
    for (from, to) in [("stored", "a"), ("new", "b")] {
        std::fs::hard_link(place(from), place(to)).unwrap();
        let again = std::fs::hard_link(place(from), place(to)).unwrap_err();
        assert_eq!(again.kind(), std::io::ErrorKind::AlreadyExists);
        let (one, other) = (
            place(from).metadata().unwrap(),
            place(to).metadata().unwrap(),
        );
        assert_eq!((one.nlink(), other.nlink()), (1, 1));
        assert_ne!(one.ino(), other.ino());
        assert_eq!((one.mode(), one.mtime()), (other.mode(), other.mtime()));
        let before = std::fs::read(place(from)).unwrap();
        assert_eq!(std::fs::read(place(to)).unwrap(), before);
        std::fs::write(place(from), "changed").unwrap();
        assert_eq!(std::fs::read(place(to)).unwrap(), before);
        std::fs::remove_file(place(from)).unwrap();
        assert_eq!(std::fs::read(place(to)).unwrap(), before);
    }
    std::os::unix::fs::symlink("a", place("link")).unwrap();
    for from in [place("link"), place("")] {
        let refused = std::fs::hard_link(from, place("c")).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
    }
    zarrfs(&["commit".as_ref(), &mounted.place("mount")]);
    let stored = |name: &str| std::fs::read(mounted.place("store").join(name)).unwrap();
    assert_eq!(["a", "b"].map(stored), contents);
}

/// Invariant of `a_hard_link_is_a_second_key_with_the_same_bytes`.
///
/// If several threads link different files to the same name at once, exactly one succeeds.
#[test]
fn of_concurrent_links_to_one_name_one_succeeds() {
    if !crate::common::needs::mounts() {
        return;
    }
    let mounted = Mounted::new(&[]);
    let place = |name: &str| mounted.place("mount").join(name);
    for turn in 0..20 {
        let name = place(&format!("name{turn}"));
        let linked = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|number| {
                    let (own, name) = (place(&format!("own{turn}.{number}")), &name);
                    scope.spawn(move || {
                        std::fs::write(&own, [number; 9]).unwrap();
                        std::fs::hard_link(&own, name).ok().map(|()| number)
                    })
                })
                .collect();
            let done = threads
                .into_iter()
                .filter_map(|thread| thread.join().unwrap());
            done.collect::<Vec<_>>()
        });
        assert_eq!(linked.len(), 1, "turn {turn}");
        assert_eq!(std::fs::read(&name).unwrap(), [linked[0]; 9]);
    }
}

#[test]
fn names_of_temporary_store_files_are_refused() {
    if !crate::common::needs::mounts() {
        return;
    }
    let mounted = Mounted::new(&[]);
    let place = |name: &str| mounted.place("mount").join(name);
    let name = ".zarrfs-arriving-0123456789abcdef";
    std::fs::write(place("file"), "").unwrap();
    let is_refused = |done: std::io::Result<()>| {
        assert_eq!(done.unwrap_err().raw_os_error(), Some(libc::EPERM));
    };
    is_refused(std::fs::write(place(name), ""));
    is_refused(std::fs::create_dir(place(name)));
    is_refused(std::os::unix::fs::symlink("file", place(name)));
    is_refused(std::fs::hard_link(place("file"), place(name)));
    is_refused(std::fs::rename(place("file"), place(name)));
    std::fs::write(place(".zarrfs-arriving-"), "").unwrap();
    zarrfs(&["commit".as_ref(), &mounted.place("mount")]);
}

#[test]
fn a_renamed_key_keeps_its_mode_in_the_store() {
    use std::os::unix::fs::PermissionsExt;
    if !crate::common::needs::mounts() {
        return;
    }
    let mounted = Mounted::new(&[]);
    let (store, place) = (mounted.place("store"), |name: &str| {
        mounted.place("mount").join(name)
    });
    std::fs::create_dir(store.join("d")).unwrap();
    for (name, mode) in [("private", 0o600), ("d/shared", 0o664), ("d/run", 0o751)] {
        std::fs::write(store.join(name), name).unwrap();
        std::fs::set_permissions(store.join(name), PermissionsExt::from_mode(mode)).unwrap();
    }
    std::fs::rename(place("private"), place("moved")).unwrap();
    std::fs::rename(place("d"), place("e")).unwrap();
    zarrfs(&["commit".as_ref(), &mounted.place("mount")]);
    for (name, text, mode) in [
        ("moved", "private", 0o600),
        ("e/shared", "d/shared", 0o664),
        ("e/run", "d/run", 0o751),
    ] {
        assert_eq!(std::fs::read_to_string(store.join(name)).unwrap(), text);
        let found = std::fs::metadata(store.join(name))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(found & 0o7777, mode, "{name}");
    }
    assert!(!store.join("private").exists() && !store.join("d").exists());
}
