//! The servers of AWS that give credentials: where they are, and one request to them.
//!
//! A request that was not answered, or by a server that is busy, is made again twice. No answer is larger than
//! `MAX_ANSWER`, and of one that refuses only the status and the code are repeated, since the rest may hold secrets.

use std::time::Duration;

use futures_util::TryStreamExt;
use object_store::ClientOptions;
use object_store::client::{HttpClient, HttpConnector, HttpRequest};
use serde_json::Value;

use super::variables::AwsVariables;
use crate::store::backend::remote::connector::Connector;
use crate::store::backend::remote::fault;

/// The longest answer that is read, in bytes.
const MAX_ANSWER: usize = 1 << 20;

/// How often a request is made at most.
const ATTEMPTS: u32 = 3;

/// The wait before the second attempt; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// A kind of server, by what its address begins with.
#[derive(Clone, Copy)]
pub(super) enum CredentialServer {
    /// Gives credentials of roles.
    SecurityTokens,
    /// Gives credentials for a token of single sign-on.
    SingleSignOn,
    /// Renews such tokens.
    SignOnTokens,
}

impl CredentialServer {
    fn host(self) -> &'static str {
        match self {
            CredentialServer::SecurityTokens => "sts",
            CredentialServer::SingleSignOn => "portal.sso",
            CredentialServer::SignOnTokens => "oidc",
        }
    }

    /// The variable that names another server of this kind.
    fn variable(self) -> &'static str {
        match self {
            CredentialServer::SecurityTokens => "AWS_ENDPOINT_URL_STS",
            CredentialServer::SingleSignOn => "AWS_ENDPOINT_URL_SSO",
            CredentialServer::SignOnTokens => "AWS_ENDPOINT_URL_SSO_OIDC",
        }
    }

    /// Returns the address of the server of a region, without a slash at its end.
    pub(super) fn url(self, variables: &AwsVariables, region: &str) -> String {
        match variables.get(self.variable()) {
            Some(url) => url.trim_end_matches('/').to_string(),
            None => format!("https://{}.{region}.{}", self.host(), domain(region)),
        }
    }
}

/// Domains of regions that are apart from all others, by what the names of these begin with.
const DOMAINS: [(&str, &str); 6] = [
    ("cn-", "amazonaws.com.cn"),
    ("us-iso-", "c2s.ic.gov"),
    ("us-isob-", "sc2s.sgov.gov"),
    ("us-isof-", "csp.hci.ic.gov"),
    ("eu-isoe-", "cloud.adc-e.uk"),
    ("eusc-", "amazonaws.eu"),
];

fn domain(region: &str) -> &'static str {
    let apart = DOMAINS.iter().find(|(start, _)| region.starts_with(start));
    apart.map_or("amazonaws.com", |(_, domain)| domain)
}

/// What asks these servers.
pub(super) struct ServerClient(HttpClient);

impl ServerClient {
    pub(super) fn new(
        connector: &Connector,
        options: &ClientOptions,
    ) -> Result<ServerClient, String> {
        let client = connector.connect(options);
        client
            .map(ServerClient)
            .map_err(|error| fault::innermost(&error))
    }

    /// Makes a request, as often as needed, and returns the body of the answer. An error is a status with its code, or
    /// why there was no answer.
    pub(super) async fn ask(
        &self,
        request: impl Fn() -> Result<HttpRequest, String>,
    ) -> Result<Vec<u8>, String> {
        let mut pause = FIRST_PAUSE;
        let mut attempt = 1;
        loop {
            match self.ask_once(request()?).await {
                Ok((status, body)) if (200..300).contains(&status) => return Ok(body),
                Ok((status, body)) => {
                    let may_change = status == 429 || status >= 500;
                    if !may_change || attempt == ATTEMPTS {
                        return Err(format!("the server answered {status}{}", code(&body)));
                    }
                }
                Err(error) if attempt == ATTEMPTS => return Err(error),
                Err(_) => {}
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
            attempt += 1;
        }
    }

    async fn ask_once(&self, request: HttpRequest) -> Result<(u16, Vec<u8>), String> {
        let host = request.uri().host().map(str::to_string);
        let unanswered = |error| fault::with_host(host.as_deref(), fault::innermost(&error));
        let response = self.0.execute(request).await.map_err(unanswered)?;
        let status = response.status().as_u16();
        let mut pieces = response.into_body().bytes_stream();
        let mut body = Vec::new();
        while let Some(piece) = pieces
            .try_next()
            .await
            .map_err(|error| fault::innermost(&error))?
        {
            if body.len() + piece.len() > MAX_ANSWER {
                return Err(format!("the answer is longer than {MAX_ANSWER} bytes"));
            }
            body.extend_from_slice(&piece);
        }
        Ok((status, body))
    }
}

/// Returns the code of an error, after a space: an element of XML, or a member of JSON.
fn code(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let found = match serde_json::from_str::<Value>(&text) {
        Ok(Value::Object(members)) => ["error", "__type", "code"]
            .iter()
            .find_map(|name| members.get(*name)?.as_str())
            .map(|code| code.rsplit('#').next().unwrap_or_default().to_string()),
        _ => element(&text, "Code"),
    };
    let is_plain = |code: &String| {
        code.len() < 64
            && code
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let plain = found.filter(is_plain);
    plain.map(|code| format!(" {code}")).unwrap_or_default()
}

/// Returns the text of the first element with a name in XML, which has no attributes.
pub(super) fn element(text: &str, name: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (inner, _) = rest.split_once(&format!("</{name}>"))?;
    quick_xml::escape::unescape(inner.trim())
        .ok()
        .map(|inner| inner.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_those_of_the_region_or_of_a_variable() {
        let none = AwsVariables::of(std::iter::empty());
        for (server, region, expected) in [
            (
                CredentialServer::SecurityTokens,
                "eu-west-1",
                "https://sts.eu-west-1.amazonaws.com",
            ),
            (
                CredentialServer::SingleSignOn,
                "us-east-1",
                "https://portal.sso.us-east-1.amazonaws.com",
            ),
            (
                CredentialServer::SignOnTokens,
                "cn-north-1",
                "https://oidc.cn-north-1.amazonaws.com.cn",
            ),
            (
                CredentialServer::SecurityTokens,
                "us-gov-west-1",
                "https://sts.us-gov-west-1.amazonaws.com",
            ),
            (
                CredentialServer::SecurityTokens,
                "us-isob-east-1",
                "https://sts.us-isob-east-1.sc2s.sgov.gov",
            ),
        ] {
            assert_eq!(server.url(&none, region), expected);
        }
        let named = [(
            "AWS_ENDPOINT_URL_SSO".to_string(),
            "http://here:1/".to_string(),
        )];
        let named = AwsVariables::of(named.into_iter());
        assert_eq!(
            CredentialServer::SingleSignOn.url(&named, "x"),
            "http://here:1"
        );
    }

    #[test]
    fn codes_are_words_alone() {
        for (body, expected) in [
            (
                "<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>",
                " AccessDenied",
            ),
            (
                r#"{"error": "invalid_grant", "error_description": "secret"}"#,
                " invalid_grant",
            ),
            (
                r#"{"__type": "com.amazonaws.sso#UnauthorizedException"}"#,
                " UnauthorizedException",
            ),
            ("<Code>a secret</Code>", ""),
            ("<html>", ""),
            ("", ""),
        ] {
            assert_eq!(code(body.as_bytes()), expected, "{body}");
        }
        assert_eq!(
            element("<a><B> x &amp; y </B></a>", "B").as_deref(),
            Some("x & y")
        );
    }
}
