//! Repairs pages of listings before object_store parses them.
//!
//! A bucket may have keys with empty parts (`a//b`), with `.` or `..` as parts, or with control characters. No Zarr
//! writer makes them, no file can have such a name, and object_store fails on the whole page that lists one. Such keys
//! are removed from each page.
//!
//! object_store only follows `NextContinuationToken`, and takes a page without such a token for the last page. Some
//! servers support only version 1 of S3's listings: they send truncated pages (`IsTruncated`) without a token. Such a
//! page gets a token here that contains the marker of version 1: `NextMarker`, or the last key. The request with that
//! token is rewritten to version 1 and signed again. If a page has no marker either, its token contains the reason why
//! the listing cannot continue.

use std::borrow::Cow;

use http::Uri;
use object_store::path::Path;
use quick_xml::escape::{escape, unescape};
use url::form_urlencoded;

/// Continuation tokens that zarrfs adds begin with one of these. `MARKER` precedes the name to continue after, `FAULT`
/// the reason why the listing cannot continue.
const MARKER: &str = "zarrfs-marker:";
const FAULT: &str = "zarrfs-fault:";

/// The XML element with the continuation token, and the end tag of a listing page.
const TOKEN: &str = "NextContinuationToken";
const END: &str = "</ListBucketResult>";

/// Returns the reason why a listing cannot continue, or `None` if the continuation token contains no reason.
pub(super) fn fault(token: &str) -> Option<&str> {
    token.strip_prefix(FAULT)
}

/// Returns the URL of a version 1 listing if the URL's continuation token contains a marker, else `None`.
pub(super) fn version_1_uri(uri: &Uri) -> Option<Uri> {
    let query = uri
        .query()
        .filter(|query| query.contains("zarrfs-marker"))?;
    let mut query_pairs = form_urlencoded::Serializer::new(String::new());
    let mut has_marker = false;
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match (&*name, value.strip_prefix(MARKER)) {
            ("continuation-token", Some(marker)) => {
                query_pairs.append_pair("marker", marker);
                has_marker = true;
            }
            ("list-type" | "start-after", _) => {}
            _ => drop(query_pairs.append_pair(&name, &value)),
        }
    }
    let path = uri.path();
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = format!("{path}?{}", query_pairs.finish()).parse().ok();
    Uri::from_parts(parts).ok().filter(|_| has_marker)
}

/// Adds a continuation token to a page of S3 that lacks one, unless it is the last page. Returns pages of Azure
/// unchanged.
pub(super) fn with_next_token(page: &str) -> Cow<'_, str> {
    if page.contains("<EnumerationResults") {
        return Cow::Borrowed(page);
    }
    let Some(end) = page
        .rfind(END)
        .filter(|_| page.contains("<ListBucketResult"))
    else {
        // A page without its end tag is returned unchanged, since object_store reports it as incomplete.
        return if page.contains("<ListBucketResult") {
            Cow::Borrowed(page)
        } else {
            fault_page("the server's response is not a listing")
        };
    };
    let token = text_in(page, "NextContinuationToken").unwrap_or_default();
    if !token.trim().is_empty() {
        return Cow::Borrowed(page);
    }
    // Without `IsTruncated`, the page is truncated if it has a `NextMarker`.
    let goes_on = match text_in(page, "IsTruncated") {
        Some(flag) => !flag.trim().eq_ignore_ascii_case("false"),
        None => text_in(page, "NextMarker").is_some_and(|marker| !marker.is_empty()),
    };
    if !goes_on {
        return Cow::Owned(without_tokens(page));
    }
    let Some(marker) = marker(page) else {
        return fault_page(
            "incomplete listing: the server sends IsTruncated without a token or a name",
        );
    };
    let (names, end) = page.split_at(end);
    let token = escape(format!("{MARKER}{marker}"));
    let token = format!("<{TOKEN}>{token}</{TOKEN}>");
    Cow::Owned(without_tokens(names) + &token + end)
}

fn fault_page<'a>(why: &str) -> Cow<'a, str> {
    Cow::Owned(format!(
        "<ListBucketResult><{TOKEN}>{FAULT}{why}</{TOKEN}>{END}"
    ))
}

