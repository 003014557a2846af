//! Requests to one bucket or container: blocking, limited in number and in time.
//!
//! Every request of a store goes through `ask`, so that the number of requests in flight, their time limit and
//! the words of their errors are decided once. A body has no limit as a whole, but each piece of it has.

use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join;
use object_store::list::PaginatedListStore;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{GetOptions, GetResult, ObjectMeta, ObjectStore};
use tokio::sync::Semaphore;

use crate::error::{Error, Kind, Result};
use crate::store::backend::remote::fault;
use crate::store::backend::remote::runtime::{
    LastResponse, note_response, spawn_and_wait, wait, with_last_response,
};
use crate::store::{EntryKind, Meta, Object, Version};
use crate::sync::buffer;

/// A client of object_store and how it may be used.
pub(super) struct Client {
    pub(super) objects: Arc<dyn ObjectStore>,
    /// Names page by page.
    pub(super) pages: Arc<dyn PaginatedListStore>,
    /// Objects in parts.
    pub(super) parts: Arc<dyn MultipartStore>,
    /// How long an answer, or a piece of one, may take.
    pub(super) limit: Duration,
    pub(super) permits: Semaphore,
    /// Whether the last so many bytes can be asked for without knowing the length.
    pub(super) suffixes: bool,
}

/// An answer's bytes and what is known of the object.
struct ResponseBody {
    bytes: Vec<u8>,
    meta: ObjectMeta,
}

impl Client {
    /// Waits for a request about `subject`.
    pub(super) fn ask<T>(
        &self,
        subject: &dyn Display,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T> {
        let (done, said) = wait(self.limit, async {
            let _permit = self.permits.acquire().await;
            request.await
        })?;
        self.judge(subject, done, &said)
    }

    /// Waits for two requests about `subject` that are under way side by side.
    pub(super) fn ask_two<A, B>(
        &self,
        subject: &dyn Display,
        one: impl Future<Output = object_store::Result<A>>,
        other: impl Future<Output = object_store::Result<B>>,
    ) -> Result<(Result<A>, Result<B>)> {
        let (done, _) = wait(self.limit, async {
            let one = async {
                let _permit = self.permits.acquire().await;
                one.await
            };
            let other = async {
                let _permit = self.permits.acquire().await;
                other.await
            };
            join(with_last_response(one), with_last_response(other)).await
        })?;
        let Some(((one, said_one), (other, said_other))) = done else {
            return Err(fault::late(subject, self.limit.as_secs_f32()));
        };
        Ok((
            self.judge(subject, Some(one), &said_one),
            self.judge(subject, Some(other), &said_other),
        ))
    }

    fn judge<T>(
        &self,
        subject: &dyn Display,
        done: Option<object_store::Result<T>>,
        said: &LastResponse,
    ) -> Result<T> {
        match done {
            Some(answer) => answer.map_err(|error| fault::error(&error, said, subject)),
            None => Err(fault::late(subject, self.limit.as_secs_f32())),
        }
    }

    /// Fetches an object, or the part of it that the options say; nothing if it is missing, `TooLarge` if the
    /// answer has more than `limit` bytes.
    pub(super) fn fetch(
        self: &Arc<Self>,
        subject: &dyn Display,
        path: &Path,
        options: GetOptions,
        limit: u64,
    ) -> Result<Option<Object>> {
        // The limit of the whole is far: what counts is that pieces keep coming.
        let (client, path) = (self.clone(), path.clone());
        let (done, said) = spawn_and_wait(self.limit.saturating_mul(LONGEST_BODY), async move {
            let _permit = client.permits.acquire().await;
            client.collect(&path, options, limit).await
        })?;
        let body = match done {
            Some(Ok(body)) => body?,
            Some(Err(Some(fault))) => {
                let error = fault::error(&fault, &said, subject);
                return match error.kind() {
                    Kind::NotFound => Ok(None),
                    _ => Err(error),
                };
            }
            Some(Err(None)) | None => {
                return Err(fault::late(subject, self.limit.as_secs_f32()));
            }
        };
        Ok(Some(Object {
            size: body.meta.size,
            version: version(&body.meta),
            modified: Some(body.meta.last_modified.into()),
            bytes: body.bytes,
        }))
    }

    /// Returns the answer and its body; as an error the fault, or nothing if a piece did not come in time.
    async fn collect(
        &self,
        path: &Path,
        options: GetOptions,
        limit: u64,
    ) -> std::result::Result<Result<ResponseBody>, Option<object_store::Error>> {
        let request = self.objects.get_opts(path, options);
        let answer = in_time(self.limit, request).await?;
        let length = answer.range.end - answer.range.start;
        if length > limit {
            let found = format!("{length} bytes, at most {limit} are read");
            return Ok(Err(Error::too_large(path, found)));
        }
        let body = self.drain(answer, length as usize).await?;
        let found = body.bytes.len() as u64;
        Ok(match found == length {
            true => Ok(body),
            false => Err(Error::unavailable(
                path,
                format!("{found} bytes came where {length} are due"),
            )),
        })
    }

    async fn drain(
        &self,
        answer: GetResult,
        length: usize,
    ) -> std::result::Result<ResponseBody, Option<object_store::Error>> {
        let meta = answer.meta.clone();
        let mut bytes = buffer::with_capacity(length);
        let mut pieces = answer.into_stream();
        loop {
            let piece = tokio::time::timeout(self.limit, pieces.next()).await;
            match piece.map_err(|_| None)? {
                // More than the head of the answer said is not taken.
                Some(piece) if bytes.len() <= length => {
                    bytes.extend_from_slice(&piece.map_err(Some)?)
                }
                Some(_) | None => return Ok(ResponseBody { bytes, meta }),
            }
        }
    }
}

/// How many time limits a whole body may take.
const LONGEST_BODY: u32 = 20;

async fn in_time<T>(
    limit: Duration,
    request: impl Future<Output = object_store::Result<T>>,
) -> std::result::Result<T, Option<object_store::Error>> {
    match tokio::time::timeout(limit, request).await {
        Ok(answer) => answer.map_err(Some),
        Err(_) => {
            note_response(LastResponse::default());
            Err(None)
        }
    }
}

/// Returns which content an object is: by its ETag, or by time and size where it has none.
pub(super) fn version(meta: &ObjectMeta) -> Version {
    match &meta.e_tag {
        // Some servers quote it in one answer and not in the next.
        Some(tag) => Version::of(tag.trim_matches('"').as_bytes()),
        None => {
            let (seconds, size) = (meta.last_modified.timestamp(), meta.size);
            Version::of(format!("{seconds} {size}").as_bytes())
        }
    }
}

/// Returns what is known of an object.
pub(super) fn describe(meta: &ObjectMeta, kind: EntryKind) -> Meta {
    Meta {
        kind,
        size: meta.size,
        stored: meta.size,
        modified: meta.last_modified.into(),
        version: version(meta),
    }
}
