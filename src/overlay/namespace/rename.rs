//! Renames, of files and of whole folders: nothing is copied.
//!
//! What the upper folder has is renamed there; what the store has is shown under its new name by a whiteout that
//! stands for the old one. Both together are one step: the journal says what is about to happen, and who opens
//! the folder after a cut ends it.

use rustix::fs::{AtFlags, FileType, RenameFlags};
use rustix::io::Errno;

use crate::error::{Error, Kind, Result};
use crate::overlay::journal::JournalRecord;
use crate::overlay::records::joined;
use crate::overlay::upper::{Upper, failed};
use crate::overlay::{Resolved, Shared, wrong_kind};
use crate::store::tree::RenameMode;
use crate::store::{EntryKind, Key, Meta};
use std::sync::Arc;

/// Does in the upper folder what a rename does, as far as it was not done; `native` if the folder has it.
pub(crate) fn finish(upper: &Upper, from: &Key, to: &Key, native: bool) -> Result<()> {
    if native {
        return match rename_native(upper, from, to, RenameFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            done => done.map_err(|error| failed(from, error)),
        };
    }
    let Some(stat) = upper.stat(to)? else {
        return Ok(());
    };
    let flags = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => AtFlags::REMOVEDIR,
        _ => AtFlags::empty(),
    };
    let removed = upper
        .parent(to)
        .and_then(|(folder, name)| rustix::fs::unlinkat(folder, name, flags));
    removed.map_err(|error| failed(to, error))
}

fn rename_native(
    upper: &Upper,
    from: &Key,
    to: &Key,
    flags: RenameFlags,
) -> rustix::io::Result<()> {
    let (old, old_name) = upper.parent(from)?;
    let (new, new_name) = upper.parent(to)?;
    rustix::fs::renameat_with(old, old_name, new, new_name, flags)
}

impl Shared {
    /// Gives what is at `from` the name `to`. The names must be locked.
    pub(super) fn rename(self: &Arc<Self>, from: &Key, to: &Key, onto: RenameMode) -> Result<()> {
        let Some(old) = self.find(from)? else {
            return Err(Error::not_found(from));
        };
        let new = self.find(to)?;
        if self.check_onto(from, to, (&old, new.as_ref()), onto)? {
            return Ok(());
        }
        for live in self.all_live(from) {
            live.settle()?;
        }
        if onto == RenameMode::Exchange {
            return self.exchange(from, to);
        }
        // A folder or file of the upper folder may have been made by that.
        let native = self.upper.stat(from)?.is_some();
        self.make_parents(to)?;
        let mut records = self.held_by_rename(from, to)?;
        let moves = self.whiteouts_of_rename(from, to)?;
        if self.state.lock().records.is_born(to) {
            // What was being written there has no name any more.
            records.push(JournalRecord::Whole(to.clone()));
        }
        let born = self.state.lock().records.born_below(from);
        let renamed = |key: &Key| key.below(from).map(|rest| joined(to, &rest));
        records.extend(born.iter().filter_map(renamed).map(JournalRecord::Born));
        let replaces = !native && self.upper.stat(to)?.is_some();
        let is_one_step = moves.is_empty() && !replaces;
        records.extend(moves);
        if !is_one_step {
            records.push(JournalRecord::Move {
                from: from.clone(),
                to: to.clone(),
                native,
            });
        }
        self.note(records)?;
        finish(&self.upper, from, to, native)?;
        if !is_one_step {
            self.note(vec![JournalRecord::Moved])?;
        }
        self.follow_torn(from, to);
        self.note(born.into_iter().map(JournalRecord::Whole).collect())?;
        self.forget_new_below(from)?;
        self.follow(from, to);
        Ok(())
    }

