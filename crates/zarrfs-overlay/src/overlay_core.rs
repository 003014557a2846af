//! The state that all files of an overlay share: layers, names, open files and locks.
//!
//! Changes of names are made here, and with write-through also stored. Changes are synced on request, when many are not
//! synced, and at the unmount.

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
    pub(crate) place: String,
    pub(crate) upper: Upper,
    pub(crate) config: OverlayConfig,
    /// The layer that programs change, over the store or over the frozen layer of a commit.
    pub(crate) top: RwLock<Arc<LayeredStore>>,
    pub(crate) path_locks: PathLocks,
    /// Lock for changes of names: creation, removal, rename, publication of a content, and exchange of layers.
    pub(crate) names: Mutex<()>,
    /// Lock that a commit or a discard holds from its start to its end.
    pub(crate) committing: Mutex<()>,
    /// Lock that is held while copies in the store's consolidated metadata are updated.
    pub(crate) copying: Mutex<()>,
    /// Cache of consolidated metadata documents whose copies differ from those in the stored text.
    pub(crate) derived: DerivedCache,
    /// Cache of the metadata of arrays that programs have read or written.
    pub(crate) encoding_cache: EncodingCache,
    pub(crate) is_syncing: AtomicBool,
    pub(crate) open: Mutex<OpenState>,
    /// The store information of the overlay. Its log of changes is not the store's, because a write to the upper folder
    /// does not invalidate cached answers of the store.
    pub(crate) info: StoreInfo,
}

impl OverlayCore {
    /// Returns the layer that programs change now, with the store or the frozen layer below it.
    pub(crate) fn top(&self) -> Arc<LayeredStore> {
        self.top.read().clone()
    }

    /// Runs `find` on the top layer. It is run again if a commit or discard has exchanged the layers meanwhile, because
    /// files may then have moved to the new layer.
    pub(crate) fn with_top<T>(&self, find: impl Fn(&Arc<LayeredStore>) -> Result<T>) -> Result<T> {
        loop {
            let top = self.top();
            let found = find(&top);
            if Arc::ptr_eq(&self.top(), &top) {
                return found;
            }
        }
    }

    /// Appends records to the top layer's journal and applies them. For changed chunks, the array's metadata is
    /// recorded too. The lock of the names must be held.
    pub(crate) fn record(&self, list: Vec<JournalRecord>) -> Result<()> {
        self.record_encoded(list, None)
    }

    /// Appends records to the top layer's journal and applies them. Changed chunks are recorded as encoded with
    /// `explicit`, or if that is `None`, with the metadata that programs have read or written.
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

    /// Invalidates cached answers about a key, because its content or attributes have changed.
    pub(crate) fn mark_changed(&self, key: &Key) {
        self.info.changes.record(key);
        if is_document(key.name()) {
            // Count the change again: another thread may have derived consolidated metadata from the old file after the
            // journal's record.
            self.top().layer.lock().records.count_document_change();
            self.derived.invalidate(
                &self.info.changes,
                &ConsolidatedDocument::above_document(key),
            );
        }
    }

    /// Invalidates cached answers about a key and everything below it, because the key was renamed or removed.
    pub(crate) fn mark_tree_changed(&self, prefix: &Key) {
        self.info.changes.record_tree(prefix);
        self.top().layer.lock().records.count_document_change();
        self.derived.invalidate(
            &self.info.changes,
            &ConsolidatedDocument::above_tree(prefix),
        );
    }

    /// Gives a key a new generation and invalidates cached answers, because its content in the top layer has changed.
    pub(crate) fn mark_written(&self, key: &Key) {
        self.top().layer.lock().generations.advance(key);
        self.mark_changed(key);
    }

    /// Drops the generation of a key and invalidates cached answers, because the top layer no longer has its content.
    pub(crate) fn mark_removed(&self, key: &Key) {
        self.top().layer.lock().generations.forget(key);
        self.mark_changed(key);
    }

    /// Whether the first change of a key records the digest of the store's object. This is needed for a local folder,
    /// where inode and change time may change while the content does not. With write-through it is not needed, because
    /// changes are stored at once.
    pub(crate) fn takes_digests(&self) -> bool {
        self.store.info().folder.is_some() && !self.config.write_through
    }

    /// Whether the digest of an object is recorded when it is copied to the upper folder. This is needed for local
    /// folders and for servers without ETags, except with write-through.
    pub(crate) fn takes_digest_of(&self, version: Version) -> bool {
        let has_no_etag = !version.is_lasting() && !self.config.write_through;
        self.takes_digests() || has_no_etag
    }

    pub(crate) fn registered(&self, key: &Key) -> Option<Arc<OpenFile>> {
        self.open.lock().files.get(key)
    }

    pub(crate) fn registered_below(&self, prefix: &Key) -> Vec<Arc<OpenFile>> {
        self.open.lock().files.below(prefix)
    }

    /// Removes the key from its open file, because the name was removed. The content stays readable until the file is
    /// closed.
    pub(crate) fn detach(&self, key: &Key) {
        let file = self.open.lock().files.remove(key);
        if let Some(file) = file {
            file.detach();
        }
    }

