//! Freezes the layer of changes, and puts an empty layer over it.
//!
//! This is one step for programs: it is made under the lock of the names, and no file is published during it. Files
//! that are open for writing, or that could not be written completely, move to the new layer and are not part of the
//! commit. After a crash in between, `Upper::finish_freezing` completes or undoes it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Mode, RenameFlags};
use rustix::io::Errno;

use crate::changes::KeptKeys;
use crate::journal::Journal;
use crate::journal_line::JournalRecord;
use crate::keys_dir::{KeysDir, os_error};
use crate::layer::ChangeLayer;
use crate::layered_store::LayeredStore;
use crate::open_file::state::ContentSource;
use crate::open_file::{OpenFile, OpenedAs};
use crate::records::{Records, tries};
use crate::{OverlayCore, attributes};
use zarr_format::error::Result;
use zarr_format::model::document::is_document;
use zarrfs_store::Key;
use zarrfs_store::sync::locks;

/// close(2) waits for FLUSH but not for RELEASE, which says that no other process has the file open. A commit waits
/// this long, this many times, for RELEASE.
const CLOSE_WAIT: Duration = Duration::from_millis(5);
const CLOSE_WAITS: usize = 100;

/// Files that stay in the top layer, each with the reason.
type FilesLeftOut = BTreeMap<Key, &'static str>;

impl OverlayCore {
    /// Freezes the top layer; there must be no frozen layer yet. Returns the frozen layer, or `None` if it has nothing
    /// to commit, and the files that are left out.
    pub(crate) fn freeze(self: &Arc<Self>) -> Result<(Option<Arc<LayeredStore>>, KeptKeys)> {
        self.wait_for_closes();
        let is_stored = self.config.write_through;
        let _paths = is_stored.then(|| self.path_locks.lock(&[Key::root()]));
        let _names = self.names.lock();
        let top = self.top();
        let left_out = self.left_out(&top)?;
        let frozen = if has_changes(&top.layer, &left_out)? {
            self.exchange_layers(&top, &left_out)?;
            Some(top)
        } else {
            None
        };
        let left_out = left_out.into_iter().collect();
        Ok((frozen, left_out))
    }

    /// Waits a short time for the RELEASE of files that were closed.
    fn wait_for_closes(&self) {
        let is_closing = |file: &Arc<OpenFile>| file.is_open_for_writing() && !file.is_dirty();
        let open = self.registered_below(&Key::root());
        let closing: Vec<Arc<OpenFile>> = open.into_iter().filter(is_closing).collect();
        for _ in 0..CLOSE_WAITS {
            if !closing.iter().any(is_closing) {
                return;
            }
            locks::pause(CLOSE_WAIT);
        }
    }

    /// Returns the keys of files that are being written, or could not be written completely.
    fn left_out(&self, top: &LayeredStore) -> Result<FilesLeftOut> {
        let mut left_out = FilesLeftOut::new();
        for key in top.layer.lock().records.incomplete_below(&Key::root()) {
            left_out.insert(key, "a file that could not be written whole");
        }
        for file in self.registered_below(&Key::root()) {
            let is_written = file.is_open_for_writing() || file.is_dirty();
            if let Some(key) = file.key().filter(|_| is_written) {
                left_out.insert(key, "open for writing");
            }
        }
        add_linked(&top.layer, &mut left_out)?;
        Ok(left_out)
    }

    /// Puts an empty layer over the top layer, with the files in `left_out`. The names must be locked.
    fn exchange_layers(
        self: &Arc<Self>,
        top: &Arc<LayeredStore>,
        left_out: &FilesLeftOut,
    ) -> Result<()> {
        self.upper.prepare_next(&records_of(&top.layer, left_out))?;
        // All steps that may fail come before the exchange, except for renames.
        let opened = self.open_next(top, left_out);
        let layer = Arc::new(opened.inspect_err(|_| self.upper.drop_next())?);
        // A full disk has no space for folders, but renames need none.
        for key in left_out.keys() {
            make_way(&top.layer.keys, &layer.keys, key).inspect_err(|_| self.upper.drop_next())?;
        }
        for file in self.registered_below(&Key::root()) {
            freeze_file(&file, &top.layer, left_out).inspect_err(|_| self.upper.drop_next())?;
        }
        if let Err(error) = self.upper.swap_in_next() {
            self.upper.undo_swap();
            return Err(error);
        }
        layer.lock().journal.set_path(&self.upper.journal());
        if let Some(journal) = self.upper.frozen_journal() {
            top.layer.lock().journal.set_path(&journal);
        }
        let (frozen, info) = (Some(top.clone()), self.info.clone());
        let next = LayeredStore::over(layer.clone(), &self.store, frozen, info);
        // Lookups of moved files wait until the layers are exchanged. A file that cannot be moved stays in the frozen
        // layer.
        let shape = top.layer.reshape();
        let move_out = |key| move_file(&top.layer.keys, &layer.keys, key);
        let moved: Vec<Result<()>> = left_out.keys().map(move_out).collect();
        layer.add_retained(top.layer.take_retained(left_out.keys()));
        *self.top.write() = Arc::new(next);
        drop(shape);
        top.layer.lock().records.forget_attributes();
        moved.into_iter().collect::<Result<()>>()?;
        let forgotten = left_out.keys().cloned().map(JournalRecord::Forgotten);
        if let Err(error) = top.layer.record(forgotten.collect()) {
            // Recovery finds these files in the top layer.
            log::debug!("the journal of the frozen layer names files that have left it: {error}");
        }
        self.upper.sync()
    }

