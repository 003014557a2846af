//! Answers lookups from the kernel's dentry and inode caches, without disk access.
//!
//! RESOLVE_CACHED resolves a path without I/O. Only local file systems qualify: on a network file system, the status of
//! a cached file may need a request to the server. All other cases are `Unknown`, links among them, and the caller has
//! to ask the store.

use rustix::fs::{FileType, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::Presence;
use crate::backend::local::directory::StoreRoot;
use crate::backend::local::stat::meta_of;
use crate::{Key, Meta};

const IN_MEMORY: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_XDEV)
    .union(ResolveFlags::CACHED);

impl StoreRoot {
    /// Returns the metadata of a key if the kernel has them cached, or `Unknown`.
    pub(super) fn known_head(&self, key: &Key) -> Presence<Meta> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        match self.open_in_memory(key, flags, IN_MEMORY) {
            Some(Ok(fd)) => {
                rustix::fs::fstat(fd).map_or(
                    Presence::Unknown,
                    |stat| match FileType::from_raw_mode(stat.st_mode) {
                        FileType::Symlink => Presence::Unknown,
                        _ => meta_of(&stat).into(),
                    },
                )
            }
            Some(Err(Errno::NOENT | Errno::NOTDIR)) => Presence::Missing,
            Some(Err(_)) | None => Presence::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::backend::local::LocalStore;
    use crate::request_context::{UNLIMITED, WITHOUT_WAITING, is_answer};
    use crate::{Store, StoreConfig};
    use zarr_format::error::Result;

    /// Looks up a key without waiting, after a first lookup has cached it.
    fn known(store: &LocalStore, key: &str) -> Result<Option<Meta>> {
        let key = Key::new(key).unwrap();
        let _ = store.head(&UNLIMITED, &key);
        store.head(&WITHOUT_WAITING, &key)
    }

    #[test]
    fn what_the_kernel_has_in_memory_is_what_the_store_says() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        fs::create_dir_all(path.join("a")).unwrap();
        fs::write(path.join("a/b"), "text").unwrap();
        symlink("b", path.join("a/link")).unwrap();
        symlink("a", path.join("there")).unwrap();
        let store = LocalStore::open(&path, &StoreConfig::default()).unwrap();
        for key in ["", "a", "a/b"] {
            let found = store.head(&UNLIMITED, &Key::new(key).unwrap()).unwrap();
            assert_eq!(known(&store, key).unwrap(), found, "{key}");
        }
        assert_eq!(known(&store, "a/none").unwrap(), None);
        for key in ["a/link", "there/b", "a/b/none"] {
            assert!(!is_answer(&known(&store, key)), "{key}");
        }
        fs::rename(&path, folder.path().join("away")).unwrap();
        fs::remove_dir_all(folder.path().join("away")).unwrap();
        let again = store.head(&WITHOUT_WAITING, &Key::new("a").unwrap());
        assert!(!is_answer(&again));
    }
}
