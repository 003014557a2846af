//! Converts errors of object_store to errors of zarrfs, without secrets.
//!
//! URLs, headers and bodies are left out, since they may contain secrets. Only the status and the server's error code
//! are reported.

use std::fmt::Display;

use object_store::Error as Fault;

use super::retry::is_transient_status;
use super::runtime::LastResponse;
use super::tls::TRUSTS_NONE;
use zarr_format::error::{Error, Kind};

/// Maximum length of an error's cause in a message, in characters.
const MAX_CAUSE: usize = 200;

/// Converts object_store's error of a request into an error about `subject`.
pub(crate) fn request_error(fault: &Fault, last: &LastResponse, subject: impl Display) -> Error {
    let kind = kind(fault, last);
    Error::new(kind, subject, describe(fault, last, kind))
}

pub(crate) fn timed_out(subject: impl Display, seconds: f32) -> Error {
    Error::unavailable(
        subject,
        format!("no response within {seconds} s (see --timeout)"),
    )
}

fn kind(fault: &Fault, last: &LastResponse) -> Kind {
    match (fault, last.status) {
        (Fault::NotFound { .. }, _) => Kind::NotFound,
        (Fault::PermissionDenied { .. } | Fault::Unauthenticated { .. }, _) => Kind::Denied,
        (Fault::Precondition { .. }, _) => Kind::Changed,
        (Fault::NotSupported { .. } | Fault::NotImplemented { .. }, _) => Kind::Unsupported,
        (Fault::AlreadyExists { .. }, _) => Kind::Exists,
        (Fault::InvalidPath { .. }, _) => Kind::Corrupt,
        // For a failed listing, object_store does not say what failed, so the response's status decides.
        (_, Some(401 | 403)) => Kind::Denied,
        (_, Some(404)) => Kind::NotFound,
        (_, Some(412)) => Kind::Changed,
        (_, Some(400)) if is_expired(fault) => Kind::Denied,
        (_, Some(400 | 416)) => Kind::Invalid,
        (_, Some(501)) => Kind::Unsupported,
        _ => Kind::Unavailable,
    }
}

/// Whether S3 has refused expired credentials. It sends status 400, so only the error code tells.
fn is_expired(fault: &Fault) -> bool {
    matches!(
        code(fault).trim(),
        "ExpiredToken" | "ExpiredTokenException" | "InvalidToken" | "TokenRefreshRequired"
    )
}

fn describe(fault: &Fault, last: &LastResponse, kind: Kind) -> String {
    let code = code(fault);
    if let (Some(300..=400), Some(region)) = (last.status, &last.region)
        && kind != Kind::Denied
    {
        return format!("the bucket is in region {region}: use --region {region}");
    }
    match (kind, last.status) {
        (Kind::Corrupt, _) => format!("a listing has an unusable key: {}", innermost(fault)),
        (Kind::Denied, Some(status)) => format!("the server refused access ({status}{code})"),
        (Kind::NotFound, _) => match code.trim() {
            "NoSuchBucket" => "no such bucket: check the name".to_string(),
            "ContainerNotFound" => "no such container: check the name".to_string(),
            "" => "no such object, bucket or container".to_string(),
            code => format!("no such object, bucket or container ({code})"),
        },
        (Kind::Changed, _) => "was changed while it was open".to_string(),
        (_, Some(status)) if status >= 300 => format!("{ANSWERED}{status}{code}"),
        _ => with_host(last.host.as_deref(), innermost(fault)),
    }
}

/// Returns the reason why the issuer `name` returned no credentials; `last` is the issuer's last response.
pub(crate) fn without_credentials(name: &str, fault: &Fault, last: &LastResponse) -> String {
    let why = match last.status {
        Some(status) if status >= 300 => format!("status {status}{}", code(fault)),
        _ => with_host(last.host.as_deref(), innermost(fault)),
    };
    format!("{NO_CREDENTIALS}{name}: {why}")
}

const NO_CREDENTIALS: &str = "no credentials from ";

/// Adds the host, if its name cannot be resolved, to the cause of a failed request.
pub(crate) fn with_host(host: Option<&str>, cause: String) -> String {
    match host {
        Some(host) if is_name_lookup(&cause) && !cause.starts_with(PROXY) => {
            format!("{host}: {cause}; check the name and the network")
        }
        _ => cause,
    }
}

fn is_name_lookup(cause: &str) -> bool {
    cause.contains("failed to lookup address information")
}

/// Returns the cause of an error for a proxy, at `address`, that cannot be reached.
pub(super) fn with_proxy(address: &str, cause: &str) -> String {
    format!("{PROXY}{address}: {cause}")
}

const PROXY: &str = "the proxy ";

