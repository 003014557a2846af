//! Collects the documents of all nodes below a group, for its consolidated metadata.
//!
//! The texts are cached, since a program that opens a group requests the length of the document first, and then its
//! bytes. A text is valid for the TTL of the store. In a local store, it is valid longer if it took long to collect.

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
use zarrfs_store::request_context::{RequestContext, UNLIMITED};
use zarrfs_store::sync::budget::{MemoryBudget, Reservation};
use zarrfs_store::sync::single_flight::SingleFlight;
use zarrfs_store::{Key, Listing, Name, QueryStamp};

/// The text of a group's metadata document that contains consolidated metadata.
#[derive(Clone)]
pub(super) struct ConsolidatedText {
    pub(super) bytes: Bytes,
    /// The latest modification time of the documents that the text contains.
    pub(super) modified: SystemTime,
}

struct CachedText {
    text: ConsolidatedText,
    /// The version of the group's stored metadata documents.
    version: u64,
    stamp: QueryStamp,
    took: Duration,
    _room: Vec<Reservation>,
}

/// Bytes of memory that are reserved from the budget at a time while documents are collected.
const BATCH: usize = 1 << 20;

/// A cache of the consolidated metadata of a hierarchy's groups.
pub(super) struct ConsolidatedTexts {
    texts: Mutex<LruCache<Key, CachedText>>,
    /// The groups for which documents are being collected.
    collecting: SingleFlight<Key, ConsolidatedText>,
    memory: Arc<MemoryBudget>,
}

impl ConsolidatedTexts {
    /// Creates an empty cache, whose collected documents use memory of the budget `memory`.
    pub(super) fn new(memory: Arc<MemoryBudget>) -> ConsolidatedTexts {
        ConsolidatedTexts {
            texts: Mutex::new(LruCache::new(const { NonZeroUsize::new(64).unwrap() })),
            collecting: SingleFlight::default(),
            memory,
        }
    }

    /// Returns a group's metadata document with consolidated metadata. If the nodes below the group are unknown
    /// (`Unsupported`) or their documents exceed the memory budget (`TooLarge`), returns the document without
    /// consolidated metadata, or fails for `.zmetadata`, which contains nothing else. Concurrent callers share one
    /// collection, which is completed even if they stop waiting.
    pub(super) fn get(
        &self,
        context: &RequestContext,
        plain: &PlainHierarchy,
        group: &PlainNode,
    ) -> Result<ConsolidatedText> {
        if let Some(text) = self.kept(context, plain, &group.entry) {
            return Ok(text);
        }
        context.check_may_wait()?;
        // Time limit for a caller that waits for the collection of another caller.
        let deadline = Instant::now() + Duration::from_secs(600);
        self.collecting
            .run(context, &group.entry.path, deadline, || {
                // Another caller may have collected the documents just before.
                match self.kept(context, plain, &group.entry) {
                    Some(text) => Ok(text),
                    None => self.make(plain, &group.entry),
                }
            })
    }

    /// Returns the cached document of a group if it is still valid, or else `None`.
    fn kept(
        &self,
        context: &RequestContext,
        plain: &PlainHierarchy,
        group: &NodeEntry,
    ) -> Option<ConsolidatedText> {
        let info = plain.hierarchy.store().info();
        let mut texts = self.texts.lock();
        let kept = texts.get(&group.path)?;
        let age = info.clock.now();
        let age = age.saturating_duration_since(kept.stamp.request_time);
        // A document of a local store is valid for at least 20 times the time that its collection took. For a remote
        // store, the user has set how old answers may be.
        let usable = match &info.folder {
            Some(_) => info.freshness.max(kept.took * 20),
            None => info.freshness,
        };
        let is_valid = kept.version == group.version
            && age < usable
            && !info
                .changes
                .below_changed_since(kept.stamp.position, &group.path);
        if is_valid {
            context.record_age(kept.stamp.request_time);
        }
        is_valid.then(|| kept.text.clone())
    }

