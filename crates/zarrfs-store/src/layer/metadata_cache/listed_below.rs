//! Fills the cache by one recursive listing, for callers that announce a walk.
//!
//! `learn` reads pages while each covers several directories, so that it never costs more requests than separate
//! listings; `all_below` returns the result. `flat_listing` serves clients that only list directories, and has to guess
//! the next ones.

use super::assembler::{AssembledDir, DirAssembler, Unsorted};
use super::dirs::DirCache;
use super::flat_listing::DirLister;
use crate::request_context::RequestContext;
use crate::{EntryKind, Key, Meta, QueryStamp};

/// Minimum number of directories that a page must complete for the next page to be read: with fewer, each directory
/// fills a page of its own.
const MIN_DIRS_PER_PAGE: usize = 2;

impl DirLister {
    /// Caches the unknown directories of `folders` and everything below them, while that saves requests. Later queries
    /// will report the errors.
    pub(super) fn learn(&self, context: &RequestContext, top: &Key, folders: &[Key]) {
        if self.is_unsorted() {
            return;
        }
        let is_unknown = |folder: &&Key| self.dirs.get(folder).is_none();
        let mut wanted: Vec<&Key> = folders.iter().filter(is_unknown).collect();
        wanted.sort_by_cached_key(|folder| [folder.as_bytes(), b"/"].concat());
        let Some(first) = wanted.first() else { return };
        if let Err(Unsorted) = self.read_below(context, top, first, &wanted) {
            self.give_up();
        }
    }

    /// Reads pages from one directory on until all wanted ones are cached, or too few are per page.
    fn read_below(
        &self,
        context: &RequestContext,
        top: &Key,
        from: &Key,
        wanted: &[&Key],
    ) -> Result<(), Unsorted> {
        let (listing, stamp) = self
            .inner
            .info()
            .ask(context, |context| self.inner.list_all(context, top, from));
        let Ok(Some(mut listing)) = listing else {
            return Ok(());
        };
        let mut assembler = DirAssembler::new(top.clone());
        let mut wanted = wanted.iter().peekable();
        let (mut pages, mut known) = (0, 0);
        while wanted.peek().is_some() && known >= pages * MIN_DIRS_PER_PAGE && !listing.has_ended()
        {
            let asked = self.inner.info().clock.now();
            let Ok(page) = listing.next(context) else {
                return Ok(());
            };
            let page = page.unwrap_or_default().into_iter();
            let complete = page.map(|(key, meta)| assembler.take(key, meta, asked));
            // A page counts only if all its keys are sorted.
            let complete: Vec<Vec<AssembledDir>> = complete.collect::<Result<_, Unsorted>>()?;
            self.store_dirs(stamp, complete.into_iter().flatten());
            pages += 1;
            while wanted
                .next_if(|folder| self.dirs.get(folder).is_some())
                .is_some()
            {
                known += 1;
            }
        }
        if listing.has_ended() {
            self.store_dirs(stamp, assembler.end().into_iter());
        }
        Ok(())
    }

    /// Caches directories from a recursive listing that began at `stamp`.
    fn store_dirs(&self, stamp: QueryStamp, found: impl Iterator<Item = AssembledDir>) {
        for AssembledDir {
            prefix,
            asked,
            names,
        } in found
        {
            let dir = self.dirs.complete(prefix, asked, names, None);
            self.changes
                .store_if_unchanged_below(stamp, &dir.prefix, || self.dirs.put(&dir));
        }
    }
}

/// Returns all objects below a directory in byte order, or `None` unless all of them are cached.
pub(super) fn all_below(
    context: &RequestContext,
    dirs: &DirCache,
    folder: &Key,
) -> Option<Vec<(Key, Meta)>> {
    let mut found = Vec::new();
    let mut open = vec![folder.clone()];
    let mut times = Vec::new();
    while let Some(prefix) = open.pop() {
        let dir = dirs.get(&prefix)?;
        times.push(dir.asked);
        for (name, entry) in dir.all_names()? {
            let key = prefix.child(&name).ok()?;
            match (entry.kind, entry.meta?) {
                (EntryKind::File, meta) => found.push((key, meta)),
                // A directory that is an object as well has other metadata.
                (EntryKind::Directory, meta) if meta == Meta::prefix() => open.push(key),
                _ => return None,
            }
        }
    }
    times
        .into_iter()
        .for_each(|asked| context.note_memory(asked));
    found.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    Some(found)
}
