//! Collects the documents of all nodes below a group, for its consolidated metadata.
//!
//! The texts are kept for the TTL of the store, and longer if they took long to collect: a program that opens a group
//! asks for the length of the document first, and then for its bytes.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use lru::LruCache;
use parking_lot::Mutex;

use crate::view::plain::place::{PlainHierarchy, PlainKind, PlainNode};
use crate::view::plain::target::NodeDocument;
use zarr_format::error::{Error, Kind, Result};
use zarrfs_array::hierarchy::NodeEntry;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::budget::{MemoryBudget, Reservation};
use zarrfs_store::{Key, QueryStamp};

/// A document with consolidated metadata.
#[derive(Clone)]
pub(super) struct ConsolidatedText {
    pub(super) bytes: Bytes,
    /// The time of the last change of any document in it.
    pub(super) modified: SystemTime,
}

struct CachedText {
    text: ConsolidatedText,
    /// The version of the group's own documents.
    version: u64,
    stamp: QueryStamp,
    took: Duration,
    _room: Vec<Reservation>,
}

/// The most documents that are kept.
const MAX_TEXTS: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// How many times as long as it took to collect a document is kept.
const USES_PER_READING: u32 = 20;

/// Bytes of documents for which memory is reserved at a time.
const BATCH: usize = 1 << 20;

/// The consolidated metadata of a hierarchy's groups.
pub(super) struct ConsolidatedTexts {
    texts: Mutex<LruCache<Key, CachedText>>,
    memory: Arc<MemoryBudget>,
}

impl ConsolidatedTexts {
    /// Creates an empty cache whose documents count in `memory`.
    pub(super) fn new(memory: Arc<MemoryBudget>) -> ConsolidatedTexts {
        ConsolidatedTexts {
            texts: Mutex::new(LruCache::new(MAX_TEXTS)),
            memory,
        }
    }

    /// Returns the document of a group with its consolidated metadata. If the nodes below cannot all be known, or if
    /// their documents do not fit the memory, it has none; a document that is for them alone is an error then
    /// (`Unsupported`, `TooLarge`).
    pub(super) fn get(
        &self,
        context: &RequestContext,
        plain: &PlainHierarchy,
        group: &PlainNode,
    ) -> Result<ConsolidatedText> {
        let entry = &group.entry;
        let info = plain.hierarchy.store().info();
        if let Some(cached) = self.texts.lock().get(&entry.path)
            && cached.version == entry.version
            && !info
                .changes
                .below_changed_since(cached.stamp.position, &entry.path)
        {
            let age = info.clock.now();
            let age = age.saturating_duration_since(cached.stamp.request_time);
            if age < info.freshness.max(cached.took * USES_PER_READING) {
                return Ok(cached.text.clone());
            }
        }
        context.check_may_wait()?;
        let begun = Instant::now();
        let collect = |context: &RequestContext| self.collect(context, plain, entry);
        let (collected, stamp) = info.ask(context, collect);
        let target = plain.target;
        let is_own_document = target.group_documents.len() == 1;
        let (collected, documents) = match collected {
            Err(error)
                if is_own_document
                    && matches!(error.kind(), Kind::Unsupported | Kind::TooLarge) =>
            {
                log::debug!("{}: no consolidated metadata: {error}", entry.path);
                (Collected::nothing(entry), None)
            }
            collected => {
                let mut collected = collected?;
                let documents = std::mem::take(&mut collected.documents);
                (collected, Some(documents))
            }
        };
        let attributes = entry.node()?.attributes();
        let text = (target.group_document)(attributes, target.consolidated, documents.as_deref());
        let text = ConsolidatedText {
            bytes: text.into(),
            modified: collected.modified,
        };
        let cached = CachedText {
            text: text.clone(),
            version: entry.version,
            stamp,
            took: begun.elapsed(),
            _room: collected.room,
        };
        self.texts.lock().put(entry.path.clone(), cached);
        Ok(text)
    }

    fn collect(
        &self,
        context: &RequestContext,
        plain: &PlainHierarchy,
        group: &Arc<NodeEntry>,
    ) -> Result<Collected> {
        let mut collected = Collected::nothing(group);
        let mut groups = vec![group.clone()];
        while let Some(parent) = groups.pop() {
            let mut children = plain.hierarchy.children(context, &parent)?;
            while let Some(name) = children.next(context)? {
                let child = plain.hierarchy.child(context, &parent, &name.name)?;
                let Some(child) = child.map(|child| plain.node(child)) else {
                    continue;
                };
                if matches!(child.kind, PlainKind::Group) {
                    groups.push(child.entry.clone());
                }
                self.add(plain, group, &child, &mut collected)?;
            }
        }
        let documents = &mut collected.documents;
        documents.sort_by(|one, other| (&one.node, one.name).cmp(&(&other.node, other.name)));
        Ok(collected)
    }

    /// Adds the documents of a node; `TooLarge` if the memory has no room for them.
    fn add(
        &self,
        plain: &PlainHierarchy,
        group: &NodeEntry,
        node: &PlainNode,
        collected: &mut Collected,
    ) -> Result<()> {
        let path = node.entry.path.below(&group.path).unwrap_or_default();
        // JSON has no name for it.
        let Ok(path) = str::from_utf8(path.as_bytes()) else {
            return Ok(());
        };
        collected.modified = collected.modified.max(node.entry.modified);
        for &name in plain.documents_in_copies(node) {
            let text = plain.document(node, name)?;
            collected.bytes += path.len() + text.len();
            // The document of the group is as long as those that it is made of.
            while collected.room.len() * BATCH < 2 * collected.bytes {
                let why = "the documents of the nodes below do not fit --memory";
                let room = self.memory.try_reserve(BATCH as u64);
                let room = room.ok_or_else(|| Error::too_large(&group.path, why))?;
                collected.room.push(room);
            }
            collected.documents.push(NodeDocument {
                node: path.to_string(),
                name,
                text,
            });
        }
        Ok(())
    }
}

/// The documents of the nodes below a group.
struct Collected {
    documents: Vec<NodeDocument>,
    bytes: usize,
    modified: SystemTime,
    room: Vec<Reservation>,
}

impl Collected {
    /// The documents of no nodes.
    fn nothing(group: &NodeEntry) -> Collected {
        Collected {
            documents: Vec::new(),
            bytes: 0,
            modified: group.modified,
            room: Vec::new(),
        }
    }
}
