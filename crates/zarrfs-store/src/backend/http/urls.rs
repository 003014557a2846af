//! Translates keys to URLs, and URLs in responses back to keys.
//!
//! Every byte of a key is escaped in one way only, so that every key has exactly one URL. Names are compared after
//! unescaping. User, password and query are sent with each request and never appear in messages.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use http::header::InvalidHeaderValue;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use url::Url;

use crate::Key;
use crate::backend::opaque_debug;
use crate::backend::remote::login::Login;
use crate::backend::remote::login::origin_login::{OriginLogin, UrlUser};
use zarr_format::error::{Error, Kind, Result};

/// Bytes that are escaped in a URL: all except the unreserved characters of RFC 3986, section 2.3.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The URL of a store on a web server, and the credentials and query for each request.
pub(super) struct UrlSpace {
    /// The store's URL without user, password and query; ends with a slash.
    folder: Url,
    query: Option<String>,
    /// User and password from the store's URL.
    user: UrlUser,
}

opaque_debug!(UrlSpace);

/// Where a link points, relative to a directory of the store.
#[derive(Debug, PartialEq)]
pub(super) enum Relation {
    /// The link points to the directory itself.
    Same,
    /// The link points to a direct child. The flag says whether the URL ends with a slash.
    Child(Vec<u8>, bool),
    /// The link points to no direct child of the directory.
    Elsewhere,
}

impl UrlSpace {
    /// Parses the URL of a store. If the URL is not valid, the error is `Invalid`, about `display_name`.
    pub(super) fn parse(url: &str, display_name: &str) -> Result<UrlSpace> {
        // The text of the parser's error is not reported, since it may contain the URL with its password.
        let invalid = || {
            Error::invalid(
                display_name,
                "expected http://HOST/PATH or https://HOST/PATH",
            )
        };
        let mut folder = Url::parse(url).map_err(|_| invalid())?;
        if folder.host_str().is_none_or(str::is_empty) {
            return Err(invalid());
        }
        let user = user(&folder).map_err(|_| invalid())?;
        let query = folder.query().map(str::to_string);
        folder.set_query(None);
        folder.set_fragment(None);
        folder.set_username("").map_err(|()| invalid())?;
        folder.set_password(None).map_err(|()| invalid())?;
        if !folder.path().ends_with('/') {
            let path = format!("{}/", folder.path());
            folder.set_path(&path);
        }
        Ok(UrlSpace {
            folder,
            query,
            user,
        })
    }

    /// Returns the URL of a key; with `as_folder`, the URL has a slash at the end. The error is `NameTooLong` if the
    /// key is too long.
    pub(super) fn url(&self, key: &Key, as_folder: bool) -> Result<String> {
        // A path of more than 4096 bytes is refused here, because most servers cannot open it and some report it as an
        // internal error.
        if key.as_bytes().len() > 4096 {
            return Err(too_long(key));
        }
        let mut url = self.folder.as_str().to_string();
        let names: Vec<String> = key
            .names()
            .map(|name| percent_encode(name, ESCAPED).to_string())
            .collect();
        url.push_str(&names.join("/"));
        if as_folder && !url.ends_with('/') {
            url.push('/');
        }
        if let Some(query) = &self.query {
            url.push('?');
            url.push_str(query);
        }
        Ok(url)
    }

    /// Binds the user's credentials to the store's server, so that no other server receives them.
    pub(super) fn bound_login(&self, login: &Login) -> OriginLogin {
        OriginLogin::new(login, self.folder.origin(), self.user.clone())
    }

    /// Returns a text that distinguishes the store from stores with the same URL and other credentials, or `None` if
    /// the only credentials are those in the URL.
    pub(super) fn login_identity(&self, login: &OriginLogin) -> Option<Arc<str>> {
        login.identity(&self.folder)
    }

    pub(super) fn is_plain(&self) -> bool {
        self.folder.scheme() == "http"
    }

    /// Returns where a link in a response points, relative to a directory. The link's host and query are ignored, since
    /// a server behind a proxy only knows its own address.
    pub(super) fn relation(&self, folder: &Key, reference: &str) -> Relation {
        let prefix = self.names(folder);
        let Some(base) = self
            .url(folder, true)
            .ok()
            .and_then(|u| Url::parse(&u).ok())
        else {
            return Relation::Elsewhere;
        };
        let Ok(target) = base.join(reference) else {
            return Relation::Elsewhere;
        };
        let names = names(&target);
        let Some((rest, is_folder)) =
            names
                .strip_prefix(prefix.as_slice())
                .map(|rest| match rest {
                    [rest @ .., last] if last.is_empty() => (rest, true),
                    rest => (rest, false),
                })
        else {
            return Relation::Elsewhere;
        };
        match rest {
            [] => Relation::Same,
            [name] => Relation::Child(name.clone(), is_folder),
            _ => Relation::Elsewhere,
        }
    }

    /// Whether a response's URL is the URL of a key, with or without a slash at the end.
    pub(super) fn is_of(&self, key: &Key, url: &Url) -> bool {
        let mut path = names(url);
        if path.last().is_some_and(Vec::is_empty) {
            path.pop();
        }
        path == self.names(key)
    }

    /// Whether a URL ends with a key but is outside the store, as after a redirect of all keys to another server.
    pub(super) fn is_of_elsewhere(&self, key: &Key, url: &Url) -> bool {
        let own: Vec<Vec<u8>> = key.names().map(<[u8]>::to_vec).collect();
        !self.is_of(key, url) && names(url).ends_with(&own)
    }

