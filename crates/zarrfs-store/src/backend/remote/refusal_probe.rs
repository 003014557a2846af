//! Detects stores that refuse missing keys (403) because names cannot be listed.
//!
//! S3 responds 403 for a missing key if the user may not list names, and so do web servers in front of it. A refused
//! key of such a store is missing if the server also refuses a key that cannot exist, and then still returns a metadata
//! document of the root. Otherwise it may refuse everything, as with expired credentials.

use std::hash::{BuildHasher, RandomState};
use std::time::Instant;

use tokio::sync::Mutex;

use crate::Key;
use zarr_format::error::{Kind, Result};
use zarr_format::model::document;

/// The evidence about a store that cannot list names.
#[derive(Default)]
pub(crate) struct RefusalProbe(Mutex<ProbeAnswers>);

#[derive(Default)]
struct ProbeAnswers {
    /// Whether the server refuses missing keys.
    refuses_missing: Option<bool>,
    /// The root document that was returned last, and the time of its request.
    root_document: Option<(Key, Instant)>,
}

impl RefusalProbe {
    /// Whether a key that the server has just refused is missing. `exists` requests a key: it returns false if the
    /// key is missing, or `Denied` if it is refused.
    pub(crate) async fn is_missing(
        &self,
        exists: impl AsyncFn(&Key) -> Result<bool>,
    ) -> Result<bool> {
        let refused = Instant::now();
        let mut known = self.0.lock().await;
        if known.refuses_missing == Some(false) {
            return Ok(false);
        }
        // One document is evidence for all keys that were refused before it was requested.
        let has_document = known
            .root_document
            .as_ref()
            .is_some_and(|(_, requested)| *requested > refused);
        if !has_document && !known.has_root_document(&exists).await? {
            return Ok(false);
        }
        if known.refuses_missing.is_none() {
            known.refuses_missing = match exists(&impossible_key()?).await {
                Ok(_) => Some(false),
                Err(error) if error.kind() == Kind::Denied => Some(true),
                Err(error) => return Err(error),
            };
        }
        Ok(known.refuses_missing == Some(true))
    }
}

impl ProbeAnswers {
    /// Whether the server returns a document of the root now.
    async fn has_root_document(
        &mut self,
        exists: &impl AsyncFn(&Key) -> Result<bool>,
    ) -> Result<bool> {
        let known = self.root_document.take().map(|(key, _)| key);
        let others = document::at_root().filter_map(|name| Key::new(name).ok());
        for key in known.into_iter().chain(others) {
            let requested = Instant::now();
            match exists(&key).await {
                Ok(true) => {
                    self.root_document = Some((key, requested));
                    return Ok(true);
                }
                Ok(false) => {}
                Err(error) if error.kind() == Kind::Denied => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}

/// Returns a random key that no store has.
pub(crate) fn impossible_key() -> Result<Key> {
    Key::new(format!(
        "zarrfs-no-such-key-{:016x}",
        RandomState::new().hash_one(0)
    ))
}
