//! Which metadata of a local store the kernel has in memory, found without waiting for a disk.
//!
//! A path is resolved by the kernel's cache of names alone (RESOLVE_CACHED), in one file system of a kind whose status of
//! a file that is cached never has to be asked of another machine. Whatever else there is, links among them, is unknown
//! here, and the store is asked.

use std::sync::Arc;

use rustix::fs::{FileType, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::known::Known;
use crate::request_context::RequestContext;
use crate::store::backend::local::directory::StoreRoot;
use crate::store::backend::local::stat::meta_of;
use crate::store::{Hints, Key, Meta};

/// What the kernel knows of the keys of a local store.
pub(super) struct LocalHints(pub(super) Arc<StoreRoot>);

const IN_MEMORY: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_XDEV)
    .union(ResolveFlags::CACHED);

impl Hints for LocalHints {
    fn head_now(&self, _context: &RequestContext, key: &Key) -> Known<Meta> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        match self.0.open_now(key, flags, IN_MEMORY) {
            Some(Ok(fd)) => rustix::fs::fstat(fd).map_or(Known::Unknown, |stat| {
                match FileType::from_raw_mode(stat.st_mode) {
                    FileType::Symlink => Known::Unknown,
                    _ => meta_of(&stat).into(),
                }
            }),
            Some(Err(Errno::NOENT | Errno::NOTDIR)) => Known::Missing,
            Some(Err(_)) | None => Known::Unknown,
        }
    }

    fn prefetch(&self, _keys: &[Key]) {}
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::request_context::UNLIMITED;
    use crate::store::backend::local::LocalStore;
    use crate::store::{Store, StoreConfig};

    /// Asks for a key once the kernel has looked it up.
    fn known(store: &LocalStore, hints: &dyn Hints, key: &str) -> Known<Meta> {
        let key = Key::new(key).unwrap();
        let _ = store.head(&UNLIMITED, &key);
        hints.head_now(&UNLIMITED, &key)
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
        let hints = store.hints();
        for key in ["", "a", "a/b"] {
            let found = store.head(&UNLIMITED, &Key::new(key).unwrap()).unwrap();
            assert_eq!(known(&store, &*hints, key), found.into(), "{key}");
        }
        assert_eq!(known(&store, &*hints, "a/none"), Known::Missing);
        for key in ["a/link", "there/b", "a/b/none"] {
            assert_eq!(known(&store, &*hints, key), Known::Unknown, "{key}");
        }
        fs::rename(&path, folder.path().join("away")).unwrap();
        fs::remove_dir_all(folder.path().join("away")).unwrap();
        assert_eq!(
            hints.head_now(&UNLIMITED, &Key::new("a").unwrap()),
            Known::Unknown
        );
    }
}
