//! Whether a store that lists nothing refuses the keys that it does not have.
//!
//! S3 answers 403 for a missing key where the names may not be listed, and so do web servers before it. A refused key of
//! such a store is missing if the server refuses a key that cannot be there, and gives a metadata document of the root
//! after the refusal: else it may refuse everything, as it does once credentials are out of date.

use std::hash::{BuildHasher, RandomState};
use std::time::Instant;

use tokio::sync::Mutex;

use crate::Key;
use zarr_format::error::{Kind, Result};
use zarr_format::model::document;

/// What is known of a store that lists nothing.
#[derive(Default)]
pub(crate) struct Absence(Mutex<KnownAnswers>);

#[derive(Default)]
struct KnownAnswers {
    /// Whether the server refuses what it does not have.
    refuses_missing: Option<bool>,
    /// The document of the root that was given last, and when it was asked for.
    given: Option<(Key, Instant)>,
}

impl Absence {
    /// Whether a key is missing that the server has just refused. `is_there` asks for a key: false if it is missing,
    /// `Denied` if it is refused.
    pub(crate) async fn is_missing(
        &self,
        is_there: impl AsyncFn(&Key) -> Result<bool>,
    ) -> Result<bool> {
        let refused = Instant::now();
        let mut known = self.0.lock().await;
        if known.refuses_missing == Some(false) {
            return Ok(false);
        }
        // One document serves all keys that were refused before it was asked for.
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
    /// Whether the server gives a document of the root now.
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

/// Returns a key that no store has.
pub(crate) fn no_key() -> Result<Key> {
    Key::new(format!(
        "zarrfs-no-such-key-{:016x}",
        RandomState::new().hash_one(0)
    ))
}
