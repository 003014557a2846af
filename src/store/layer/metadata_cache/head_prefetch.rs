//! Which files come next when those of a directory are looked up in order, where listings have no sizes.
//!
//! How many are asked for ahead of a reader is up to `in_order`. One that leaves the order is not followed on.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};

use lru::LruCache;
use parking_lot::Mutex;

use super::cached_dir::CachedDir;
use crate::store::{Key, in_order};

/// How many directories are followed at a time.
const MAX_RUNS: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// The directories that are gone through.
pub(super) struct HeadPrefetch {
    runs: Mutex<LruCache<Key, FileRun>>,
    /// Whether there is any; a store whose listings have sizes never has one.
    has_runs: AtomicBool,
    window: usize,
}

/// A reader of one directory.
#[derive(Clone, Copy)]
struct FileRun {
    /// How many files it has looked up in order.
    count: usize,
    /// The place of the last one, and that of the one after it.
    last: usize,
    next: Option<usize>,
    /// Files before this place were asked for.
    asked: usize,
}

impl HeadPrefetch {
    /// Follows nothing yet.
    pub(super) fn new(window: usize) -> HeadPrefetch {
        HeadPrefetch {
            runs: Mutex::new(LruCache::new(MAX_RUNS)),
            has_runs: AtomicBool::new(false),
            window,
        }
    }

    /// Whether any directory is followed.
    pub(super) fn has_runs(&self) -> bool {
        self.has_runs.load(Ordering::Relaxed)
    }

    /// Notes that the file at a place of a directory is looked up, or is found known unless it `is_asked`; returns the
    /// names of those to ask for now.
    pub(super) fn note(&self, dir: &CachedDir, place: usize, is_asked: bool) -> Vec<Vec<u8>> {
        let mut runs = self.runs.lock();
        let run = match runs.get(&dir.prefix) {
            Some(run) if run.next == Some(place) => FileRun {
                count: run.count.saturating_add(1),
                ..*run
            },
            Some(run) if run.last == place => return Vec::new(),
            _ if is_asked => FileRun {
                count: 1,
                last: place,
                next: None,
                asked: 0,
            },
            _ => return Vec::new(),
        };
        let most = in_order::window(run.count, self.window);
        let files = dir.files_without_size(place + 1, most.max(1));
        let wanted = files.iter().take(most);
        let wanted = wanted.filter(|(place, _)| *place >= run.asked);
        let wanted: Vec<(usize, Vec<u8>)> = wanted.cloned().collect();
        let run = FileRun {
            last: place,
            next: files.first().map(|(place, _)| *place),
            asked: wanted.last().map_or(run.asked, |(place, _)| place + 1),
            ..run
        };
        runs.put(dir.prefix.clone(), run);
        self.has_runs.store(true, Ordering::Relaxed);
        wanted.into_iter().map(|(_, name)| name).collect()
    }
}
