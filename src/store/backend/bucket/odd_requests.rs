//! Requests about keys that are no paths (`odd_names`), below a client that knows paths alone.
//!
//! Names in the listings of a server are replaced by what is shown for them, before the client reads them. In the URL of
//! a request the path becomes the key again, and the request is signed again where its signature covers the URL. Parts of
//! dots, which libraries take out of URLs, stay where the slash beside them is escaped, which servers of S3 take for one.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use http::header::AUTHORIZATION;
use http::uri::PathAndQuery;
use http::{StatusCode, Uri};
use object_store::ClientOptions;
use object_store::aws::{AwsAuthorizer, AwsCredentialProvider};
use object_store::azure::{AzureAuthorizer, AzureCredential, AzureCredentialProvider};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};

use super::{odd_names, path_signature};
use crate::store::backend::remote::connector::Connector;

/// What signs the requests of a store; those of Google have signatures that do not cover the URL.
pub(super) enum RequestSigner {
    S3(AwsCredentialProvider),
    /// With the name of the account.
    Azure(AzureCredentialProvider, String),
}

/// Makes clients that ask for keys that are no paths.
#[derive(Clone)]
pub(super) struct OddConnector {
    below: Connector,
    /// Known when the store is built, whose clients these are.
    signer: Arc<OnceLock<RequestSigner>>,
}

impl OddConnector {
    /// Builds a maker of clients over others.
    pub(super) fn over(below: &Connector) -> OddConnector {
        OddConnector {
            below: below.clone(),
            signer: Arc::default(),
        }
    }

    /// Tells what signs the requests.
    pub(super) fn sign_by(&self, signer: RequestSigner) {
        // Set once, right after the store is built.
        let _ = self.signer.set(signer);
    }
}

impl fmt::Debug for OddConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OddConnector")
    }
}

impl HttpConnector for OddConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(OddClient {
            below: self.below.connect(options)?,
            signer: self.signer.clone(),
        }))
    }
}

struct OddClient {
    below: HttpClient,
    signer: Arc<OnceLock<RequestSigner>>,
}

impl fmt::Debug for OddClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OddClient")
    }
}

#[async_trait::async_trait]
impl HttpService for OddClient {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let is_listing = is_listing(request.uri());
        if let Some(uri) = stored_uri(request.uri()) {
            *request.uri_mut() = uri;
            self.sign(&mut request).await.map_err(unsigned)?;
        }
        if request.uri().path().contains(ESCAPED_SLASH)
            && let Some(signed) = self.signed_as_key(&request).await.map_err(unsigned)?
        {
            let response = self.below.execute(signed).await?;
            // Some servers compare the signature with the path as it was sent.
            if response.status() != StatusCode::FORBIDDEN {
                return Ok(response);
            }
        }
        let response = self.below.execute(request).await?;
        if !is_listing || !response.status().is_success() {
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        let page = body.bytes().await?;
        let body = match str::from_utf8(&page).map(shown_page) {
            Ok(Cow::Owned(shown)) => HttpResponseBody::from(shown),
            _ => HttpResponseBody::from(page),
        };
        Ok(HttpResponse::from_parts(head, body))
    }
}

impl OddClient {
    /// Signs a request anew, as it was signed.
    async fn sign(&self, request: &mut HttpRequest) -> object_store::Result<()> {
        let signed = request.headers_mut().remove(AUTHORIZATION);
        let text = signed.as_ref().and_then(|value| value.to_str().ok());
        let text = text.unwrap_or_default().to_string();
        match self.signer.get() {
            Some(RequestSigner::S3(credentials)) if text.starts_with("AWS4-") => {
                let credential = credentials.get_credential().await?;
                let region = region(&text).unwrap_or_default();
                let digest = request.headers().get("x-amz-content-sha256");
                let is_whole = digest.is_none_or(|digest| digest != "UNSIGNED-PAYLOAD");
                AwsAuthorizer::new(&credential, "s3", region)
                    .with_sign_payload(is_whole)
                    .try_authorize(request, None)
            }
            Some(RequestSigner::Azure(credentials, account)) if text.starts_with("SharedKey") => {
                let credential = credentials.get_credential().await?;
                match &*credential {
                    AzureCredential::AccessKey(_) => {
                        AzureAuthorizer::new(&credential, account).try_authorize(request)
                    }
                    _ => Ok(()),
                }
            }
            _ => {
                signed.map(|signed| request.headers_mut().insert(AUTHORIZATION, signed));
                Ok(())
            }
        }
    }
}

impl OddClient {
    /// Returns a request whose path has escaped slashes with the signature of one without; nothing if it is not signed, or
    /// not as S3 does it.
    async fn signed_as_key(
        &self,
        request: &HttpRequest,
    ) -> object_store::Result<Option<HttpRequest>> {
        // Credentials are not looked for where none are used.
        let is_signed = request.headers().contains_key(AUTHORIZATION);
        let Some(RequestSigner::S3(credentials)) = self.signer.get().filter(|_| is_signed) else {
            return Ok(None);
        };
        let credential = credentials.get_credential().await?;
        let mut request = request.clone();
        let path = request.uri().path().replace(ESCAPED_SLASH, "/");
        let path = (path.as_str(), UNESCAPED);
        let signed = path_signature::sign_as(&mut request, path, &credential.secret_key);
        Ok(signed.map(|()| request))
    }
}

