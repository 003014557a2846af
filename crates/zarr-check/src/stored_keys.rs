//! Visits the keys below a folder, and reports links and hidden files.
//!
//! Uses one flat listing if the store supports it, else lists folder by folder. Only the listings in progress are held in
//! memory.
//!
//! Symbolic links and files that a local store hides (its temporary files, pipes) are reported separately, as these
//! faults are invisible through the store.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use crate::context::CheckContext;
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::backend::local;
use zarrfs_store::request_context::UNLIMITED;
use zarrfs_store::{EntryKind, Key, Listing, Meta, Name, Store};

/// An entry under a key.
pub(super) enum StoredEntry {
    /// An object, with its metadata if the listing has them.
    Object(Key, Option<Meta>),
    /// A folder; the visitor decides whether it is entered.
    Folder(Key),
    /// A folder without entries.
    EmptyFolder(Key),
    /// A symbolic link to a folder of the store; it is not entered.
    FolderLink(Key),
    /// A symbolic link that cannot be followed, and the reason.
    BrokenLink(Key, Error),
    /// A file that the store hides, and its kind.
    Hidden(Key, &'static str),
    /// A folder that cannot be listed, and the reason.
    Unlisted(Key, Error),
}

/// Visits all entries below a folder; makes no request if an earlier listing covers it.
pub(super) fn visit_below(
    context: &CheckContext,
    folder: &Key,
    visit: &mut dyn FnMut(StoredEntry) -> bool,
) -> Result<()> {
    if let Some(known) = context.hierarchy.hints().cached_below(&UNLIMITED, folder) {
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

/// Visits the direct entries of a folder; a missing folder is empty.
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

/// Maximum depth of folders that are entered below an array or a data folder.
const MAX_DEPTH: usize = 100;

/// Visits folder by folder; enters a folder if the visitor returns true.
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

/// Starts to list a folder; visits it as an entry if it is empty or cannot be listed.
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

/// Lists a folder, after visiting its hidden files.
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

/// Returns the entry of a name; links are followed as the store follows them.
fn entry_of(store: &dyn Store, key: Key, name: &Name) -> Option<StoredEntry> {
    match name.kind {
        EntryKind::File => Some(StoredEntry::Object(key, name.meta)),
        EntryKind::Directory => Some(StoredEntry::Folder(key)),
        EntryKind::Link => Some(link(store, key)),
    }
}

/// Returns the entry of a symbolic link.
fn link(store: &dyn Store, key: Key) -> StoredEntry {
    match store.open(&UNLIMITED, &key, None) {
        Ok(_) => StoredEntry::Object(key, None),
        Err(_) if store.list(&UNLIMITED, &key).is_ok() => StoredEntry::FolderLink(key),
        Err(error) => StoredEntry::BrokenLink(key, error),
    }
}

/// Whether a folder of a local store is a symbolic link; the store follows it without a trace.
pub(super) fn is_followed_link(store: &dyn Store, key: &Key) -> bool {
    let folder = store.info().folder.as_ref();
    let path = folder.map(|folder| folder.join(std::ffi::OsStr::from_bytes(key.as_bytes())));
    let meta = path.and_then(|path| fs::symlink_metadata(path).ok());
    meta.is_some_and(|meta| meta.is_symlink())
}

/// Whether a local symbolic link points to git-annex content that was not fetched.
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

/// Maximum number of names of a local folder that are inspected for hidden files.
const MAX_LOOKED_AT: usize = 1 << 20;

/// Returns the files of a local folder that the store hides.
fn hidden(store: &dyn Store, key: &Key) -> Vec<(Key, &'static str)> {
    let Some(folder) = &store.info().folder else {
        return Vec::new();
    };
    let path = folder.join(std::ffi::OsStr::from_bytes(key.as_bytes()));
    // A link may lead out of the store, where nothing is inspected.
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

/// Returns the kind of a file that the store hides, or `None` if it is visible.
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
