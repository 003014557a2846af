//! The state that all files of an overlay share: layers, names, open files and locks.
//!
//! Changes of names are made here. With write-through they are also stored. They are synced on request, when many
//! changes are unsynced, and at the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use rustix::fs::AtFlags;

use crate::OverlayConfig;
use crate::commit::write_through;
use crate::derived::DerivedCache;
use crate::encodings::{EncodingCache, EncodingFinder};
use crate::journal_record::JournalRecord;
use crate::layer_dir::with_room_hint;
use crate::layered_store::LayeredStore;
use crate::lower_answers::{LowerAnswers, LowerQuery};
use crate::name_change::NameChange;
use crate::open_file::OpenFile;
use crate::open_file::state::ContentSource;
use crate::open_file::table::OpenState;
use crate::upper::Upper;
use zarr_format::dialect::consolidated::ConsolidatedDocument;
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::document::is_document;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::locks::{Mutex, RwLock};
use zarrfs_store::tree::{AttrChange, Time};
use zarrfs_store::{EncodedBy, Key, PathLocks, Store, StoreInfo, Version};

/// The state that all files of one overlay share.
pub(crate) struct OverlayCore {
    pub(crate) store: Arc<dyn Store>,
    /// The path or URL of the store.
    pub(crate) place: String,
    pub(crate) upper: Upper,
    pub(crate) config: OverlayConfig,
    /// The layer that programs change, over the store or over a frozen layer.
    pub(crate) top: RwLock<Arc<LayeredStore>>,
    pub(crate) path_locks: PathLocks,
    /// Held while names are created, removed, renamed or given another content, and while layers are exchanged.
    pub(crate) names: Mutex<()>,
    /// Held during a commit.
    pub(crate) committing: Mutex<()>,
    /// Held while copies of committed documents are written to the store.
    pub(crate) copying: Mutex<()>,
    /// Cached documents with derived copies.
    pub(crate) derived: DerivedCache,
    /// The metadata of arrays that programs have seen.
    pub(crate) encoding_cache: EncodingCache,
    /// Whether a thread is syncing changes.
    pub(crate) is_syncing: AtomicBool,
    pub(crate) open: Mutex<OpenState>,
    /// The overlay's own store information. It has its own log of changes, because a write to the upper folder does not
    /// invalidate cached answers of the store below.
    pub(crate) info: StoreInfo,
}

impl OverlayCore {
    /// Returns the current top layer, which programs change, with the store or frozen layer below it.
    pub(crate) fn top(&self) -> Arc<LayeredStore> {
        self.top.read().clone()
    }

    /// Runs `find` on the top layer; retries if a commit or discard exchanged the layers meanwhile, because keys that a
    /// commit leaves out move to the new layer.
    pub(crate) fn with_top<T>(&self, find: impl Fn(&Arc<LayeredStore>) -> Result<T>) -> Result<T> {
        loop {
            let top = self.top();
            let found = find(&top);
            if Arc::ptr_eq(&self.top(), &top) {
                return found;
            }
        }
    }

    /// Appends records to the journal of the top layer, then applies them. Adds the records of the metadata that
    /// changed chunks were encoded with. The names must be locked.
    pub(crate) fn record(&self, list: Vec<JournalRecord>) -> Result<()> {
        self.record_encoded(list, None)
    }

    /// Like `record`, but the changed chunks were encoded with the metadata in `explicit`, if there are any.
    pub(crate) fn record_encoded(
        &self,
        mut list: Vec<JournalRecord>,
        explicit: Option<&EncodedBy>,
    ) -> Result<()> {
        let top = self.top();
        list.extend(self.encoding_cache.records_of(&top.layer, &list, explicit));
        let completed = list.iter().filter_map(|record| match record {
            JournalRecord::Completed(key) => Some(key.clone()),
            _ => None,
        });
        let completed: Vec<Key> = completed.collect();
        top.layer.record(list)?;
        if !completed.is_empty() {
            let mut open = self.open.lock();
            completed
                .iter()
                .for_each(|key| open.failed_writes.set(key, None));
        }
        Ok(())
    }

    /// Records that the content or the attributes of a key changed: cached answers are invalid now.
    pub(crate) fn mark_changed(&self, key: &Key) {
        self.info.changes.record(key);
        if is_document(key.name()) {
            // Between the journal's record and this call, a text may have been derived from the previous file: it must
            // be derived again.
            self.top().layer.lock().records.count_document_change();
            self.derived.invalidate(
                &self.info.changes,
                &ConsolidatedDocument::above_document(key),
            );
        }
    }

