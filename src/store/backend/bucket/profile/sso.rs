//! Credentials of an account that a person has signed in to with `aws sso login`.
//!
//! Signing in leaves a token in a file of `~/.aws/sso/cache`, as AWS's own programs name and write it. One that is about
//! to expire is renewed, if it can be, and the file is replaced as a whole, readable for its owner alone.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Method};
use object_store::client::{HttpRequest, HttpRequestBody};
use serde_json::{Map, Value, json};

use super::chain::SsoAccount;
use super::servers::{CredentialServer, ServerClient};
use super::variables::AwsVariables;
use super::{IssuedCredential, RENEWAL_MARGIN, times};

/// Returns the credentials of an account.
pub(super) async fn credentials(
    account: &SsoAccount,
    variables: &AwsVariables,
    client: &ServerClient,
) -> Result<IssuedCredential, String> {
    let mut token = SsoToken::read(account, variables)?;
    let left = token
        .expiry
        .duration_since(SystemTime::now())
        .unwrap_or_default();
    if left < RENEWAL_MARGIN {
        match token.renewed(account, variables, client).await {
            Ok(renewed) => token = renewed,
            Err(why) if left.is_zero() => return Err(signed_out(account, &why)),
            Err(why) => log::info!("the token of single sign-on was not renewed: {why}"),
        }
    }
    let url = role_url(account, variables);
    let answer = client.ask(|| role_request(&url, &token)).await;
    let answer = answer.map_err(|why| {
        if why.contains(" 401") {
            signed_out(account, &why)
        } else {
            format!("single sign-on, role {}: {why}", account.role)
        }
    })?;
    issued(&answer).ok_or_else(|| "single sign-on: the answer has no credentials".to_string())
}

/// Says how to sign in again.
fn signed_out(account: &SsoAccount, why: &str) -> String {
    let how = match &account.session {
        Some(session) => format!("aws sso login --sso-session {session}"),
        None => "aws sso login".to_string(),
    };
    format!("single sign-on has expired ({why}): '{how}' signs in again")
}

/// Returns the address of the credentials of an account.
fn role_url(account: &SsoAccount, variables: &AwsVariables) -> String {
    let server = CredentialServer::SingleSignOn.url(variables, &account.region);
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query
        .append_pair("role_name", &account.role)
        .append_pair("account_id", &account.account);
    format!("{server}/federation/credentials?{}", query.finish())
}

fn role_request(url: &str, token: &SsoToken) -> Result<HttpRequest, String> {
    let mut request = HttpRequest::new(HttpRequestBody::empty());
    *request.uri_mut() = url.parse().map_err(|_| NO_ADDRESS.to_string())?;
    let bearer = HeaderValue::from_str(&token.text("accessToken"));
    let mut bearer = bearer.map_err(|_| "its token is none".to_string())?;
    bearer.set_sensitive(true);
    let name = HeaderName::from_static("x-amz-sso_bearer_token");
    request.headers_mut().insert(name, bearer);
    Ok(request)
}

const NO_ADDRESS: &str = "its server has an address that is no URL";

/// Reads the credentials of an answer.
fn issued(answer: &[u8]) -> Option<IssuedCredential> {
    let answer: Value = serde_json::from_slice(answer).ok()?;
    let given = answer.get("roleCredentials")?;
    let part = |name| Some(given.get(name)?.as_str()?.to_string());
    let expiry = Duration::from_millis(given.get("expiration")?.as_u64()?);
    Some(IssuedCredential::new(
        part("accessKeyId")?,
        part("secretAccessKey")?,
        part("sessionToken"),
        SystemTime::UNIX_EPOCH.checked_add(expiry),
    ))
}

/// What signing in has left.
struct SsoToken {
    path: PathBuf,
    members: Map<String, Value>,
    expiry: SystemTime,
}

