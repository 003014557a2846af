//! Directory listings: complete, with the kind and inode of `stat`, and from any cursor.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{CWD, FileType, Mode};
use zarrfs_store::EntryKind;
use zarrfs_store::backend::memory::MemoryStore;

use crate::common::sample::{Form, GROUP, Keys, Sample};
use crate::common::{needs, views_of};
use crate::operations::backend::{Backend, Enter, Listed};
use crate::operations::content::Numbers;
use crate::operations::fixture::{Fixture, PATIENT};
use crate::operations::in_process;
use crate::operations::mounted;
use zarrfs_store::request_context::UNLIMITED;

fn join(folder: &str, name: &[u8]) -> String {
    let name = std::str::from_utf8(name).unwrap();
    format!("{folder}/{name}")
        .trim_start_matches('/')
        .to_string()
}

fn compare(backend: &dyn Backend, folder: &str, entry: &Listed) {
    let path = join(folder, &entry.name);
    let stat = backend.stat(&path).unwrap();
    assert_eq!((stat.kind, stat.ino), (entry.kind, entry.ino), "{path}");
}

/// Calls `visit` with each directory at and below a path and with its entries.
fn walk(backend: &dyn Backend, folder: &str, visit: &mut dyn FnMut(&str, &[Listed])) {
    // Skip the broken node of the sample store, which cannot be listed.
    let Ok(entries) = backend.list(&UNLIMITED, folder) else {
        return;
    };
    visit(folder, &entries);
    for entry in entries
        .iter()
        .filter(|entry| entry.kind == EntryKind::Directory)
    {
        walk(backend, &join(folder, &entry.name), visit);
    }
}

pub(crate) fn directories_have_the_kind_and_inode_of_stat(enter: &Enter) {
    let fixture = Fixture::new();
    for view in [&fixture.views.stored, &fixture.views.files] {
        let backend = enter(view.clone());
        let mut inodes = HashSet::new();
        let mut count = 0;
        walk(&*backend, "", &mut |folder, entries| {
            entries
                .iter()
                .for_each(|entry| compare(&*backend, folder, entry));
            inodes.extend(entries.iter().map(|entry| entry.ino));
            count += entries.len();
        });
        assert!(count > 100);
        assert_eq!(inodes.len(), count, "two files with one inode");
    }
}

/// Returns names and cursors of entries. Inodes are left out, because an inode that was never looked up may get another
/// number.
fn order(entries: &[Listed]) -> Vec<(&[u8], u64)> {
    entries
        .iter()
        .map(|entry| (entry.name.as_slice(), entry.cursor))
        .collect()
}

/// Creates a store with files that belong to no node, and with symbolic links to nodes and to other places.
fn littered(store: &Path) {
    let array = Sample::new(&[4], &[2], Form::Plain);
    store.put("zarr.json", GROUP.as_bytes());
    for length in [1, 251, 252, 255] {
        array.put(store, &"n".repeat(length));
    }
    store.put(".git/objects/00/1", b"x");
    store.put("notes.txt", b"x");
    store.put("broken/zarr.json", b"{");
    fs::create_dir(store.join("empty")).unwrap();
    fs::create_dir(store.join("pipes")).unwrap();
    let pipe = store.join("pipes/zarr.json");
    rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
    let outside = store.parent().unwrap().join("outside");
    fs::create_dir(&outside).unwrap();
    array.put(&*outside, "a");
    let link = |target: &Path, name: &str| symlink(target, store.join(name)).unwrap();
    link(Path::new("n"), "to-array");
    link(&store.join("n"), "to-array-by-root");
    link(Path::new("empty"), "to-folder");
    link(Path::new("notes.txt"), "to-file");
    link(Path::new("broken"), "to-broken");
    link(Path::new("none"), "to-nothing");
    link(Path::new("circle"), "circle");
    link(Path::new("../outside/a"), "out-to-array");
    link(&outside, "out-to-folder");
    link(&outside.join("a/zarr.json"), "out-to-file");
}

