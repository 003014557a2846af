//! Adds to a request the credentials for the server that receives it.
//!
//! Headers, the token and the user of the URL are sent only to the store's own server: same scheme, host and port.
//! netrc has credentials by host, so the target of a redirect gets those of its own host. The store's server chose that
//! host, so netrc's entry `default` does not count there. After a redirect from https to http nothing is sent.

use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use sha2::{Digest, Sha256};
use url::{Origin, Url};

use super::Login;
use super::SentLogin;
use crate::backend::opaque_debug;

/// User and password in the URL of a store.
#[derive(Clone, Default)]
pub(crate) struct UrlUser {
    /// The user's name, unescaped; `None` if the URL has no user.
    pub(crate) name: Option<String>,
    /// The value of the header `Authorization`; `None` if the URL has neither user nor password.
    pub(crate) authorization: Option<HeaderValue>,
}

/// The credentials for a store, bound to the store's server.
pub(crate) struct OriginLogin {
    login: Login,
    origin: Origin,
    user: UrlUser,
}

opaque_debug!(OriginLogin);
opaque_debug!(UrlUser);

/// A URL that a request is sent to: the first one or the target of a redirect.
pub(crate) struct Hop<'a> {
    pub(crate) url: &'a Url,
    /// Whether a redirect of this request has led from https to http.
    pub(crate) is_downgraded: bool,
}

impl OriginLogin {
    /// Binds credentials to the server with the scheme, host and port `origin`.
    pub(crate) fn new(login: &Login, origin: Origin, user: UrlUser) -> OriginLogin {
        OriginLogin {
            login: login.clone(),
            origin,
            user,
        }
    }

    /// Adds the server's credentials to a request's headers. Returns which credentials were added.
    pub(crate) async fn sign(&self, headers: &mut HeaderMap, hop: &Hop<'_>) -> SentLogin {
        if hop.is_downgraded {
            return SentLogin::Nothing;
        }
        if hop.url.origin() != self.origin {
            return self.sign_for_other(headers, hop.url);
        }
        for (name, value) in &self.login.headers {
            headers.append(name, value.clone());
        }
        let (authorization, sent) = if headers.contains_key(AUTHORIZATION) {
            return SentLogin::Header;
        } else if let Some(token) = &self.login.token {
            (token.authorization().await, SentLogin::Token)
        } else if let Some(value) = self.own_netrc(hop.url) {
            (value, SentLogin::Netrc)
        } else if let Some(value) = &self.user.authorization {
            (value.clone(), SentLogin::Url)
        } else if self.login.headers.is_empty() {
            return SentLogin::Nothing;
        } else {
            return SentLogin::Header;
        };
        headers.insert(AUTHORIZATION, authorization);
        sent
    }

    fn sign_for_other(&self, headers: &mut HeaderMap, url: &Url) -> SentLogin {
        let netrc = self.login.netrc.as_ref().zip(url.host_str());
        match netrc.and_then(|(netrc, host)| netrc.authorization(host, None, false)) {
            Some(value) => {
                headers.insert(AUTHORIZATION, value);
                SentLogin::Netrc
            }
            None => SentLogin::Nothing,
        }
    }

    /// Returns the header `Authorization` that the netrc file gives for the store's own server.
    fn own_netrc(&self, url: &Url) -> Option<HeaderValue> {
        let netrc = self.login.netrc.as_ref()?;
        netrc.authorization(url.host_str()?, self.user.name.as_deref(), true)
    }

    /// Returns a renewed token after the server has refused the token (401), or `None` if the token file has no other.
    pub(crate) async fn renewed_token(&self, refused: &HeaderMap) -> Option<HeaderValue> {
        let token = self.login.token.as_ref()?;
        token.renewed(refused.get(AUTHORIZATION)?).await
    }

