//! Sends requests to a machine's metadata service, with support for IMDSv1.
//!
//! The libraries first request a token and fail if the service has no tokens (version 1). Other AWS libraries then go
//! on without one. To get the same behavior, a placeholder token is returned to the library here, and never sent.

use http::{HeaderName, HeaderValue, Method, StatusCode};
use object_store::client::{HttpClient, HttpError, HttpRequest, HttpResponse, HttpResponseBody};

/// The header with the TTL of a token in seconds, in the request for a token and in its response.
const TTL: HeaderName = HeaderName::from_static("x-aws-ec2-metadata-token-ttl-seconds");

/// The header that carries the token.
const TOKEN: HeaderName = HeaderName::from_static("x-aws-ec2-metadata-token");

/// The placeholder token for a service without tokens.
const NO_TOKEN: HeaderValue = HeaderValue::from_static("no-token");

/// The variable that disables requests without a token in AWS libraries.
const DISABLED: &str = "AWS_EC2_METADATA_V1_DISABLED";

/// Sends a request, to the metadata service or to any other server.
pub(super) async fn execute(
    client: &HttpClient,
    mut request: HttpRequest,
) -> Result<HttpResponse, HttpError> {
    let ttl = request.headers().get(TTL).cloned();
    let ttl = ttl.filter(|_| request.method() == Method::PUT);
    if request.headers().get(TOKEN) == Some(&NO_TOKEN) {
        request.headers_mut().remove(TOKEN);
    }
    let mut response = client.execute(request).await?;
    if let Some(ttl) = ttl
        && has_no_tokens(response.status())
        && !is_disabled()
    {
        log::info!(
            "the metadata service gives no token ({}), and is asked without one",
            response.status().as_u16()
        );
        response = HttpResponse::new(HttpResponseBody::from(
            String::from_utf8_lossy(NO_TOKEN.as_bytes()).into_owned(),
        ));
        response.headers_mut().insert(TTL, ttl);
    }
    Ok(response)
}

/// Whether this response to a token request means that the service has no tokens.
fn has_no_tokens(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::FORBIDDEN | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED
    )
}

fn is_disabled() -> bool {
    std::env::var(DISABLED).is_ok_and(|value| value.eq_ignore_ascii_case("true"))
}
