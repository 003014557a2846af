//! A big object put in parts, several on their way at a time; nothing shows until they are put together.
//!
//! A part may be repeated: it belongs to this upload alone. Putting together has no condition in object_store, so
//! the key is looked at just before. Memory is that of the parts on their way. What ends early is given up, so that
//! the server need not keep its parts.

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use object_store::PutPayload;
use object_store::multipart::PartId;
use tokio::time::timeout;

use super::writer::{ObjectTarget, Writer};
use crate::error::{Error, Kind, Result};
use crate::store::backend::remote::runtime::{wait, with_last_response};
use crate::store::backend::remote::{fault, write_retry};
use crate::store::{Condition, ETag, PutBody};

/// The least length of a part, in bytes; the most parts that servers take.
const PART: u64 = 8 << 20;
const MOST_PARTS: u64 = 10_000;

/// Parts on their way at a time.
const UNDER_WAY: usize = 4;

/// Returns the length of all parts but the last.
fn part_length(length: u64) -> u64 {
    length
        .div_ceil(MOST_PARTS)
        .next_multiple_of(1 << 20)
        .max(PART)
}

impl Writer {
    /// Puts an object in parts if the condition holds.
    pub(super) fn put_parts(
        &self,
        target: &ObjectTarget<'_>,
        body: PutBody<'_>,
        condition: &Condition,
    ) -> Result<ETag> {
        if *condition != Condition::Any {
            // Nothing need be sent that will be refused.
            condition.check(target.key, self.etag(target)?.as_ref())?;
        }
        let parts = &self.client.parts;
        let begun = parts.create_multipart(&target.path);
        let upload = self.client.ask(target.key, begun)?;
        let done = self
            .send(target, &upload, body)
            .and_then(|sent| self.put_together(target, &upload, (body, sent), condition));
        if done.is_err() {
            let given_up = parts.abort_multipart(&target.path, &upload);
            if let Err(error) = self.client.ask(target.key, given_up) {
                log::debug!("{error}: an upload could not be given up");
            }
        }
        done
    }

    /// Sends all parts; returns their names in order.
    fn send(
        &self,
        target: &ObjectTarget<'_>,
        upload: &String,
        body: PutBody<'_>,
    ) -> Result<Vec<PartId>> {
        let length = part_length(body.len());
        let count = body.len().div_ceil(length);
        // Each part has a limit of its own.
        let limit = u32::try_from(count).unwrap_or(u32::MAX).saturating_add(1);
        let limit = self.client.limit.saturating_mul(limit);
        let (done, _) = wait(limit, async {
            let mut sent = Vec::new();
            let mut under_way = FuturesOrdered::new();
            for number in 0..count {
                let start = number * length;
                let part = body.part(start..body.len().min(start + length))?;
                under_way.push_back(self.send_part(target, upload, (number, part)));
                if under_way.len() >= UNDER_WAY
                    && let Some(part) = under_way.next().await
                {
                    sent.push(part?);
                }
            }
            while let Some(part) = under_way.next().await {
                sent.push(part?);
            }
            Ok(sent)
        })
        .map_err(|error| error.about(target.key))?;
        done.unwrap_or_else(|| Err(fault::late(target.key, limit.as_secs_f32())))
    }

    async fn send_part(
        &self,
        target: &ObjectTarget<'_>,
        upload: &String,
        (number, part): (u64, Vec<u8>),
    ) -> Result<PartId> {
        let number = usize::try_from(number).map_err(|error| Error::too_large("", error))?;
        let request = async {
            let _permit = self.client.permits.acquire().await;
            let payload = PutPayload::from(part);
            let parts = &self.client.parts;
            parts.put_part(&target.path, upload, number, payload).await
        };
        match timeout(self.client.limit, with_last_response(request)).await {
            Ok((Ok(part), _)) => Ok(part),
            Ok((Err(error), said)) => Err(fault::error(&error, &said, target.key)),
            Err(_) => Err(fault::late(target.key, self.client.limit.as_secs_f32())),
        }
    }

    fn put_together(
        &self,
        target: &ObjectTarget<'_>,
        upload: &String,
        (body, sent): (PutBody<'_>, Vec<PartId>),
        condition: &Condition,
    ) -> Result<ETag> {
        let attempt = |_| {
            let parts = &self.once.parts;
            let request = parts.complete_multipart(&target.path, upload, sent.clone());
            match self.client.ask(target.key, request) {
                // An upload that is gone may have been put together by an attempt whose answer was lost.
                Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Invalid) => {
                    Err(Error::unavailable(target.key, error.detail()))
                }
                answer => self.etag_of_answer(target, &answer?),
            }
        };
        let checks_first = *condition != Condition::Any;
        write_retry::put(&self.at(target), body, (condition, checks_first), attempt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_object_has_more_parts_than_servers_take() {
        for length in [1, PART, 100 << 30, (5 << 40) - 1, 5 << 40] {
            let part = part_length(length);
            assert!(length.div_ceil(part) <= MOST_PARTS && part >= PART);
        }
        assert_eq!(part_length(40 << 20), PART);
    }
}
