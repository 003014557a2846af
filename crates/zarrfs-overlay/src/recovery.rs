//! Repairs an upper folder after a crash or a power loss.
//!
//! Afterwards each key has its state before or after its last change, and incomplete or torn files are in `rescued/`.
//! If only the process was killed, all its writes are in place. After a power loss the disk may have a file's new name
//! without its bytes or without the journal's record of it, or only the record. So each file is compared with the marks
//! of its key: the contents that the journal has recorded for the key. A file that has none of these contents is a
//! stray. If the file of a key is missing or torn, and a stray or a file in `pending/` has the key's synced content,
//! that file is moved back to the key.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::RenameFlags;

use crate::journal_record::{JournalRecord, Mark};
use crate::layer::ChangeLayer;
use crate::layer_dir::os_error;
use crate::pending_folder::PendingFile;
use crate::upper::Upper;
use crate::{content, rename};
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::Key;

/// Recovers a layer after a crash: completes a rename, moves incomplete files to `rescued/`, and checks all files
/// unless the journal says that they are synced. If the layer is frozen, `above` is the layer above it, to which files
/// may have moved.
pub(crate) fn recover(
    upper: &Upper,
    layer: &ChangeLayer,
    keys: &Path,
    above: Option<&ChangeLayer>,
) -> Result<()> {
    let is_closed = layer.lock().journal.is_closed();
    let unfinished = layer.lock().records.unfinished_rename();
    if let Some(renaming) = unfinished {
        rename::finish(&layer.dir, &renaming)?;
        layer.record(vec![JournalRecord::RenameFinished])?;
    }
    let incomplete = layer.lock().records.incomplete_below(&Key::root());
    for key in incomplete {
        upper.rescue_key(keys, &key)?;
        layer.record(vec![JournalRecord::Completed(key)])?;
    }
    if !is_closed {
        let check = Check::of(upper, layer, keys)?;
        check.restore(above)?;
    }
    // Drop the record of a key that was not changed after it: the process was killed between the record and the change.
    let bases = layer.lock().records.bases_below(&Key::root());
    for (key, _) in bases {
        if layer.lower_key(&key).as_ref() == Some(&key) && layer.dir.stat(&key)?.is_none() {
            layer.record(vec![JournalRecord::Reverted(key)])?;
        }
    }
    layer.drop_stale_attributes()?;
    layer.lock().compact()
}

#[derive(Clone, Copy)]
struct FoundFile {
    inode: u64,
    length: u64,
}

/// The check of a layer's files against the contents that the journal has recorded for their keys.
struct Check<'a> {
    upper: &'a Upper,
    layer: &'a ChangeLayer,
    keys: &'a Path,
    /// The files that are intact, because they have a content that was recorded for their key.
    whole: BTreeMap<Key, Mark>,
    /// The files that are torn or unknown, because they have no content that was recorded for their key.
    strays: BTreeMap<Key, FoundFile>,
    pending: Vec<PendingFile>,
}

