//! How a web server answers for keys that it does not have.
//!
//! Some answer by a page with status 200, by 400 or by 500: then a missing key is not told from one that is there or cannot
//! be read. A key that cannot be there is asked for once such an answer comes.

use std::time::Instant;

use tokio::sync::Mutex;

use super::HttpStore;
use super::endpoint::RequestSpec;
use crate::Key;
use crate::backend::remote::absence::no_key;
use zarr_format::error::{Error, Result};

/// The status that came last for a key that cannot be there, and when it was asked for.
#[derive(Default)]
pub(super) struct MissingAnswer(Mutex<Option<(u16, Instant)>>);

impl HttpStore {
    /// Returns the status for a key that cannot be there; one that was asked for after `since` if that is given.
    async fn status_of_missing(&self, since: Option<Instant>) -> Result<u16> {
        let mut known = self.missing_answer.0.lock().await;
        if let Some((status, asked)) = *known
            && since.is_none_or(|since| asked > since)
        {
            return Ok(status);
        }
        let (asked, key) = (Instant::now(), no_key()?);
        let spec = RequestSpec {
            once: true,
            ..RequestSpec::part(&key, "bytes=0-0".to_string())
        };
        let status = self.endpoint.send(&spec).await?.status;
        *known = Some((status, asked));
        Ok(status)
    }

    /// Fails if the web page that has just come for `key` may be what the server sends for a missing one: unless it says
    /// of a key that cannot be there that it has none.
    pub(super) async fn check_page(&self, key: &Key) -> Result<()> {
        match self.status_of_missing(Some(Instant::now())).await? {
            401 | 403 | 404 | 410 => Ok(()),
            200..=299 => Err(Error::unavailable(key, format!("{PAGE}{PAGES}"))),
            _ => Err(Error::unavailable(key, PAGE)),
        }
    }

    /// Returns the error of a response without success; it says so if the server answers for missing keys like that.
    pub(super) async fn failure(&self, error: Error, status: u16) -> Error {
        if !is_ambiguous(status) || self.status_of_missing(None).await.ok() != Some(status) {
            return error;
        }
        let option = match status {
            500.. => String::new(),
            _ => format!(", or say --missing-is {status} if it does so for all of them"),
        };
        let text = format!(
            "{}, as it does for a key that cannot be there: have it answer 404 for keys that it does not have{option}",
            error.detail()
        );
        Error::unavailable(error.subject(), text)
    }
}

/// Whether servers answer so for keys that they do not have. The others say why a key cannot be read now.
fn is_ambiguous(status: u16) -> bool {
    matches!(
        status,
        400 | 402 | 405 | 406 | 409 | 410 | 418..=428 | 451 | 500 | 501
    )
}

const PAGE: &str = "a web page came where an object is due";
const PAGES: &str = ", and the server sends one (200) for a key that cannot be there, too: have it answer 404 for keys that \
    it does not have";
