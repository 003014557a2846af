//! Visits the entries of folders, and reads the folders of groups.
//!
//! If the store supports it, one flat listing returns all keys below a folder. Otherwise, each folder is listed by
//! itself. Only the listings in progress are in memory.
//!
//! A local store hides some files (its temporary files, pipes) and follows symbolic links. These faults are invisible
//! through the store, so they are searched on the disk.

use std::ffi::OsStr;
use std::fs;
use std::mem::take;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::context::CheckContext;
use crate::finding::Finding;
use crate::node_findings::NodeFindings;
use crate::rules::keys::{
    UNFINISHED_WRITE, broken_link, document_is_folder, folder_link, folder_unlisted, hidden,
    leftover, orphan_or_leftover,
};
use crate::spec::Spec;
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::document::{ZARR_JSON, ZARRAY, ZATTRS, ZGROUP, is_in_node_folder};
use zarr_format::model::{MAX_RANK, is_like_chunk};
use zarrfs_array::hierarchy::NodeEntry;
use zarrfs_store::backend::local;
use zarrfs_store::request_context::UNLIMITED;
use zarrfs_store::sync::pool::parallel_map;
use zarrfs_store::{EntryKind, Key, Listing, Meta, Name, Store};

/// A file, folder or link in a listing of the store.
pub(crate) enum StoredEntry {
    /// An object, with its size and version if the listing has them.
    Object(Key, Option<Meta>),
    /// A folder. The function that visits it decides whether the entries of the folder are visited.
    Folder(Key),
    EmptyFolder(Key),
    /// A symbolic link to a folder of the store. The entries of the target are not visited.
    FolderLink(Key),
    /// A symbolic link that cannot be followed, and the reason.
    BrokenLink(Key, Error),
    /// A file that the local store hides from its listings, and the kind of file.
    Hidden(Key, &'static str),
    /// A folder that cannot be listed, and the reason.
    Unlisted(Key, Error),
}

/// Visits all entries below a folder. Makes no request if an earlier listing has the entries.
pub(crate) fn visit_below(
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

/// Visits the entries directly in a folder. A missing folder counts as empty.
pub(crate) fn visit_folder(
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

/// Visits the entries below a folder by listing one folder after the other. The entries of a folder are only visited if
/// `visit` returned true for the folder.
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
        // Folders of chunks are never nested 100 deep.
        if enters && open.len() < 100 {
            enter(store, key, &mut open, visit);
        }
    }
    Ok(())
}

/// Starts to list a folder. Visits the folder as an empty one, or as one that cannot be listed, if it is.
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

/// Visits the files of a folder that the local store hides, and then starts to list the folder.
fn open_folder(
    store: &dyn Store,
    key: &Key,
    visit: &mut dyn FnMut(StoredEntry) -> bool,
) -> Result<Box<dyn Listing>> {
    for (key, what) in hidden_files(store, key) {
        visit(StoredEntry::Hidden(key, what));
    }
    store.list(&UNLIMITED, key)
}

/// Returns the entry for a name in a listing. For a symbolic link, returns an entry for the target.
fn entry_of(store: &dyn Store, key: Key, name: &Name) -> Option<StoredEntry> {
    match name.kind {
        EntryKind::File => Some(StoredEntry::Object(key, name.meta)),
        EntryKind::Directory => Some(StoredEntry::Folder(key)),
        EntryKind::Link => Some(link(store, key)),
    }
}

/// Returns the entry for a symbolic link: the object or folder to which it leads, or the error.
fn link(store: &dyn Store, key: Key) -> StoredEntry {
    match store.open(&UNLIMITED, &key, None) {
        Ok(_) => StoredEntry::Object(key, None),
        Err(_) if store.list(&UNLIMITED, &key).is_ok() => StoredEntry::FolderLink(key),
        Err(error) => StoredEntry::BrokenLink(key, error),
    }
}

/// Returns the path of the file that has a key, or `None` if the store is not local.
fn local_path(store: &dyn Store, key: &Key) -> Option<PathBuf> {
    let folder = store.info().folder.as_ref()?;
    Some(folder.join(OsStr::from_bytes(key.as_bytes())))
}

/// Whether a folder of a local store is a symbolic link, which listings do not show because the store follows it.
fn is_followed_link(store: &dyn Store, key: &Key) -> bool {
    let meta = local_path(store, key).and_then(|path| fs::symlink_metadata(path).ok());
    meta.is_some_and(|meta| meta.is_symlink())
}

/// Whether a symbolic link in a local store points to a git-annex file whose content was not fetched.
pub(crate) fn is_unfetched_annex_link(store: &dyn Store, key: &Key) -> bool {
    let is_of_annex = |target: &Path| {
        let mut parts = target.components().map(|part| part.as_os_str());
        parts.any(|part| part == "annex") && parts.next().is_some_and(|part| part == "objects")
    };
    local_path(store, key).is_some_and(|path| {
        let target = fs::read_link(&path);
        target.is_ok_and(|target| is_of_annex(&target)) && !path.exists()
    })
}

/// Returns the files in a folder that the local store hides from its listings. Only the first 2^20 names are inspected.
fn hidden_files(store: &dyn Store, key: &Key) -> Vec<(Key, &'static str)> {
    let Some(path) = local_path(store, key) else {
        return Vec::new();
    };
    // A symbolic link is not followed, because it may lead out of the store.
    let is_link = fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_symlink());
    let Some(entries) = fs::read_dir(path).ok().filter(|_| !is_link) else {
        return Vec::new();
    };
    let mut files: Vec<(Key, &'static str)> = entries
        .take(1 << 20)
        .flatten()
        .filter_map(|entry| {
            Some((
                key.child(entry.file_name().as_bytes()).ok()?,
                hidden_kind(&entry)?,
            ))
        })
        .collect();
    files.sort();
    files
}

/// Returns the kind of a file that the local store hides, or `None` if the store shows the file.
fn hidden_kind(entry: &fs::DirEntry) -> Option<&'static str> {
    let kind = entry.file_type().ok()?;
    if local::is_reserved_name(entry.file_name().as_bytes()) {
        return Some(UNFINISHED_WRITE);
    }
    if kind.is_fifo() {
        return Some("named pipe");
    }
    if kind.is_socket() {
        return Some("socket");
    }
    let is_device = kind.is_block_device() || kind.is_char_device();
    is_device.then_some("device")
}

