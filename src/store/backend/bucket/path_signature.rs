//! The signature of a request to S3 whose path is signed in another spelling than it is sent in (AWS, "Create a signed
//! request", Signature Version 4).
//!
//! S3 and most servers of its kind decode the path that they get and encode it again before they compare signatures.
//! The library signs only the path that is sent. So a request that it has signed is signed here once more: all but the
//! path is as it was signed.

use http::Uri;
use http::header::{AUTHORIZATION, HOST, HeaderValue};
use object_store::client::HttpRequest;
use percent_encoding::{AsciiSet, percent_encode};
use ring::{digest, hmac};
use url::form_urlencoded;

/// A signature as a header has it.
struct SignedHeader<'a> {
    /// The algorithm, a space, and the key's name with the scope.
    before: &'a str,
    /// The date, the region and the rest of the scope.
    scope: &'a str,
    /// The names of the headers that are signed, ascending.
    names: &'a str,
}

impl SignedHeader<'_> {
    fn read(text: &str) -> Option<SignedHeader<'_>> {
        let (before, rest) = text.split_once(", SignedHeaders=")?;
        let (names, _) = rest.split_once(", Signature=")?;
        let (_, scope) = before.split_once("Credential=")?.1.split_once('/')?;
        Some(SignedHeader {
            before,
            scope,
            names,
        })
    }
}

/// Signs a signed request as one for `path`; `unescaped` are the characters that stand in a signed query as they are. The
/// request stays as it is if it has no signature.
pub(super) fn sign_as(
    request: &mut HttpRequest,
    (path, unescaped): (&str, &'static AsciiSet),
    secret: &str,
) -> Option<()> {
    let text = request.headers().get(AUTHORIZATION)?.to_str().ok()?;
    let signed = SignedHeader::read(text)?;
    let canonical = [
        request.method().as_str(),
        path,
        &canonical_query(request.uri(), unescaped),
        &canonical_headers(request, signed.names)?,
        signed.names,
        header(request, "x-amz-content-sha256")?,
    ];
    let time = header(request, "x-amz-date")?;
    let hash = hex(digest::digest(&digest::SHA256, canonical.join("\n").as_bytes()).as_ref());
    let to_sign = ["AWS4-HMAC-SHA256", time, signed.scope, &hash].join("\n");
    let signature = hex(&keyed(&signing_key(signed.scope, secret), &to_sign));
    let (before, names) = (signed.before, signed.names);
    let text = format!("{before}, SignedHeaders={names}, Signature={signature}");
    let value = HeaderValue::from_str(&text).ok()?;
    request.headers_mut().insert(AUTHORIZATION, value);
    Some(())
}

fn header<'a>(request: &'a HttpRequest, name: &str) -> Option<&'a str> {
    request.headers().get(name)?.to_str().ok()
}

/// Returns the key of a date, a region and a service.
fn signing_key(scope: &str, secret: &str) -> Vec<u8> {
    let first = format!("AWS4{secret}").into_bytes();
    scope.split('/').fold(first, |key, part| keyed(&key, part))
}

fn keyed(key: &[u8], text: &str) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a query with its parts sorted, each encoded in the one way that is signed.
fn canonical_query(uri: &Uri, unescaped: &'static AsciiSet) -> String {
    let encoded = |text: &str| percent_encode(text.as_bytes(), unescaped).to_string();
    let query = uri.query().unwrap_or_default().as_bytes();
    let parts = form_urlencoded::parse(query);
    let mut parts: Vec<_> = parts
        .map(|(name, value)| (encoded(&name), encoded(&value)))
        .collect();
    parts.sort_unstable();
    let parts = parts.iter().map(|(name, value)| format!("{name}={value}"));
    parts.collect::<Vec<_>>().join("&")
}

/// Returns the lines of the headers that are signed.
fn canonical_headers(request: &HttpRequest, names: &str) -> Option<String> {
    let mut lines = String::new();
    for name in names.split(';') {
        let value = if name == HOST.as_str() {
            host(request.uri())?
        } else {
            let values = request.headers().get_all(name).iter();
            let values: Option<Vec<String>> = values.map(one_line).collect();
            values?.join(",")
        };
        lines += &format!("{name}:{value}\n");
    }
    Some(lines)
}

/// Returns a value with one space where it has several.
fn one_line(value: &HeaderValue) -> Option<String> {
    let words = value.to_str().ok()?.split_whitespace();
    Some(words.collect::<Vec<_>>().join(" "))
}

/// Returns the host as it is signed and sent: with its port if that is not the one of its scheme.
fn host(uri: &Uri) -> Option<String> {
    let usual = match uri.scheme_str() {
        Some("https") => 443,
        _ => 80,
    };
    let host = uri.host()?.to_ascii_lowercase();
    match uri.port_u16() {
        Some(port) if port != usual => Some(format!("{host}:{port}")),
        _ => Some(host),
    }
}

#[cfg(test)]
mod tests {
    use object_store::aws::{AwsAuthorizer, AwsCredential};
    use object_store::client::HttpRequestBody;

    use super::super::odd_requests::UNESCAPED;
    use super::*;

    fn signed(uri: &str, token: Option<&str>) -> HttpRequest {
        let credential = AwsCredential {
            key_id: "name".to_string(),
            secret_key: "secret/with+signs".to_string(),
            token: token.map(str::to_string),
        };
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.uri_mut() = uri.parse().unwrap();
        let headers = request.headers_mut();
        headers.insert("range", HeaderValue::from_static("bytes=0-9"));
        headers.insert("x-amz-meta-words", HeaderValue::from_static("a  b"));
        let signer = AwsAuthorizer::new(&credential, "s3", "eu-north-1");
        signer.try_authorize(&mut request, None).unwrap();
        request
    }

    #[test]
    fn the_signature_of_the_same_path_is_that_of_the_library() {
        for (uri, token) in [
            ("https://host/bucket/a%20b", None),
            ("http://127.0.0.1:9000/bucket/c//d", Some("token")),
            ("https://host:443/k?uploadId=a%2Fb&partNumber=1", None),
            ("https://host/k?uploads", None),
        ] {
            let library = signed(uri, token);
            let mut own = library.clone();
            let path = own.uri().path().to_string();
            own.headers_mut().insert(
                AUTHORIZATION,
                without_signature(&library.headers()[AUTHORIZATION]),
            );
            sign_as(&mut own, (&path, UNESCAPED), "secret/with+signs").unwrap();
            assert_eq!(own.headers(), library.headers(), "{uri}");
        }
    }

    fn without_signature(value: &HeaderValue) -> HeaderValue {
        let (before, _) = value.to_str().unwrap().split_once("Signature=").unwrap();
        format!("{before}Signature=0").parse().unwrap()
    }

    #[test]
    fn the_signature_of_another_path_is_another() {
        let mut request = signed("https://host/bucket/a/.%2Fb", None);
        let before = request.headers()[AUTHORIZATION].clone();
        sign_as(&mut request, ("/bucket/a/./b", UNESCAPED), "secret").unwrap();
        assert_ne!(request.headers()[AUTHORIZATION], before);
    }
}
