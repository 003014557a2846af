//! Stores whose root directory is replaced, moved or removed below a mount.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use zarrfs::mount::open::ViewKind;
use zarrfs_overlay::commit::CommitConfig;

use crate::common::needs;
use crate::common::sample::{GROUP, Keys};
use crate::operations::fixture::{Fixture, PATIENT, soon};
use crate::operations::mounted::{Mounted, errno};
use crate::operations::replaced::overlaid;
use zarrfs_store::request_context::UNLIMITED;

fn other_store(fixture: &Fixture, name: &str) -> std::path::PathBuf {
    let store = fixture.beside(&format!("store of {name}"));
    fs::create_dir_all(store.join(name)).unwrap();
    for folder in [&store, &store.join(name)] {
        fs::write(folder.join("zarr.json"), GROUP).unwrap();
    }
    store
}

fn names(dir: &Path) -> Result<Vec<String>, i32> {
    let entries = fs::read_dir(dir).map_err(errno)?;
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry.map_err(errno)?.file_name().into_string().unwrap());
    }
    names.sort();
    Ok(names)
}

/// The name of a node's metadata document in the store view and in the files view.
const DOCUMENTS: [&str; 2] = ["zarr.json", "metadata.json"];

fn has(dir: &Path, name: &str) -> bool {
    names(dir).is_ok_and(|names| names.iter().any(|found| found == name))
}

/// Invariant of `a_removed_root_is_an_error_at_once`.
#[test]
fn a_replaced_root_shows_the_new_store() {
    if !needs::mounts() {
        return;
    }
    let fixture = Fixture::new();
    let views = [&fixture.views.stored, &fixture.views.files];
    let mounts = views.map(|view| Mounted::new(view.clone(), PATIENT, true));
    let show = |name: &str, other: &str| {
        for (mount, document) in mounts.iter().zip(DOCUMENTS) {
            assert!(soon(|| has(mount.dir(), name)), "{:?}", names(mount.dir()));
            let document = mount.path(&format!("{name}/{document}"));
            assert!(fs::read_to_string(document).unwrap().contains("group"));
            assert!(soon(|| fs::metadata(mount.path(other)).is_err()));
            assert!(!has(mount.dir(), other));
        }
    };
    let store = fixture.store();
    for mount in &mounts {
        assert!(has(mount.dir(), "plain"));
    }
    // The store's folder is renamed, and another folder takes its name.
    fs::rename(&store, fixture.beside("old")).unwrap();
    fs::rename(other_store(&fixture, "first"), &store).unwrap();
    show("first", "plain");
    // The store's folder is removed, and another folder takes its name.
    fs::remove_dir_all(&store).unwrap();
    fs::rename(other_store(&fixture, "second"), &store).unwrap();
    show("second", "first");
    // The store's folder is replaced by a symbolic link, whose target is then changed.
    fs::remove_dir_all(&store).unwrap();
    symlink(other_store(&fixture, "third"), &store).unwrap();
    show("third", "second");
    fs::remove_file(&store).unwrap();
    symlink(other_store(&fixture, "fourth"), &store).unwrap();
    show("fourth", "third");
}

/// Invariant of `a_removed_root_is_an_error_at_once`.
#[test]
fn a_missing_root_is_an_error_and_never_empty() {
    if !needs::mounts() {
        return;
    }
    let fixture = Fixture::new();
    let stored = Mounted::new(fixture.views.stored.clone(), PATIENT, true);
    let files = Mounted::new(fixture.views.files.clone(), PATIENT, true);
    let (store, away) = (fixture.store(), fixture.beside("away"));
    for (mount, document) in [&stored, &files].into_iter().zip(DOCUMENTS) {
        let document = mount.path(&format!("plain/{document}"));
        assert!(has(mount.dir(), "plain"));
        fs::rename(&store, &away).unwrap();
        assert!(soon(|| names(mount.dir()) == Err(libc::EIO)));
        assert!(fs::read(&document).is_err());
        assert!(names(&mount.path("plain")).is_err());
        assert!(fs::metadata(mount.dir()).unwrap().is_dir());
        assert!(fs::read_to_string(mount.path(".zarrfs/stats.json")).is_ok());
        fs::rename(&away, &store).unwrap();
        assert!(soon(|| has(mount.dir(), "plain")));
        assert!(soon(|| fs::read(&document).is_ok()));
    }
    fs::remove_dir_all(&store).unwrap();
    for mount in [&stored, &files] {
        let found = names(mount.dir());
        assert!(
            found.as_ref().is_err_and(|errno| *errno == libc::EIO),
            "{found:?}"
        );
    }
}

#[test]
fn changes_below_a_replaced_root_are_conflicts() {
    if !needs::mounts() {
        return;
    }
    let fixture = Fixture::with(|store| store.put("file", b"old"));
    let views = overlaid(&fixture);
    let mount = Mounted::writable(views.view(ViewKind::Store));
    fs::write(mount.path("file"), b"ours").unwrap();
    fs::rename(fixture.store(), fixture.beside("old")).unwrap();
    let other = other_store(&fixture, "other");
    fs::write(other.join("file"), b"theirs").unwrap();
    fs::rename(&other, fixture.store()).unwrap();
    assert!(soon(|| has(mount.dir(), "other")));
    assert_eq!(fs::read(mount.path("file")).unwrap(), b"ours");
    let commit = || {
        views
            .overlay()
            .unwrap()
            .commit(&UNLIMITED, CommitConfig::default(), &|_, _| {})
    };
    let conflicts = commit().unwrap().conflicts;
    let expected = (
        "file".to_string(),
        "was changed in the store by another program".to_string(),
    );
    let conflicts: Vec<_> = conflicts
        .iter()
        .map(|(key, why)| (key.to_string(), why.clone()))
        .collect();
    assert_eq!(conflicts, [expected]);
    fs::rename(fixture.store(), &other).unwrap();
    assert!(soon(|| commit().is_err()), "there is nothing to commit to");
    assert_eq!(fs::read(other.join("file")).unwrap(), b"theirs");
}

/// A symbolic link to a folder above itself, in the store or in the upper folder, is not a node. So a walk of the tree
/// ends without an error.
#[test]
fn links_to_a_parent_folder_are_not_shown_as_nodes() {
    if !needs::mounts() {
        return;
    }
    let fixture = Fixture::with(|store| {
        store.put("g/zarr.json", GROUP.as_bytes());
        symlink("..", store.join("g/up")).unwrap();
    });
    let views = overlaid(&fixture);
    let files = Mounted::writable(views.view(ViewKind::Files));
    let stored = Mounted::writable(views.view(ViewKind::Store));
    symlink("..", stored.path("g/again")).unwrap();
    let walk = Command::new("find").arg(files.path("g")).output().unwrap();
    assert!(walk.status.success(), "{walk:?}");
    assert_eq!(
        names(&files.path("g")).unwrap(),
        ["attributes.json", "metadata.json"]
    );
    assert_eq!(fs::read_link(stored.path("g/up")).unwrap(), Path::new(".."));
    assert_eq!(
        fs::read_link(stored.path("g/again")).unwrap(),
        Path::new("..")
    );
}
