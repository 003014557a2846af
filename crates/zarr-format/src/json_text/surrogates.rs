//! Replaces escapes of lone surrogates in JSON text by U+FFFD.
//!
//! Python's json module writes a byte that is not UTF-8 as `\udc80` to `\udcff`, which JSON parsers of UTF-8 reject.

use std::borrow::Cow;

/// Returns JSON text with each lone surrogate replaced by U+FFFD; the length does not change.
pub(super) fn replaced_in(text: &str) -> Cow<'_, [u8]> {
    let has_surrogates = text.contains("\\ud") || text.contains("\\uD");
    let replaced = has_surrogates.then(|| without_lone(text.as_bytes()));
    replaced
        .flatten()
        .map_or(text.as_bytes().into(), Cow::Owned)
}

/// Returns JSON strings with each lone surrogate replaced by U+FFFD, or `None` if there is none. The length does not
/// change.
pub(super) fn without_lone(string: &[u8]) -> Option<Vec<u8>> {
    const REPLACED: &[u8] = b"\\ufffd";
    let mut replaced = Vec::new();
    let (mut at, mut found) = (0, false);
    while let Some(byte) = string.get(at) {
        let rest = string.get(at..).unwrap_or_default();
        let after = rest.get(REPLACED.len()..).unwrap_or_default();
        let (length, is_lone) = match (escaped_unit(rest), escaped_unit(after)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => (2 * REPLACED.len(), false),
            (Some(0xd800..=0xdfff), _) => (REPLACED.len(), true),
            _ if *byte == b'\\' => (2, false),
            _ => (1, false),
        };
        found |= is_lone;
        let part = rest.get(..length).unwrap_or(rest);
        replaced.extend_from_slice(if is_lone { REPLACED } else { part });
        at += length;
    }
    found.then_some(replaced)
}

/// Returns the UTF-16 unit at the start of `bytes`, or `None` if they do not begin with its escape.
fn escaped_unit(bytes: &[u8]) -> Option<u16> {
    let digits = bytes.strip_prefix(b"\\u")?.get(..4)?;
    let digits = digits.iter().all(u8::is_ascii_hexdigit).then_some(digits)?;
    u16::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}
