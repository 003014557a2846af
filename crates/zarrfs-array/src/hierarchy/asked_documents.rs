//! Records the document versions of a node, to detect that it is unchanged.
//!
//! Not used for short documents: reading them again costs as much as a request for their versions.

use std::sync::Arc;

use crate::hierarchy::scope::ChildScope;
use crate::hierarchy::{Hierarchy, NodeEntry};
use zarr_format::error::Result;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{Key, Object, Version};

/// The versions are asked first if all documents together have at least this many bytes.
const MIN_ASKED: usize = 64 << 10;

/// Documents and their versions; `None` for missing documents.
pub(super) type AskedVersions = Arc<[(Key, Option<Version>)]>;

/// The documents that were requested, and their total length.
#[derive(Default)]
pub(super) struct AskedDocuments {
    versions: Vec<(Key, Option<Version>)>,
    bytes: usize,
}

impl AskedDocuments {
    /// Records an answer of the store.
    pub(super) fn note(&mut self, key: &Key, object: Option<&Object>) {
        self.bytes += object.map_or(0, |object| object.bytes.len());
        let version = object.map(|object| object.version);
        self.versions.push((key.clone(), version));
    }

    /// Returns the versions to ask before the node is read again; `None` if it has to be read anyway.
    pub(super) fn worth_asking(self, is_read: bool) -> Option<AskedVersions> {
        let mut known = self.versions.iter().filter_map(|(_, version)| *version);
        let are_lasting = known.all(Version::is_lasting);
        (is_read && self.bytes >= MIN_ASKED && are_lasting).then(|| self.versions.into())
    }
}

impl Hierarchy {
    /// Whether a node that was read earlier is known to be unchanged, without reading its documents.
    pub(super) fn is_unchanged(
        &self,
        context: &RequestContext,
        old: &NodeEntry,
        scope: &ChildScope,
    ) -> Result<bool> {
        let Some(asked) = &old.asked else {
            return Ok(false);
        };
        let is_of_now = old.replacements == self.store.info().archive_generation.number();
        if !is_of_now || old.found_in != scope.identity() {
            return Ok(false);
        }
        for (key, version) in &**asked {
            if self.store.version(context, key)? != *version {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zarrfs_store::backend::memory::MemoryStore;
    use zarrfs_store::layer::counting::CountingStore;
    use zarrfs_store::request_context::UNLIMITED;
    use zarrfs_store::stats::Stats;

    fn group(words: &str) -> Vec<u8> {
        let words = words.repeat(MIN_ASKED);
        format!(r#"{{"zarr_format": 3, "node_type": "group", "attributes": {{"a": "{words}"}}}}"#)
            .into_bytes()
    }

    #[test]
    fn long_documents_that_did_not_change_are_read_once() {
        let (memory, stats) = (Arc::new(MemoryStore::default()), Arc::new(Stats::default()));
        let key = Key::new("zarr.json").unwrap();
        memory.set(key.clone(), group("x"));
        let store = CountingStore::new(memory.clone(), stats.clone());
        let hierarchy = Hierarchy::new(Arc::new(store));
        let read = || {
            let root = hierarchy.node(&UNLIMITED, &Key::root()).unwrap().unwrap();
            let attributes = root.node().unwrap().attributes().text().len();
            (stats.store_get_requests.get(), attributes)
        };
        let (first, length) = read();
        assert_eq!(read(), (first, length));
        memory.set(key, group("yy"));
        assert_eq!(read(), (2 * first, length + MIN_ASKED));
    }
}
