//! Asks the store what a change of names needs, before the names are locked.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use crate::journal_record::ContentDigest;
use crate::layered_store::{LayeredStore, Resolved};
use crate::overlay_core::OverlayCore;
use crate::{content, listing};
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::pool::parallel_map;
use zarrfs_store::{ChangeLog, EntryKind, Key, LogPosition, Meta, Version};

/// Something that a change of names must know about the store or the frozen layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// The metadata of an object or folder.
    Head(Key),
    /// The version of an object. Its digest is included if the object has at most the given number of bytes.
    Content(Key, u64),
    /// The first name that a listing of a folder on the mount returns.
    FirstName(Key),
}

enum Answer {
    Head(Key, Option<Meta>),
    Content(Key, Option<LowerContent>),
    FirstName(Key, FirstName),
}

/// The version of an object, with its length and digest if they are known.
#[derive(Clone, Copy)]
pub(crate) struct LowerContent {
    pub(crate) version: Version,
    pub(crate) content: Option<ContentDigest>,
}

/// The first name in a folder on the mount, at one moment.
#[derive(Clone)]
struct FirstName {
    /// Position in the log of changes before the folder was listed.
    since: LogPosition,
    name: Option<Vec<u8>>,
}

/// What the store answered about the keys of a change of names, and the questions that are still open.
///
/// The answers are used for one change only, and are dropped if a commit exchanges the layers. They describe a moment
/// before the change. Requests under the lock of the names would not give better answers, since other programs change
/// the store without that lock.
#[derive(Default)]
pub(crate) struct LowerAnswers {
    heads: RefCell<HashMap<Key, Option<Meta>>>,
    contents: RefCell<HashMap<Key, Option<LowerContent>>>,
    first_names: RefCell<HashMap<Key, FirstName>>,
    missing: RefCell<Vec<Question>>,
}

impl LowerAnswers {
    pub(crate) fn take_missing(&self) -> Vec<Question> {
        self.missing.take()
    }

    /// Adds an open question. The caller returns the resulting error, and the change is retried when the answer is
    /// known.
    fn need(&self, question: Question) -> Error {
        let mut missing = self.missing.borrow_mut();
        if !missing.contains(&question) {
            missing.push(question);
        }
        Error::unavailable("overlay", "the answer of the store is not known yet")
    }

    /// Returns the metadata of a key in the store, or an error if the question must first be asked.
    pub(crate) fn head(&self, lower: &Key) -> Result<Option<Meta>> {
        let known = self.heads.borrow().get(lower).copied();
        known.ok_or_else(|| self.need(Question::Head(lower.clone())))
    }

    /// Returns version and digest of an object in the store, or an error if the question must first be asked.
    pub(crate) fn content(&self, lower: &Key, limit: u64) -> Result<Option<LowerContent>> {
        let known = self.contents.borrow().get(lower).copied();
        known.ok_or_else(|| self.need(Question::Content(lower.clone(), limit)))
    }

    /// Returns the first name in a folder, or `None` if the folder is empty. If the folder changed after it was listed,
    /// its listing is not used, and the question must be asked again.
    pub(crate) fn first_name(&self, prefix: &Key, changes: &ChangeLog) -> Result<Option<Vec<u8>>> {
        let known = self.first_names.borrow().get(prefix).cloned();
        let known = known.filter(|known| !changes.below_changed_since(known.since, prefix));
        let known = known.ok_or_else(|| self.need(Question::FirstName(prefix.clone())))?;
        Ok(known.name)
    }

    /// Asks the store the questions in `missing`, and remembers the answers.
    pub(crate) fn query(&self, query: &LowerQuery<'_>, missing: Vec<Question>) -> Result<()> {
        let ask = |question: Question| query.ask(question);
        // At most 16 requests run at a time.
        for answer in parallel_map(16, missing, &ask) {
            match answer? {
                Answer::Head(key, meta) => drop(self.heads.borrow_mut().insert(key, meta)),
                Answer::Content(key, content) => {
                    self.contents.borrow_mut().insert(key, content);
                }
                Answer::FirstName(key, name) => {
                    self.first_names.borrow_mut().insert(key, name);
                }
            }
        }
        Ok(())
    }
}

/// Asks the store for what a change of names must know. The lock of the names must not be held.
pub(crate) struct LowerQuery<'a> {
    pub(crate) core: &'a Arc<OverlayCore>,
    pub(crate) context: &'a RequestContext,
    pub(crate) top: &'a LayeredStore,
}

impl LowerQuery<'_> {
    fn ask(&self, question: Question) -> Result<Answer> {
        Ok(match question {
            Question::Head(key) => {
                let meta = self.top.lower.head(self.context, &key)?;
                Answer::Head(key, meta)
            }
            Question::Content(key, limit) => {
                let content = self.content(&key, limit)?;
                Answer::Content(key, content)
            }
            Question::FirstName(prefix) => {
                let since = self.core.info.changes.position();
                let name = self.first_name(&prefix)?;
                Answer::FirstName(prefix, FirstName { since, name })
            }
        })
    }

    /// Returns version and digest of an object in the store. An object that cannot be read has no digest, so that it
    /// can still be replaced and removed.
    fn content(&self, key: &Key, limit: u64) -> Result<Option<LowerContent>> {
        let digested = self
            .core
            .takes_digests()
            .then(|| self.top.lower.open(self.context, key, None));
        let digested = digested.and_then(Result::ok);
        let digested = digested
            .and_then(|reader| content::short_content(self.context, &*reader, limit).ok()?);
        if let Some(stored) = digested {
            return Ok(Some(LowerContent {
                version: stored.version,
                content: Some(stored.content),
            }));
        }
        let version = self.top.lower.version(self.context, key)?;
        Ok(version.map(|version| LowerContent {
            version,
            content: None,
        }))
    }

    /// Returns the first name in a folder on the mount, or `None` if the folder is empty or missing.
    fn first_name(&self, prefix: &Key) -> Result<Option<Vec<u8>>> {
        let mut names = match listing::of_overlay(self.context, self.core, prefix) {
            Err(error) if matches!(error.kind(), Kind::NotFound | Kind::NotADirectory) => {
                return Ok(None);
            }
            names => names?,
        };
        while let Some(name) = names.next(self.context)? {
            if self.still_shows(&prefix.child(&name.name)?)? {
                return Ok(Some(name.name));
            }
        }
        Ok(None)
    }

    /// Whether a name that was listed still exists. With write-through, a folder's last key may be gone already. Some
    /// buckets then list the folder for a while, and consolidated metadata may still name it.
    fn still_shows(&self, key: &Key) -> Result<bool> {
        let may_linger = self.core.config.write_through && self.core.store.info().folder.is_none();
        match self.core.top().find(self.context, key)? {
            Some(Resolved::Lower(_, meta)) if may_linger && meta.kind == EntryKind::Directory => {
                Ok(self.first_name(key)?.is_some())
            }
            found => Ok(found.is_some()),
        }
    }
}