/// Removes the empty continuation tokens of a page, so that one token can be added.
fn without_tokens(page: &str) -> String {
    let (open, close) = (format!("<{TOKEN}>"), format!("</{TOKEN}>"));
    let page = page
        .replace(&format!("<{TOKEN}/>"), "")
        .replace(&format!("<{TOKEN} />"), "");
    match (page.find(&open), page.find(&close)) {
        (Some(start), Some(end)) if start < end => {
            let (before, rest) = page.split_at(start);
            let after = rest.split_once(&close).map(|(_, after)| after);
            [before, after.unwrap_or_default()].concat()
        }
        _ => page,
    }
}

/// Returns the name after which the next page begins: `NextMarker`, or the last name on the page.
fn marker(page: &str) -> Option<String> {
    let next = text_in(page, "NextMarker").filter(|marker| !marker.is_empty());
    next.or_else(|| {
        let prefixes = page.rsplit_once("<CommonPrefixes>").map(|(_, last)| last);
        let prefix = prefixes.and_then(|last| text_in(last, "Prefix"));
        let objects = page.rsplit_once("<Contents>").map(|(_, last)| last);
        let object = objects.and_then(|last| text_in(last, "Key"));
        prefix.max(object)
    })
}

/// Returns the text of the first XML element that has the name `element`.
fn text_in(page: &str, element: &str) -> Option<String> {
    let (_, rest) = page.split_once(&format!("<{element}>"))?;
    let (text, _) = rest.split_once('<')?;
    unescape(text).ok().map(Cow::into_owned)
}

/// Whether object_store can request an object or prefix by exactly this name. It normalizes some names.
pub(super) fn is_valid_name(name: &str) -> bool {
    let name = name.strip_suffix('/').unwrap_or(name);
    Path::parse(name).is_ok_and(|path| !name.is_empty() && path.as_ref() == name)
}

/// Removes the entries of a listing page whose names object_store cannot request. Calls `record` with each name.
pub(super) fn without_invalid_names(page: &str, record: impl Fn(&str)) -> Cow<'_, str> {
    let mut plain = String::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(start) = page.get(at..).and_then(|rest| rest.find('<')) {
        let start = at + start;
        let text = page.get(start..).unwrap_or_default();
        at = start + 1;
        let Some((element, holder)) = entry_kind(text) else {
            continue;
        };
        // A page in which an entry has no end tag is malformed, and object_store reports it.
        let Some(length) = element_length(text, element) else {
            break;
        };
        at = start + length;
        let name = text.get(..length).and_then(|entry| name_in(entry, holder));
        if let Some(name) = name.filter(|name| !is_valid_name(name)) {
            record(&name);
            plain.push_str(page.get(copied..start).unwrap_or_default());
            copied = at;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(page);
    }
    plain.push_str(page.get(copied..).unwrap_or_default());
    Cow::Owned(plain)
}

/// Returns the name of the XML element at the start of `text`, and of its child that contains the key or prefix.
/// Returns `None` if the element is not a listing entry.
fn entry_kind(text: &str) -> Option<(&'static str, &'static str)> {
    // S3 and Google use the first two elements, Azure the other two.
    let entries = [
        ("Contents", "Key"),
        ("CommonPrefixes", "Prefix"),
        ("Blob", "Name"),
        ("BlobPrefix", "Name"),
    ];
    let begins = |element: &str| {
        let rest = text
            .strip_prefix('<')
            .and_then(|rest| rest.strip_prefix(element));
        rest.is_some_and(|rest| rest.starts_with('>'))
    };
    entries.into_iter().find(|(element, _)| begins(element))
}

/// Returns the length of the XML element at the start of a text, or `None` if it has no end tag.
fn element_length(text: &str, element: &str) -> Option<usize> {
    let end = format!("</{element}>");
    Some(text.find(&end)? + end.len())
}

