//! Reads the node at a path: which documents there are, in the order that the rule of its ground says.
//!
//! A document that does not read makes a broken node, which is still there; only a failed store is an error.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::SystemTime;

use crate::dialect::draft::{self, Draft, EntryPoint};
use crate::dialect::{Choice, Dialect, Document, DocumentMap, consolidated, tried_below};
use crate::error::{Kind, Result};
use crate::hierarchy::consolidated::{Consolidated, version_of};
use crate::hierarchy::ground::{ChildScope, Rule};
use crate::hierarchy::{Hierarchy, MAX_DOCUMENT, NodeEntry, detect};
use crate::model::document::{ZARR_JSON, ZMETADATA};
use crate::model::{Group, Node};
use crate::store::{EntryKind, Key, Meta, Version};

/// What an entry point has and other documents have not, so that most need not be read twice; and how long an
/// entry point is at most.
const SIGN: &[u8] = b"\"metadata_encoding\"";
const MAX_ENTRY: usize = 1 << 20;

/// One reading of a node: the documents that were asked for, and what they came to.
struct NodeReading<'a> {
    path: &'a Key,
    ground: ChildScope,
    versions: DefaultHasher,
    newest: Option<SystemTime>,
    /// Whether no document describes the node.
    is_implied: bool,
    /// A document that was read before somebody knew who needs it.
    kept: Option<Document>,
}

impl NodeReading<'_> {
    /// Reads a document. One whose name is too long is not there.
    fn document(&mut self, key: &Key) -> Result<Document> {
        if let Some(kept) = self.kept.take_if(|kept| kept.key == *key) {
            return Ok(kept);
        }
        let object = match self.ground.store.get(key, MAX_DOCUMENT) {
            Err(error) if error.kind() == Kind::NameTooLong => None,
            answer => answer?,
        };
        if let Some(object) = &object {
            (key, object.version).hash(&mut self.versions);
            let modified = match object.modified {
                None => self.ground.store.head(key)?.map(|meta| meta.modified),
                told => told,
            };
            self.newest = self.newest.max(modified);
        }
        Ok(Document {
            key: key.clone(),
            bytes: object.map(|object| object.bytes),
        })
    }

    /// Returns what was found in the documents that were read.
    fn found(self, node: Result<Node>) -> NodeEntry {
        let version = match self.is_implied {
            true => self.ground.implied_version(),
            false => {
                let mut versions = self.versions;
                self.ground.version.hash(&mut versions);
                if !matches!(node, Ok(Node::Array(_))) {
                    self.ground.consolidated.hash(&mut versions);
                }
                versions.finish()
            }
        };
        NodeEntry {
            path: self.path.clone(),
            node,
            version,
            modified: self.newest.unwrap_or(SystemTime::UNIX_EPOCH),
            ground: self.ground,
        }
    }
}

impl Hierarchy {
    /// Reads the node at a path; nothing if there is none. `old` is what was there before.
    pub(super) fn read(
        &self,
        path: &Key,
        ground: &ChildScope,
        old: Option<&NodeEntry>,
    ) -> Result<Option<NodeEntry>> {
        let mut reading = NodeReading {
            path,
            ground: ground.clone(),
            versions: DefaultHasher::new(),
            newest: None,
            is_implied: false,
            kept: None,
        };
        let outcome = match &ground.rule {
            Rule::Draft(entry) => self.drafted(&mut reading, entry),
            Rule::Plain(dialects) => self.plain(&mut reading, dialects),
            Rule::Closed => return Ok(None),
        };
        let node = match outcome {
            Ok(node) => node,
            // Documents that can never be read are a fault of the node, not of the store.
            Err(error) if is_lasting(error.kind()) => {
                if self.leads_nowhere(path, ground)? {
                    return Ok(None);
                }
                Some(Err(error))
            }
            Err(error) => return Err(error),
        };
        let node = match node {
            Some(node) => Some(node),
            None => self.without_document(&mut reading)?,
        };
        let Some(node) = node else { return Ok(None) };
        if ground.consolidated.is_none() && matches!(node, Ok(Node::Group(_))) {
            self.consolidate(&mut reading, old)?;
        }
        Ok(Some(reading.found(node)))
    }

    /// Whether a path is a link that may not or cannot be followed: then nobody knows of a node behind it.
    fn leads_nowhere(&self, path: &Key, ground: &ChildScope) -> Result<bool> {
        let is_path = matches!(ground.rule, Rule::Plain(_));
        let is_link = |meta: Meta| meta.kind == EntryKind::Link;
        Ok(
            is_path
                && self.store.head(path)?.is_some_and(is_link)
                && self.store.list(path).is_err(),
        )
    }