impl<'a> Check<'a> {
    fn of(upper: &'a Upper, layer: &'a ChangeLayer, keys: &'a Path) -> Result<Check<'a>> {
        let mut check = Check {
            upper,
            layer,
            keys,
            whole: BTreeMap::new(),
            strays: BTreeMap::new(),
            pending: upper.pending.files()?,
        };
        layer.dir.for_each_file(&Key::root(), &mut |key| {
            if let Some(stat) = layer.dir.stat(key)? {
                let found = FoundFile {
                    inode: stat.st_ino,
                    length: u64::try_from(stat.st_size).unwrap_or(0),
                };
                match check.content_of(key, found)? {
                    Some(mark) => drop(check.whole.insert(key.clone(), mark)),
                    None => drop(check.strays.insert(key.clone(), found)),
                }
            }
            Ok(false)
        })?;
        Ok(check)
    }

    /// Returns the recorded content that the file of a key has, or `None` if the file is torn or unknown.
    fn content_of(&self, key: &Key, found: FoundFile) -> Result<Option<Mark>> {
        let (synced, contents) = {
            let state = self.layer.lock();
            let marks = &state.records.marks;
            (marks.synced(key), marks.contents(key))
        };
        let is_known = |mark: &Mark| mark.is_file(found.inode, found.length);
        if let Some(mark) = synced.filter(is_known) {
            return Ok(Some(mark));
        }
        // A file that is changed in place has no digest, so its inode suffices.
        let in_place = contents.iter().find(|mark| mark.digest.is_none());
        if let Some(mark) = in_place.filter(|mark| is_known(mark)) {
            return Ok(Some(*mark));
        }
        let mut same_length = contents.iter().filter(|mark| mark.length == found.length);
        if same_length.clone().next().is_none() {
            return Ok(None);
        }
        let digest = Some(self.digest(key)?);
        let whole = same_length.find(|mark| mark.digest == digest);
        Ok(whole.map(|mark| Mark {
            inode: found.inode,
            ..*mark
        }))
    }

    fn digest(&self, key: &Key) -> Result<u128> {
        let file = self.layer.dir.open_file(key);
        let file = file.map_err(|error| os_error(key, error))?;
        content::file_digest(&file).map_err(|error| Error::os(key, error))
    }

    /// Restores the synced contents of keys whose files are missing or torn, and moves torn and unknown files to
    /// `rescued/`. Keys that have moved to the layer `above` are left out. Afterwards the layer is completely synced.
    fn restore(mut self, above: Option<&ChangeLayer>) -> Result<()> {
        let marked = self.layer.lock().records.marks.keys_below(&Key::root());
        let has_moved = |key: &Key| above.is_some_and(|above| above.last_mark(key).is_some());
        for key in &marked {
            let synced = {
                let state = self.layer.lock();
                let marks = &state.records.marks;
                // Restore nothing if the last record says that the file of the key was removed.
                marks.last(key).and(marks.synced(key))
            };
            if let Some(mark) = synced.filter(|_| !has_moved(key) && !self.whole.contains_key(key))
            {
                self.put_back(key, mark)?;
            }
        }
        for key in std::mem::take(&mut self.strays).into_keys() {
            self.rescue(&key)?;
        }
        self.drop_replaced(marked.iter().filter(|key| !has_moved(key)));
        self.upper.sync_disk()?;
        let mut state = self.layer.lock();
        state.records.replace_marks(self.whole);
        let summary = state.records.summary();
        match state.journal.rewrite(&summary) {
            // Keep the old journal if the disk is full, because the next recovery from it has the same result.
            Err(error) if error.kind() == Kind::NoSpace => Ok(()),
            written => written,
        }
    }

    /// Moves a torn or unknown file to `rescued/`.
    fn rescue(&self, key: &Key) -> Result<()> {
        log::warn!(
            "{key}: the last write was lost in a crash of the machine; showing the previous content"
        );
        self.upper.rescue_key(self.keys, key)
    }

    /// Moves a file with the synced content of a key back to the key, if there is still such a file.
    fn put_back(&mut self, key: &Key, mark: Mark) -> Result<()> {
        let is_it = |inode, length| mark.is_file(inode, length);
        let stray = self
            .strays
            .iter()
            .find(|(_, found)| is_it(found.inode, found.length));
        let stray = stray.map(|(key, _)| key.clone());
        let pending = self
            .pending
            .iter()
            .position(|file| is_it(file.inode, file.length));
        if stray.is_none() && pending.is_none() {
            return Ok(());
        }
        if self.strays.remove(key).is_some() && stray.as_ref() != Some(key) {
            self.rescue(key)?;
        }
        let path = self.keys.join(OsStr::from_bytes(key.as_bytes()));
        let folder = path.parent().unwrap_or(self.keys);
        fs::create_dir_all(folder).map_err(|error| Error::os(key, error))?;
        let moved = match (stray, pending) {
            (Some(stray), _) => {
                self.strays.remove(&stray);
                let dir = &self.layer.dir;
                dir.rename(&stray, key, RenameFlags::empty())
            }
            (None, Some(at)) => {
                let file = self.pending.swap_remove(at);
                self.upper.pending.publish(&file.name, &self.layer.dir, key)
            }
            (None, None) => Ok(()),
        };
        moved.map_err(|error| os_error(key, error))?;
        self.whole.insert(key.clone(), mark);
        Ok(())
    }

    /// Removes replaced files from `pending/`, because the files that replaced them are synced now.
    fn drop_replaced<'k>(&self, marked: impl Iterator<Item = &'k Key>) {
        let contents: HashSet<(u64, u64)> = {
            let state = self.layer.lock();
            let marks = &state.records.marks;
            let synced = marked.filter_map(|key| marks.synced(key));
            synced.map(|mark| (mark.inode, mark.length)).collect()
        };
        let replaced = |file: &&PendingFile| contents.contains(&(file.inode, file.length));
        for file in self.pending.iter().filter(replaced) {
            self.upper.pending.discard(&file.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{key, open};
    use std::sync::Arc;

    use crate::Overlay;
    use zarrfs_store::backend::memory::MemoryStore;
    use zarrfs_store::request_context::UNLIMITED;
    use zarrfs_store::tree::{AttrChange, OpenMode, RenameMode, Tree};
    use zarrfs_store::{Condition, PutBody, Store};

    /// An upper folder, with the part of its journal that would be on disk after a power loss.
    struct Machine {
        folder: tempfile::TempDir,
        store: Arc<MemoryStore>,
        overlay: Overlay,
        journal: Vec<u8>,
    }

    /// Hard-links all files below a folder into another folder, so that their inodes are the same.
    fn link_all(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let to = to.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                link_all(&entry.path(), &to);
            } else {
                fs::hard_link(entry.path(), to).unwrap();
            }
        }
    }

    impl Machine {
        /// Opens an overlay over a store that has the object `a`.
        fn start() -> Machine {
            let folder = tempfile::tempdir().unwrap();
            let store = Arc::new(MemoryStore::default());
            store.set(key("a"), b"stored".to_vec());
            let overlay = open(&folder.path().join("upper"), &store);
            Machine {
                folder,
                store,
                overlay,
                journal: Vec::new(),
            }
        }

        fn put(&self, name: &str, bytes: &[u8]) {
            let body = PutBody::Bytes(bytes);
            Store::put(&self.overlay, &UNLIMITED, &key(name), body, &Condition::Any).unwrap();
        }

        /// Assumes that the disk has the whole journal as it is now.
        fn sync_journal(&mut self) {
            self.journal = fs::read(self.folder.path().join("upper/journal")).unwrap();
        }

        /// Assumes that the disk has only the synced part of the journal.
        fn keep_synced_journal(&mut self) {
            self.sync_journal();
            let synced = self.overlay.0.top().layer.lock().journal.synced();
            self.journal.truncate(usize::try_from(synced).unwrap());
        }

        /// Simulates a power loss. Afterwards the disk has all names, the synced part of the journal, and the files as
        /// `damage` leaves them.
        fn lose_power(self, damage: impl Fn(&Path)) -> Machine {
            let (upper, disk) = (
                self.folder.path().join("upper"),
                self.folder.path().join("disk"),
            );
            link_all(&upper, &disk);
            fs::remove_file(disk.join("journal")).unwrap();
            fs::write(disk.join("journal"), &self.journal).unwrap();
            drop(self.overlay);
            damage(&disk);
            fs::remove_dir_all(&upper).unwrap();
            fs::rename(&disk, &upper).unwrap();
            let overlay = open(&upper, &self.store);
            Machine { overlay, ..self }
        }

        fn found(&self, name: &str) -> Option<String> {
            let found = Store::get(&self.overlay, &UNLIMITED, &key(name), 1000).unwrap();
            found.map(|object| String::from_utf8(object.bytes).unwrap())
        }

        fn rescued(&self) -> usize {
            self.overlay.rescued().unwrap().len()
        }
    }

    /// Truncates the file of a key, as a power loss may do.
    fn tear(name: &str, length: u64) -> impl Fn(&Path) {
        move |disk| {
            let file = fs::File::options()
                .write(true)
                .open(disk.join("keys").join(name));
            file.unwrap().set_len(length).unwrap();
        }
    }

    fn intact(_disk: &Path) {}

    #[test]
    fn a_torn_file_is_replaced_by_the_synced_file() {
        for length in [0, 3] {
            let mut machine = Machine::start();
            machine.put("a", b"synced");
            machine.overlay.sync(&UNLIMITED).unwrap();
            machine.put("a", b"newest");
            machine.sync_journal();
            let machine = machine.lose_power(tear("a", length));
            assert_eq!(machine.found("a").as_deref(), Some("synced"));
            assert_eq!(machine.rescued(), usize::from(length > 0));
        }
    }

    #[test]
    fn a_torn_file_without_a_synced_file_shows_the_store() {
        let mut machine = Machine::start();
        machine.put("a", b"newest");
        machine.put("b", b"newest");
        machine.sync_journal();
        let machine =
            machine.lose_power(|disk| ["a", "b"].iter().for_each(|name| tear(name, 1)(disk)));
        assert_eq!(machine.found("a").as_deref(), Some("stored"));
        assert_eq!(machine.found("b"), None);
        assert_eq!(machine.overlay.changes(&UNLIMITED).unwrap().keys, []);
        assert_eq!(machine.rescued(), 2);
    }

    /// A new file takes over the attributes that were set on its key. If a power loss tears the file, the store's
    /// content is visible again with these attributes.
    #[test]
    fn synced_attributes_survive_a_torn_file() {
        let mode_of = |machine: &Machine| {
            let stat = Tree::stat(&machine.overlay, &UNLIMITED, &key("a")).unwrap();
            stat.unwrap().posix.map(|posix| posix.mode & 0o7777)
        };
        let mode = |mode| AttrChange {
            mode: Some(mode),
            ..AttrChange::default()
        };
        for by_handle in [false, true] {
            let mut machine = Machine::start();
            let overlay = machine.overlay.clone();
            overlay.change(&UNLIMITED, &key("a"), &mode(0o640)).unwrap();
            overlay.sync(&UNLIMITED).unwrap();
            if by_handle {
                let file = Tree::open(&overlay, &UNLIMITED, &key("a"), OpenMode::Write).unwrap();
                file.write_at(&UNLIMITED, 0, b"newest").unwrap();
                file.flush(&UNLIMITED).unwrap();
            } else {
                machine.put("a", b"newest");
            }
            assert_eq!(mode_of(&machine), Some(0o640));
            // The mode of the new file changes here, and the recorded mode does not.
            overlay.change(&UNLIMITED, &key("a"), &mode(0o600)).unwrap();
            assert_eq!(mode_of(&machine), Some(0o600));
            drop(overlay);
            machine.sync_journal();
            let machine = machine.lose_power(tear("a", 1));
            assert_eq!(machine.found("a").as_deref(), Some("stored"));
            assert_eq!(mode_of(&machine), Some(0o640), "{by_handle}");
        }
    }

    /// Recorded attributes remain after a write only until the new file is synced, because a power loss may lose it.
    #[test]
    fn attribute_overrides_are_dropped_once_the_file_is_synced() {
        for by_handle in [false, true] {
            let machine = Machine::start();
            let overlay = &machine.overlay;
            let mode = AttrChange {
                mode: Some(0o640),
                ..AttrChange::default()
            };
            overlay.change(&UNLIMITED, &key("a"), &mode).unwrap();
            machine.put("a", b"newest");
            let overrides = || {
                let layer = overlay.0.top().layer.clone();
                layer.lock().records.attribute_override(&key("a"))
            };
            assert!(overrides().is_some());
            if by_handle {
                let file = Tree::open(overlay, &UNLIMITED, &key("a"), OpenMode::Read).unwrap();
                file.sync(&UNLIMITED).unwrap();
            } else {
                overlay.sync(&UNLIMITED).unwrap();
            }
            assert_eq!(overrides(), None, "{by_handle}");
        }
    }

    /// While a file is synced, another thread gives its key a new file. A record for the synced file is then not
    /// enough, so the whole layer is synced.
    #[test]
    fn a_write_during_the_sync_of_a_file_syncs_everything() {
        let machine = Machine::start();
        machine.put("a", b"first");
        let overlay = &machine.overlay;
        let file = Tree::open(overlay, &UNLIMITED, &key("a"), OpenMode::Read).unwrap();
        let layer = overlay.0.top().layer.clone();
        // Simulate another thread, which writes the file between the flush and the sync.
        let first = layer.last_mark(&key("a")).unwrap();
        let mark = Mark {
            inode: first.inode + 1,
            ..first
        };
        let written = JournalRecord::Written {
            key: key("a"),
            mark,
        };
        layer.record(vec![written]).unwrap();
        let syncs = || layer.lock().records.marks.epoch();
        let synced = || layer.lock().records.marks.synced(&key("a"));
        let before = (syncs(), synced());
        assert_eq!(before.1, None);
        file.sync(&UNLIMITED).unwrap();
        assert_eq!(syncs(), before.0 + 1);
        // The sync of the whole layer includes the later content, which the key has now.
        assert_eq!(synced(), Some(mark));
    }

    #[test]
    fn an_intact_file_that_was_not_synced_is_kept() {
        let mut machine = Machine::start();
        machine.put("a", b"synced");
        machine.overlay.sync(&UNLIMITED).unwrap();
        machine.put("a", b"newest");
        machine.sync_journal();
        let machine = machine.lose_power(intact);
        assert_eq!(machine.found("a").as_deref(), Some("newest"));
        assert_eq!(machine.rescued(), 0);
    }

    /// After a power loss, the disk has the new name of a file but not the journal's record of it.
    #[test]
    fn a_file_missing_in_the_journal_is_replaced() {
        let mut machine = Machine::start();
        machine.put("a", b"synced");
        machine.overlay.sync(&UNLIMITED).unwrap();
        machine.sync_journal();
        machine.put("a", b"newest");
        machine.put("b", b"newest");
        let machine = machine.lose_power(intact);
        assert_eq!(machine.found("a").as_deref(), Some("synced"));
        assert_eq!(machine.found("b"), None);
        assert_eq!(machine.rescued(), 2);
    }

    #[test]
    fn synced_files_survive_unrecorded_renames_and_removals() {
        for removes in [false, true] {
            let mut machine = Machine::start();
            machine.put("d/x", b"synced");
            machine.overlay.sync(&UNLIMITED).unwrap();
            machine.sync_journal();
            if removes {
                Tree::unlink(&machine.overlay, &UNLIMITED, &key("d/x")).unwrap();
            } else {
                Tree::rename(
                    &machine.overlay,
                    &UNLIMITED,
                    &key("d"),
                    &key("e"),
                    RenameMode::Replace,
                )
                .unwrap();
            }
            let machine = machine.lose_power(intact);
            assert_eq!(machine.found("d/x").as_deref(), Some("synced"));
            assert_eq!(machine.found("e/x"), None);
            assert_eq!(machine.rescued(), 0);
        }
    }

    /// After a power loss, the disk has only the synced lines of the journal.
    #[test]
    fn a_synced_file_is_restored_without_later_journal_lines() {
        for (syncs_all, damage) in [(false, 0), (false, 3), (true, 3)] {
            let mut machine = Machine::start();
            machine.put("a", b"synced");
            if syncs_all {
                machine.overlay.sync(&UNLIMITED).unwrap();
            } else {
                let file =
                    Tree::open(&machine.overlay, &UNLIMITED, &key("a"), OpenMode::Write).unwrap();
                file.sync(&UNLIMITED).unwrap();
            }
            machine.put("a", b"newest");
            machine.keep_synced_journal();
            let machine = machine.lose_power(tear("a", damage));
            assert_eq!(machine.found("a").as_deref(), Some("synced"), "{damage}");
        }
    }

    /// Repeated writes use two files in turn, so the next content may be in the inode that was synced before.
    #[test]
    fn a_rewritten_spare_file_is_not_taken_for_the_synced_file() {
        let mut machine = Machine::start();
        let file = Tree::open(&machine.overlay, &UNLIMITED, &key("a"), OpenMode::Write).unwrap();
        for content in [b"first!", b"synced"] {
            file.write_at(&UNLIMITED, 0, content).unwrap();
            file.sync(&UNLIMITED).unwrap();
        }
        file.write_at(&UNLIMITED, 0, b"newest").unwrap();
        file.flush(&UNLIMITED).unwrap();
        machine.keep_synced_journal();
        drop(file);
        let mixed = |disk: &Path| fs::write(disk.join("keys/a"), b"newst!").unwrap();
        let machine = machine.lose_power(mixed);
        assert_eq!(machine.found("a").as_deref(), Some("synced"));
    }

    /// A file that was open for writing when a commit began has moved to the new layer. Recovery must not restore it in
    /// the frozen layer, even if the frozen journal's record of the move is lost.
    #[test]
    fn a_file_synced_before_a_freeze_is_kept_for_the_new_layer() {
        let mut machine = Machine::start();
        machine.put("b", b"change");
        let file = Tree::open(&machine.overlay, &UNLIMITED, &key("a"), OpenMode::Write).unwrap();
        file.write_at(&UNLIMITED, 0, b"synced").unwrap();
        file.sync(&UNLIMITED).unwrap();
        let frozen = machine.folder.path().join("upper/journal");
        let frozen = fs::read(frozen).unwrap();
        crate::commit::freeze(&machine.overlay.0).unwrap();
        file.write_at(&UNLIMITED, 0, b"newest").unwrap();
        file.flush(&UNLIMITED).unwrap();
        machine.keep_synced_journal();
        drop(file);
        let machine = machine.lose_power(|disk| {
            tear("a", 3)(disk);
            let journal = disk.join("frozen/journal");
            fs::remove_file(&journal).unwrap();
            fs::write(&journal, &frozen).unwrap();
        });
        assert_eq!(machine.found("a").as_deref(), Some("synced"));
        assert_eq!(machine.found("b").as_deref(), Some("change"));
    }

    #[test]
    fn synced_attributes_of_an_unchanged_file_are_kept() {
        let mut machine = Machine::start();
        // Write another key first, because the first line of a journal is always synced.
        machine.put("b", b"change");
        let file = Tree::open(&machine.overlay, &UNLIMITED, &key("a"), OpenMode::Write).unwrap();
        let change = AttrChange {
            mode: Some(0o600),
            ..AttrChange::default()
        };
        file.change(&UNLIMITED, &change).unwrap();
        file.sync(&UNLIMITED).unwrap();
        machine.keep_synced_journal();
        drop(file);
        let machine = machine.lose_power(intact);
        let stat = Tree::stat(&machine.overlay, &UNLIMITED, &key("a"))
            .unwrap()
            .unwrap();
        assert_eq!(stat.posix.unwrap().mode & 0o777, 0o600);
    }

    #[test]
    fn a_torn_file_renamed_over_a_synced_file_is_replaced() {
        let mut machine = Machine::start();
        machine.put("a", b"synced");
        machine.overlay.sync(&UNLIMITED).unwrap();
        machine.put("t", b"newest");
        Tree::rename(
            &machine.overlay,
            &UNLIMITED,
            &key("t"),
            &key("a"),
            RenameMode::Replace,
        )
        .unwrap();
        machine.sync_journal();
        let machine = machine.lose_power(tear("a", 2));
        assert_eq!(machine.found("a").as_deref(), Some("synced"));
        assert_eq!(machine.found("t"), None);
    }

    #[test]
    fn a_recorded_removal_of_a_synced_file_is_kept() {
        let mut machine = Machine::start();
        machine.put("b", b"synced");
        machine.overlay.sync(&UNLIMITED).unwrap();
        Tree::unlink(&machine.overlay, &UNLIMITED, &key("b")).unwrap();
        machine.sync_journal();
        let machine = machine.lose_power(intact);
        assert_eq!(machine.found("b"), None);
        assert_eq!(machine.rescued(), 0);
        let pending = fs::read_dir(machine.overlay.path().join("pending")).unwrap();
        assert_eq!(pending.count(), 0);
    }

    /// A power loss may leave any part of writes to a large file, which is changed in place. So the file is neither
    /// rescued as torn nor replaced by an earlier content.
    #[test]
    fn a_large_file_changed_in_place_is_kept_as_on_disk() {
        let mut machine = Machine::start();
        machine.put("a", &[b'o'; 100_000]);
        machine.overlay.sync(&UNLIMITED).unwrap();
        let path = machine.overlay.path().join("keys/a");
        let inode = || std::os::unix::fs::MetadataExt::ino(&fs::metadata(&path).unwrap());
        let before = inode();
        let file = Tree::open(&machine.overlay, &UNLIMITED, &key("a"), OpenMode::Write).unwrap();
        file.write_at(&UNLIMITED, 0, b"new").unwrap();
        file.write_at(&UNLIMITED, 100_000, b"longer").unwrap();
        file.flush(&UNLIMITED).unwrap();
        assert_eq!(inode(), before);
        machine.keep_synced_journal();
        drop(file);
        let machine = machine.lose_power(intact);
        let read = Tree::open(&machine.overlay, &UNLIMITED, &key("a"), OpenMode::Read);
        let read = read.unwrap().read_at(&UNLIMITED, 0, 200_000).unwrap();
        assert_eq!(
            (&read[..4], &read[99_999..]),
            (&b"newo"[..], &b"olonger"[..])
        );
        assert_eq!(machine.rescued(), 0);
    }

    #[test]
    fn a_retained_file_is_removed_once_its_successor_is_synced() {
        let machine = Machine::start();
        let pending = || {
            let pending = fs::read_dir(machine.overlay.path().join("pending"));
            pending.unwrap().count()
        };
        for content in [b"first", b"other"] {
            machine.put("a", content);
            let file =
                Tree::open(&machine.overlay, &UNLIMITED, &key("a"), OpenMode::Write).unwrap();
            file.sync(&UNLIMITED).unwrap();
            assert_eq!(pending(), 0);
        }
        machine.put("a", b"third");
        assert_eq!(pending(), 1);
        machine.put("a", b"fourth");
        assert_eq!(pending(), 1, "what was not synced is not kept");
        machine.overlay.sync(&UNLIMITED).unwrap();
        assert_eq!(pending(), 0);
    }
}