/// The files view shows only nodes and files that are derived from them. A folder is shown as a group, and a symbolic
/// link is hidden unless it leads to a node of the store.
pub(crate) fn listings_and_lookups_show_the_same_names(enter: &Enter) {
    let fixture = Fixture::with(littered);
    let backend = enter(fixture.views.files.clone());
    let mut count = 0;
    walk(&*backend, "", &mut |folder, entries| {
        for entry in entries {
            // A metadata document that is a named pipe is listed, but has no length and cannot be looked up.
            if folder == "pipes" && entry.name == b"stored.zarr.json" {
                assert!(backend.stat("pipes/stored.zarr.json").is_err());
                continue;
            }
            compare(&*backend, folder, entry);
            count += 1;
        }
    });
    assert!(count > 40, "{count} entries");
    let listed = backend.names(&UNLIMITED, "").unwrap();
    for name in fixture.names() {
        let found = backend.stat(&name).is_ok();
        // The root's `zarr.json` can be opened by name, although it is not listed.
        let is_shown = listed.contains(&name) || name == "zarr.json";
        assert_eq!(found, is_shown, "{name}");
    }
    let links = [
        "broken",
        "empty",
        "to-array",
        "to-array-by-root",
        "to-broken",
    ];
    let links: Vec<_> = links.iter().chain(&[".git", "pipes"]).collect();
    for name in links {
        assert_eq!(
            backend.stat(name).unwrap().kind,
            EntryKind::Directory,
            "{name}"
        );
    }
    for length in [251, 252, 255] {
        let name = "n".repeat(length);
        let npy = format!("{name}.npy");
        assert_eq!(
            backend.names(&UNLIMITED, &name).unwrap().contains(&npy),
            length == 251
        );
        assert!(
            backend
                .names(&UNLIMITED, &format!("{name}/chunks"))
                .unwrap()
                .len()
                >= 4
        );
    }
}

pub(crate) fn a_listing_continues_after_any_cursor(enter: &Enter) {
    let fixture = Fixture::new();
    for view in [&fixture.views.stored, &fixture.views.files] {
        let backend = enter(view.clone());
        walk(&*backend, "", &mut |folder, entries| {
            for (index, entry) in entries.iter().enumerate() {
                let rest = backend
                    .list_after(&UNLIMITED, folder, entry.cursor)
                    .unwrap();
                let name = String::from_utf8_lossy(&entry.name);
                assert_eq!(
                    order(&rest),
                    order(&entries[index + 1..]),
                    "{folder} after {name}"
                );
            }
        });
    }
}

/// Checks that a large directory has the expected names, and that `stat` agrees with some of its entries.
fn compare_large(backend: &dyn Backend, folder: &str, expected: &HashSet<String>) {
    let entries = backend.list(&UNLIMITED, folder).unwrap();
    let names: HashSet<&[u8]> = entries.iter().map(|entry| entry.name.as_slice()).collect();
    assert_eq!(
        (entries.len(), names.len()),
        (expected.len(), expected.len())
    );
    assert!(expected.iter().all(|name| names.contains(name.as_bytes())));
    let mut numbers = Numbers::new(3);
    for _ in 0..300 {
        let entry = &entries[numbers.below(entries.len() as u64) as usize];
        compare(backend, folder, entry);
    }
    let last = entries.len() - 1;
    let some = (0..6).map(|_| numbers.below(last as u64) as usize);
    for index in [0, 1, last - 1, last].into_iter().chain(some) {
        let rest = backend
            .list_after(&UNLIMITED, folder, entries[index].cursor)
            .unwrap();
        assert_eq!(
            order(&rest),
            order(&entries[index + 1..]),
            "after number {index}"
        );
    }
}

pub(crate) fn a_hundred_thousand_chunks_are_listed_completely(enter: &Enter) {
    let memory = MemoryStore::default();
    let sample = Sample::new(&[100_000], &[1], Form::Plain);
    memory.put("zarr.json", GROUP.as_bytes());
    memory.put("many/zarr.json", sample.metadata().to_string().as_bytes());
    for chunk in 0..100_000 {
        memory.put(&format!("many/c/{chunk}"), b"1234");
    }
    let views = views_of(Arc::new(memory), PATIENT);
    let backend = enter(views.files);
    let expected = (0..100_000).flat_map(|chunk| [format!("{chunk}.raw"), format!("{chunk}.npy")]);
    compare_large(&*backend, "many/chunks", &expected.collect());
}

/// Creates many names in a folder as hard links of few files, because this is faster than files.
fn fill(folder: &Path, names: &HashSet<String>) {
    const LINKS_OF_A_FILE: usize = 20_000;
    fs::create_dir(folder).unwrap();
    let mut first = folder.to_path_buf();
    for (number, name) in names.iter().enumerate() {
        let path = folder.join(name);
        if number % LINKS_OF_A_FILE == 0 {
            fs::write(&path, "x").unwrap();
            first = path;
        } else {
            fs::hard_link(&first, path).unwrap();
        }
    }
}

/// The tests with and without a mount share one folder, because it takes long to create.
#[test]
fn two_hundred_thousand_keys_are_listed_completely() {
    let odd = |number: usize| format!("{}key{number}", "long ".repeat(number % 5));
    let names: HashSet<String> = (0..100_000)
        .map(|number: usize| number.to_string())
        .collect();
    let names: HashSet<String> = names.into_iter().chain((0..100_000).map(odd)).collect();
    let fixture = Fixture::with(|store| fill(&store.join("d"), &names));
    compare_large(
        &*in_process::enter(fixture.views.stored.clone()),
        "d",
        &names,
    );
    if needs::mounts() {
        compare_large(&*mounted::enter(fixture.views.stored.clone()), "d", &names);
    }
}
