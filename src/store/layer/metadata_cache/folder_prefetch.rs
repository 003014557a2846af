//! Lists single directories with all that lies in them, a page each and side by side, where flat listings would read
//! page after page.
//!
//! A client that descends level by level will go on: the first directory at the third depth is read whole, in one
//! request beside its listing. If one page held it all and it has enough keys (`sibling_stats`), the directories beside it
//! are read in the same way once the client comes to the second, so many ahead as may be requested at a time.

use std::sync::Arc;

use super::flat_listing::{DirLister, run};
use super::listing_prefetch::ListingPrefetch;
use crate::store::Key;

/// How many directories are read at a time: a page of names costs a server more than an object, and more pages at a
/// time come no sooner.
const MAX_PARALLEL: usize = 8;

impl DirLister {
    /// Reads the directories from this one on ahead, if what is known of others beside it makes that worthwhile.
    pub(super) fn prefetch_siblings(self: &Arc<Self>, dir: &Key) {
        let Some(parent) = dir.parent() else {
            return;
        };
        let Some((above, place)) = self.dirs.get(&parent).and_then(|above| {
            let place = above.place_of(dir.name())?;
            Some((above, place))
        }) else {
            return;
        };
        let window = self.window.min(MAX_PARALLEL);
        let next = self.siblings.lock().advance(&parent, place, window);
        for name in above.directories(next.start, next.end) {
            if let Ok(dir) = parent.child(&name)
                && self.dirs.get(&dir).is_none()
            {
                self.prefetch_dir(dir);
            }
        }
    }

    /// Reads a page of all that lies in a directory, in another thread.
    pub(super) fn prefetch_dir(self: &Arc<Self>, dir: Key) {
        let prefetch = Arc::new(ListingPrefetch::new(dir.clone(), dir));
        self.prefetches.lock().push(prefetch.clone());
        let (lister, on) = (Arc::downgrade(self), prefetch.clone());
        let clock = self.inner.info().clock.clone();
        let is_submitted = self.pool.submit(move || {
            let listing = lister.upgrade().and_then(|lister| {
                let listing = lister.inner.list_all(&on.prefix, &on.prefix);
                listing.ok().flatten()
            });
            run(&lister, &on, (listing, clock));
        });
        if !is_submitted {
            self.end(&prefetch);
        }
    }

    /// Notes how many keys a directory holds, or that they are more than a page.
    pub(super) fn note_size(&self, dir: &Key, keys: Option<u64>) {
        if let Some(parent) = dir.parent() {
            self.siblings.lock().note(parent, keys);
        }
    }
}
