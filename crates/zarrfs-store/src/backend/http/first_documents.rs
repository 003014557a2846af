//! Keeps the documents that were fetched when the store was opened.
//!
//! The first reader of each document gets that answer, so that it is not requested twice.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Instant;

use super::endpoint::too_large;
use crate::Presence;
use crate::request_context::RequestContext;
use crate::{EntryKind, Key, Meta, Object, StoreInfo};
use zarr_format::error::Result;

/// Answers that no reader has taken yet.
#[derive(Default)]
pub(super) struct FirstDocuments {
    answers: Mutex<HashMap<Key, FirstAnswer>>,
}

/// A document, or `None` if it is missing, and the time of the request.
struct FirstAnswer {
    document: Option<Object>,
    asked: Instant,
}

impl FirstDocuments {
    /// Keeps the answer to a request that was sent at `asked`.
    pub(super) fn put(&self, key: &Key, document: Option<Object>, asked: Instant) {
        let answer = FirstAnswer { document, asked };
        self.answers.lock().insert(key.clone(), answer);
    }

    /// Removes and returns an answer, if it is still fresh.
    pub(super) fn take(
        &self,
        context: &RequestContext,
        info: &StoreInfo,
        key: &Key,
    ) -> Presence<Object> {
        match self.answers.lock().remove(key) {
            Some(answer) if info.is_fresh(answer.asked) => {
                context.record_age(answer.asked);
                answer.document.into()
            }
            _ => Presence::Unknown,
        }
    }

    /// Returns the metadata of a document from a fresh answer, or `None`.
    pub(super) fn meta(
        &self,
        context: &RequestContext,
        info: &StoreInfo,
        key: &Key,
    ) -> Option<Meta> {
        let answers = self.answers.lock();
        let answer = answers.get(key)?;
        let (document, asked) = (answer.document.as_ref()?, answer.asked);
        let meta = Meta {
            kind: EntryKind::File,
            size: document.size,
            stored: document.size,
            modified: document.modified?,
            version: document.version,
        };
        drop(answers);
        info.is_fresh(asked).then(|| {
            context.record_age(asked);
            meta
        })
    }

    /// Removes the answer about a document.
    pub(super) fn forget(&self, key: &Key) {
        self.answers.lock().remove(key);
    }
}

/// Returns a document. The error is `TooLarge` if it is longer than `limit`.
pub(super) fn within_limit(key: &Key, document: Object, limit: u64) -> Result<Object> {
    if document.size > limit {
        return Err(too_large(key, document.size, limit));
    }
    Ok(document)
}
