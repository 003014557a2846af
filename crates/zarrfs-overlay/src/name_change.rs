//! A change of names, made under the lock of the names by what the store was asked before.
//!
//! That lock is not held during a request to the store. A change that needs an answer which was not asked for gives up
//! before it has changed anything; the question is asked without the lock, and the change starts again. Answers count
//! for one change only, and not across an exchange of layers. They are of a moment before the change, as they would be
//! if they had been asked for under the lock: other programs change the store without it. A request that was refused
//! while it was waiting for an answer makes no change.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use super::journal_line::{ContentDigest, JournalRecord};
use super::layered_store::LayeredStore;
use super::{OverlayCore, Resolved, content, listing};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::document::describes_node;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::pool::parallel_map;
use zarrfs_store::{EntryKind, Key, LogPosition, Meta, Store, Version};

/// A change of names at work: the names are locked.
pub(super) struct NameChange<'a> {
    core: &'a Arc<OverlayCore>,
    pub(super) top: Arc<LayeredStore>,
    answers: &'a Answers,
}

impl Deref for NameChange<'_> {
    type Target = Arc<OverlayCore>;

    fn deref(&self) -> &Arc<OverlayCore> {
        self.core
    }
}

/// What the store below is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Question {
    /// What a key of the store below is.
    Head(Key),
    /// Which content an object of the store below has: its digest too, if it has at most this many bytes.
    Content(Key, u64),
    /// The first name that a folder of the overlay shows.
    FirstName(Key),
}

/// The version of a content, and its length and digest if these are known.
type FoundContent = (Version, Option<ContentDigest>);

/// A name that a folder showed, nothing if it was empty, and when that was.
type FirstName = (LogPosition, Option<Vec<u8>>);

/// What was asked, for one change.
#[derive(Default)]
struct Answers {
    heads: RefCell<HashMap<Key, Option<Meta>>>,
    contents: RefCell<HashMap<Key, Option<FoundContent>>>,
    first_names: RefCell<HashMap<Key, FirstName>>,
    missing: RefCell<Vec<Question>>,
}

enum Answer {
    Head(Option<Meta>),
    Content(Option<FoundContent>),
    FirstName(LogPosition, Option<Vec<u8>>),
}

/// How many questions are asked at a time.
const PARALLEL_QUESTIONS: usize = 16;

/// How often a change begins again because names change meanwhile.
const MAX_ATTEMPTS: usize = 1000;

