//! Caches open folders of a layer by their keys.
//!
//! A request often looks up several names in one folder, and so does the next request; each would resolve the folder's
//! path again. A folder that is removed or renamed leaves the cache together with all folders below it, in the same
//! step.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;

use zarrfs_store::Key;

/// Maximum number of cached folders: enough for the paths of a few chunks that are written in parallel.
const CAPACITY: usize = 8;

/// Open folders, the most recently used first.
#[derive(Default)]
pub(super) struct OpenFolders(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    folders: Vec<(Key, Arc<OwnedFd>)>,
    /// Number of changes of folder names.
    changes: u64,
}

impl OpenFolders {
    /// Returns a folder from the cache, or opens it with `open`.
    pub(super) fn get<E>(
        &self,
        key: &Key,
        open: impl FnOnce() -> Result<OwnedFd, E>,
    ) -> Result<Arc<OwnedFd>, E> {
        let changes = {
            let mut kept = self.0.lock();
            if let Some(place) = kept.folders.iter().position(|(other, _)| other == key) {
                let used = kept.folders.remove(place);
                let folder = Arc::clone(&used.1);
                kept.folders.insert(0, used);
                return Ok(folder);
            }
            kept.changes
        };
        let folder = Arc::new(open()?);
        let mut kept = self.0.lock();
        // A folder that was opened before a change may have another name now.
        if kept.changes == changes {
            kept.folders.truncate(CAPACITY - 1);
            kept.folders.insert(0, (key.clone(), Arc::clone(&folder)));
        }
        Ok(folder)
    }

    /// Runs `change`, which may remove or rename the folders at these keys, and evicts the folders at and below them.
    pub(super) fn change<T>(&self, keys: &[&Key], change: impl FnOnce() -> T) -> T {
        let mut kept = self.0.lock();
        let changed = change();
        kept.changes += 1;
        let is_below = |folder: &Key| keys.iter().any(|key| folder.below(key).is_some());
        kept.folders.retain(|(folder, _)| !is_below(folder));
        changed
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn key(text: &str) -> Key {
        Key::new(text).unwrap()
    }

    fn open() -> Result<OwnedFd, std::io::Error> {
        Ok(File::open("/")?.into())
    }

    fn is_kept(folders: &OpenFolders, text: &str) -> bool {
        folders.get(&key(text), || Err(())).is_ok()
    }

    #[test]
    fn folders_are_opened_once_and_those_used_last_are_kept() {
        let folders = OpenFolders::default();
        for number in 0..CAPACITY {
            folders.get(&key(&number.to_string()), open).unwrap();
        }
        assert!(is_kept(&folders, "0"));
        folders.get(&key("more"), open).unwrap();
        assert!(is_kept(&folders, "0") && is_kept(&folders, "more") && !is_kept(&folders, "1"));
    }

    #[test]
    fn what_changes_its_name_leaves_with_all_below() {
        let folders = OpenFolders::default();
        for text in ["a", "a/b", "ab", "c/d"] {
            folders.get(&key(text), open).unwrap();
        }
        folders.change(&[&key("a"), &key("c/d")], || ());
        assert!(is_kept(&folders, "ab"));
        assert!(
            ["a", "a/b", "c/d"]
                .iter()
                .all(|text| !is_kept(&folders, text))
        );
    }

    #[test]
    fn a_folder_that_was_opened_before_a_change_is_not_kept() {
        let folders = OpenFolders::default();
        let opened = folders.get(&key("a"), || {
            let folder = open();
            folders.change(&[&key("a")], || ());
            folder
        });
        opened.unwrap();
        assert!(!is_kept(&folders, "a"));
    }
}
