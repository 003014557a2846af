//! Answers queries about single keys, from memory or by one shared request.

use std::sync::Arc;
use std::time::Instant;

use super::cached_answers::{CachedAnswers, Dated, QueryId};
use super::keys::CachedObject;
use crate::request_context::RequestContext;
use crate::sync::single_flight::{JOIN_TIMEOUT, SingleFlight};
use crate::{Key, Meta, Object, QueryStamp, Reader, Store, Version, check_length};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::document::is_document;

/// Lets concurrent callers with the same query share one request.
type KeyFlight<T> = SingleFlight<QueryId, Dated<T>>;

/// The cached answers about single keys, and the requests for answers that are not cached.
pub(super) struct KeyQueries {
    inner: Arc<dyn Store>,
    pub(super) answers: Arc<CachedAnswers>,
    heads: KeyFlight<Option<Meta>>,
    versions: KeyFlight<Option<Version>>,
    documents: KeyFlight<Option<Arc<Object>>>,
    opens: KeyFlight<Meta>,
}

impl KeyQueries {
    pub(super) fn new(inner: Arc<dyn Store>, answers: Arc<CachedAnswers>) -> KeyQueries {
        KeyQueries {
            inner,
            answers,
            heads: SingleFlight::default(),
            versions: SingleFlight::default(),
            documents: SingleFlight::default(),
            opens: SingleFlight::default(),
        }
    }

    /// Queries the wrapped store. Returns the answer, with the time of its request.
    pub(super) fn request<T>(
        &self,
        context: &RequestContext,
        query: impl FnOnce(&RequestContext, &dyn Store) -> T,
    ) -> (T, QueryStamp) {
        let inner = &*self.inner;
        inner.info().ask(context, |context| query(context, inner))
    }

