//! Lists a directory of a web server by WebDAV or by its index page.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use lru::LruCache;
use parking_lot::Mutex;

use super::endpoint::RequestSpec;
use super::index_page::LinkedNames;
use super::object_client::{LookupResult, ObjectClient};
use super::response::refusal;
use super::urls::Relation;
use super::webdav::Resource;
use super::{ListingMethod, webdav};
use crate::backend::cannot_list;
use crate::listing::NameList;
use crate::request_context::RequestContext;
use crate::{EntryKind, Key, LeftOut, Meta};
use zarr_format::error::{Error, Result};
use zarr_format::model::document::{IN_NODE_FOLDER, ZARR_JSON, ZARRAY, is_in_node_folder};

struct ListedName {
    name: Vec<u8>,
    kind: EntryKind,
    /// The metadata of the name, if the listing contains them.
    meta: Option<Meta>,
}

pub(super) struct FolderLister {
    objects: Arc<ObjectClient>,
    /// The directories that are known to contain a Zarr node, whose chunk directories need no requests for metadata.
    pub(super) node_folders: NodeFolders,
    /// Whether an index page of the server has ever contained a name that starts with a dot.
    shows_hidden: AtomicBool,
}

impl FolderLister {
    pub(super) fn new(objects: Arc<ObjectClient>) -> FolderLister {
        FolderLister {
            objects,
            node_folders: NodeFolders::default(),
            shows_hidden: AtomicBool::new(false),
        }
    }

    /// Lists a directory, or returns `None` if the key is no directory or has no index page. The error is `Unsupported`
    /// if the server cannot list.
    pub(super) fn names(&self, context: &RequestContext, prefix: &Key) -> Result<Option<NameList>> {
        match self.objects.listing_method {
            ListingMethod::WebDav => self.webdav_names(context, prefix),
            ListingMethod::IndexPages => self.page_names(context, prefix),
            ListingMethod::None => Err(cannot_list(prefix)),
        }
    }

    /// Lists a directory with a PROPFIND request, or returns `None` if the key is no directory.
    fn webdav_names(&self, context: &RequestContext, prefix: &Key) -> Result<Option<NameList>> {
        let spec = RequestSpec::propfind(prefix, true, '1');
        let endpoint = &self.objects.endpoint;
        let (response, bytes) = endpoint.wait(context, prefix, endpoint.fetch_document(&spec))?;
        match response.status {
            207 => {}
            404 | 409 => return Ok(None),
            // Some servers send 405 for a key that is not a directory, so the lookup of the key decides what it is.
            405 if !prefix.is_root() => return Ok(None),
            _ => return Err(response.refusal(prefix)),
        }
        let resources = webdav::resources(&bytes).map_err(|error| error.about(prefix))?;
        let (mut entries, mut is_folder) = (Vec::new(), false);
        for one in resources {
            match endpoint.urls.relation(prefix, &one.href) {
                Relation::Same => is_folder = one.is_folder && one.status.is_none(),
                Relation::Child(name, _) => {
                    entries.extend(entry(prefix, name, &one, one.meta(&endpoint.etags))?);
                }
                Relation::Elsewhere => {
                    let text = "the WebDAV response is about another directory";
                    return Err(Error::corrupt(prefix, text));
                }
            }
        }
        Ok(is_folder.then(|| ordered(entries)))
    }

    /// Lists a directory by its index page, or returns `None` if it has no index page.
    fn page_names(&self, context: &RequestContext, prefix: &Key) -> Result<Option<NameList>> {
        self.objects.endpoint.wait(context, prefix, async {
            let (response, names) = self.objects.index(prefix).await?;
            let Some(names) = names else {
                return match response.status {
                    200..=299 | 404 => Ok(None),
                    _ => Err(response.refusal(prefix)),
                };
            };
            self.with_hidden(prefix, names).await.map(Some)
        })
    }

