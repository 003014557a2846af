//! The keys below a folder, by one flat listing where the store has one, else folder by folder; in both cases nothing is
//! held but the listings that are being read.
//!
//! Symbolic links and what a store of this machine does not show (its temporary files, pipes) are told apart, since they
//! are faults that the store itself hides.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use crate::context::CheckContext;
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::backend::local;
use zarrfs_store::request_context::UNLIMITED;
use zarrfs_store::{EntryKind, Key, Listing, Meta, Name, Store};

/// What lies under a key.
pub(super) enum StoredEntry {
    /// An object, with its metadata where the listing has them.
    Object(Key, Option<Meta>),
    /// A folder, which is entered if the visitor says so.
    Folder(Key),
    /// A folder without any name in it.
    EmptyFolder(Key),
    /// A symbolic link that leads to a folder of the store; it is not entered.
    FolderLink(Key),
    /// A symbolic link that cannot be followed, and why.
    BrokenLink(Key, Error),
    /// A file that the store does not show, and what it is.
    Hidden(Key, &'static str),
    /// A folder that cannot be listed, and why.
    Unlisted(Key, Error),
}

/// Visits all that lies below a folder; makes no request where a listing made before has told it.
pub(super) fn visit_below(
    context: &CheckContext,
    folder: &Key,
    visit: &mut dyn FnMut(StoredEntry) -> bool,
) -> Result<()> {
    if let Some(known) = context.hierarchy.hints().known_below(&UNLIMITED, folder) {
        for (key, meta) in known {
            visit(StoredEntry::Object(key, Some(meta)));
        }
        return Ok(());
    }
    let store = context.store();
    let Some(mut listing) = store.list_all(&UNLIMITED, folder, folder)? else {
        return visit_folders(store, folder, visit);
    };
    while let Some(page) = listing.next(&UNLIMITED)? {
        for (key, meta) in page {
            let is_below = key.below(folder).is_some_and(|rest| !rest.is_root());
            if is_below && meta.kind == EntryKind::File {
                visit(StoredEntry::Object(key, Some(meta)));
            }
        }
    }
    Ok(())
}

/// Visits what lies directly in a folder; a folder that is not there is empty.
pub(super) fn visit_folder(
    store: &dyn Store,
    folder: &Key,
    visit: &mut dyn FnMut(StoredEntry),
) -> Result<()> {
    let opened = open_folder(store, folder, &mut |entry| {
        visit(entry);
        false
    });
    let mut listing = match opened {
        Ok(listing) => listing,
        Err(error) if matches!(error.kind(), Kind::NotFound | Kind::NotADirectory) => return Ok(()),
        Err(error) => return Err(error),
    };
    while let Some(name) = listing.next(&UNLIMITED)? {
        let Ok(key) = folder.child(&name.name) else {
            continue;
        };
        if let Some(entry) = entry_of(store, key, &name) {
            visit(entry);
        }
    }
    Ok(())
}

/// The deepest folder that is entered below an array or a data folder.
const MAX_DEPTH: usize = 100;

/// Visits folder by folder, each entered where the visitor returns true.
fn visit_folders(
    store: &dyn Store,
    top: &Key,
    visit: &mut dyn FnMut(StoredEntry) -> bool,
) -> Result<()> {
    let mut open: Vec<(Key, Box<dyn Listing>)> = Vec::new();
    match open_folder(store, top, visit) {
        Ok(listing) => open.push((top.clone(), listing)),
        Err(error) if matches!(error.kind(), Kind::NotFound | Kind::NotADirectory) => return Ok(()),
        Err(error) => return Err(error),
    }
    while let Some((folder, listing)) = open.last_mut() {
        let Some(name) = listing.next(&UNLIMITED)? else {
            open.pop();
            continue;
        };
        let Ok(key) = folder.child(&name.name) else {
            continue;
        };
        let enters = match entry_of(store, key.clone(), &name) {
            Some(entry) => visit(entry),
            None => false,
        };
        if enters && open.len() < MAX_DEPTH {
            enter(store, key, &mut open, visit);
        }
    }
    Ok(())
}

/// Begins to list a folder; one that has no names or does not list is an entry of its own.
fn enter(
    store: &dyn Store,
    key: Key,
    open: &mut Vec<(Key, Box<dyn Listing>)>,
    visit: &mut dyn FnMut(StoredEntry) -> bool,
) {
    let is_empty = |listing: &mut Box<dyn Listing>| -> Result<bool> {
        let is_empty = listing.next(&UNLIMITED)?.is_none();
        listing.seek(&UNLIMITED, 0)?;
        Ok(is_empty)
    };
    let listing = open_folder(store, &key, visit);
    let listing = listing.and_then(|mut listing| Ok((is_empty(&mut listing)?, listing)));
    match listing {
        Ok((false, listing)) => open.push((key, listing)),
        Ok((true, _)) => {
            visit(StoredEntry::EmptyFolder(key));
        }
        Err(error) => {
            visit(StoredEntry::Unlisted(key, error));
        }
    }
}

/// Lists a folder, after what it holds unseen.
fn open_folder(
    store: &dyn Store,
    key: &Key,
    visit: &mut dyn FnMut(StoredEntry) -> bool,
) -> Result<Box<dyn Listing>> {
    for (key, what) in hidden(store, key) {
        visit(StoredEntry::Hidden(key, what));
    }
    store.list(&UNLIMITED, key)
}

/// Returns what a name stands for; links are followed as the store follows them.
fn entry_of(store: &dyn Store, key: Key, name: &Name) -> Option<StoredEntry> {
    match name.kind {
        EntryKind::File => Some(StoredEntry::Object(key, name.meta)),
        EntryKind::Directory => Some(StoredEntry::Folder(key)),
        EntryKind::Link => Some(link(store, key)),
    }
}

/// Returns what a symbolic link leads to.
fn link(store: &dyn Store, key: Key) -> StoredEntry {
    match store.open(&UNLIMITED, &key, None) {
        Ok(_) => StoredEntry::Object(key, None),
        Err(_) if store.list(&UNLIMITED, &key).is_ok() => StoredEntry::FolderLink(key),
        Err(error) => StoredEntry::BrokenLink(key, error),
    }
}

/// Whether a folder of a store of this machine is reached by a symbolic link, which the store follows unseen.
pub(super) fn is_followed_link(store: &dyn Store, key: &Key) -> bool {
    let folder = store.info().folder.as_ref();
    let path = folder.map(|folder| folder.join(std::ffi::OsStr::from_bytes(key.as_bytes())));
    let meta = path.and_then(|path| fs::symlink_metadata(path).ok());
    meta.is_some_and(|meta| meta.is_symlink())
}

/// Whether a symbolic link of this machine is one of git-annex whose content was not fetched.
pub(super) fn lacks_content_of_annex(store: &dyn Store, key: &Key) -> bool {
    let folder = store.info().folder.as_ref();
    let path = folder.map(|folder| folder.join(std::ffi::OsStr::from_bytes(key.as_bytes())));
    let is_of_annex = |target: &Path| {
        let mut parts = target.components().map(|part| part.as_os_str());
        parts.any(|part| part == "annex") && parts.next().is_some_and(|part| part == "objects")
    };
    path.is_some_and(|path| {
        let target = fs::read_link(&path);
        target.is_ok_and(|target| is_of_annex(&target)) && !path.exists()
    })
}

/// How many names of a folder of this machine are looked at for what the store hides.
const MAX_LOOKED_AT: usize = 1 << 20;

/// Returns what a folder of this machine holds that its store does not show.
fn hidden(store: &dyn Store, key: &Key) -> Vec<(Key, &'static str)> {
    let Some(folder) = &store.info().folder else {
        return Vec::new();
    };
    let path = folder.join(std::ffi::OsStr::from_bytes(key.as_bytes()));
    // A link may lead out of the store, which is not looked at.
    let is_link = fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_symlink());
    let Some(entries) = fs::read_dir(path).ok().filter(|_| !is_link) else {
        return Vec::new();
    };
    let mut found: Vec<(Key, &'static str)> = entries
        .take(MAX_LOOKED_AT)
        .flatten()
        .filter_map(|entry| {
            Some((
                key.child(entry.file_name().as_bytes()).ok()?,
                what_hides(&entry)?,
            ))
        })
        .collect();
    found.sort();
    found
}

/// Returns what a file is that the store does not show; nothing if it shows it.
fn what_hides(entry: &fs::DirEntry) -> Option<&'static str> {
    let kind = entry.file_type().ok()?;
    if local::is_reserved_name(entry.file_name().as_bytes()) {
        return Some("a write of zarrfs that was cut");
    }
    if kind.is_fifo() {
        return Some("a pipe");
    }
    if kind.is_socket() {
        return Some("a socket");
    }
    let is_device = kind.is_block_device() || kind.is_char_device();
    is_device.then_some("a device")
}