    pub(super) fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        let request = || {
            let (head, stamp) = self.request(context, |context, inner| inner.head(context, key));
            let head = head?;
            self.answers.put_head(key, head, stamp);
            Ok(Dated::new(head, stamp))
        };
        let cached = || self.answers.head(key);
        let query = || self.answers.query_below(key);
        self.answer(context, &self.heads, query, cached, request)
    }

    pub(super) fn version(&self, context: &RequestContext, key: &Key) -> Result<Option<Version>> {
        let request = || {
            let (version, stamp) =
                self.request(context, |context, inner| inner.version(context, key));
            let version = version?;
            let object = version.map_or(CachedObject::Missing, CachedObject::Version);
            self.answers.put_object(key, object, stamp);
            Ok(Dated::new(version, stamp))
        };
        let cached = || self.answers.version(key);
        let query = || self.answers.query(key);
        self.answer(context, &self.versions, query, cached, request)
    }

    /// Checks an object's length against the cached length of the same version. If they differ, a proxy may have
    /// truncated either answer, so another request decides. The error is `Unavailable` if the object is wrong.
    pub(super) fn check_length(
        &self,
        context: &RequestContext,
        key: &Key,
        object: Option<&Object>,
    ) -> Result<()> {
        let Some(object) = object else { return Ok(()) };
        let cached = self.answers.object(key);
        let contents = [
            self.answers.keys.content(key),
            cached.and_then(|cached| cached.value.content()),
        ];
        let differs = |known| check_length(key, object.content(), known).is_err();
        if !contents.into_iter().flatten().any(differs) {
            return Ok(());
        }
        let (meta, stamp) = self.request(context, |context, inner| inner.head(context, key));
        let Some(meta) = meta? else {
            let text = "was removed while it was being read";
            return Err(Error::new(Kind::Changed, key, text));
        };
        self.answers
            .put_object(key, CachedObject::Object(meta), stamp);
        let checked = check_length(key, object.content(), meta.content());
        checked.inspect_err(|_| self.inner.drop_cached(key, None))
    }

    /// Answers a query for a whole object from the cache or by a request.
    pub(super) fn get(
        &self,
        context: &RequestContext,
        key: &Key,
        limit: u64,
    ) -> Result<Option<Object>> {
        if !is_document(key.name()) {
            // Concurrent requests for a chunk are not joined here: the code that decodes chunks has already joined the
            // readers of the same chunk.
            if self.answers.is_missing(context, key) {
                return Ok(None);
            }
            return self.fetch(context, key, limit).map(|(object, _)| object);
        }
        match self.document(context, key, limit)? {
            Some(object) if object.size > limit => {
                let text = format!("{} bytes exceed the limit of {limit}", object.size);
                Err(Error::too_large(key, text))
            }
            object => Ok(object.map(Arc::unwrap_or_clone)),
        }
    }

    /// Returns a metadata document, from the cache or by a request. A cached document may be longer than `limit`.
    pub(super) fn document(
        &self,
        context: &RequestContext,
        key: &Key,
        limit: u64,
    ) -> Result<Option<Arc<Object>>> {
        let mut has_requested = false;
        let request = || {
            has_requested = true;
            self.fetch_document(context, key, limit)
        };
        let cached = || self.answers.document(key);
        let query = || self.answers.query(key);
        match self.answer(context, &self.documents, query, cached, request) {
            // The joined request of another caller had a lower `limit`, so this caller repeats it.
            Err(error) if !has_requested && error.kind() == Kind::TooLarge => self
                .fetch_document(context, key, limit)
                .map(|document| document.value),
            document => document,
        }
    }

    fn fetch_document(
        &self,
        context: &RequestContext,
        key: &Key,
        limit: u64,
    ) -> Result<Dated<Option<Arc<Object>>>> {
        let (object, stamp) = self.fetch(context, key, limit)?;
        let object = object.map(Arc::new);
        if let Some(object) = &object {
            self.answers.put_document(key, object.clone(), stamp);
        }
        Ok(Dated::new(object, stamp))
    }

    /// Requests an object, and caches its version and length.
    fn fetch(
        &self,
        context: &RequestContext,
        key: &Key,
        limit: u64,
    ) -> Result<(Option<Object>, QueryStamp)> {
        let (object, stamp) =
            self.request(context, |context, inner| inner.get(context, key, limit));
        let object = object?;
        self.check_length(context, key, object.as_ref())?;
        self.answers.put_object(key, object.as_ref().into(), stamp);
        Ok((object, stamp))
    }

    /// Opens an object, from cached metadata if possible.
    pub(super) fn open(&self, context: &RequestContext, key: &Key) -> Result<Arc<dyn Reader>> {
        let cached = self.answers.object(key);
        match cached.map(|cached| cached.value) {
            Some(CachedObject::Missing) => {
                cached.map(|cached| cached.used(context));
                return Err(Error::not_found(key));
            }
            Some(CachedObject::Object(meta)) => {
                cached.map(|cached| cached.used(context));
                return self.inner.open(context, key, Some(&meta));
            }
            Some(CachedObject::Version(_)) | None => {}
        }
        let mut opened = None;
        let request = || {
            let (reader, stamp) =
                self.request(context, |context, inner| inner.open(context, key, None));
            let reader = match reader {
                Err(error) if error.kind() == Kind::NotFound => {
                    self.answers.put_object(key, CachedObject::Missing, stamp);
                    return Err(error);
                }
                reader => reader?,
            };
            let meta = reader.meta(context)?;
            self.answers
                .put_object(key, CachedObject::Object(meta), stamp);
            opened = Some(reader);
            Ok(Dated::new(meta, stamp))
        };
        let query = self.answers.query(key);
        let meta = self.join(context, &self.opens, &query, request)?;
        match opened {
            Some(reader) => Ok(reader),
            None => self.inner.open(context, key, Some(&meta.used(context))),
        }
    }

    /// Returns the cached answer to a query, or requests it. Concurrent callers with the same query share the request.
    fn answer<T: Clone>(
        &self,
        context: &RequestContext,
        flight: &KeyFlight<T>,
        query: impl FnOnce() -> QueryId,
        cached: impl Fn() -> Option<Dated<T>>,
        request: impl FnOnce() -> Result<Dated<T>>,
    ) -> Result<T> {
        let answer = match cached() {
            Some(answer) => answer,
            None => {
                // Another caller may have cached the answer since the lookup above.
                let work = || cached().map_or_else(request, Ok);
                self.join(context, flight, &query(), work)?
            }
        };
        Ok(answer.used(context))
    }

    /// Requests an answer, or waits for another caller's request with the same query.
    fn join<T: Clone>(
        &self,
        context: &RequestContext,
        flight: &KeyFlight<T>,
        query: &QueryId,
        request: impl FnOnce() -> Result<Dated<T>>,
    ) -> Result<Dated<T>> {
        let lifetime = self.answers.dirs.lifetime();
        let accepts = lifetime.accepts(|answer: &Dated<T>| answer.request_time);
        let deadline = Instant::now() + JOIN_TIMEOUT;
        flight.run_accepting(context, query, deadline, accepts, request)
    }
}