/// Maximum number of children of a group that are checked. A group with more children is an error.
pub(crate) const MAX_CHILDREN: usize = 1_000_000;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GroupChild {
    pub(crate) name: Vec<u8>,
    /// Whether the child is a symbolic link. Only one symbolic link is followed on the path to a node.
    pub(crate) is_link: bool,
}

/// The entries directly in a folder.
#[derive(Default)]
pub(crate) struct FolderContent {
    /// The objects that `read` was asked for, such as metadata documents.
    pub(crate) objects: Vec<Key>,
    /// The folders in the folder, sorted by name.
    pub(crate) folders: Vec<GroupChild>,
    pub(crate) is_empty: bool,
}

impl FolderContent {
    /// Lists a folder. Objects for which `wanted` returns false are reported as keys that belong to no node.
    pub(crate) fn read(
        context: &CheckContext,
        folder: &Key,
        wanted: &dyn Fn(&Key) -> bool,
        findings: &mut NodeFindings,
    ) -> FolderContent {
        let mut content = FolderContent {
            is_empty: true,
            ..FolderContent::default()
        };
        let visited = visit_folder(context.store(), folder, &mut |entry| {
            content.is_empty = false;
            context.progress.add_key();
            match entry {
                StoredEntry::Object(key, _) if wanted(&key) => content.objects.push(key),
                StoredEntry::Object(key, _) => findings.add(orphan_or_leftover(&key)),
                StoredEntry::Folder(key) => match leftover(&key) {
                    Some(finding) => findings.add(finding),
                    None if content.folders.len() < MAX_CHILDREN => {
                        content.folders.push(GroupChild {
                            is_link: is_followed_link(context.store(), &key),
                            name: key.name().to_vec(),
                        })
                    }
                    None => findings.add(too_many(folder)),
                },
                StoredEntry::FolderLink(key) => findings.add(folder_link(&key)),
                StoredEntry::BrokenLink(key, error) => {
                    findings.add(broken_link(context.store(), &key, &error));
                }
                StoredEntry::Hidden(key, what) => findings.add(hidden(&key, what)),
                StoredEntry::EmptyFolder(_) | StoredEntry::Unlisted(..) => {}
            }
        });
        if let Err(error) = visited {
            findings.add(folder_unlisted(folder, &error));
            content.is_empty = false;
        }
        content.folders.sort();
        content.objects.sort();
        content
    }

