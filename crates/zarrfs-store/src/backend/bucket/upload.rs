//! Uploads large objects in parts (multipart uploads).
//!
//! Parts are sent concurrently, and no object is visible until the upload is completed. object_store completes an
//! upload without a condition, so zarrfs checks the condition just before the completion. Only the parts in flight are
//! in memory. A failed upload is aborted, so that the server does not store its parts.

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use object_store::PutPayload;
use object_store::multipart::PartId;

use super::writer::{ObjectTarget, Writer};
use crate::backend::remote::retry::ConditionalPut;
use crate::backend::remote::runtime::{wait_for_change, with_last_response};
use crate::backend::remote::{errors, retry};
use crate::request_context::RequestContext;
use crate::{Condition, ETag, PutBody};
use zarr_format::error::{Error, Kind, Result};

/// Minimum length of an uploaded part in bytes, and the maximum number of parts that servers accept.
const MIN_PART: u64 = 8 << 20;
const MAX_PARTS: u64 = 10_000;

/// Maximum number of parts of one upload that are sent concurrently.
const CONCURRENT_PARTS: usize = 4;

/// Returns the part length, in bytes, for an object of `length` bytes. The last part may be shorter.
fn part_length(length: u64) -> u64 {
    length
        .div_ceil(MAX_PARTS)
        .next_multiple_of(1 << 20)
        .max(MIN_PART)
}

pub(super) struct MultipartUpload<'a> {
    writer: &'a Writer,
    target: &'a ObjectTarget<'a>,
    body: PutBody<'a>,
    /// The upload's identifier, given by the server.
    id: String,
}

impl<'a> MultipartUpload<'a> {
    /// Uploads an object in parts, if the condition on the old object holds.
    pub(super) fn put(
        context: &RequestContext,
        writer: &'a Writer,
        target: &'a ObjectTarget<'a>,
        body: PutBody<'a>,
        condition: &Condition,
    ) -> Result<ETag> {
        if *condition != Condition::Any {
            // The condition is also checked before the first part, so that no large object is sent only to be refused.
            condition.check(target.key, writer.etag(target)?.as_ref())?;
        }
        let (client, path) = (&writer.client, &target.path);
        let upload = MultipartUpload {
            writer,
            target,
            body,
            id: client.change(target.key, client.cloud.parts.create_multipart(path))?,
        };
        let parts = upload.send_parts();
        let done = parts.and_then(|parts| upload.complete(context, &parts, condition));
        if done.is_err() {
            let aborted = client.cloud.parts.abort_multipart(path, &upload.id);
            if let Err(error) = client.change(target.key, aborted) {
                log::debug!("cannot abort an upload: {error}");
            }
        }
        done
    }

    /// Sends all parts of the upload. Returns their identifiers, in order.
    fn send_parts(&self) -> Result<Vec<PartId>> {
        let (body, key) = (self.body, self.target.key);
        let limits = &self.writer.client.limits;
        let length = part_length(body.len());
        let count = body.len().div_ceil(length);
        let concurrent = length.saturating_mul(CONCURRENT_PARTS as u64);
        let _reservation = limits.uploads.reserve(concurrent.min(body.len()));
        // The time limit for the whole upload grows with the number of parts.
        let limit = u32::try_from(count).unwrap_or(u32::MAX).saturating_add(1);
        let limit = limits.body_time_limit().saturating_mul(limit);
        let (done, _) = wait_for_change(limit, async {
            let mut sent = Vec::new();
            let mut in_flight = FuturesOrdered::new();
            for number in 0..count {
                let start = number * length;
                let part = body.part(start..body.len().min(start + length))?;
                in_flight.push_back(self.send_part(number, part));
                if in_flight.len() >= CONCURRENT_PARTS
                    && let Some(part) = in_flight.next().await
                {
                    sent.push(part?);
                }
            }
            while let Some(part) = in_flight.next().await {
                sent.push(part?);
            }
            Ok(sent)
        })
        .map_err(|error| error.about(key))?;
        done.unwrap_or_else(|| Err(errors::timed_out(key, limit.as_secs_f32())))
    }

    async fn send_part(&self, number: u64, part: Vec<u8>) -> Result<PartId> {
        let number = usize::try_from(number).map_err(|error| Error::too_large("", error))?;
        let (client, key) = (&self.writer.client, self.target.key);
        let payload = PutPayload::from(part);
        let request = client
            .cloud
            .parts
            .put_part(&self.target.path, &self.id, number, payload);
        let request = with_last_response(client.limits.change_with_permit(request));
        match client.limits.within_send_time(request).await {
            Some((Ok(part), _)) => Ok(part),
            Some((Err(error), last)) => Err(errors::request_error(&error, &last, key)),
            None => Err(client.limits.timeout_error(key)),
        }
    }

    fn complete(
        &self,
        context: &RequestContext,
        parts: &[PartId],
        condition: &Condition,
    ) -> Result<ETag> {
        let (writer, target) = (self.writer, self.target);
        let put = ConditionalPut {
            target: &writer.change(target),
            body: self.body,
            condition,
            checks_first: *condition != Condition::Any,
        };
        retry::put(context, &put, |_| {
            let once = &writer.once.parts;
            let request = once.complete_multipart(&target.path, &self.id, parts.to_vec());
            match writer.client.change(target.key, request) {
                // If an earlier attempt completed the upload and its response was lost, the upload no longer exists.
                Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Invalid) => {
                    Err(Error::unavailable(target.key, error.detail()))
                }
                response => writer.etag_of_response(target, &response?),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_upload_has_more_parts_than_servers_allow() {
        for length in [1, MIN_PART, 100 << 30, (5 << 40) - 1, 5 << 40] {
            let part = part_length(length);
            assert!(length.div_ceil(part) <= MAX_PARTS && part >= MIN_PART);
        }
        assert_eq!(part_length(40 << 20), MIN_PART);
    }
}
