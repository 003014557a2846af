//! The sample store in a local folder, with its views.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use zarrfs_store::backend::local::LocalStore;
use zarrfs_store::{Store, StoreConfig};

use crate::common::{BothViews, sample, views_of};

/// The time limit of requests in tests where no request hangs on purpose.
pub(crate) const PATIENT: Duration = Duration::from_secs(60);

pub(crate) struct Fixture {
    folder: TempDir,
    pub(crate) views: BothViews,
}

impl Fixture {
    /// Creates the sample store in a new folder, and opens its views.
    pub(crate) fn new() -> Fixture {
        Fixture::with(sample::put_store)
    }

    /// Creates a store in a new folder with `put`, and opens its views.
    pub(crate) fn with(put: impl FnOnce(&Path)) -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store");
        std::fs::create_dir(&store).unwrap();
        put(&store);
        let views = views_of(local(&store), PATIENT);
        Fixture { folder, views }
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.store()).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

pub(crate) fn local(folder: &Path) -> Arc<dyn Store> {
    Arc::new(LocalStore::open(folder, &StoreConfig::default()).unwrap())
}

/// Returns the last name of an array's path, which is part of the names of its files.
pub(crate) fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap()
}

/// Waits until a condition is true, for at most three seconds; returns whether it is.
pub(crate) fn soon(mut is_true: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(3);
    while Instant::now() < end {
        if is_true() {
            return true;
        }
        thread::sleep(Duration::from_millis(20));
    }
    is_true()
}
