//! Tests whether ETags differ between servers: requests an object until its first ETag comes back.

use super::endpoint::{HttpEndpoint, RequestSpec};
use super::response::Validators;
use super::tags::{SeenTag, Suspicion};
use crate::{Key, Meta};

/// Number of responses that are compared. With two servers that respond at random, 1 trial in 28 proves nothing.
const MAX_COMPARED: usize = 8;

/// Maximum number of bytes in each of these responses.
const MAX_COMPARED_BYTES: u64 = 64 << 10;

impl HttpEndpoint {
    /// Returns the metadata of an object of `size` bytes, given the validators of a response.
    pub(super) async fn meta(&self, key: &Key, validators: Validators, size: u64) -> Meta {
        if !self.tags.are_dropped()
            && let Some(now) = SeenTag::of(&validators, size)
            && let Some(suspicion) = self.tags.note(key, &now)
        {
            let _trial = self.tags.trial.lock().await;
            if let Suspicion::Trial(before) = suspicion
                && !self.tags.are_dropped()
                && self.has_both_tags(key, &before, &now).await
            {
                self.tags.drop_all(key);
            }
        }
        self.tags.counting(validators).meta(size)
    }

    /// Whether an object has the same content under both ETags. A failed request proves nothing.
    async fn has_both_tags(&self, key: &Key, before: &SeenTag, now: &SeenTag) -> bool {
        let end = now.size.min(MAX_COMPARED_BYTES);
        if end == 0 {
            return false;
        }
        let mut first: Option<Vec<u8>> = None;
        let mut is_back = false;
        for _ in 0..MAX_COMPARED {
            let Some((answer, bytes)) = self.part_with_tag(key, end).await else {
                return false;
            };
            if (answer.modified, answer.size) != (now.modified, now.size)
                || first.as_ref().is_some_and(|first| *first != bytes)
            {
                return false;
            }
            if is_back && answer.tag != before.tag {
                return true;
            }
            is_back |= answer.tag == before.tag;
            first.get_or_insert(bytes);
        }
        false
    }

    /// Fetches the first bytes of an object. Returns `None` unless the response has exactly them and both validators.
    async fn part_with_tag(&self, key: &Key, end: u64) -> Option<(SeenTag, Vec<u8>)> {
        let spec = RequestSpec::part(key, format!("bytes=0-{}", end - 1));
        let response = self.send(&spec).await.ok()?;
        let (start, to, size) = response.part()?;
        let seen = SeenTag::of(&response.validators(), size)?;
        if response.status != 206 || (start, to) != (0, end) {
            return None;
        }
        let mut bytes = Vec::new();
        self.append_body(key, response, &mut bytes, end)
            .await
            .ok()?;
        (bytes.len() as u64 == end).then_some((seen, bytes))
    }
}