/// Returns the region of the scope that the header of a signature names: `KEY/DATE/REGION/s3/...`.
fn region(signed: &str) -> Option<&str> {
    let (_, scope) = signed.split_once("Credential=")?;
    scope.split([',', ' ']).next()?.rsplit('/').nth(2)
}

fn unsigned(fault: object_store::Error) -> HttpError {
    HttpError::new(HttpErrorKind::Request, fault)
}

/// Whether a request asks for a listing.
fn is_listing(uri: &Uri) -> bool {
    let mut parts = uri.query().unwrap_or_default().split('&');
    parts.any(|part| part == "list-type=2" || part == "comp=list")
}

/// A slash of a key that stands beside a part of dots. A key's own percent sign is escaped as well, so it is nothing else.
const ESCAPED_SLASH: &str = "%2F";

/// Characters that stand in a URL's path as they are.
pub(super) const UNESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Returns the URL of the key that is shown as the path of `uri`; nothing if it is the same.
fn stored_uri(uri: &Uri) -> Option<Uri> {
    let path = uri.path();
    // The signs are characters of three bytes, all of which begin so.
    if !path.contains("%E2") && !path.contains("%EF") {
        return None;
    }
    let parts: Vec<Cow<'_, str>> = path.split('/').map(stored_part).collect();
    let stored = joined(&parts);
    if stored == path {
        return None;
    }
    let query = uri.query().map(|query| format!("?{query}"));
    let target: PathAndQuery = (stored + &query.unwrap_or_default()).parse().ok()?;
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(target);
    Uri::from_parts(parts).ok()
}

/// Joins the parts of a path; those of dots are not between two slashes of a URL.
fn joined(parts: &[Cow<'_, str>]) -> String {
    let is_dots = |part: &str| matches!(part, "." | "..");
    let mut path = String::new();
    for (place, part) in parts.iter().enumerate() {
        let before = place.checked_sub(1).and_then(|before| parts.get(before));
        let is_last = place + 1 == parts.len();
        match before {
            None => {}
            Some(before) if is_dots(before) || is_last && is_dots(part) => path += ESCAPED_SLASH,
            Some(_) => path.push('/'),
        }
        path += part;
    }
    path
}

/// Returns one part of a URL's path, which may have escaped slashes, as the key has it.
fn stored_part(part: &str) -> Cow<'_, str> {
    let Ok(shown) = percent_decode_str(part).decode_utf8() else {
        return Cow::Borrowed(part);
    };
    match odd_names::stored(&shown) {
        Some(stored) if stored != shown => {
            Cow::Owned(percent_encode(stored.as_bytes(), UNESCAPED).to_string())
        }
        _ => Cow::Borrowed(part),
    }
}

/// The elements of a listing that hold names, in S3's and Google's pages and in Azure's.
const NAMES: [&str; 3] = ["Key", "Prefix", "Name"];

/// Returns a page of a listing with each name as it is shown.
fn shown_page(page: &str) -> Cow<'_, str> {
    let mut shown = String::new();
    let mut copied = 0;
    for (start, _) in page.match_indices('<') {
        let Some(rest) = page.get(start + 1..) else {
            continue;
        };
        let Some((element, rest)) = rest.split_once('>') else {
            break;
        };
        let Some((text, _)) = rest.split_once('<') else {
            break;
        };
        if !NAMES.contains(&element) {
            continue;
        }
        if let Some(name) = shown_text(text) {
            let begin = start + element.len() + 2;
            shown.push_str(page.get(copied..begin).unwrap_or_default());
            shown.push_str(&name);
            copied = begin + text.len();
        }
    }
    if shown.is_empty() {
        return Cow::Borrowed(page);
    }
    shown.push_str(page.get(copied..).unwrap_or_default());
    Cow::Owned(shown)
}

/// Returns the text of an element that holds a name, as it is shown; nothing if that is the same.
fn shown_text(text: &str) -> Option<String> {
    let name = quick_xml::escape::unescape(text).ok()?;
    match odd_names::shown(&name) {
        Cow::Owned(shown) => Some(quick_xml::escape::escape(shown).into_owned()),
        Cow::Borrowed(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::*;

    #[test]
    fn parts_of_dots_stay_in_urls() {
        for (shown, sent) in [
            ("a/%EF%BC%8E/b", "/bucket/a/.%2Fb"),
            ("a/%EF%BC%8E%EF%BC%8E/b", "/bucket/a/..%2Fb"),
            ("%EF%BC%8E%EF%BC%8E/%EF%BC%8E/b", "/bucket/..%2F.%2Fb"),
            ("a/%EF%BC%8E", "/bucket/a%2F."),
            ("a/%EF%BC%8E/%EF%BC%8E%EF%BC%8E", "/bucket/a/.%2F.."),
            ("a/%EF%BC%8F/%EF%BC%8E", "/bucket/a/%2F."),
            ("a/%EF%BC%8F/b", "/bucket/a//b"),
        ] {
            let uri = format!("https://host/bucket/{shown}?versionId=1");
            let stored = stored_uri(&uri.parse().unwrap()).unwrap();
            assert_eq!(stored.path(), sent);
            let url = Url::parse(&stored.to_string()).unwrap();
            assert_eq!((url.path(), url.query()), (sent, Some("versionId=1")));
        }
    }
}