    /// Whether a URL has the same scheme, host and port as the store's server.
    pub(super) fn is_of_server(&self, url: &Url) -> bool {
        url.origin() == self.folder.origin()
    }

    /// Returns the path components of a key's URL.
    fn names(&self, key: &Key) -> Vec<Vec<u8>> {
        let mut names = names(&self.folder);
        names.pop();
        names.extend(key.names().map(<[u8]>::to_vec));
        names
    }
}

pub(super) fn too_long(key: &Key) -> Error {
    Error::new(Kind::NameTooLong, key, "the key is too long for a URL")
}

/// Returns the unescaped path components of a URL. The last one is empty if the path ends with a slash.
fn names(url: &Url) -> Vec<Vec<u8>> {
    let path = url.path();
    let names = path.strip_prefix('/').unwrap_or(path).split('/');
    names
        .map(|name| percent_decode_str(name).collect())
        .collect()
}

/// Returns the user in a URL, and the header for user and password (RFC 7617). Fails if a header cannot contain them.
fn user(url: &Url) -> std::result::Result<UrlUser, InvalidHeaderValue> {
    if url.username().is_empty() && url.password().is_none() {
        return Ok(UrlUser::default());
    }
    let mut pair: Vec<u8> = percent_decode_str(url.username()).collect();
    let name = String::from_utf8_lossy(&pair).into_owned();
    pair.push(b':');
    pair.extend(percent_decode_str(url.password().unwrap_or_default()));
    let mut value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(pair)))?;
    value.set_sensitive(true);
    Ok(UrlUser {
        name: (!name.is_empty()).then_some(name),
        authorization: Some(value),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url_space(url: &str) -> UrlSpace {
        UrlSpace::parse(url, "shown").unwrap()
    }

    fn key(bytes: &[u8]) -> Key {
        Key::new(bytes).unwrap()
    }

    #[test]
    fn every_byte_of_a_key_is_encoded_in_its_url() {
        let urls = url_space("http://host:8000/a%20b");
        let url = urls.url(&key(b"c d/#%?+&\xff\xc3\xa9/~x"), false);
        assert_eq!(
            url.unwrap(),
            "http://host:8000/a%20b/c%20d/%23%25%3F%2B%26%FF%C3%A9/~x"
        );
        assert_eq!(
            urls.url(&Key::root(), false).unwrap(),
            "http://host:8000/a%20b/"
        );
        let long = vec!["d"; 3000].join("/");
        assert_eq!(
            urls.url(&key(long.as_bytes()), false).unwrap_err().kind(),
            Kind::NameTooLong
        );
    }

    #[test]
    fn query_and_password_go_with_each_request() {
        let urls = url_space("https://me:p%40ss@host/a?sig=x&t=1#part");
        assert_eq!(
            urls.url(&key(b"b"), true).unwrap(),
            "https://host/a/b/?sig=x&t=1"
        );
        assert_eq!(urls.user.name.as_deref(), Some("me"));
        let header = urls.user.authorization.as_ref().unwrap();
        assert_eq!(header.to_str().unwrap(), "Basic bWU6cEBzcw==");
        assert!(!format!("{urls:?} {header:?}").contains("sig"));
        for bad in ["http://", "http://me:hush@/a", "http://me:hush@[::1/a"] {
            let error = UrlSpace::parse(bad, "shown").unwrap_err();
            assert!(!error.to_string().contains("hush"), "{error}");
        }
    }

    #[test]
    fn links_are_resolved_against_their_folder() {
        let urls = url_space("http://host/top%20x?t=1");
        let folder = key(b"a");
        let child = |name: &str, is_folder| Relation::Child(name.as_bytes().to_vec(), is_folder);
        for (reference, expected) in [
            ("b", child("b", false)),
            ("b%2f%25/", child("b/%", true)),
            ("./c:d", child("c:d", false)),
            ("/top%20x/a/b/", child("b", true)),
            ("/top x/%61/b", child("b", false)),
            ("http://inner:80/top%20x/a/b", child("b", false)),
            ("/top%20x/a/", Relation::Same),
            ("/top%20x/a", Relation::Same),
            ("../", Relation::Elsewhere),
            ("/", Relation::Elsewhere),
            ("b/c", Relation::Elsewhere),
            ("/top%20x/ab", Relation::Elsewhere),
            ("mailto:me", Relation::Elsewhere),
        ] {
            assert_eq!(urls.relation(&folder, reference), expected, "{reference}");
        }
    }

    #[test]
    fn the_url_of_a_response_is_matched_to_its_key() {
        let urls = url_space("http://host/top");
        let url = |text: &str| Url::parse(text).unwrap();
        let folder = url("https://host/top/a/?x");
        assert!(urls.is_of(&key(b"a"), &folder) && folder.path().ends_with('/'));
        assert!(!urls.is_of(&key(b"b"), &folder));
        let moved = url("https://other/new/top/a/b?signed");
        assert!(
            urls.is_of_elsewhere(&key(b"a/b"), &moved) && !urls.is_of_elsewhere(&key(b"a"), &moved)
        );
        assert!(!urls.is_of_elsewhere(&key(b"a/b"), &url("http://host/top/a/b")));
        assert!(urls.is_of(&Key::root(), &url("http://host/top/")));
    }
}