    /// Records that a key and everything below it changed: cached answers are invalid now.
    pub(crate) fn mark_tree_changed(&self, prefix: &Key) {
        self.info.changes.record_tree(prefix);
        self.top().layer.lock().records.count_document_change();
        self.derived.invalidate(
            &self.info.changes,
            &ConsolidatedDocument::above_tree(prefix),
        );
    }

    /// Records that the top layer has a new content of a key.
    pub(crate) fn mark_written(&self, key: &Key) {
        self.top().layer.lock().generations.advance(key);
        self.mark_changed(key);
    }

    /// Records that the top layer no longer has a content of a key.
    pub(crate) fn mark_removed(&self, key: &Key) {
        self.top().layer.lock().generations.forget(key);
        self.mark_changed(key);
    }

    /// Whether length and digest of the store's object are recorded with the first change of a key. A local folder
    /// needs them: it identifies contents by a file's inode and change time, and these can change without the content.
    /// With write-through they are not needed, since changes are stored at once.
    pub(crate) fn takes_digests(&self) -> bool {
        self.store.info().folder.is_some() && !self.config.write_through
    }

    /// Whether length and digest are recorded for a content that was copied up. They are needed, except with
    /// write-through, if the server sends no ETag.
    pub(crate) fn takes_digest_of(&self, version: Version) -> bool {
        let has_no_etag = !version.is_lasting() && !self.config.write_through;
        self.takes_digests() || has_no_etag
    }

    /// Returns the open file of a key, or `None` if it is not open.
    pub(crate) fn registered(&self, key: &Key) -> Option<Arc<OpenFile>> {
        self.open.lock().files.get(key)
    }

    /// Returns the open files at and below a prefix.
    pub(crate) fn registered_below(&self, prefix: &Key) -> Vec<Arc<OpenFile>> {
        self.open.lock().files.below(prefix)
    }

    /// Removes the key from its open file, whose content stays readable until the file is closed.
    pub(crate) fn detach(&self, key: &Key) {
        let file = self.open.lock().files.remove(key);
        if let Some(file) = file {
            file.detach();
        }
    }

    /// Removes the key from its open file because the key got another content by a change other than a rename or
    /// removal: later writes to the file are refused.
    pub(crate) fn revoke(&self, key: &Key) {
        let file = self.open.lock().files.remove(key);
        if let Some(file) = file {
            file.revoke();
        }
    }

    /// Returns the attributes that a file or folder of the store gets at copy-up: the attributes in `stored`, the
    /// mount's owner where `stored` has none, and `modified` as its times.
    pub(crate) fn initial_attributes(
        &self,
        stored: AttrChange,
        modified: Option<SystemTime>,
    ) -> AttrChange {
        let modified = modified.map(Time::At);
        let is_root = rustix::process::geteuid().is_root();
        AttrChange {
            uid: stored.uid.or(is_root.then_some(self.config.uid)),
            gid: stored.gid.or(is_root.then_some(self.config.gid)),
            accessed: modified,
            modified,
            ..stored
        }
    }

    /// Syncs all changes that were made before.
    pub(crate) fn sync_all(&self) -> Result<()> {
        let mut begun = Vec::new();
        for layered in self.changed_layers() {
            let number = layered.layer.begin_sync()?;
            begun.push((layered, number));
        }
        self.upper.sync_disk()?;
        for (layered, number) in begun {
            layered.layer.end_sync(&self.upper, number)?;
        }
        Ok(())
    }

    /// Returns the layers that may have unsynced changes.
    fn changed_layers(&self) -> Vec<Arc<LayeredStore>> {
        let top = self.top();
        let layers = top.frozen.clone().into_iter().chain([top]);
        layers
            .filter(|layered| !layered.layer.lock().journal.is_closed())
            .collect()
    }

