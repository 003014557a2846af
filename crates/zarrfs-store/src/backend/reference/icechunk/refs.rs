//! Shows all branches, tags and snapshots of an Icechunk repository as directories of one store.

use std::sync::Arc;
use std::time::Instant;

use crate::listing::NameList;
use crate::request_context::RequestContext;
use crate::sync::budget::{MemoryBudget, Priority};
use crate::sync::cache::Cache;
use crate::sync::single_flight::JOIN_TIMEOUT;
use crate::{
    ByteRange, ETag, EntryKind, Key, Listing, Meta, Object, Reader, Store, StoreInfo, Version,
};
use zarr_format::error::{Error, Kind, Result};

use super::Icechunk;
use super::Revision;

/// The directories at the root of a store that shows all revisions.
const KINDS: [&str; 3] = ["branch", "tag", "snapshot"];

/// Shows all revisions as one store, with the keys `branch/NAME/KEY`, `tag/NAME/KEY` and `snapshot/ID/KEY`.
pub(super) struct RefsStore {
    repository: Arc<Icechunk>,
    /// Cached stores, one for each revision that was read. Their snapshots count toward the memory budget.
    open: Arc<Cache<Revision, Arc<dyn Store>>>,
    info: StoreInfo,
}

/// What a key means in a store that shows all revisions.
enum Place {
    /// The store's root (`None`), or the directory of all branches, tags or snapshots.
    Directory(Option<&'static str>),
    /// A key inside one revision: the revision's store, and the key in it.
    Inside(Arc<dyn Store>, Key),
    /// The key does not exist, because no revision contains it.
    Missing,
}

impl RefsStore {
    pub(super) fn new(
        repository: Arc<Icechunk>,
        memory: Arc<MemoryBudget>,
        info: StoreInfo,
    ) -> RefsStore {
        RefsStore {
            repository,
            open: Cache::new(memory, Priority::Metadata, None),
            info,
        }
    }

    /// Finds out what a key means: a directory of revisions, or a key inside a revision.
    fn place(&self, context: &RequestContext, key: &Key) -> Result<Place> {
        let mut names = key.names();
        let Some(first) = names.next() else {
            return Ok(Place::Directory(None));
        };
        let Some(kind) = KINDS.iter().find(|kind| kind.as_bytes() == first) else {
            return Ok(Place::Missing);
        };
        let Some(name) = names.next() else {
            return Ok(Place::Directory(Some(kind)));
        };
        let Ok(name) = std::str::from_utf8(name) else {
            return Ok(Place::Missing);
        };
        let revision = match *kind {
            "branch" => Revision::Branch(name.to_string()),
            "tag" => Revision::Tag(name.to_string()),
            _ => Revision::Snapshot(name.to_string()),
        };
        let rest = names.collect::<Vec<_>>().join(&b'/');
        match self.store(context, revision) {
            Ok(store) => Ok(Place::Inside(store, Key::new(rest)?)),
            Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Invalid) => {
                Ok(Place::Missing)
            }
            Err(error) => Err(error),
        }
    }

    fn store(&self, context: &RequestContext, revision: Revision) -> Result<Arc<dyn Store>> {
        let deadline = Instant::now() + JOIN_TIMEOUT;
        let open = || self.repository.store_of(context, &revision);
        self.open.load(context, &revision, deadline, open)
    }

    /// Runs a query in the store of the key's revision. Returns `None` if the key is in no revision.
    fn inside<T>(
        &self,
        context: &RequestContext,
        key: &Key,
        query: impl FnOnce(&dyn Store, &Key) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        match self.place(context, key)? {
            Place::Inside(store, key) => query(&*store, &key),
            Place::Directory(_) | Place::Missing => Ok(None),
        }
    }
}

impl Store for RefsStore {
    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        self.inside(context, key, |store, key| store.get(context, key, limit))
    }

    fn get_range(
        &self,
        context: &RequestContext,
        key: &Key,
        range: ByteRange,
    ) -> Result<Option<Object>> {
        self.inside(context, key, |store, key| {
            store.get_range(context, key, range)
        })
    }

    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        match self.place(context, key)? {
            Place::Directory(_) => Ok(Some(Meta::prefix())),
            Place::Inside(store, key) => store.head(context, &key),
            Place::Missing => Ok(None),
        }
    }

    fn version(&self, context: &RequestContext, key: &Key) -> Result<Option<Version>> {
        self.inside(context, key, |store, key| store.version(context, key))
    }

    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>> {
        match self.place(context, key)? {
            Place::Inside(store, inner) => store
                .open(context, &inner, known)
                .map_err(|error| error.about(key)),
            Place::Directory(_) => Err(Error::new(Kind::IsADirectory, key, "is a directory")),
            Place::Missing => Err(Error::not_found(key)),
        }
    }

    fn list(&self, context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>> {
        let names = match self.place(context, prefix)? {
            Place::Directory(None) => KINDS.map(str::to_string).to_vec(),
            Place::Directory(Some(kind)) => self.repository.names(context, kind)?,
            Place::Inside(store, key) => return store.list(context, &key),
            Place::Missing => return Err(Error::not_found(prefix)),
        };
        let names = names
            .into_iter()
            .map(|name| (name.into_bytes(), EntryKind::Directory));
        Ok(Box::new(NameList::new(names)))
    }

    fn etag(&self, context: &RequestContext, key: &Key) -> Result<Option<ETag>> {
        self.inside(context, key, |store, key| store.etag(context, key))
    }

    fn info(&self) -> &StoreInfo {
        &self.info
    }
}