    /// Checks what has the new name; returns whether there is nothing to do.
    fn check_onto(
        self: &Arc<Self>,
        from: &Key,
        to: &Key,
        (old, new): (&Resolved, Option<&Resolved>),
        onto: RenameMode,
    ) -> Result<bool> {
        if from == to && onto != RenameMode::Nothing {
            return Ok(true);
        }
        if (from != to && to.below(from).is_some())
            || (onto == RenameMode::Exchange && from.below(to).is_some())
        {
            return Err(Error::invalid(to, "lies in what is renamed"));
        }
        let Some(new) = new else {
            return match onto {
                RenameMode::Exchange => Err(Error::not_found(to)),
                _ => Ok(false),
            };
        };
        match onto {
            RenameMode::Nothing => return Err(Error::new(Kind::Exists, to, "is there already")),
            RenameMode::Exchange => return Ok(false),
            RenameMode::Replace => {}
        }
        if let (Resolved::Upper(old), Resolved::Upper(new)) = (old, new)
            && (old.st_dev, old.st_ino) == (new.st_dev, new.st_ino)
        {
            return Ok(true);
        }
        match (self.is_folder(old), self.is_folder(new)) {
            (false, true) => Err(wrong_kind(to, true)),
            (true, false) => Err(wrong_kind(to, false)),
            (true, true) => self.check_empty(to).map(|()| false),
            (false, false) => Ok(false),
        }
    }

    fn is_folder(&self, found: &Resolved) -> bool {
        match found {
            Resolved::Upper(stat) => FileType::from_raw_mode(stat.st_mode) == FileType::Directory,
            Resolved::Lower(_, meta) => meta.kind == EntryKind::Directory,
        }
    }

    /// Returns the records of what the store holds where files will be from now on.
    fn held_by_rename(&self, from: &Key, to: &Key) -> Result<Vec<JournalRecord>> {
        let mut records = Vec::new();
        let is_folder = self.is_folder_anywhere(from)?;
        for key in [from, to] {
            let stored = self.find_lower(key)?;
            let is_file = |(_, meta): &(Key, Meta)| meta.kind != EntryKind::Directory;
            if key == to && self.upper.stat(to)?.is_none() {
                // What the store shows there under another name goes.
                let hidden = stored
                    .as_ref()
                    .filter(|stored| is_file(stored) && stored.0 != *to);
                records.extend(hidden.and_then(|(from, meta)| self.hold_moved(from, meta.version)));
            }
            if stored.map_or(!is_folder && key == to, |stored| is_file(&stored)) {
                records.extend(self.hold_file(key)?);
            }
        }
        let below = self.state.lock().records.all_held(from);
        for (key, _) in below {
            if let Some(rest) = key.below(from).filter(|rest| !rest.is_root()) {
                records.extend(self.hold_file(&joined(to, &rest))?);
            }
        }
        Ok(records)
    }

    /// Like `hold`, for what is no folder of the upper folder.
    fn hold_file(&self, key: &Key) -> Result<Option<JournalRecord>> {
        let stat = self.upper.stat(key)?;
        let is_folder = |mode| FileType::from_raw_mode(mode) == FileType::Directory;
        match stat.is_some_and(|stat| is_folder(stat.st_mode)) {
            true => Ok(None),
            false => self.hold(key),
        }
    }

    /// Returns the changes of whiteouts: what the store has at `from` stands at `to` from now on.
    fn whiteouts_of_rename(&self, from: &Key, to: &Key) -> Result<Vec<JournalRecord>> {
        let lower = self.find_lower(from)?.map(|(lower, _)| lower);
        let hides = self.find_lower(to)?.is_some();
        let state = self.state.lock();
        let below_to = state.records.whiteouts(to);
        let below_from = state.records.whiteouts(from);
        drop(state);
        let white = |key: Key, of| JournalRecord::White { key, of };
        let mut list: Vec<JournalRecord> = Vec::new();
        let is_other = self.is_no_file_of_upper(from)?;
        let moves = lower.is_some() || below_from.iter().any(|(key, _)| key != from);
        if moves || (is_other && (hides || !below_to.is_empty())) {
            list.extend(
                below_to
                    .into_iter()
                    .map(|(key, _)| JournalRecord::Show(key)),
            );
            list.push(white(to.clone(), lower.clone()));
        }
        for (key, of) in below_from {
            let Some(rest) = key.below(from).filter(|rest| !rest.is_root()) else {
                continue;
            };
            list.push(JournalRecord::Show(key));
            list.push(white(joined(to, &rest), of));
        }
        if lower.is_some() {
            list.push(white(from.clone(), None));
        }
        Ok(list)
    }

