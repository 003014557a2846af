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
pub(crate) struct Absence(Mutex<KnownAnswers>);

#[derive(Default)]
struct KnownAnswers {
    /// Whether the server refuses missing keys.
    refuses_missing: Option<bool>,
    /// The root document that was returned last, and the time of its request.
    given: Option<(Key, Instant)>,
}

impl Absence {
    /// Whether a key that the server has just refused is missing. `is_there` requests a key: it returns false if the
    /// key is missing, or `Denied` if it is refused.
    pub(crate) async fn is_missing(
        &self,
        is_there: impl AsyncFn(&Key) -> Result<bool>,
    ) -> Result<bool> {
        let refused = Instant::now();
        let mut known = self.0.lock().await;
        if known.refuses_missing == Some(false) {
            return Ok(false);
        }
        // One document is evidence for all keys that were refused before it was requested.
        let is_given = known
            .given
            .as_ref()
            .is_some_and(|(_, asked)| *asked > refused);
        if !is_given && !known.ask_root(&is_there).await? {
            return Ok(false);
        }
        if known.refuses_missing.is_none() {
            known.refuses_missing = match is_there(&no_key()?).await {
                Ok(_) => Some(false),
                Err(error) if error.kind() == Kind::Denied => Some(true),
                Err(error) => return Err(error),
            };
        }
        Ok(known.refuses_missing == Some(true))
    }
}

impl KnownAnswers {
    /// Whether the server returns a document of the root now.
    async fn ask_root(&mut self, is_there: &impl AsyncFn(&Key) -> Result<bool>) -> Result<bool> {
        let known = self.given.take().map(|(key, _)| key);
        let others = document::at_root().filter_map(|name| Key::new(name).ok());
        for key in known.into_iter().chain(others) {
            let asked = Instant::now();
            match is_there(&key).await {
                Ok(true) => {
                    self.given = Some((key, asked));
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
pub(crate) fn no_key() -> Result<Key> {
    Key::new(format!(
        "zarrfs-no-such-key-{:016x}",
        RandomState::new().hash_one(0)
    ))
}
