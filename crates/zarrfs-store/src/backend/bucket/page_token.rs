//! Makes tokens for pages of S3 listings that have none (version 1).
//!
//! object_store only follows `NextContinuationToken`, and takes a page without one for the last. If a page is truncated
//! (`IsTruncated`) but has no token, a token is added here that holds the marker of version 1: `NextMarker`, or the
//! last key. The request with that token is rewritten to version 1 and signed again. If a page has no marker either, it
//! gets a token that holds the reason.

use std::borrow::Cow;

use http::Uri;
use http::header::AUTHORIZATION;
use object_store::aws::{AwsAuthorizer, AwsCredentialProvider};
use object_store::client::{HttpError, HttpErrorKind, HttpRequest};
use quick_xml::escape::{escape, unescape};
use url::form_urlencoded;

/// Prefixes of the added tokens: for a marker, and for the reason why there is none.
const MARKER: &str = "zarrfs-marker:";
const FAULT: &str = "zarrfs-fault:";

/// The region for signatures if none is given.
pub(super) const DEFAULT_REGION: &str = "us-east-1";

/// Signs requests for listings.
#[derive(Debug)]
pub(super) struct ListingSigner {
    credentials: AwsCredentialProvider,
    region: String,
}

impl ListingSigner {
    pub(super) fn new(credentials: AwsCredentialProvider, region: Option<String>) -> ListingSigner {
        let region = region.unwrap_or_else(|| DEFAULT_REGION.to_string());
        ListingSigner {
            credentials,
            region,
        }
    }

    /// Signs a request again, replacing its signature.
    pub(super) async fn sign(&self, request: &mut HttpRequest) -> Result<(), HttpError> {
        let failed = |error| HttpError::new(HttpErrorKind::Unknown, error);
        let credential = self.credentials.get_credential().await.map_err(failed)?;
        request.headers_mut().remove(AUTHORIZATION);
        let authorizer = AwsAuthorizer::new(&credential, "s3", &self.region);
        authorizer.try_authorize(request, None).map_err(failed)
    }
}

/// Returns the reason why a listing cannot continue, or `None` if the token has none.
pub(super) fn fault(token: &str) -> Option<&str> {
    token.strip_prefix(FAULT)
}

/// Returns the request of version 1 for a token with a marker, or `None` for other tokens.
pub(super) fn by_marker(uri: &Uri) -> Option<Uri> {
    let query = uri
        .query()
        .filter(|query| query.contains("zarrfs-marker"))?;
    let mut marked = form_urlencoded::Serializer::new(String::new());
    let mut has_marker = false;
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match (&*name, value.strip_prefix(MARKER)) {
            ("continuation-token", Some(marker)) => {
                marked.append_pair("marker", marker);
                has_marker = true;
            }
            ("list-type" | "start-after", _) => {}
            _ => drop(marked.append_pair(&name, &value)),
        }
    }
    let path = uri.path();
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = format!("{path}?{}", marked.finish()).parse().ok();
    Uri::from_parts(parts).ok().filter(|_| has_marker)
}

/// Returns a page of S3 with a token unless it is the last one. Pages of Azure are returned unchanged.
pub(super) fn leading_on(page: &str) -> Cow<'_, str> {
    if page.contains("<EnumerationResults") {
        return Cow::Borrowed(page);
    }
    let Some(end) = page
        .rfind(END)
        .filter(|_| page.contains("<ListBucketResult"))
    else {
        // object_store reports a page that breaks off.
        return if page.contains("<ListBucketResult") {
            Cow::Borrowed(page)
        } else {
            faulty("the server answered with something that is no listing")
        };
    };
    let token = text_in(page, "NextContinuationToken").unwrap_or_default();
    if !token.trim().is_empty() {
        return Cow::Borrowed(page);
    }
    // If a server sends neither `IsTruncated` nor a marker, this is its last page.
    let goes_on = match text_in(page, "IsTruncated") {
        Some(flag) => !flag.trim().eq_ignore_ascii_case("false"),
        None => text_in(page, "NextMarker").is_some_and(|marker| !marker.is_empty()),
    };
    if !goes_on {
        return Cow::Owned(without_tokens(page));
    }
    let Some(marker) = marker(page) else {
        return faulty(
            "the server says that its listing goes on (IsTruncated), but not where: it sends neither a token nor a name",
        );
    };
    let (names, end) = page.split_at(end);
    let token = escape(format!("{MARKER}{marker}"));
    let token = format!("<{TOKEN}>{token}</{TOKEN}>");
    Cow::Owned(without_tokens(names) + &token + end)
}

const TOKEN: &str = "NextContinuationToken";
const END: &str = "</ListBucketResult>";

fn faulty<'a>(why: &str) -> Cow<'a, str> {
    Cow::Owned(format!(
        "<ListBucketResult><{TOKEN}>{FAULT}{why}</{TOKEN}>{END}"
    ))
}

/// Returns a page without its (empty) tokens.
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

/// Returns the marker of the next page: `NextMarker`, or the last name.
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

/// Returns the text of the first element with a name.
fn text_in(page: &str, element: &str) -> Option<String> {
    let (_, rest) = page.split_once(&format!("<{element}>"))?;
    let (text, _) = rest.split_once('<')?;
    unescape(text).ok().map(Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(members: &str) -> String {
        format!("<ListBucketResult>{members}{END}")
    }

    fn token(members: &str) -> Option<String> {
        text_in(&leading_on(&page(members)), TOKEN)
    }

    #[test]
    fn a_page_that_is_cut_off_names_its_marker() {
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
    fn what_is_no_listing_is_not_an_empty_one() {
        for other in ["", "<html><body>Sign in</body></html>"] {
            assert!(leading_on(other).contains(FAULT), "{other}");
        }
        let azure = "<EnumerationResults><NextMarker/></EnumerationResults>";
        assert_eq!(leading_on(azure), azure);
    }

    #[test]
    fn a_marker_is_asked_for_by_version_1() {
        let asked = |uri: &str| by_marker(&uri.parse().unwrap()).map(|uri| uri.to_string());
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
}
