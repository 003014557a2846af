//! Lists a directory of the overlay, or everything below a prefix of a store.
//!
//! A directory lists the upper folder's names, then the store's other names that no whiteout hides. The upper folder's
//! names are read when the listing starts or restarts, and the store's names are streamed. A cursor (the offset of
//! readdir) is a position in this order. If the upper folder changes nothing in a directory, the store's own listing is
//! returned.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;

use crate::layered_store::{LayeredStore, Resolved};
use crate::overlay_core::{OverlayCore, wrong_kind};
use crate::records::Whiteout;
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{EntryKind, Key, Listing, LogPosition, Meta, Name, Store};

/// Returns the current top layer of the overlay, whose directories are listed.
type LayerSource = Arc<dyn Fn() -> Arc<LayeredStore> + Send + Sync>;

pub(crate) fn of_overlay(
    context: &RequestContext,
    core: &Arc<OverlayCore>,
    prefix: &Key,
) -> Result<Box<dyn Listing>> {
    let source = core.clone();
    let source: LayerSource = Arc::new(move || source.top());
    core.with_top(|_| open(context, source.clone(), prefix))
}

/// Opens the listing of a directory. Fails with `NotFound` if it is missing, with `NotADirectory` if it is a file.
pub(crate) fn open(
    context: &RequestContext,
    source: LayerSource,
    prefix: &Key,
) -> Result<Box<dyn Listing>> {
    loop {
        let layered = source();
        let began = layered.info.changes.position();
        if let Some(lower) = find_directory(context, &layered, prefix)? {
            return layered.lower.list(context, &lower);
        }
        let mut merged = MergedListing {
            source: source.clone(),
            prefix: prefix.clone(),
            upper: VecDeque::new(),
            covered: HashSet::new(),
            lower: None,
            position: 0,
            moved: None,
            began: LogPosition::default(),
            passes: 0,
        };
        merged.begin(context)?;
        if !merged.upper.is_empty() || merged.lower.is_some() {
            return Ok(Box::new(merged));
        }
        // No name was found. Either the directory is empty, or it was renamed in the meantime, which the log of changes
        // tells.
        find_directory(context, &source(), prefix)?;
        if !layered.info.changes.changed_since(began, prefix) {
            return Ok(Box::new(merged));
        }
    }
}

/// Returns the store's directory whose listing can be used unchanged, or `None` if the upper folder's names must be
/// merged with the store's. Fails with `NotFound` if the directory is missing, with `NotADirectory` if it is a file.
fn find_directory(
    context: &RequestContext,
    layered: &LayeredStore,
    prefix: &Key,
) -> Result<Option<Key>> {
    let found = layered.find(context, prefix)?;
    let found = found.ok_or_else(|| Error::not_found(prefix))?;
    if LayeredStore::kind(&found) != EntryKind::Directory {
        return Err(wrong_kind(prefix, false));
    }
    let Resolved::Lower(lower, _) = found else {
        return Ok(None);
    };
    let is_own = lower == *prefix && layered.renamed_from(prefix).is_none();
    Ok(Some(lower).filter(|_| is_own && layered.shows_all(prefix)))
}

/// The listing of a directory that has names in the upper folder and in the store.
struct MergedListing {
    source: LayerSource,
    prefix: Key,
    upper: VecDeque<(Vec<u8>, EntryKind)>,
    /// Names that are skipped in the store's listing, because the upper folder has a file or a whiteout of that name.
    covered: HashSet<Vec<u8>>,
    lower: Option<Box<dyn Listing>>,
    /// Number of names that the listing has returned.
    position: u64,
    /// The names returned so far, if the directory was renamed or is in a renamed folder. A commit may then move its
    /// objects to the new prefix during the listing. The listing restarts in this case, and must return no name twice.
    moved: Option<HashSet<Vec<u8>>>,
    /// Position in the log of changes when the listing started or restarted.
    began: LogPosition,
    /// Number of restarts because a commit may have moved the listed objects; there are at most eight.
    passes: usize,
}

impl MergedListing {
    /// Starts the listing: reads the upper folder's names, and opens the store's listing.
    fn begin(&mut self, context: &RequestContext) -> Result<()> {
        (self.position, self.passes) = (0, 0);
        self.moved = None;
        self.take_names(context)
    }

    fn take_names(&mut self, context: &RequestContext) -> Result<()> {
        // Read the position before the layers, so that any later change is detected.
        self.began = (self.source)().info.changes.position();
        let layered = (self.source)();
        let layout = layered.layer.read_layout();
        let mut names = layered.layer.dir.names(&self.prefix)?;
        let whiteouts = layered.layer.whiteouts(&self.prefix);
        let lower = layered.layer.lower_key(&self.prefix);
        // Check for a rename while the names are locked, because a commit may move the objects right afterwards.
        if layered.renamed_from(&self.prefix).is_some() {
            self.moved.get_or_insert_default();
        }
        drop(layout);
        self.covered = names.iter().map(|(name, _)| name.clone()).collect();
        names.extend(self.moved_here(context, &layered, whiteouts)?);
        self.upper = names.into();
        self.lower = match lower {
            None => None,
            Some(lower) => match layered.lower.list(context, &lower) {
                Err(error) if matches!(error.kind(), Kind::NotFound | Kind::NotADirectory) => None,
                // The store cannot list its keys, so list only the upper folder's names.
                Err(error) if error.kind() == Kind::Unsupported && !self.upper.is_empty() => None,
                listing => Some(listing?),
            },
        };
        Ok(())
    }

