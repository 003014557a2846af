//! Requests to the metadata service of a machine, also to one of the first version, which has no tokens.
//!
//! The libraries ask for a token first, and give up where there is none. Amazon's other libraries ask without one then, and
//! so does this: the libraries get a token here that is never sent.

use http::{HeaderName, HeaderValue, Method, StatusCode};
use object_store::client::{HttpClient, HttpError, HttpRequest, HttpResponse, HttpResponseBody};

/// The header by which a request asks for a token, and by which the answer says for how many seconds it is good.
const TTL: HeaderName = HeaderName::from_static("x-aws-ec2-metadata-token-ttl-seconds");

/// The header that has the token.
const TOKEN: HeaderName = HeaderName::from_static("x-aws-ec2-metadata-token");

/// The token of a service that has none.
const NO_TOKEN: HeaderValue = HeaderValue::from_static("no-token");

/// The variable by which Amazon's libraries are told to ask for nothing without a token.
const DISABLED: &str = "AWS_EC2_METADATA_V1_DISABLED";

/// Executes a request, whatever server it goes to.
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

/// Whether a service that answers so to the request for a token knows none.
fn has_no_tokens(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::FORBIDDEN | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED
    )
}

fn is_disabled() -> bool {
    std::env::var(DISABLED).is_ok_and(|value| value.eq_ignore_ascii_case("true"))
}
