//! Translates conditions into object_store's put modes and headers of removals.
//!
//! The text of an ETag has everything that both need: the quoted tag and, for Google, the generation number.

use http::header::IF_MATCH;
use http::{HeaderName, HeaderValue};
use object_store::{PutMode, UpdateVersion};

use super::address::CloudKind;
use crate::Condition;
use crate::backend::remote::condition_probe::UNUSED_ETAG;
use crate::backend::remote::headers::opaque_tag;

/// A request header: name and value.
pub(super) type ConditionHeader = (HeaderName, HeaderValue);

/// Separates an ETag from Google's generation number.
const GENERATION: &str = " generation ";

/// The header of Google that makes a request conditional on a generation.
const IF_GENERATION_MATCH: HeaderName = HeaderName::from_static("x-goog-if-generation-match");

/// Returns the text of an ETag for conditions, or `None` if the response has no usable tag or, for Google, no
/// generation.
pub(super) fn etag_text(
    kind: CloudKind,
    tag: Option<&str>,
    generation: Option<&str>,
) -> Option<String> {
    let tag = tag.filter(|tag| opaque_tag(tag).is_some())?;
    // Some servers quote the tag in one response and not in the next.
    let tag = if tag.ends_with('"') {
        tag.to_string()
    } else {
        format!("\"{tag}\"")
    };
    match (kind, generation) {
        (CloudKind::Google, Some(generation)) => Some(tag + GENERATION + generation),
        (CloudKind::Google, None) => None,
        _ => Some(tag),
    }
}

/// Parses the text of an ETag, or returns `None` if a request cannot express it.
fn update_version(kind: CloudKind, text: &str) -> Option<UpdateVersion> {
    let (tag, version) = match text.split_once(GENERATION) {
        Some((tag, version)) => (tag, Some(version.to_string())),
        None => (text, None),
    };
    let can = tag.ends_with('"') && version.is_some() == (kind == CloudKind::Google);
    can.then(|| UpdateVersion {
        e_tag: Some(tag.to_string()),
        version,
    })
}

/// Returns the put mode for a condition, or `None` if a request cannot express it.
pub(super) fn put_mode(kind: CloudKind, condition: &Condition) -> Option<PutMode> {
    match condition {
        Condition::Any | Condition::Version(_) => None,
        Condition::Absent => Some(PutMode::Create),
        Condition::Match(text) => update_version(kind, text).map(PutMode::Update),
    }
}

/// Returns the header that expresses a removal's condition, or `None` if it has no condition or no header can express
/// it.
pub(super) fn removal_header(kind: CloudKind, condition: &Condition) -> Option<ConditionHeader> {
    let Condition::Match(text) = condition else {
        return None;
    };
    let UpdateVersion { e_tag, version } = update_version(kind, text)?;
    let (name, value) = match kind {
        CloudKind::S3 | CloudKind::Azure => (IF_MATCH, e_tag),
        CloudKind::Google => (IF_GENERATION_MATCH, version),
    };
    Some((name, HeaderValue::from_str(&value?).ok()?))
}

/// Returns the text of an ETag that no object has.
pub(super) fn unused_etag(kind: CloudKind) -> String {
    match kind {
        CloudKind::Google => format!("{UNUSED_ETAG}{GENERATION}{}", i64::MAX),
        CloudKind::S3 | CloudKind::Azure => UNUSED_ETAG.to_string(),
    }
}