    /// Adds the metadata documents that an index page may hide, since nginx and Apache leave out names that start with
    /// a dot. A directory of a v3 node and a directory of chunks need no such requests.
    async fn with_hidden(&self, folder: &Key, names: LinkedNames) -> Result<NameList> {
        let mut entries: Vec<ListedName> = names
            .into_iter()
            .map(|(name, kind)| {
                let is_folder = kind == EntryKind::Directory;
                ListedName {
                    name,
                    kind,
                    meta: is_folder.then(Meta::prefix),
                }
            })
            .collect();
        if entries.iter().any(|entry| entry.name.starts_with(b".")) {
            self.shows_hidden.store(true, Ordering::Relaxed);
        }
        let is_of_v3 = entries
            .iter()
            .any(|entry| entry.name == ZARR_JSON.as_bytes());
        let left_out = if self.shows_hidden.load(Ordering::Relaxed) {
            LeftOut::Nothing
        } else if is_of_v3 || self.node_folders.holds_chunks(folder) {
            LeftOut::DotNames
        } else {
            entries.extend(self.hidden_documents(folder).await?);
            LeftOut::DotNamesButDocuments
        };
        let names = entries.iter().map(|entry| entry.name.as_slice());
        self.node_folders.record_names(folder, names);
        Ok(ordered(entries).leaving_out(left_out))
    }

    /// Looks up the metadata documents whose names start with a dot, such as `.zarray`.
    async fn hidden_documents(&self, folder: &Key) -> Result<Vec<ListedName>> {
        let names = IN_NODE_FOLDER.iter().filter(|name| name.starts_with('.'));
        let keys: Result<Vec<Key>> = names.map(|name| folder.child(name.as_bytes())).collect();
        let keys = keys?;
        let responses = join_all(keys.iter().map(|key| self.objects.probe_object(key))).await;
        let mut entries = Vec::new();
        for (key, response) in keys.iter().zip(responses) {
            if let LookupResult::Object(meta) = response? {
                entries.push(ListedName {
                    name: key.name().to_vec(),
                    kind: EntryKind::File,
                    meta: Some(meta),
                });
            }
        }
        Ok(entries)
    }
}

/// Returns the listing entry of a name, or `None` if the name was just removed. Fails with the error that the server
/// reports for the name.
fn entry(
    prefix: &Key,
    name: Vec<u8>,
    one: &Resource,
    meta: Option<Meta>,
) -> Result<Option<ListedName>> {
    let Ok(key) = prefix.child(&name) else {
        return Ok(None);
    };
    match one.status {
        None => {}
        Some(404 | 410) => return Ok(None),
        Some(status) => return Err(refusal(&key, status)),
    }
    let kind = if one.is_folder {
        EntryKind::Directory
    } else {
        EntryKind::File
    };
    Ok(Some(ListedName { name, kind, meta }))
}

/// Sorts the listed names and removes duplicates. A name that is both an object and a directory is listed as a
/// directory.
fn ordered(mut entries: Vec<ListedName>) -> NameList {
    entries.sort_by(|one, other| {
        let [one, other] = [one, other].map(|entry| (&entry.name, entry.kind == EntryKind::File));
        one.cmp(&other)
    });
    entries.dedup_by(|later, earlier| later.name == earlier.name);
    let names = entries.into_iter();
    NameList::with_meta(names.map(|entry| (entry.name, entry.kind, entry.meta)))
}

/// The kind of Zarr node in a directory, as its metadata documents show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeFolder {
    /// A Zarr v3 node. If it is an array, its chunks are in directories `c`, `0`, `1` and so on.
    V3,
    /// A Zarr v2 array, so that all keys below the directory are chunks.
    V2Array,
}

/// Which directories are Zarr nodes. Index pages may hide v2 metadata documents, which are then requested one by one. A
/// directory of chunks has no metadata documents, so knowing the array above it saves these requests.
pub(super) struct NodeFolders(Mutex<LruCache<Key, NodeFolder>>);

impl Default for NodeFolders {
    fn default() -> NodeFolders {
        NodeFolders(Mutex::new(LruCache::new(
            const { NonZeroUsize::new(1 << 14).unwrap() },
        )))
    }
}