    /// Removes the key from its open file, because the key has another content now, and makes later writes fail.
    pub(crate) fn revoke(&self, key: &Key) {
        let file = self.open.lock().files.remove(key);
        if let Some(file) = file {
            file.revoke();
        }
    }

    /// Returns the attributes of a copy in the upper folder: those in `stored`, the mount's owner if `stored` has no
    /// owner, and `modified` as its times.
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

    /// Syncs all changes that were made before the call.
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

    /// Returns the layers whose changes may not all be on disk.
    fn changed_layers(&self) -> Vec<Arc<LayeredStore>> {
        let top = self.top();
        let layers = top.frozen.clone().into_iter().chain([top]);
        layers
            .filter(|layered| !layered.layer.lock().journal.is_closed())
            .collect()
    }

    /// Starts a thread that syncs the changes, if many of them are not synced.
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

    /// Calls `act`. If the disk is full, calls it again after a sync that removes files which were retained for
    /// recovery.
    pub(crate) fn with_room<T>(&self, act: impl Fn() -> Result<T>) -> Result<T> {
        let done = match act() {
            Err(error) if error.kind() == Kind::NoSpace && self.make_room() => act(),
            done => done,
        };
        done.map_err(with_room_hint)
    }

    /// Whether a sync may free disk space, by removing files that are retained for recovery.
    pub(crate) fn has_retained(&self) -> bool {
        let top = self.top();
        let mut layers = top.frozen.iter().chain([&top]);
        layers.any(|layered| layered.layer.has_retained())
    }

    /// Frees disk space with a sync, if possible; returns whether space was freed.
    pub(crate) fn make_room(&self) -> bool {
        self.has_retained() && self.sync_all().is_ok()
    }

    /// Syncs all changes, and records in the journals that everything is synced.
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

    /// Makes a change of names. `change` is called under the lock of the names. It must request all answers of the
    /// store that it needs before it changes anything, and is called again when missing answers are known.
    ///
    /// `paths` are the paths that change. With write-through, changes of the same paths are made one after the other.
    pub(crate) fn change_names<T>(
        self: &Arc<Self>,
        context: &RequestContext,
        paths: &[Key],
        change: impl Fn(&NameChange<'_>) -> Result<T>,
    ) -> Result<T> {
        self.change_names_and(context, paths, change, || Ok(()))
    }

    /// Makes a change of one path itself, such as of a folder's attributes. Other changes below the path are not
    /// blocked.
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

    /// Makes a change of names as `change_names` does, then calls `and` before other changes of the same paths.
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

    /// Makes a change of names whose paths are already locked.
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

    /// With write-through, commits the changes at `paths`, which must be locked. Fails with `Changed` on a conflict.
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

    /// Makes a change of names. With write-through, also commits it to the store.
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

    /// Removes or renames names. With write-through, also commits this to the store. Folders remain even if they become
    /// empty, in the upper folder or in the store.
    pub(crate) fn remove_and_store(
        self: &Arc<Self>,
        context: &RequestContext,
        paths: &[Key],
        change: impl Fn(&NameChange<'_>) -> Result<()>,
    ) -> Result<()> {
        // Remove folders from the upper folder only if the store is a local folder, because a bucket does not have
        // empty folders.
        let keeps_folders = self.config.write_through && self.store.info().folder.is_some();
        self.change_names_and(context, paths, change, || {
            self.write_through(context, paths).map_err(not_repeated)?;
            let mut emptied = paths.iter().filter(|_| keeps_folders);
            emptied.try_for_each(|path| self.remove_empty_parents(context, path))
        })
    }

    /// Removes the empty parents of a key from the upper folder, the innermost first. Stops at a folder that is not
    /// empty or that the store does not have.
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

    /// Removes the key from an open file, because another program has replaced the object in the store. A file that was
    /// written in the meantime is left as it is.
    pub(crate) fn revoke_unwritten(&self, key: &Key, file: &Arc<OpenFile>) {
        let mut state = file.lock();
        if matches!(state.source, ContentSource::Upper(_)) {
            return;
        }
        (state.key, state.is_revoked) = (None, true);
        drop(state);
        self.open.lock().files.unregister(key, file);
    }

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

/// Returns a request that sets only the mode of a file.
pub(crate) fn mode(mode: u32) -> AttrChange {
    AttrChange {
        mode: Some(mode),
        ..AttrChange::default()
    }
}

/// Returns the error of a file operation on a folder (`is_folder`), or else of a folder operation on a file.
pub(crate) fn wrong_kind(key: &Key, is_folder: bool) -> Error {
    if is_folder {
        Error::new(Kind::IsADirectory, key, "is a directory")
    } else {
        Error::new(Kind::NotADirectory, key, "is not a directory")
    }
}

/// Replaces the error of a conflict, which is ESTALE, after a removal or rename. The kernel would repeat the request
/// after ESTALE and report that the name does not exist, because the upper folder has already changed.
fn not_repeated(error: Error) -> Error {
    match error.kind() {
        Kind::Changed => Error::unavailable(error.subject(), error.detail()),
        _ => error,
    }
}

/// Returns the error of a new name that is already in use.
pub(crate) fn already_exists(key: &Key) -> Error {
    Error::new(Kind::Exists, key, "already exists")
}