/// Whether an error is from TLS, which means that a connection was made.
pub(super) fn is_of_tls(fault: &(dyn std::error::Error + 'static)) -> bool {
    let text = root_cause(fault).to_string();
    text.starts_with(CERTIFICATE) || text.starts_with(NO_TLS)
}

/// Whether an error's cause already names the server that failed. The store's address would then mislead.
pub(crate) fn names_server(cause: &str) -> bool {
    is_name_lookup(cause) || cause.starts_with(NO_CREDENTIALS) || cause.starts_with(PROXY)
}

/// Whether an error's cause is a transient status, such as 503.
pub(crate) fn is_busy(cause: &str) -> bool {
    let status = cause.strip_prefix(ANSWERED).and_then(|rest| rest.get(..3));
    status.is_some_and(|status| status.parse().is_ok_and(is_transient_status))
}

/// Begins the text of an error for an HTTP error status.
pub(crate) const ANSWERED: &str = "the server answered ";

/// Returns the error code in an XML error response, with a space before it, or an empty string.
fn code(fault: &Fault) -> String {
    let text = root_cause(fault).to_string();
    let after = text.split_once("<Code>").map(|(_, after)| after);
    let code = after.and_then(|after| after.split_once("</Code>"));
    let plain =
        |code: &&str| code.len() < 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let code = code.map(|(code, _)| code).filter(plain);
    code.map(|code| format!(" {code}")).unwrap_or_default()
}

/// Returns the message of an error's innermost cause, cut before any URL, since a URL may contain secrets.
pub(crate) fn innermost(fault: &(dyn std::error::Error + 'static)) -> String {
    let text = root_cause(fault).to_string();
    if let Some(why) = text.strip_prefix(CERTIFICATE) {
        return untrusted(why);
    }
    if text.ends_with(TRUSTS_NONE) {
        return TRUSTS_NONE.to_string();
    }
    if text.starts_with(NO_TLS) {
        return "the server does not speak TLS: use an http:// URL".to_string();
    }
    let text = text.split("://").next().unwrap_or_default();
    text.chars().take(MAX_CAUSE).collect()
}

/// Begins rustls's error for a response that is not TLS.
const NO_TLS: &str = "received corrupt message of type InvalidContentType";

/// Begins rustls's error for a server's certificate that is not accepted.
const CERTIFICATE: &str = "invalid peer certificate: ";

/// Describes why a server's certificate is not accepted, with a hint if no trusted authority signed it.
fn untrusted(why: &str) -> String {
    // rustls wraps causes so if its error type has no variant for them.
    let bare = why.strip_prefix("Other(OtherError(");
    let bare = bare.and_then(|why| why.strip_suffix("))"));
    let why: String = bare.unwrap_or(why).chars().take(MAX_CAUSE).collect();
    let hint = match why.as_str() {
        "UnknownIssuer" => ": set SSL_CERT_FILE to a file with the certificate of its authority",
        "CaUsedAsEndEntity" => {
            ": set SSL_CERT_FILE to a file with exactly this self-signed certificate"
        }
        _ => "",
    };
    format!("the server's certificate is not trusted ({why}){hint}")
}

pub(crate) fn root_cause<'a>(
    fault: &'a (dyn std::error::Error + 'static),
) -> &'a (dyn std::error::Error + 'static) {
    let mut last = fault;
    while let Some(source) = last.source() {
        last = source;
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> Fault {
        Fault::Generic {
            store: "S3",
            source: text.to_string().into(),
        }
    }

    fn last(status: u16) -> LastResponse {
        LastResponse {
            status: Some(status),
            ..LastResponse::default()
        }
    }

    #[test]
    fn a_failed_listing_gets_its_kind_from_the_status() {
        let fault =
            generic("status 403: <Error><Code>AccessDenied</Code><Message>no</Message></Error>");
        let error = request_error(&fault, &last(403), "a");
        assert_eq!(error.kind(), Kind::Denied);
        assert_eq!(
            error.to_string(),
            "a: the server refused access (403 AccessDenied)"
        );
    }

    #[test]
    fn a_redirect_of_a_bucket_names_the_right_region() {
        let mut last = last(301);
        last.region = Some("eu-west-1".to_string());
        let error = request_error(&generic("Received redirect without LOCATION"), &last, "b");
        assert!(error.to_string().contains("--region eu-west-1"), "{error}");
    }

    #[test]
    fn an_unknown_host_is_named() {
        let cause = "failed to lookup address information: Name or service not known";
        let last = LastResponse {
            host: Some("no.such.host".to_string()),
            ..LastResponse::default()
        };
        let named = request_error(&generic(cause), &last, "a").to_string();
        let hint = "check the name and the network";
        assert_eq!(named, format!("a: no.such.host: {cause}; {hint}"));
        let other = request_error(&generic("connection refused"), &last, "a").to_string();
        assert_eq!(other, "a: connection refused");
    }

    #[test]
    fn a_certificate_error_says_what_to_do() {
        let said = |why: &str| innermost(&generic(&format!("{CERTIFICATE}{why}")));
        assert_eq!(
            said("Other(OtherError(CaUsedAsEndEntity))"),
            "the server's certificate is not trusted (CaUsedAsEndEntity): set SSL_CERT_FILE to a file with exactly this \
             self-signed certificate"
        );
        assert!(said("UnknownIssuer").contains("(UnknownIssuer): set SSL_CERT_FILE to a file"));
    }

    #[test]
    fn a_server_without_tls_is_reported() {
        let said = innermost(&generic(NO_TLS));
        assert_eq!(said, "the server does not speak TLS: use an http:// URL");
    }

    #[test]
    fn secrets_of_a_url_are_not_in_the_error() {
        let fault = generic("error sending request for url https://me:secret@host/?sig=secret");
        assert!(
            !request_error(&fault, &LastResponse::default(), "a")
                .to_string()
                .contains("secret")
        );
    }
}