impl NodeFolders {
    /// Records that a metadata document exists, so that its directory is known to be a Zarr node.
    pub(super) fn record_document(&self, key: &Key) {
        if let (Some(node), Some(folder)) = (node_of(key.name()), key.parent()) {
            let mut folders = self.0.lock();
            if node == NodeFolder::V3 || !folders.contains(&folder) {
                folders.put(folder, node);
            }
        }
    }

    /// Records what the listed names say about the Zarr node in a directory.
    pub(super) fn record_names<'a>(&self, folder: &Key, names: impl Iterator<Item = &'a [u8]>) {
        let nodes: Vec<NodeFolder> = names.filter_map(node_of).collect();
        let is_of_v3 = nodes.contains(&NodeFolder::V3);
        let mut folders = self.0.lock();
        match nodes.first() {
            Some(_) if is_of_v3 => drop(folders.put(folder.clone(), NodeFolder::V3)),
            Some(node) => drop(folders.put(folder.clone(), *node)),
            None => drop(folders.pop(folder)),
        }
    }

    /// Removes what is known about a directory because of a metadata document, since the document may have been
    /// changed.
    pub(super) fn forget_document(&self, key: &Key) {
        if is_in_node_folder(key.name())
            && let Some(folder) = key.parent()
        {
            self.0.lock().pop(&folder);
        }
    }

    /// Whether a directory is inside an array and so contains no metadata documents. Below a v3 node, which may be a
    /// group, only directories with names like those of chunks count.
    pub(super) fn holds_chunks(&self, folder: &Key) -> bool {
        let mut folders = self.0.lock();
        let mut above = folder.parent();
        while let Some(node) = above {
            match folders.get(&node) {
                Some(NodeFolder::V2Array) => return true,
                Some(NodeFolder::V3) => {
                    return folder
                        .below(&node)
                        .is_some_and(|rest| has_chunk_names(&rest));
                }
                None => above = node.parent(),
            }
        }
        false
    }
}

fn node_of(document: &[u8]) -> Option<NodeFolder> {
    if document == ZARR_JSON.as_bytes() {
        Some(NodeFolder::V3)
    } else if document == ZARRAY.as_bytes() {
        Some(NodeFolder::V2Array)
    } else {
        None
    }
}

/// Whether a path below a v3 array may lead to chunks: `c/0/1`, or `0/1` with the chunk key encoding `v2`.
fn has_chunk_names(path: &Key) -> bool {
    let is_number = |name: &[u8]| !name.is_empty() && name.iter().all(u8::is_ascii_digit);
    let mut names = path.names();
    names
        .next()
        .is_some_and(|name| name == b"c" || is_number(name))
        && names.all(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::new(text).unwrap()
    }

    #[test]
    fn folders_of_chunks_are_recognized_below_known_nodes() {
        let folders = NodeFolders::default();
        assert!(!folders.holds_chunks(&key("a/c/0")));
        folders.record_document(&key("a/zarr.json"));
        folders.record_document(&key("b/.zarray"));
        folders.record_document(&key("b/.zattrs"));
        for chunks in ["a/c", "a/c/0/1", "a/0/1", "b/x/0"] {
            assert!(folders.holds_chunks(&key(chunks)), "{chunks}");
        }
        for other in ["a", "b", "a/child", "a/c/child", "a/c/0/child", "x/c/0"] {
            assert!(!folders.holds_chunks(&key(other)), "{other}");
        }
    }

    #[test]
    fn the_nearest_node_decides_about_chunk_folders() {
        let folders = NodeFolders::default();
        folders.record_document(&key("zarr.json"));
        folders.record_document(&key("c/zarr.json"));
        assert!(folders.holds_chunks(&key("c/0")));
        assert!(!folders.holds_chunks(&key("c/old")));
        folders.record_names(&key("c"), [b"0".as_slice(), b".zarray"].into_iter());
        assert!(folders.holds_chunks(&key("c/old")), "an array of v2 by now");
        folders.forget_document(&key("c/.zarray"));
        assert!(!folders.holds_chunks(&key("c/old")));
    }
}