    /// Reads a node by its own documents, or the entry point of a draft.
    fn plain(
        &self,
        reading: &mut NodeReading<'_>,
        dialects: &'static [&'static Dialect],
    ) -> Result<Option<Result<Node>>> {
        if reading.path.is_root() {
            // Nobody knows yet which of them there are; below, it is most likely those of the node above.
            let keys = dialects
                .iter()
                .map(|dialect| (dialect.documents)(reading.path));
            let keys: Result<Vec<_>> = keys.collect();
            reading.ground.store.ask_ahead(&keys?.concat());
        }
        match self.config.dialect {
            None => {
                if let Some(node) = self.entered(reading)? {
                    return Ok(Some(node));
                }
            }
            Some(Choice::Draft(draft)) => return self.chosen(reading, draft),
            Some(Choice::Plain(_)) => {}
        }
        for dialect in dialects {
            let keys = (dialect.documents)(reading.path)?;
            if keys.len() > 1 {
                reading.ground.store.ask_ahead(&keys);
            }
            let documents: Result<Vec<_>> = keys.iter().map(|key| reading.document(key)).collect();
            let documents = documents?;
            match (dialect.parse)(reading.path, &documents) {
                Ok(None) => {}
                Ok(Some(node)) => {
                    if let Node::Group(_) = node
                        && let Some(below) = tried_below(dialect, dialects)
                    {
                        reading.ground.version = hash_of(dialect.name);
                        reading.ground.rule = Rule::Plain(below);
                    }
                    reading.kept = documents.into_iter().next();
                    return Ok(Some(Ok(node)));
                }
                Err(error) => return Ok(Some(Err(error))),
            }
        }
        Ok(None)
    }

    /// Reads the root of a draft's hierarchy if `zarr.json` is an entry point.
    fn entered(&self, reading: &mut NodeReading<'_>) -> Result<Option<Result<Node>>> {
        let key = reading.path.child(ZARR_JSON.as_bytes())?;
        let document = reading.document(&key)?;
        let bytes = document.bytes.as_deref().unwrap_or_default();
        let has_sign =
            bytes.len() <= MAX_ENTRY && bytes.windows(SIGN.len()).any(|part| part == SIGN);
        let members = match has_sign {
            true => document.object().unwrap_or_default(),
            false => None,
        };
        let version = version_of(bytes);
        reading.kept = Some(document);
        let Some(members) = members else {
            return Ok(None);
        };
        let entry = match draft::draft_of(&members) {
            Ok(None) => return Ok(None),
            Ok(Some(draft)) => EntryPoint::new(draft, reading.path, Some(&members)),
            Err(error) => Err(error),
        };
        match entry {
            Ok(entry) => self.draft_root(reading, entry, version.0),
            Err(error) => {
                reading.ground.rule = Rule::Closed;
                Ok(Some(Err(error.about(&key))))
            }
        }
    }

    /// Reads the root of a draft that a person has chosen; the entry point may be missing.
    fn chosen(
        &self,
        reading: &mut NodeReading<'_>,
        draft: &'static Draft,
    ) -> Result<Option<Result<Node>>> {
        let key = reading.path.child(ZARR_JSON.as_bytes())?;
        let document = reading.document(&key)?;
        let entry = document
            .object()
            .and_then(|members| EntryPoint::new(draft, reading.path, members.as_ref()));
        match entry {
            Ok(entry) => {
                let version = version_of(document.bytes.as_deref().unwrap_or_default());
                self.draft_root(reading, entry, version.0)
            }
            Err(error) => {
                reading.ground.rule = Rule::Closed;
                Ok(Some(Err(error.about(&key))))
            }
        }
    }

    /// Reads the root node of a draft's hierarchy, which is a group if no document says more.
    fn draft_root(
        &self,
        reading: &mut NodeReading<'_>,
        entry: EntryPoint,
        version: u64,
    ) -> Result<Option<Result<Node>>> {
        let entry = Arc::new(entry);
        reading.ground.version = hash_of((entry.name(), version));
        reading.ground.rule = Rule::Draft(entry.clone());
        let root = self.drafted(reading, &entry)?;
        Ok(Some(
            root.unwrap_or_else(|| Ok(Node::Group(Group::default()))),
        ))
    }

    /// Reads a node where an entry point says it is: array first, then group (drafts, "Determine if a node
    /// exists").
    fn drafted(
        &self,
        reading: &mut NodeReading<'_>,
        entry: &EntryPoint,
    ) -> Result<Option<Result<Node>>> {
        for (shape, key) in entry.documents(reading.path)? {
            let document = reading.document(&key)?;
            let members = match document.object() {
                Ok(None) => continue,
                Ok(Some(members)) => members,
                Err(error) => return Ok(Some(Err(error))),
            };
            reading.is_implied = false;
            let parsed = entry.parse(reading.path, shape, &members, self.config.settings);
            return Ok(Some(match parsed {
                Ok(parsed) => {
                    self.warn(reading.path, parsed.warning);
                    Ok(parsed.node)
                }
                Err(error) => Err(error.about(&key)),
            }));
        }
        Ok(None)
    }

    /// Reads a directory without documents: a group that nobody wrote down, or the root of a hierarchy of 2019.
    fn without_document(&self, reading: &mut NodeReading<'_>) -> Result<Option<Result<Node>>> {
        let folder = match &reading.ground.rule {
            Rule::Plain(_) => reading.path.clone(),
            Rule::Draft(entry) => entry.folder(reading.path)?,
            Rule::Closed => return Ok(None),
        };
        let Some(meta) = reading
            .ground
            .store
            .head(&folder)?
            .filter(|meta| meta.kind == EntryKind::Directory)
        else {
            return Ok(None);
        };
        // Documents that were read and described nothing are no documents.
        reading.newest = Some(meta.modified);
        reading.is_implied = true;
        let may_be_2019 =
            self.config.dialect.is_none() && matches!(reading.ground.rule, Rule::Plain(_));
        if may_be_2019 && detect::is_2019(&*reading.ground.store, reading.path)? {
            return self.draft_root(reading, draft::entry_2019(reading.path)?, 0);
        }
        Ok(Some(Ok(Node::Group(Group::default()))))
    }

    /// Puts consolidated metadata under a group's children, where they are wanted and there are some.
    fn consolidate(&self, reading: &mut NodeReading<'_>, old: Option<&NodeEntry>) -> Result<()> {
        if !self.config.consolidated && self.store.lists() {
            return Ok(());
        }
        let (key, bytes) = match self.consolidated_document(reading) {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(()),
            Err(error) if is_lasting(error.kind()) => {
                self.warn(reading.path, Some(error.to_string()));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let version = version_of(&bytes);
        if let Some(old) = old.filter(|old| old.ground.consolidated == Some(version)) {
            reading.ground.store = old.ground.store.clone();
            reading.ground.consolidated = Some(version);
            return Ok(());
        }
        match documents_in(&key, &bytes) {
            Ok(Some(documents)) => self.put_under(reading, documents, version),
            Ok(None) => {}
            Err(error) => self.warn(reading.path, Some(error.about(&key).to_string())),
        }
        Ok(())
    }

    /// Finds the document that holds consolidated metadata: final v3 has them in the group's own.
    fn consolidated_document(
        &self,
        reading: &mut NodeReading<'_>,
    ) -> Result<Option<(Key, Vec<u8>)>> {
        let key = match &reading.ground.rule {
            Rule::Draft(entry) => entry.consolidated()?,
            Rule::Closed => None,
            Rule::Plain(_) => {
                let own = reading.kept.take();
                if let Some(own) = own.filter(|own| own.key.name() == ZARR_JSON.as_bytes())
                    && let Some(bytes) = own.bytes
                {
                    return Ok(Some((own.key, bytes)));
                }
                Some(reading.path.child(ZMETADATA.as_bytes())?)
            }
        };
        let Some(key) = key else { return Ok(None) };
        let object = self.store.get(&key, MAX_DOCUMENT)?;
        Ok(object.map(|object| (key, object.bytes)))
    }

    fn put_under(
        &self,
        reading: &mut NodeReading<'_>,
        documents: Vec<(Key, Vec<u8>)>,
        version: Version,
    ) {
        let modified = reading.newest.unwrap_or(SystemTime::UNIX_EPOCH);
        let store = Consolidated::new(self.store.clone(), reading.path, documents, modified);
        reading.ground.store = Arc::new(store);
        reading.ground.consolidated = Some(version);
    }
}

/// Reads consolidated metadata out of the document that holds them.
fn documents_in(key: &Key, bytes: &[u8]) -> Result<Option<DocumentMap>> {
    if key.name() == ZMETADATA.as_bytes() {
        return consolidated::parse_document(bytes).map(Some);
    }
    let document = Document {
        key: key.clone(),
        bytes: Some(bytes.to_vec()),
    };
    let members = document.object()?.unwrap_or_default();
    match members.get(consolidated::MEMBER) {
        None => Ok(None),
        Some(member) => consolidated::parse_member(member),
    }
}

fn is_lasting(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::TooLarge | Kind::Corrupt | Kind::Denied | Kind::Unsupported
    )
}

fn hash_of(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