    /// Returns the names of this directory to which something was renamed. All names that have a whiteout are added to
    /// `covered`.
    fn moved_here(
        &mut self,
        context: &RequestContext,
        layered: &LayeredStore,
        whiteouts: Vec<Whiteout>,
    ) -> Result<Vec<(Vec<u8>, EntryKind)>> {
        let mut moved = Vec::new();
        for Whiteout { at: key, source } in whiteouts {
            if key.parent().as_ref() != Some(&self.prefix)
                || !self.covered.insert(key.name().to_vec())
            {
                continue;
            }
            // Look the name up again, because a commit may have moved the renamed object to its new name in the store.
            if source.is_some()
                && let Some(found) = layered.find(context, &key)?
            {
                moved.push((key.name().to_vec(), LayeredStore::kind(&found)));
            }
        }
        Ok(moved)
    }

    /// Returns the next name, without a cursor, until the listing ends or has to be restarted.
    fn next_of_pass(&mut self, context: &RequestContext) -> Result<Option<Name>> {
        if let Some((name, kind)) = self.upper.pop_front() {
            return Ok(Some(Name {
                name,
                kind,
                cursor: 0,
                meta: None,
            }));
        }
        let Some(lower) = &mut self.lower else {
            return Ok(None);
        };
        loop {
            let name = match lower.next(context) {
                // The store is a local folder, and a commit has removed this directory, which is empty now.
                Err(error) if error.kind() == Kind::NotFound => return Ok(None),
                name => name?,
            };
            match name {
                Some(name) if self.covered.contains(&name.name) => {}
                name => return Ok(name),
            }
        }
    }

    /// Restarts the listing if a commit may have moved objects into this directory; returns whether it restarts.
    fn begin_again(&mut self, context: &RequestContext) -> Result<bool> {
        let changes = (self.source)().info.changes.clone();
        let may_have_missed = self.moved.is_some()
            && self.passes < 8
            && changes.below_changed_since(self.began, &self.prefix);
        if may_have_missed {
            self.passes += 1;
            self.take_names(context)?;
        }
        Ok(may_have_missed)
    }
}

impl Listing for MergedListing {
    fn next(&mut self, context: &RequestContext) -> Result<Option<Name>> {
        loop {
            let Some(name) = self.next_of_pass(context)? else {
                if self.begin_again(context)? {
                    continue;
                }
                return Ok(None);
            };
            if let Some(returned) = &mut self.moved
                && !returned.insert(name.name.clone())
            {
                continue;
            }
            self.position += 1;
            return Ok(Some(Name {
                cursor: self.position,
                ..name
            }));
        }
    }

    fn seek(&mut self, context: &RequestContext, cursor: u64) -> Result<()> {
        self.begin(context)?;
        while self.position < cursor && self.next(context)?.is_some() {}
        Ok(())
    }
}

/// The objects and folders that a store has at and below a prefix.
#[derive(Default)]
pub(crate) struct Subtree {
    /// The objects, with their metadata if the store's listing has it.
    pub(crate) objects: Vec<(Key, Option<Meta>)>,
    /// The folders, each before its subfolders.
    pub(crate) folders: Vec<Key>,
}

/// Lists all objects and folders of a store at and below a prefix. One flat listing is used if the store supports it,
/// else each folder is listed.
pub(crate) fn list_recursive(
    context: &RequestContext,
    store: &dyn Store,
    prefix: &Key,
) -> Result<Subtree> {
    let mut found = Subtree::default();
    match store.head(context, prefix)? {
        None => {}
        Some(meta) if meta.kind != EntryKind::Directory => {
            found.objects.push((prefix.clone(), Some(meta)));
        }
        Some(_) => match store.list_all(context, prefix, prefix)? {
            Some(mut pages) => {
                let mut objects = Vec::new();
                while let Some(page) = pages.next(context)? {
                    objects.extend(page);
                }
                found = from_flat_listing(context, store, prefix, objects)?;
            }
            None => list_folders(context, store, prefix, &mut found)?,
        },
    }
    Ok(found)
}