impl SsoToken {
    /// Reads the token of an account.
    fn read(account: &SsoAccount, variables: &AwsVariables) -> Result<SsoToken, String> {
        let name = account.session.as_ref().unwrap_or(&account.start_url);
        let path = variables.token_folder().join(file_name(name));
        let text = fs::read(&path)
            .map_err(|error| signed_out(account, &format!("{}: {error}", path.display())))?;
        let unreadable = |what: &str| signed_out(account, &format!("{}: {what}", path.display()));
        let members = match serde_json::from_slice(&text) {
            Ok(Value::Object(members)) => members,
            _ => return Err(unreadable("is not an object of JSON")),
        };
        let expiry = members.get("expiresAt").and_then(Value::as_str);
        let expiry = expiry
            .and_then(times::read)
            .ok_or_else(|| unreadable("has no expiresAt"))?;
        if !members.get("accessToken").is_some_and(Value::is_string) {
            return Err(unreadable("has no accessToken"));
        }
        Ok(SsoToken {
            path,
            members,
            expiry,
        })
    }

    fn text(&self, name: &str) -> String {
        let text = self.members.get(name).and_then(Value::as_str);
        text.unwrap_or_default().to_string()
    }

    /// Returns the token that the server gives for this one, which is stored.
    async fn renewed(
        &self,
        account: &SsoAccount,
        variables: &AwsVariables,
        client: &ServerClient,
    ) -> Result<SsoToken, String> {
        let now = SystemTime::now();
        let registered = times::read(&self.text("registrationExpiresAt"));
        let can_renew = ["clientId", "clientSecret", "refreshToken"];
        let can_renew = can_renew.iter().all(|name| !self.text(name).is_empty());
        if !can_renew || registered.is_none_or(|until| until <= now) {
            return Err("its token cannot be renewed".to_string());
        }
        let url = CredentialServer::SignOnTokens.url(variables, &account.region);
        let answer = client.ask(|| self.renewal_request(&url)).await?;
        let given = serde_json::from_slice::<Value>(&answer).ok();
        let given = given.ok_or("the answer of its server is not JSON")?;
        let token = given.get("accessToken").and_then(Value::as_str);
        let seconds = given.get("expiresIn").and_then(Value::as_u64);
        let expiry = seconds.and_then(|seconds| now.checked_add(Duration::from_secs(seconds)));
        let (token, expiry) = token
            .zip(expiry)
            .ok_or("the answer of its server has no token")?;
        let mut members = self.members.clone();
        members.insert("accessToken".to_string(), token.into());
        members.insert("expiresAt".to_string(), times::write(expiry).into());
        if let Some(next) = given.get("refreshToken") {
            members.insert("refreshToken".to_string(), next.clone());
        }
        let renewed = SsoToken {
            path: self.path.clone(),
            members,
            expiry,
        };
        if let Err(error) = renewed.store() {
            log::warn!("{}: {error}", renewed.path.display());
        }
        Ok(renewed)
    }

    fn renewal_request(&self, url: &str) -> Result<HttpRequest, String> {
        let body = json!({
            "clientId": self.text("clientId"),
            "clientSecret": self.text("clientSecret"),
            "grantType": "refresh_token",
            "refreshToken": self.text("refreshToken"),
        });
        let mut request = HttpRequest::new(body.to_string().into());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = format!("{url}/token")
            .parse()
            .map_err(|_| NO_ADDRESS.to_string())?;
        let kind = HeaderValue::from_static("application/json");
        request.headers_mut().insert(CONTENT_TYPE, kind);
        Ok(request)
    }

    /// Replaces the file of the token.
    fn store(&self) -> std::io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(Value::Object(self.members.clone()).to_string().as_bytes())?;
        file.persist(&self.path)?;
        Ok(())
    }
}

/// Returns the name of the file with the token of a session or of an address.
fn file_name(of: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, of.as_bytes());
    let digits: String = digest
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    digits + ".json"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_where_amazons_programs_keep_it() {
        let url = "https://d-92671207e4.awsapps.com/start";
        assert_eq!(
            file_name(url),
            "13f9d35043871d073ab260e020f0ffde092cb14b.json"
        );
    }
}
