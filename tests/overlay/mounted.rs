//! The same steps through the kernel: a mount with --cow is a plain directory to programs.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{Mode, XattrFlags};
use rustix::io::Errno;
use tempfile::TempDir;

use crate::fixture::folder;
use crate::random::{assert_same, run};
use crate::reference::{Reference, Shown, Tree};
use crate::steps;
use crate::steps::{Held, Step, first_bytes};

const PROGRAM: &str = env!("CARGO_BIN_EXE_zarrfs");
const TURN: usize = 100;
const RUNS: u32 = 8;

/// A store, its mount, and the directory that has to show the same.
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
        // Folders of the store cannot be exchanged, which says EINVAL.
        let is_refused = |error: &std::io::Error| error.raw_os_error() == Some(libc::EINVAL);
        if matches!(step, Step::Exchange(..)) && done.as_ref().is_err_and(is_refused) {
            return;
        }
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
        // It may not be mounted any more.
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
fn a_mount_is_a_directory() {
    if crate::common::needs::mounts() {
        run(RUNS, steps::of_programs(), &take_all);
    }
}

#[test]
fn b16_links_pipes_and_sockets_have_no_extended_attributes() {
    if !crate::common::needs::mounts() {
        return;
    }
    let mounted = Mounted::new(&[]);
    let place = |name: &str| mounted.place("mount").join(name);
    std::os::unix::fs::symlink("nowhere", place("link")).unwrap();
    let mode = Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, place("pipe"), mode).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(place("socket")).unwrap();
    for name in ["link", "pipe", "socket"] {
        // Attributes of users are refused by the kernel itself, on every file system.
        let (path, attribute) = (place(name), "trusted.x");
        let set = rustix::fs::lsetxattr(&path, attribute, b"1", XattrFlags::empty());
        assert_eq!(set, Err(Errno::OPNOTSUPP), "{name}");
        let removed = rustix::fs::lremovexattr(&path, attribute);
        assert_eq!(removed, Err(Errno::OPNOTSUPP), "{name}");
        let read = rustix::fs::lgetxattr(&path, attribute, &mut [0; 10][..]);
        assert_eq!(read, Err(Errno::NODATA), "{name}");
        assert_eq!(
            rustix::fs::llistxattr(&path, &mut [0; 10][..]),
            Ok(0),
            "{name}"
        );
    }
}

#[test]
fn d07_names_of_files_on_their_way_into_a_store_cannot_be_made() {
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
fn d07_a_renamed_key_keeps_its_mode_in_the_store() {
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