fn list_folders(
    context: &RequestContext,
    store: &dyn Store,
    prefix: &Key,
    found: &mut Subtree,
) -> Result<()> {
    let mut folders = vec![prefix.clone()];
    while let Some(folder) = folders.pop() {
        let mut names = match store.list(context, &folder) {
            Err(error) if matches!(error.kind(), Kind::NotFound | Kind::NotADirectory) => continue,
            names => names?,
        };
        // Some stores list a folder twice if it changes during the listing, so duplicates are dropped.
        let mut within = HashSet::new();
        while let Some(name) = names.next(context)? {
            let key = folder.child(&name.name)?;
            match name.kind {
                EntryKind::Directory if within.insert(key.clone()) => folders.push(key),
                EntryKind::File => found.objects.push((key, name.meta)),
                _ => {}
            }
        }
        found.folders.push(folder);
    }
    Ok(())
}

/// Converts the objects of a flat listing to objects and folders. A key with keys below it is a folder, as is an empty
/// object that marks a folder.
fn from_flat_listing(
    context: &RequestContext,
    store: &dyn Store,
    prefix: &Key,
    objects: Vec<(Key, Meta)>,
) -> Result<Subtree> {
    let mut folders = BTreeSet::from([prefix.clone()]);
    for (key, _) in &objects {
        let mut above = key.parent();
        while let Some(folder) = above.filter(|folder| folder.below(prefix).is_some()) {
            above = folder.parent();
            if !folders.insert(folder) {
                break;
            }
        }
    }
    let mut found = Subtree::default();
    for (key, meta) in objects {
        if folders.contains(&key) {
            continue;
        }
        let is_marker = meta.size == 0
            && store
                .head(context, &key)?
                .is_some_and(|meta| meta.kind == EntryKind::Directory);
        if is_marker {
            folders.insert(key);
        } else {
            found.objects.push((key, Some(meta)));
        }
    }
    found.folders = folders.into_iter().collect();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::testing;
    use crate::testing::key;
    use zarrfs_store::backend::memory::MemoryStore;
    use zarrfs_store::request_context::UNLIMITED;
    use zarrfs_store::tree::{RenameMode, Tree};

    /// Lists the directory `x`, which has a file. The directory is renamed to `y` before it is read, and back to `x`
    /// before the listing reads the top layer for the time number `back`.
    fn names_beside_renames(back: usize) -> Result<Vec<Name>> {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(MemoryStore::default());
        let overlay = Arc::new(testing::open(&folder.path().join("upper"), &store));
        let body = zarrfs_store::PutBody::Bytes(b"1");
        let condition = zarrfs_store::Condition::Any;
        overlay
            .put(&UNLIMITED, &key("x/file"), body, &condition)
            .unwrap();
        let looks = AtomicUsize::new(0);
        let moved = overlay.clone();
        let rename = move |from: &str, to: &str| {
            let mode = RenameMode::Replace;
            Tree::rename(&*moved, &UNLIMITED, &key(from), &key(to), mode).unwrap();
        };
        let core = overlay.0.clone();
        let source: LayerSource = Arc::new(move || {
            let look = looks.fetch_add(1, Ordering::Relaxed);
            if look == 1 {
                rename("x", "y");
            }
            if look == back {
                rename("y", "x");
            }
            core.top()
        });
        let mut listing = open(&UNLIMITED, source, &key("x"))?;
        let names = std::iter::from_fn(|| listing.next(&UNLIMITED).transpose());
        names.collect()
    }

    #[test]
    fn a_directory_moved_away_while_it_is_opened_is_missing_and_not_empty() {
        let error = names_beside_renames(usize::MAX).unwrap_err();
        assert_eq!(error.kind(), Kind::NotFound);
    }

    #[test]
    fn a_directory_moved_away_and_back_while_it_is_opened_has_its_names() {
        let names = names_beside_renames(3).unwrap();
        let names: Vec<_> = names.iter().map(|name| &name.name[..]).collect();
        assert_eq!(names, [b"file"]);
    }

    #[test]
    fn a_flat_listing_equals_the_listings_of_folders() {
        let store = MemoryStore::default();
        for name in ["a/b/c", "a/b-", "a/d", "a/d/e/f"] {
            store.set(key(name), vec![1]);
        }
        store.set(key("a/empty"), Vec::new());
        let mut expected = Subtree::default();
        list_folders(&UNLIMITED, &store, &key("a"), &mut expected).unwrap();
        let flat = ["a/b-", "a/b/c", "a/d", "a/d/e/f", "a/empty"].map(|name| {
            let meta = store.head(&UNLIMITED, &key(name)).unwrap().unwrap();
            let kind = EntryKind::File;
            (key(name), Meta { kind, ..meta })
        });
        let mut found = from_flat_listing(&UNLIMITED, &store, &key("a"), flat.to_vec()).unwrap();
        let names = |subtree: &mut Subtree| {
            let objects = subtree.objects.iter().map(|(key, _)| key.clone());
            let mut objects: Vec<Key> = objects.collect();
            objects.sort();
            subtree.folders.sort();
            (objects, subtree.folders.clone())
        };
        assert_eq!(names(&mut found), names(&mut expected));
        assert_eq!(found.folders.len(), 4, "a, a/b, a/d, a/d/e");
    }
}