    /// Whether the upper folder has something there that takes the place of a key without being one.
    fn is_no_file_of_upper(&self, key: &Key) -> Result<bool> {
        let stat = self.upper.stat(key)?;
        let is_file = |mode| FileType::from_raw_mode(mode) == FileType::RegularFile;
        Ok(stat.is_some_and(|stat| !is_file(stat.st_mode)))
    }

    /// Gives two files or folders of the upper folder each other's name.
    fn exchange(self: &Arc<Self>, from: &Key, to: &Key) -> Result<()> {
        for key in [from, to] {
            let hides = self.state.lock().records.whiteouts(key);
            let holds = hides.iter().any(|(below, _)| below != key);
            let is_stored = self.find_lower(key)?.is_some();
            if (is_stored || holds) && self.is_folder_anywhere(key)? {
                let why = "folders of the store cannot be exchanged";
                return Err(Error::invalid(key, why));
            }
            if self.upper.stat(key)?.is_none() {
                self.copy_up(key)?;
            }
            for live in self.all_live(key) {
                live.settle()?;
            }
            self.check_whole(key)?;
        }
        let mut records = self.held_by_rename(from, to)?;
        records.extend(self.held_by_rename(to, from)?);
        for key in [from, to] {
            if self.find_lower(key)?.is_some() {
                // A folder may be there from now on.
                let (key, of) = (key.clone(), None);
                records.push(JournalRecord::White { key, of });
            }
        }
        self.note(records)?;
        rename_native(&self.upper, from, to, RenameFlags::EXCHANGE)
            .map_err(|error| failed(from, error))?;
        let (first, second) = (self.all_live(from), self.all_live(to));
        self.list_again(first, from, to);
        self.list_again(second, to, from);
        self.tree_changed(from);
        self.tree_changed(to);
        Ok(())
    }

    fn is_folder_anywhere(&self, key: &Key) -> Result<bool> {
        Ok(self.find(key)?.is_some_and(|found| self.is_folder(&found)))
    }

    /// Says `NoSpace`, or why else, if something at a key or below could not be written whole.
    pub(super) fn check_whole(&self, key: &Key) -> Result<()> {
        for live in self.all_live(key) {
            live.check_whole()?;
        }
        let state = self.state.lock();
        let mut torn = state.torn.iter();
        match torn.find(|(torn, _)| torn.below(key).is_some()) {
            Some((at, torn)) => Err(torn.error(at)),
            None => Ok(()),
        }
    }

    /// Has what is missing of files follow a rename.
    fn follow_torn(&self, from: &Key, to: &Key) {
        let torn = &mut self.state.lock().torn;
        let all = torn.drain().map(|(key, missing)| match key.below(from) {
            Some(rest) => (joined(to, &rest), missing),
            None => (key, missing),
        });
        *torn = all.collect();
    }

    /// Has what is open follow a rename; what was at `to` has no name any more.
    fn follow(&self, from: &Key, to: &Key) {
        if let Some(live) = self.live(to) {
            live.lose_name();
        }
        self.state.lock().live.remove(to);
        let moved = self.all_live(from);
        self.list_again(moved, from, to);
        self.written(to);
        self.written(from);
        self.tree_changed(to);
        self.tree_changed(from);
    }

    fn list_again(&self, lives: Vec<Arc<crate::overlay::OpenFile>>, from: &Key, to: &Key) {
        for live in &lives {
            let Some(rest) = live.key().and_then(|key| key.below(from)) else {
                continue;
            };
            let key = joined(to, &rest);
            let mut state = self.state.lock();
            let old = joined(from, &rest);
            let is_listed = |found: &std::sync::Weak<crate::overlay::OpenFile>| {
                std::ptr::eq(found.as_ptr(), Arc::as_ptr(live))
            };
            if state.live.get(&old).is_some_and(is_listed) {
                state.live.remove(&old);
            }
            state.live.insert(key.clone(), Arc::downgrade(live));
            drop(state);
            live.set_key(key);
        }
    }

    /// Forgets keys below a folder that was made and renamed: the store never had them.
    fn forget_new_below(&self, from: &Key) -> Result<()> {
        let held = self.state.lock().records.all_held(from);
        let new = held.into_iter();
        let new = new.filter(|(_, held)| held.version.is_none());
        self.note(new.map(|(key, _)| JournalRecord::Let(key)).collect())
    }
}