impl OverlayCore {
    /// Makes a change of names: `change` is called with the names locked, again each time that it lacks an answer of
    /// the store. It must ask all that it needs before it changes anything.
    ///
    /// `paths` are what changes: with write-through, changes of the same paths come one after another.
    pub(super) fn change_names<T>(
        self: &Arc<Self>,
        context: &RequestContext,
        paths: &[Key],
        change: impl Fn(&NameChange<'_>) -> Result<T>,
    ) -> Result<T> {
        self.change_names_and(context, paths, change, || Ok(()))
    }

    /// The same of what a name is itself, as the attributes of a folder: changes of what lies below go on beside it.
    pub(super) fn change_own<T>(
        self: &Arc<Self>,
        context: &RequestContext,
        path: &Key,
        change: impl Fn(&NameChange<'_>) -> Result<T>,
    ) -> Result<T> {
        let is_stored = self.config.write_through;
        let _path = is_stored.then(|| self.path_locks.lock_own(std::slice::from_ref(path)));
        self.change_until_answered(context, change)
    }

    /// The same, and then something else before other changes of these paths.
    pub(super) fn change_names_and<T>(
        self: &Arc<Self>,
        context: &RequestContext,
        paths: &[Key],
        change: impl Fn(&NameChange<'_>) -> Result<T>,
        and: impl FnOnce() -> Result<()>,
    ) -> Result<T> {
        let is_stored = self.config.write_through;
        let _paths = is_stored.then(|| self.path_locks.lock(paths));
        let done = self.change_until_answered(context, change)?;
        self.sync_if_due();
        and()?;
        Ok(done)
    }

    /// The same where the paths are locked already.
    pub(super) fn change_until_answered<T>(
        self: &Arc<Self>,
        context: &RequestContext,
        change: impl Fn(&NameChange<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut top = self.top();
        let mut answers = Answers::default();
        for _ in 0..MAX_ATTEMPTS {
            let names = self.names.lock();
            let permit = context.permit_change()?;
            let now = self.top();
            if !Arc::ptr_eq(&now, &top) {
                (top, answers) = (now, Answers::default());
            }
            let done = change(&NameChange {
                core: self,
                top: top.clone(),
                answers: &answers,
            });
            drop(names);
            let missing = answers.missing.take();
            if missing.is_empty() {
                return done;
            }
            permit.give_back();
            self.answer(context, &top, &answers, missing)?;
        }
        let why = "names change each time";
        Err(Error::unavailable("overlay", why))
    }

    /// Asks the store.
    fn answer(
        self: &Arc<Self>,
        context: &RequestContext,
        top: &Arc<LayeredStore>,
        answers: &Answers,
        missing: Vec<Question>,
    ) -> Result<()> {
        let ask = |question: Question| {
            let answer = self.ask(context, top, &question);
            (question, answer)
        };
        for (question, answer) in parallel_map(PARALLEL_QUESTIONS, missing, &ask) {
            match (question, answer?) {
                (Question::Head(key), Answer::Head(meta)) => {
                    answers.heads.borrow_mut().insert(key, meta);
                }
                (Question::Content(key, _), Answer::Content(content)) => {
                    answers.contents.borrow_mut().insert(key, content);
                }
                (Question::FirstName(key), Answer::FirstName(position, name)) => {
                    let mut names = answers.first_names.borrow_mut();
                    names.insert(key, (position, name));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn ask(
        self: &Arc<Self>,
        context: &RequestContext,
        top: &Arc<LayeredStore>,
        question: &Question,
    ) -> Result<Answer> {
        Ok(match question {
            Question::Head(key) => Answer::Head(top.lower.head(context, key)?),
            Question::Content(key, limit) => {
                Answer::Content(self.content_below(context, &*top.lower, key, *limit)?)
            }
            Question::FirstName(prefix) => {
                let position = self.info.changes.position();
                Answer::FirstName(position, self.first_name(context, prefix)?)
            }
        })
    }

    /// Returns which content an object of the store below has. One that cannot be read can be replaced and removed.
    fn content_below(
        &self,
        context: &RequestContext,
        below: &dyn Store,
        key: &Key,
        limit: u64,
    ) -> Result<Option<FoundContent>> {
        let digested = self.takes_digests().then(|| below.open(context, key, None));
        let digested = digested.and_then(Result::ok);
        let digested =
            digested.and_then(|reader| content::short_content(context, &*reader, limit).ok()?);
        match digested {
            Some((version, digest)) => Ok(Some((version, Some(digest)))),
            None => Ok(below.version(context, key)?.map(|version| (version, None))),
        }
    }

    /// Returns a name that a folder shows; `None` if it is empty or not there.
    fn first_name(
        self: &Arc<Self>,
        context: &RequestContext,
        prefix: &Key,
    ) -> Result<Option<Vec<u8>>> {
        let mut names = match listing::of_overlay(context, self, prefix) {
            Err(error) if matches!(error.kind(), Kind::NotFound | Kind::NotADirectory) => {
                return Ok(None);
            }
            names => names?,
        };
        while let Some(name) = names.next(context)? {
            if self.still_shows(context, &prefix.child(&name.name)?)? {
                return Ok(Some(name.name));
            }
        }
        Ok(None)
    }

    /// Whether a name that was listed is there. Some buckets list a folder for a while after its last key was erased, and
    /// metadata name folders without a key; only a write-through erases keys before their folder is removed.
    fn still_shows(self: &Arc<Self>, context: &RequestContext, key: &Key) -> Result<bool> {
        let may_linger = self.config.write_through && self.store.info().folder.is_none();
        match self.top().find(context, key)? {
            Some(Resolved::Lower(_, meta)) if may_linger && meta.kind == EntryKind::Directory => {
                Ok(self.first_name(context, key)?.is_some())
            }
            found => Ok(found.is_some()),
        }
    }
}

/// Returns the error of a change of a folder, or of a node's document, of a store that does not list its keys.
pub(super) fn keys_not_known(key: &Key) -> Error {
    let why =
        "the store does not list its keys, so what lies here cannot be moved or removed as a whole";
    Error::unsupported(key, why)
}

impl NameChange<'_> {
    /// `Unsupported` for the document of a node of a store that does not list its keys: the node's chunks would stay, and
    /// be those of the next array of that name.
    pub(super) fn check_removable(&self, key: &Key) -> Result<()> {
        let is_kept = describes_node(key.name()) && !self.core.store.info().lists;
        if is_kept && self.find_lower(key)?.is_some() {
            return Err(keys_not_known(key));
        }
        Ok(())
    }

    /// Notes a question; the change ends with this error, and begins again once the answer is there.
    fn lack(&self, question: Question) -> Error {
        let mut missing = self.answers.missing.borrow_mut();
        if !missing.contains(&question) {
            missing.push(question);
        }
        Error::unavailable("overlay", "the store is to be asked first")
    }

    /// Returns what a key of the store below is.
    pub(super) fn stored(&self, lower: &Key) -> Result<Option<Meta>> {
        match self.answers.heads.borrow().get(lower) {
            Some(meta) => Ok(*meta),
            None => Err(self.lack(Question::Head(lower.clone()))),
        }
    }

    /// Returns which content an object of the store below has.
    fn stored_content(&self, lower: &Key, limit: u64) -> Result<Option<FoundContent>> {
        match self.answers.contents.borrow().get(lower) {
            Some(content) => Ok(*content),
            None => Err(self.lack(Question::Content(lower.clone(), limit))),
        }
    }

    /// Returns what shows at `key` of the store below, unless a whiteout hides it.
    pub(super) fn find_lower(&self, key: &Key) -> Result<Option<(Key, Meta)>> {
        let Some(lower) = self.top.layer.lower_key(key) else {
            return Ok(None);
        };
        let meta = self.stored(&lower)?;
        Ok(meta.map(|meta| (lower, meta)))
    }

    /// Returns where the content or folder of a key is; `None` if there is nothing.
    pub(super) fn find(&self, key: &Key) -> Result<Option<Resolved>> {
        if let Some(stat) = self.top.layer.keys.stat(key)? {
            return Ok(Some(Resolved::Upper(stat)));
        }
        let found = self.find_lower(key)?;
        Ok(found.map(|(lower, meta)| Resolved::Lower(lower, meta)))
    }

    /// `NotEmpty` for a folder that shows a name, `Unsupported` for one of a store that does not list its keys: what lies in
    /// it is not known.
    pub(super) fn check_empty(&self, prefix: &Key) -> Result<()> {
        let names = self.answers.first_names.borrow();
        let answer = names.get(prefix).filter(|(position, _)| {
            let changes = &self.core.info.changes;
            !changes.below_changed_since(*position, prefix)
        });
        match answer {
            None => Err(self.lack(Question::FirstName(prefix.clone()))),
            Some((_, None)) if self.core.store.info().lists => Ok(()),
            Some((_, None)) => match self.find_lower(prefix)? {
                Some(_) => Err(keys_not_known(prefix)),
                None => Ok(()),
            },
            Some((_, Some(name))) => {
                let name = String::from_utf8_lossy(name).into_owned();
                let why = format!("still holds {name}");
                Err(Error::new(Kind::NotEmpty, prefix, why))
            }
        }
    }

    /// Whether what the store below has of a key is a frozen layer's change.
    pub(super) fn is_frozen(&self, lower: &Key) -> Result<bool> {
        match &self.top.frozen {
            Some(frozen) => frozen.layer.is_changed(lower),
            None => Ok(false),
        }
    }

    /// Returns the record of the store's version of a key whose content is about to change; `None` if it was
    /// recorded before. An object of at most `limit` bytes is read for its digest.
    pub(super) fn base_record(&self, key: &Key, limit: u64) -> Result<Option<JournalRecord>> {
        let (version, is_frozen, content) = match self.top.layer.base(key) {
            Some(base) if !base.is_committed => return Ok(None),
            Some(base) => (base.version, base.is_frozen, None),
            None if self.is_frozen(key)? => (None, true, None),
            None => match self.stored_content(key, limit)? {
                None => (None, false, None),
                Some((Version::Store(version), content)) => (Some(version), false, content),
                // A commit has copied it to the frozen layer meanwhile.
                Some((Version::Upper(_), _)) => (None, true, None),
            },
        };
        Ok(Some(JournalRecord::Base {
            key: key.clone(),
            version,
            is_frozen,
            content,
        }))
    }

    /// Returns the record of the version of a key that is hidden because it shows under another name; `None` if it
    /// is not hidden, or was recorded before. `content` is what that version has, if it is known.
    pub(super) fn moved_base_record(
        &self,
        from: &Key,
        version: Version,
        content: Option<ContentDigest>,
    ) -> Result<Option<JournalRecord>> {
        let layer = &self.top.layer;
        let is_hidden = layer.lower_key(from).as_ref() != Some(from);
        if !is_hidden || layer.base(from).is_some() {
            return Ok(None);
        }
        let version = match version {
            Version::Store(version) if !self.is_frozen(from)? => Some(version),
            _ => None,
        };
        let is_frozen = version.is_none();
        Ok(Some(JournalRecord::Base {
            key: from.clone(),
            version,
            is_frozen,
            content: content.filter(|_| !is_frozen),
        }))
    }
}