    /// Removes folders whose name is that of a metadata document, and reports them. Returns whether any were found.
    pub(crate) fn remove_documents(
        &mut self,
        group: &Key,
        spec: Spec,
        findings: &mut NodeFindings,
    ) -> bool {
        let is_document = |folder: &GroupChild| is_in_node_folder(&folder.name);
        let (named, others): (Vec<_>, Vec<_>) =
            take(&mut self.folders).into_iter().partition(is_document);
        self.folders = others;
        let keys = named
            .iter()
            .filter_map(|folder| group.child(&folder.name).ok());
        findings.extend(keys.map(|key| document_is_folder(&key, spec)));
        !named.is_empty()
    }

    /// Removes names that look like chunks from the folder of a node that may be an array. Returns the number of these
    /// names and the first one. A folder with a metadata document stays, because it is a node.
    pub(crate) fn remove_chunks(
        &mut self,
        context: &CheckContext,
        node: &NodeEntry,
        findings: &mut NodeFindings,
    ) -> Option<(u64, Key)> {
        let inspect = |folder: GroupChild| {
            let is_described = || match context.hierarchy.child(&UNLIMITED, node, &folder.name) {
                Ok(Some(child)) => child.node.is_err() || child.dialect().is_some(),
                Ok(None) | Err(_) => true,
            };
            let is_bare = is_like_chunk(&folder.name) && !is_described();
            (is_bare, folder)
        };
        let inspected = parallel_map(context.threads, take(&mut self.folders), &inspect);
        let (bare, others): (Vec<_>, Vec<_>) =
            inspected.into_iter().partition(|(is_bare, _)| *is_bare);
        self.folders = others.into_iter().map(|(_, folder)| folder).collect();
        let objects = findings.take("orphan-key", &|key| is_like_chunk(key.name()));
        let (first, count) = objects.map_or((None, 0), |(first, count)| (Some(first), count));
        let folder = bare.first();
        let folder = folder.and_then(|(_, folder)| node.path.child(&folder.name).ok());
        let first = first.or(folder)?;
        Some((count + bare.len() as u64, first))
    }

    /// Whether the folder has an object with the given name, among the objects that `read` was asked for.
    pub(crate) fn has(&self, name: &str) -> bool {
        let mut names = self.objects.iter().map(Key::name);
        names.any(|other| other == name.as_bytes())
    }
}

/// Whether a folder without a metadata document contains chunks of an array and no node: folders whose names are
/// indices, down to objects whose names are indices.
pub(crate) fn has_only_chunks(context: &CheckContext, folder: &Key) -> bool {
    let mut folder = folder.clone();
    for _ in 0..=MAX_RANK {
        let (mut first, mut has_object, mut is_alike) = (None, false, true);
        let visited = visit_folder(context.store(), &folder, &mut |entry| match entry {
            StoredEntry::Object(key, _) if is_like_chunk(key.name()) => has_object = true,
            StoredEntry::Folder(key) if is_like_chunk(key.name()) => {
                first.get_or_insert(key);
            }
            StoredEntry::Object(key, _) | StoredEntry::Folder(key) => {
                is_alike &= key.name() == ZATTRS.as_bytes() || leftover(&key).is_some();
            }
            _ => {}
        });
        if visited.is_err() || !is_alike || has_object {
            return visited.is_ok() && is_alike;
        }
        let Some(first) = first else { return false };
        folder = first;
    }
    false
}

/// Removes the finding about a metadata document whose name is in the wrong case. Returns its key and the right name.
pub(crate) fn remove_miscased(findings: &mut NodeFindings) -> Option<(Key, &'static str)> {
    let mut names = [ZARR_JSON, ZARRAY, ZGROUP].into_iter();
    names.find_map(|name| {
        let is_it = |key: &Key| key.name().eq_ignore_ascii_case(name.as_bytes());
        let (key, _) = findings.take("orphan-key", &is_it)?;
        Some((key, name))
    })
}

fn too_many(folder: &Key) -> Finding {
    let message =
        format!("the group has more than {MAX_CHILDREN} children; the others are not checked");
    Finding::error("too-many-children", folder, message)
}