/// Returns the key or prefix in a listing entry.
fn name_in<'a>(entry: &'a str, holder: &str) -> Option<Cow<'a, str>> {
    let (_, rest) = entry.split_once(&format!("<{holder}>"))?;
    let (name, _) = rest.split_once('<')?;
    unescape(name).ok()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn page(members: &str) -> String {
        format!("<ListBucketResult>{members}{END}")
    }

    fn token(members: &str) -> Option<String> {
        text_in(&with_next_token(&page(members)), TOKEN)
    }

    #[test]
    fn a_truncated_page_gets_a_continuation_token() {
        let truncated = "<IsTruncated>true</IsTruncated>";
        let names = "<Contents><Key>a&amp;b</Key></Contents><CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes>";
        for (members, expected) in [
            ("<NextMarker>m</NextMarker>", "zarrfs-marker:m"),
            ("<NextContinuationToken>t</NextContinuationToken>", "t"),
            (
                "<NextContinuationToken></NextContinuationToken>",
                "zarrfs-marker:a/",
            ),
            ("<NextContinuationToken/>", "zarrfs-marker:a/"),
            ("<NextMarker></NextMarker>", "zarrfs-marker:a/"),
        ] {
            let found = token(&format!("{truncated}{members}{names}"));
            assert_eq!(found.as_deref(), Some(expected), "{members}");
        }
        assert!(token(truncated).is_some_and(|token| token.starts_with(FAULT)));
        assert_eq!(token(names), None);
        let marked = token(&format!("<NextMarker>m</NextMarker>{names}"));
        assert_eq!(marked.as_deref(), Some("zarrfs-marker:m"));
        for end in ["false", "False"] {
            let end = format!("<IsTruncated>{end}</IsTruncated><NextContinuationToken/>");
            assert_eq!(token(&format!("{end}{names}")), None);
        }
    }

    #[test]
    fn a_body_that_is_not_a_listing_is_a_fault() {
        for other in ["", "<html><body>Sign in</body></html>"] {
            assert!(with_next_token(other).contains(FAULT), "{other}");
        }
        let azure = "<EnumerationResults><NextMarker/></EnumerationResults>";
        assert_eq!(with_next_token(azure), azure);
    }

    #[test]
    fn a_marker_is_sent_in_a_request_of_version_1() {
        let asked = |uri: &str| version_1_uri(&uri.parse().unwrap()).map(|uri| uri.to_string());
        assert_eq!(
            asked("http://h/b?continuation-token=zarrfs-marker%3Aa%26b&list-type=2&prefix=a%2F")
                .unwrap(),
            "http://h/b?marker=a%26b&prefix=a%2F"
        );
        assert_eq!(
            asked("http://h/b?list-type=2&prefix=zarrfs-marker%3A"),
            None
        );
    }

    /// Returns a listing page without its invalid names, and the invalid names.
    fn read(page: &str) -> (String, Vec<String>) {
        let names = RefCell::default();
        let record = |name: &str| RefCell::<Vec<String>>::borrow_mut(&names).push(name.to_string());
        let plain = without_invalid_names(page, record).into_owned();
        (plain, names.into_inner())
    }

    #[test]
    fn valid_names_are_relative_paths() {
        for name in ["a", "a/b/", "...", "a/..b", "caf\u{e9} \u{ff0f}", "%2F"] {
            assert!(is_valid_name(name), "{name}");
        }
        for name in [
            "", "/", "/a", "a//", "a//b", "a/./b", "..", "../a", "a\nb", "a\u{7f}",
        ] {
            assert!(!is_valid_name(name), "{name}");
        }
    }

    /// Invariant (stores): A key of a bucket that is not a path is hidden; it is never taken for another key and never
    /// ends a listing.
    #[test]
    fn invalid_names_are_removed_from_a_page() {
        let contents = |name: &str| format!("<Contents><Size>3</Size><Key>{name}</Key></Contents>");
        let prefix =
            |name: &str| format!("<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>");
        let blob = |name: &str| format!("<Blob><Name>{name}</Name><Properties/></Blob>");
        let blob_prefix = |name: &str| format!("<BlobPrefix><Name>{name}</Name></BlobPrefix>");
        for entry in [
            &contents as &dyn Fn(&str) -> String,
            &prefix,
            &blob,
            &blob_prefix,
        ] {
            let page = |names: &[&str]| {
                let entries: String = names.iter().map(|name| entry(name)).collect();
                format!("<R><Prefix>a//</Prefix><Blobs>{entries}</Blobs><Token>t</Token></R>")
            };
            let (plain, names) = read(&page(&["a//b", "a/c&amp;d", "x/../y", "&#10;", "z"]));
            assert_eq!(plain, page(&["a/c&amp;d", "z"]));
            assert_eq!(names, ["a//b", "x/../y", "\n"]);
        }
        let page = "<R><Contents><Key>a</Key></Contents></R>";
        assert!(matches!(
            without_invalid_names(page, |_| panic!()),
            Cow::Borrowed(_)
        ));
    }

    #[test]
    fn a_page_without_complete_names_stays_unchanged() {
        for page in [
            "",
            "<",
            "<Contents>",
            "<Contents><Key>a//b",
            "<Contents></Contents>",
            "<Blob><Name><",
        ] {
            assert_eq!(read(page), (page.to_string(), Vec::new()));
        }
    }
}