    /// Starts a thread that syncs everything, if enough changes may be unsynced.
    pub(crate) fn sync_if_due(self: &Arc<Self>) {
        if !self.top().layer.is_sync_due() || self.is_syncing.swap(true, Ordering::AcqRel) {
            return;
        }
        let core = self.clone();
        let sync = move || {
            if let Err(error) = core.sync_all() {
                log::warn!("cannot sync the changes to the disk: {error}");
            }
            core.is_syncing.store(false, Ordering::Release);
        };
        let thread = std::thread::Builder::new().name("zarrfs-sync".into());
        if let Err(error) = thread.spawn(sync) {
            log::warn!("cannot start a thread to sync the changes to the disk: {error}");
            self.is_syncing.store(false, Ordering::Release);
        }
    }

    /// Calls `act`. If it fails because the disk is full, frees retained files with a sync and calls it again.
    pub(crate) fn with_room<T>(&self, act: impl Fn() -> Result<T>) -> Result<T> {
        let done = match act() {
            Err(error) if error.kind() == Kind::NoSpace && self.make_room() => act(),
            done => done,
        };
        done.map_err(with_room_hint)
    }

    /// Whether a sync may free space on the disk.
    pub(crate) fn has_retained(&self) -> bool {
        let top = self.top();
        let mut layers = top.frozen.iter().chain([&top]);
        layers.any(|layered| layered.layer.has_retained())
    }

    /// Frees space with a sync, if possible; returns whether it did.
    pub(crate) fn make_room(&self) -> bool {
        self.has_retained() && self.sync_all().is_ok()
    }

    /// Syncs everything, and records in the journals that it is synced.
    pub(crate) fn close(&self) -> Result<()> {
        let layers = self.changed_layers();
        if layers.is_empty() {
            return Ok(());
        }
        let mut begun = Vec::new();
        for layered in &layers {
            layered.layer.begin_sync()?;
            begun.push(layered.layer.lock().journal.len());
        }
        self.upper.sync_disk()?;
        for (layered, length) in layers.iter().zip(begun) {
            layered.layer.close(&self.upper, length)?;
        }
        Ok(())
    }