    /// Returns a digest of the credentials, by which the disk cache distinguishes stores, or `None` if the only
    /// credentials are those in the URL. A token is replaced by the path of its file, since the token itself is
    /// renewed.
    pub(crate) fn identity(&self, url: &Url) -> Option<Arc<str>> {
        let mut digest = Sha256::new();
        let mut is_empty = true;
        let mut add = |part: &[u8]| {
            digest.update(part.len().to_le_bytes());
            digest.update(part);
            is_empty = false;
        };
        for (name, value) in &self.login.headers {
            add(name.as_str().as_bytes());
            add(value.as_bytes());
        }
        if let Some(token) = &self.login.token {
            add(b"token");
            add(token.path().as_os_str().as_encoded_bytes());
        } else if let Some(value) = self.own_netrc(url) {
            add(b"netrc");
            add(value.as_bytes());
        }
        (!is_empty).then(|| format!("{:x}", digest.finalize()).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::fs;
    use std::path::PathBuf;
    use tempfile::TempDir;
    use tokio::runtime::Builder;

    const STORE: &str = "https://data.example/a.zarr/";

    struct Files {
        folder: TempDir,
    }

    impl Files {
        fn new() -> Files {
            Files {
                folder: tempfile::tempdir().unwrap(),
            }
        }

        fn file(&self, name: &str, text: &str) -> PathBuf {
            let path = self.folder.path().join(name);
            fs::write(&path, text).unwrap();
            path
        }
    }

    fn bound(login: &Login, user: UrlUser) -> OriginLogin {
        OriginLogin::new(login, Url::parse(STORE).unwrap().origin(), user)
    }

    fn me() -> UrlUser {
        UrlUser {
            name: Some("me".to_string()),
            authorization: Some(HeaderValue::from_static("Basic url")),
        }
    }

    /// Returns which credentials are sent to a URL, and the request's headers.
    fn sent(login: &OriginLogin, url: &str, is_downgraded: bool) -> (SentLogin, String) {
        let runtime = Builder::new_current_thread().build().unwrap();
        let url = Url::parse(url).unwrap();
        let hop = Hop {
            url: &url,
            is_downgraded,
        };
        let mut headers = HeaderMap::new();
        let sent = runtime.block_on(login.sign(&mut headers, &hop));
        let lines = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
        (sent, lines.collect::<Vec<_>>().join("\n"))
    }

    #[test]
    fn the_most_explicit_credentials_are_used() {
        let files = Files::new();
        let netrc = files.file("netrc", "machine data.example login me password pw");
        let token = files.file("token", "abc");
        let basic = "authorization: Basic bWU6cHc=".to_string();
        let mut login = Login::default();
        let now = |login: &Login| sent(&bound(login, me()), STORE, false);
        assert_eq!(
            now(&login),
            (SentLogin::Url, "authorization: Basic url".to_string())
        );
        login.set_netrc(&netrc).unwrap();
        assert_eq!(now(&login), (SentLogin::Netrc, basic));
        let mut with_header = login.clone();
        with_header.add_headers("Authorization: mine").unwrap();
        let expected = (SentLogin::Header, "authorization: mine".to_string());
        assert_eq!(now(&with_header), expected);
        login.set_bearer_token_file(&token).unwrap();
        let expected = "authorization: Bearer abc".to_string();
        assert_eq!(now(&login), (SentLogin::Token, expected));
        login.add_headers("X-Key: k").unwrap();
        let expected = "x-key: k\nauthorization: Bearer abc".to_string();
        assert_eq!(now(&login), (SentLogin::Token, expected));
    }

    #[test]
    fn netrc_is_ignored_for_another_user_in_the_url() {
        let files = Files::new();
        let mut login = Login::default();
        let netrc = files.file("netrc", "machine data.example login you password pw");
        login.set_netrc(&netrc).unwrap();
        let (kind, _) = sent(&bound(&login, me()), STORE, false);
        assert_eq!(kind, SentLogin::Url);
        let (kind, _) = sent(&bound(&login, UrlUser::default()), STORE, false);
        assert_eq!(kind, SentLogin::Netrc);
    }

    #[test]
    fn other_servers_get_only_their_own_credentials() {
        let files = Files::new();
        let netrc = "machine urs.example login me password pw\ndefault login any password pw";
        let mut login = Login::default();
        login.add_headers("X-Key: k").unwrap();
        login.set_netrc(&files.file("netrc", netrc)).unwrap();
        login
            .set_bearer_token_file(&files.file("token", "abc"))
            .unwrap();
        let login = bound(&login, me());
        let nothing = (SentLogin::Nothing, String::new());
        for url in [
            "http://data.example/a",
            "http://data.example:443/a",
            "https://data.example:8443/a",
            "https://other.example/a",
            "https://data.example.other/a",
        ] {
            assert_eq!(sent(&login, url, false), nothing, "{url}");
        }
        assert_eq!(sent(&login, STORE, true), nothing);
        let basic = "authorization: Basic bWU6cHc=".to_string();
        let other = "https://urs.example/oauth?x";
        assert_eq!(sent(&login, other, false), (SentLogin::Netrc, basic));
        assert_eq!(sent(&login, "http://urs.example/", true), nothing);
    }

    #[test]
    fn different_credentials_have_different_identities() {
        let files = Files::new();
        let url = Url::parse(STORE).unwrap();
        let identity = |login: &Login| bound(login, UrlUser::default()).identity(&url);
        assert_eq!(identity(&Login::default()), None);
        let with = |header: &str| {
            let mut login = Login::default();
            login.add_headers(header).unwrap();
            identity(&login).unwrap()
        };
        let with_token = |name: &str, text: &str| {
            let mut login = Login::default();
            let file = files.file(name, text);
            login.set_bearer_token_file(&file).unwrap();
            identity(&login).unwrap()
        };
        let with_netrc = |password: &str| {
            let mut login = Login::default();
            let text = format!("machine data.example login me password {password}");
            login.set_netrc(&files.file("netrc", &text)).unwrap();
            identity(&login).unwrap()
        };
        let found = [
            with("X-Key: a"),
            with("X-Key: b"),
            with("X-Keys: a"),
            with_token("one", "a"),
            with_token("two", "a"),
            with_netrc("a"),
            with_netrc("b"),
        ];
        assert_eq!(found.iter().collect::<HashSet<_>>().len(), found.len());
        assert_eq!(with_token("one", "a"), with_token("one", "renewed"));
        let mut login = Login::default();
        login
            .set_netrc(&files.file("netrc", "machine other login me password a"))
            .unwrap();
        assert_eq!(identity(&login), None);
    }
}
