//! Recognizes missing keys in a bucket without listing, which refuses them (403).

use std::sync::Arc;

use super::client::Client;
use super::lookup::path_below;
use crate::Key;
use crate::backend::remote::errors;
use crate::backend::remote::limits::Purpose;
use crate::backend::remote::refusal_probe::RefusalProbe;
use crate::backend::remote::runtime::{wait, with_last_response};
use crate::request_context::RequestContext;
use zarr_format::error::{Kind, Result};

/// Decides whether a key that a bucket refuses is missing.
pub(super) struct BucketAbsence {
    known: RefusalProbe,
    client: Arc<Client>,
    prefix: String,
}

impl BucketAbsence {
    /// A bucket about which nothing is known yet.
    pub(super) fn new(client: Arc<Client>, prefix: String) -> BucketAbsence {
        BucketAbsence {
            known: RefusalProbe::default(),
            client,
            prefix,
        }
    }

    /// Returns the result of a lookup, with `None` also if the server refuses missing keys (403) and this key is one of
    /// them.
    pub(super) fn or_missing<T>(
        &self,
        context: &RequestContext,
        answer: Result<Option<T>>,
    ) -> Result<Option<T>> {
        match answer {
            Err(error) if error.kind() == Kind::Denied => {
                let asked = self
                    .known
                    .is_missing(async |key: &Key| self.is_there(key).await);
                let asked = self.client.limits.permitted(Purpose::Metadata, asked);
                match wait(context, self.client.limits.time, asked)? {
                    (Some(Some(Ok(true))), _) => Ok(None),
                    _ => Err(error),
                }
            }
            answer => answer,
        }
    }

    /// Requests the metadata of an object, within a running request. Returns false if it is missing.
    async fn is_there(&self, key: &Key) -> Result<bool> {
        let Some(path) = path_below(&self.prefix, key) else {
            return Ok(false);
        };
        let (answer, last) = with_last_response(self.client.object_head(&path)).await;
        match answer.map_err(|error| errors::request_error(&error, &last, key)) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == Kind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}