    /// Makes a change of names. `change` is called with the names locked, and retried each time that it lacks an answer
    /// of the store. It must request all answers before it changes anything.
    ///
    /// `paths` are the paths that change: with write-through, changes of the same paths take turns.
    pub(crate) fn change_names<T>(
        self: &Arc<Self>,
        context: &RequestContext,
        paths: &[Key],
        change: impl Fn(&NameChange<'_>) -> Result<T>,
    ) -> Result<T> {
        self.change_names_and(context, paths, change, || Ok(()))
    }

    /// Like `change_names`, for a change of the path itself, such as the attributes of a folder: changes below the path
    /// are not blocked.
    pub(crate) fn change_own<T>(
        self: &Arc<Self>,
        context: &RequestContext,
        path: &Key,
        change: impl Fn(&NameChange<'_>) -> Result<T>,
    ) -> Result<T> {
        let is_stored = self.config.write_through;
        let _path = is_stored.then(|| self.path_locks.lock_own(std::slice::from_ref(path)));
        self.change_until_answered(context, change)
    }

    /// Like `change_names`, but then calls `and` while other changes of these paths still wait.
    pub(crate) fn change_names_and<T>(
        self: &Arc<Self>,
        context: &RequestContext,
        paths: &[Key],
        change: impl Fn(&NameChange<'_>) -> Result<T>,
        and: impl FnOnce() -> Result<()>,
    ) -> Result<T> {
        let is_stored = self.config.write_through;
        let _paths = is_stored.then(|| self.path_locks.lock(paths));
        let done = self.change_until_answered(context, change)?;
        self.sync_if_due();
        and()?;
        Ok(done)
    }

    /// Like `change_names`, for paths that are already locked.
    pub(crate) fn change_until_answered<T>(
        self: &Arc<Self>,
        context: &RequestContext,
        change: impl Fn(&NameChange<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut top = self.top();
        let mut answers = LowerAnswers::default();
        for _ in 0..1000 {
            let names = self.names.lock();
            let permit = context.permit_change()?;
            let now = self.top();
            if !Arc::ptr_eq(&now, &top) {
                (top, answers) = (now, LowerAnswers::default());
            }
            let done = change(&NameChange {
                core: self,
                top: top.clone(),
                answers: &answers,
            });
            drop(names);
            let missing = answers.take_missing();
            if missing.is_empty() {
                return done;
            }
            permit.give_back();
            let query = LowerQuery {
                core: self,
                context,
                top: &top,
            };
            answers.query(&query, missing)?;
        }
        let why = "names keep changing";
        Err(Error::unavailable("overlay", why))
    }

    /// Commits the changes at these paths, which are locked, if the overlay uses write-through. Fails with `Changed` on
    /// a conflict.
    pub(crate) fn write_through(
        self: &Arc<Self>,
        context: &RequestContext,
        paths: &[Key],
    ) -> Result<()> {
        if self.config.write_through {
            write_through::run(self, context, paths)
        } else {
            Ok(())
        }
    }

    /// Makes a change, and stores it if the overlay uses write-through.
    pub(crate) fn change_and_store<T>(
        self: &Arc<Self>,
        context: &RequestContext,
        paths: &[Key],
        change: impl Fn(&NameChange<'_>) -> Result<T>,
    ) -> Result<T> {
        self.change_names_and(context, paths, change, || {
            self.write_through(context, paths)
        })
    }

    /// Removes or renames names, and stores the change if the overlay uses write-through. The folders of these names
    /// remain, even if they become empty: in the upper folder or in the store.
    pub(crate) fn remove_and_store(
        self: &Arc<Self>,
        context: &RequestContext,
        paths: &[Key],
        change: impl Fn(&NameChange<'_>) -> Result<()>,
    ) -> Result<()> {
        // In a bucket a folder disappears with its last key, so the upper folder keeps it.
        let keeps_folders = self.config.write_through && self.store.info().folder.is_some();
        self.change_names_and(context, paths, change, || {
            self.write_through(context, paths).map_err(not_repeated)?;
            let mut emptied = paths.iter().filter(|_| keeps_folders);
            emptied.try_for_each(|path| self.remove_empty_parents(context, path))
        })
    }

    /// Removes the empty folders above a key from the upper folder, from the inside out, until one is not empty or is
    /// missing in the store below.
    pub(crate) fn remove_empty_parents(
        self: &Arc<Self>,
        context: &RequestContext,
        key: &Key,
    ) -> Result<()> {
        let mut at = key.parent();
        while let Some(folder) = at.filter(|folder| !folder.is_root()) {
            let removed = self.change_until_answered(context, |change| {
                if change.find_lower(&folder)?.is_none() {
                    return Ok(false);
                }
                let dir = &change.top.layer.dir;
                Ok(dir.remove(&folder, AtFlags::REMOVEDIR).is_ok())
            })?;
            if !removed {
                break;
            }
            self.mark_changed(&folder);
            at = folder.parent();
        }
        Ok(())
    }

    /// Removes the key from a file that another program replaced in the store, unless the file was written in the
    /// meantime.
    pub(crate) fn revoke_unwritten(&self, key: &Key, file: &Arc<OpenFile>) {
        let mut state = file.lock();
        if matches!(state.source, ContentSource::Upper(_)) {
            return;
        }
        (state.key, state.is_revoked) = (None, true);
        drop(state);
        self.open.lock().files.unregister(key, file);
    }

    /// Returns the finder of the metadata that chunks are encoded with.
    pub(crate) fn encodings<'a>(
        self: &'a Arc<Self>,
        context: &'a RequestContext,
    ) -> EncodingFinder<'a> {
        EncodingFinder {
            core: self,
            context,
        }
    }
}

impl Drop for OverlayCore {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            log::warn!(
                "cannot close the changes directory, so the next mount checks the changes: {error}"
            );
        }
    }
}

/// Returns a change that sets only the mode.
pub(crate) fn mode(mode: u32) -> AttrChange {
    AttrChange {
        mode: Some(mode),
        ..AttrChange::default()
    }
}

/// Returns the error of a file operation on a folder, or of a folder operation on a file.
pub(crate) fn wrong_kind(key: &Key, is_folder: bool) -> Error {
    if is_folder {
        Error::new(Kind::IsADirectory, key, "is a directory")
    } else {
        Error::new(Kind::NotADirectory, key, "is not a directory")
    }
}

/// Returns an error other than ESTALE for a conflicting removal or rename. After ESTALE the kernel would look up the
/// path again and report that the name does not exist, since the upper folder has already been changed.
fn not_repeated(error: Error) -> Error {
    match error.kind() {
        Kind::Changed => Error::unavailable(error.subject(), error.detail()),
        _ => error,
    }
}

/// Returns the error of a new name that is in use.
pub(crate) fn already_exists(key: &Key) -> Error {
    Error::new(Kind::Exists, key, "already exists")
}
