//! Credentials of a role, given for other credentials by the server of security tokens.

use std::time::SystemTime;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method};
use object_store::aws::{AwsAuthorizer, AwsCredential};
use object_store::client::HttpRequest;

use super::IssuedCredential;
use super::chain::AssumedRole;
use super::servers::{CredentialServer, ServerClient, element};
use super::times;
use super::variables::AwsVariables;

/// Why a role may be refused that wants a code of a device.
const NO_CODE: &str = "; the code of its mfa_serial cannot be asked for here";

/// Assumes a role with `credential`, at the server of `region`.
pub(super) async fn assume(
    role: &AssumedRole,
    credential: &AwsCredential,
    (variables, region): (&AwsVariables, &str),
    client: &ServerClient,
) -> Result<IssuedCredential, String> {
    let url = CredentialServer::SecurityTokens.url(variables, region);
    let form = form(role);
    let answer = client
        .ask(|| request(&url, &form, credential, region))
        .await;
    let answer = answer.map_err(|why| {
        let hint = if role.has_mfa { NO_CODE } else { "" };
        format!("role {}: {why}{hint}", role.arn)
    })?;
    let answer = String::from_utf8_lossy(&answer);
    let part = |name| {
        element(&answer, name)
            .ok_or_else(|| format!("role {}: the answer of the server has no {name}", role.arn))
    };
    let expiry = times::read(&part("Expiration")?);
    let expiry = expiry.ok_or_else(|| format!("role {}: its Expiration is no time", role.arn))?;
    Ok(IssuedCredential::new(
        part("AccessKeyId")?,
        part("SecretAccessKey")?,
        Some(part("SessionToken")?),
        Some(expiry),
    ))
}

/// Returns what the server is asked for.
fn form(role: &AssumedRole) -> String {
    let mut form = url::form_urlencoded::Serializer::new(String::new());
    let session = role.session.clone().unwrap_or_else(usual_session);
    form.append_pair("Action", "AssumeRole")
        .append_pair("Version", "2011-06-15")
        .append_pair("RoleArn", &role.arn)
        .append_pair("RoleSessionName", &session);
    for (name, value) in [
        ("ExternalId", &role.external_id),
        ("DurationSeconds", &role.duration),
    ] {
        if let Some(value) = value {
            form.append_pair(name, value);
        }
    }
    form.finish()
}

/// Returns the name of a session for which a profile has none.
pub(super) fn usual_session() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    format!("zarrfs-{}", since.unwrap_or_default().as_millis())
}

fn request(
    url: &str,
    form: &str,
    credential: &AwsCredential,
    region: &str,
) -> Result<HttpRequest, String> {
    let mut request = HttpRequest::new(form.to_string().into());
    *request.method_mut() = Method::POST;
    *request.uri_mut() = format!("{url}/")
        .parse()
        .map_err(|_| "its server has an address that is no URL".to_string())?;
    let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
    request.headers_mut().insert(CONTENT_TYPE, kind);
    AwsAuthorizer::new(credential, "sts", region)
        .try_authorize(&mut request, None)
        .map_err(|_| "the request cannot be signed".to_string())?;
    Ok(request)
}