    /// Collects the documents below a group, and caches the consolidated metadata.
    fn make(&self, plain: &PlainHierarchy, group: &Arc<NodeEntry>) -> Result<ConsolidatedText> {
        let begun = Instant::now();
        let collect = |context: &RequestContext| self.collect(context, plain, group);
        let (collected, stamp) = plain.hierarchy.store().info().ask(&UNLIMITED, collect);
        let target = plain.target;
        let has_others = target.group_documents.len() == 1;
        let (collected, documents) = match collected {
            Err(error)
                if has_others && matches!(error.kind(), Kind::Unsupported | Kind::TooLarge) =>
            {
                log::debug!("{}: no consolidated metadata: {error}", group.path);
                (Collected::nothing(group), None)
            }
            collected => {
                let mut collected = collected?;
                let documents = std::mem::take(&mut collected.documents);
                (collected, Some(documents))
            }
        };
        let attributes = group.node()?.attributes();
        let text = (target.group_document)(attributes, target.consolidated, documents.as_deref());
        let text = ConsolidatedText {
            bytes: text.into(),
            modified: collected.modified,
        };
        let kept = CachedText {
            text: text.clone(),
            version: group.version,
            stamp,
            took: begun.elapsed(),
            _room: collected.room,
        };
        self.texts.lock().put(group.path.clone(), kept);
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
            let mut children = match plain.hierarchy.children(context, &parent) {
                // The group was removed after it was listed in its parent.
                Err(error) if error.kind() == Kind::NotFound && !Arc::ptr_eq(&parent, group) => {
                    continue;
                }
                children => children?,
            };
            while let Some(name) = next_name(context, &mut *children)? {
                let child = plain.hierarchy.child(context, &parent, &name.name)?;
                let Some(child) = child.map(|child| plain.node(child)) else {
                    continue;
                };
                match &child.kind {
                    PlainKind::Group => groups.push(child.entry.clone()),
                    PlainKind::Unread(error) => return Err(error.clone()),
                    PlainKind::Array(_) | PlainKind::LeftOut(_) => {}
                }
                self.add(plain, group, &child, &mut collected)?;
            }
        }
        let documents = &mut collected.documents;
        documents.sort_by(|one, other| (&one.node, one.name).cmp(&(&other.node, other.name)));
        Ok(collected)
    }

    /// Adds the documents of a node to those collected. Fails with `TooLarge` if they exceed the memory budget.
    fn add(
        &self,
        plain: &PlainHierarchy,
        group: &NodeEntry,
        node: &PlainNode,
        collected: &mut Collected,
    ) -> Result<()> {
        let path = node.entry.path.below(&group.path).unwrap_or_default();
        // JSON cannot express a path that is not UTF-8.
        let Ok(path) = str::from_utf8(path.as_bytes()) else {
            return Ok(());
        };
        collected.modified = collected.modified.max(node.entry.modified);
        for &name in plain.documents_in_copies(node) {
            let text = plain.document(node, name)?;
            collected.bytes += path.len() + text.len();
            // Memory is reserved for twice the bytes, because the consolidated metadata are about as long as the
            // documents.
            while collected.room.len() * BATCH < 2 * collected.bytes {
                let why = "the metadata of all nodes below exceed --memory: give more --memory";
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

fn next_name(context: &RequestContext, listing: &mut dyn Listing) -> Result<Option<Name>> {
    match listing.next(context) {
        Err(error) if error.kind() == Kind::NotFound => Ok(None),
        name => name,
    }
}

/// The metadata documents of the nodes below a group that were collected so far.
struct Collected {
    documents: Vec<NodeDocument>,
    bytes: usize,
    modified: SystemTime,
    room: Vec<Reservation>,
}

impl Collected {
    fn nothing(group: &NodeEntry) -> Collected {
        Collected {
            documents: Vec::new(),
            bytes: 0,
            modified: group.modified,
            room: Vec::new(),
        }
    }
}