    /// Opens the layer that will be put over the top layer.
    fn open_next(&self, top: &LayeredStore, left_out: &FilesLeftOut) -> Result<ChangeLayer> {
        let numbers = top.layer.lock().write_numbers.following(left_out.keys());
        let mut records = Records::default();
        let (keys, journal) = self.upper.open_next()?;
        let journal = Journal::open(&journal, &mut |record| records.apply(record))?;
        journal.end().sync()?;
        Ok(ChangeLayer::new(keys, journal, records, numbers))
    }
}

/// Adds the other names of files that are left out: a write changes the content of all names.
fn add_linked(layer: &ChangeLayer, left_out: &mut FilesLeftOut) -> Result<()> {
    let mut inodes = Vec::new();
    for key in left_out.keys() {
        let stat = layer.keys.stat(key)?;
        inodes.extend(
            stat.filter(|stat| stat.st_nlink > 1)
                .map(|stat| stat.st_ino),
        );
    }
    if inodes.is_empty() {
        return Ok(());
    }
    layer.keys.for_each_file(&Key::root(), &mut |key| {
        let stat = layer.keys.stat(key)?;
        if stat.is_some_and(|stat| inodes.contains(&stat.st_ino)) {
            left_out.entry(key.clone()).or_insert("open for writing");
        }
        Ok(false)
    })?;
    Ok(())
}

/// Whether a layer has something to commit.
fn has_changes(layer: &ChangeLayer, left_out: &FilesLeftOut) -> Result<bool> {
    if !layer.whiteouts(&Key::root()).is_empty() {
        return Ok(true);
    }
    layer.keys.for_each_file(&Key::root(), &mut |key| {
        let base = layer.base(key);
        // An interrupted write-through may have put a document without updating its copies.
        let is_put = is_document(key.name());
        let is_content = is_put || base.is_none_or(|base| !base.is_committed);
        Ok(is_content && !left_out.contains_key(key))
    })
}

/// Returns the records of the next layer: for the files that are left out, and for all attributes without a content.
fn records_of(layer: &ChangeLayer, left_out: &FilesLeftOut) -> Vec<JournalRecord> {
    let state = layer.lock();
    let mut list = Vec::new();
    for key in left_out.keys() {
        // Without its file, the frozen layer may still hide the key or show another object there.
        let is_frozen = state.records.lower_key(key).as_ref() != Some(key);
        let base = state.records.base(key);
        list.extend(base.map(|base| match base.version.filter(|_| !is_frozen) {
            Some(version) if base.is_committed => JournalRecord::Committed {
                key: key.clone(),
                version,
            },
            version => JournalRecord::Base {
                key: key.clone(),
                version,
                is_frozen,
                content: base.content.filter(|_| !is_frozen),
            },
        }));
        if let Some((at, by)) = state.records.encoded_by(key) {
            let by = Some(by.clone());
            list.push(JournalRecord::EncodedBy { at, by });
        }
        list.extend(tries(key, state.records.tried(key)));
        if state.records.is_incomplete(key) {
            list.push(JournalRecord::Created(key.clone()));
        }
        list.extend(state.records.marks.records_of(key));
        list.extend(state.records.program_copies.records_of(key));
    }
    let kept = state.records.kept_attributes_below(&Key::root());
    for (key, mut attributes) in kept {
        if !left_out.contains_key(&key) {
            if state.records.is_taken_over(&key, &attributes) {
                continue;
            }
            // The next layer has no copy.
            Arc::make_mut(&mut attributes).is_of_copy = false;
        }
        list.push(JournalRecord::Attributes { key, attributes });
    }
    list
}

/// Moves the file of a key, if it exists, to another layer.
fn move_file(from: &KeysDir, to: &KeysDir, key: &Key) -> Result<()> {
    if from.stat(key)?.is_none() {
        return Ok(());
    }
    copy_folders_above(from, to, key)?;
    let moved = from.rename_to(key, to, key, RenameFlags::empty());
    moved.map_err(|error| os_error(key, error))
}

/// Creates the folders in another layer that the file of a key, if it exists, will be moved to.
fn make_way(from: &KeysDir, to: &KeysDir, key: &Key) -> Result<()> {
    match from.stat(key)? {
        None => Ok(()),
        Some(_) => copy_folders_above(from, to, key),
    }
}

/// Creates the folders above a key in another layer, with their attributes.
pub(super) fn copy_folders_above(from: &KeysDir, to: &KeysDir, key: &Key) -> Result<()> {
    let Some(folder) = key.parent().filter(|folder| !folder.is_root()) else {
        return Ok(());
    };
    if to.stat(&folder)?.is_some() {
        return Ok(());
    }
    copy_folders_above(from, to, &folder)?;
    let stat = from.stat(&folder)?;
    let made = to.parent(&folder).and_then(|(above, name)| {
        match rustix::fs::mkdirat(&above, name, Mode::from(0o755)) {
            Err(Errno::EXIST) => return Ok(()),
            made => made?,
        }
        let posix = stat.map(|stat| attributes::posix_of(&stat));
        posix.map_or(Ok(()), |posix| {
            attributes::set_named(&above, name, &attributes::owner_and_mode(&posix))
        })
    });
    made.map_err(|error| os_error(&folder, error))
}

/// Tells an open file that its content is frozen: a write copies it to the new layer.
fn freeze_file(file: &OpenFile, layer: &ChangeLayer, left_out: &FilesLeftOut) -> Result<()> {
    let mut state = file.lock();
    let Some(key) = state.key.clone().filter(|key| !left_out.contains_key(key)) else {
        return Ok(());
    };
    if let (ContentSource::Upper(content), None) = (&state.source, &state.pending) {
        let number = layer.write_number(&key);
        state.source = ContentSource::Frozen(content.clone(), number);
    }
    if layer.is_changed(&key)? {
        state.opened_as = OpenedAs::Frozen;
    }
    Ok(())
}
