//! Probes how a web server responds for missing keys.
//!
//! Some servers send a page with status 200, or 400 or 500. A missing key then looks like one that exists or cannot be
//! read. After such a response, a key that cannot exist is requested to compare.

use std::time::Instant;

use tokio::sync::Mutex;

use super::HttpStore;
use super::endpoint::RequestSpec;
use crate::Key;
use crate::backend::remote::refusal_probe::impossible_key;
use zarr_format::error::{Error, Result};

/// The last status for a key that cannot exist, and the time of its request.
#[derive(Default)]
pub(super) struct MissingAnswer(Mutex<Option<(u16, Instant)>>);

impl HttpStore {
    /// Returns the status for a key that cannot exist; if `since` is given, from a request after that time.
    async fn status_of_missing(&self, since: Option<Instant>) -> Result<u16> {
        let mut known = self.missing_answer.0.lock().await;
        if let Some((status, asked)) = *known
            && since.is_none_or(|since| asked > since)
        {
            return Ok(status);
        }
        let (asked, key) = (Instant::now(), impossible_key()?);
        let spec = RequestSpec {
            once: true,
            ..RequestSpec::part(&key, "bytes=0-0".to_string())
        };
        let status = self.endpoint.send(&spec).await?.status;
        *known = Some((status, asked));
        Ok(status)
    }

    /// Fails if the server may send the page that was just received for `key` for missing keys too: unless its response
    /// for a key that cannot exist is a refusal or "not found".
    pub(super) async fn check_page(&self, key: &Key) -> Result<()> {
        match self.status_of_missing(Some(Instant::now())).await? {
            401 | 403 | 404 | 410 => Ok(()),
            200..=299 => Err(Error::unavailable(key, format!("{PAGE}{PAGES}"))),
            _ => Err(Error::unavailable(key, PAGE)),
        }
    }

    /// Returns the error of a response with an error status. It says so if the server sends that status for missing
    /// keys.
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

/// Whether some servers send this status for missing keys. Other statuses say why a key cannot be read now.
fn is_ambiguous(status: u16) -> bool {
    matches!(
        status,
        400 | 402 | 405 | 406 | 409 | 410 | 418..=428 | 451 | 500 | 501
    )
}

const PAGE: &str = "a web page came where an object is due";
const PAGES: &str = ", and the server sends one (200) for a key that cannot be there, too: have it answer 404 for keys that \
    it does not have";
