//! Credentials that a user gives for web servers: headers, a token, netrc.
//!
//! `Login` has the credentials, and `OriginLogin` binds them to the server of one store. `netrc` and `token_file` read
//! the files, `header_line` parses a header. No error, log message or `Debug` output here has a secret.

use std::env;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};

use netrc::Netrc;
use token_file::TokenFile;

use crate::backend::opaque_debug;
use zarr_format::error::{Error, Kind, Result};

mod header_line;
mod netrc;
pub(crate) mod origin_login;
pub(crate) mod sent_login;
mod token_file;

/// Maximum length of a file with credentials, in bytes.
const MAX_FILE: u64 = 64 << 10;

/// Credentials for web servers. They are sent to the server of a store, and not to a server that it redirects to.
/// Credentials from netrc name their server.
#[derive(Clone, Default)]
pub struct Login {
    headers: Vec<(HeaderName, HeaderValue)>,
    token: Option<Arc<TokenFile>>,
    netrc: Option<Arc<Netrc>>,
}

opaque_debug!(Login);

impl Login {
    /// Adds the header `Name: value`, or with `@FILE` the headers in a file, one a line. `Invalid` if a header is
    /// malformed, or if zarrfs sets it itself.
    pub fn add_headers(&mut self, text: &str) -> Result<()> {
        let Some(path) = text.strip_prefix('@') else {
            let header = header_line::parse(text);
            self.headers
                .push(header.map_err(|error| error.about("--header"))?);
            return self.check();
        };
        let subject = format!("--header @{path}");
        let text = read_file(Path::new(path)).map_err(|error| error.about(&subject))?;
        let headers = header_line::parse_all(&text).map_err(|error| error.about(&subject))?;
        self.headers.extend(headers);
        self.check()
    }

    /// Sends the token in this file as `Authorization: Bearer TOKEN`. `Invalid` if the file has no token.
    pub fn set_bearer_token_file(&mut self, path: &Path) -> Result<()> {
        let file = TokenFile::open(path)
            .map_err(|error| error.about(format!("--bearer-token-file {}", path.display())))?;
        self.token = Some(Arc::new(file));
        self.check()
    }

    /// Sends the user and password that a netrc file has for a server.
    pub fn set_netrc(&mut self, path: &Path) -> Result<()> {
        let text =
            read_file(path).map_err(|error| error.about(format!("--netrc {}", path.display())))?;
        self.netrc = Some(Arc::new(Netrc::parse(path, &text)));
        Ok(())
    }

    /// Fails with `Invalid` if there are several values for the header `Authorization`.
    fn check(&self) -> Result<()> {
        let values = self
            .headers
            .iter()
            .filter(|(name, _)| name == AUTHORIZATION);
        match (values.count(), &self.token) {
            (0, _) | (1, None) => Ok(()),
            (_, Some(_)) => {
                let why =
                    "--header has the header Authorization already: use one of the two options";
                Err(Error::invalid("--bearer-token-file", why))
            }
            (_, None) => Err(Error::invalid(
                "--header",
                "the header Authorization is given twice",
            )),
        }
    }

    /// Returns the first option with credentials, or `None` if there are no credentials.
    pub fn first_option(&self) -> Option<&'static str> {
        let given = [
            (!self.headers.is_empty(), "--header"),
            (self.token.is_some(), "--bearer-token-file"),
            (self.netrc.is_some(), "--netrc"),
        ];
        let first = given.into_iter().find(|(is_given, _)| *is_given);
        first.map(|(_, option)| option)
    }

    /// Whether there are credentials for a host.
    pub(crate) fn is_for(&self, host: &str) -> bool {
        let has_entry = |netrc: &Arc<Netrc>| netrc.authorization(host, None, true).is_some();
        !self.headers.is_empty()
            || self.token.is_some()
            || self.netrc.as_ref().is_some_and(has_entry)
    }

    /// Returns the names of the headers.
    pub fn header_names(&self) -> impl Iterator<Item = &str> {
        self.headers.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the path of the file with the token.
    pub fn bearer_token_file(&self) -> Option<&Path> {
        self.token.as_ref().map(|file| file.path())
    }

    /// Returns the path of the netrc file.
    pub fn netrc(&self) -> Option<&Path> {
        self.netrc.as_ref().map(|netrc| netrc.path())
    }
}

/// Returns the path of the netrc file: that in the environment variable NETRC, or `~/.netrc`.
pub fn default_netrc() -> Result<PathBuf> {
    let given = env::var_os("NETRC").filter(|path| !path.is_empty());
    let home = || env::home_dir().map(|home| home.join(".netrc"));
    let Some(path) = given.map(PathBuf::from).or_else(home) else {
        let why = "you have no home directory: name the file in the environment variable NETRC";
        return Err(Error::invalid("--netrc", why));
    };
    std::path::absolute(&path).map_err(|error| Error::os(path.display(), error))
}

/// Reads a small file with credentials. A pipe is refused: zarrfs reads the file again, in another process.
fn read_file(path: &Path) -> Result<String> {
    let unreadable = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            Error::new(Kind::NotFound, "", "no such file: check the path")
        }
        std::io::ErrorKind::PermissionDenied => Error::new(
            Kind::Denied,
            "",
            "the file cannot be read: check its permissions",
        ),
        _ => Error::os("", error),
    };
    let mut options = OpenOptions::new();
    // A pipe without a writer would block.
    options.read(true).custom_flags(libc::O_NONBLOCK);
    let file: File = options.open(path).map_err(unreadable)?;
    let facts = file.metadata().map_err(unreadable)?;
    if !facts.is_file() {
        return Err(Error::invalid("", "not a regular file"));
    }
    let mut text = String::new();
    let read = file.take(MAX_FILE + 1).read_to_string(&mut text);
    match read {
        Ok(length) if length as u64 > MAX_FILE => {
            Err(Error::invalid("", "the file is too long: check the path"))
        }
        Ok(_) => Ok(text),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            Err(Error::invalid("", "the file is not text: check the path"))
        }
        Err(error) => Err(unreadable(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn login(headers: &[&str]) -> Result<Login> {
        let mut login = Login::default();
        for text in headers {
            login.add_headers(text)?;
        }
        Ok(login)
    }

    #[test]
    fn authorization_is_given_once() {
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        fs::write(&token, "hush\n").unwrap();
        let error = login(&["Authorization: Basic hush", "authorization: hush"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "--header: the header Authorization is given twice"
        );
        let expected = "--bearer-token-file: --header has the header Authorization already: use one of the two options";
        let mut one = login(&["Authorization: Basic hush"]).unwrap();
        assert_eq!(
            one.set_bearer_token_file(&token).unwrap_err().to_string(),
            expected
        );
        let mut other = login(&["X-Key: hush", "Cookie: a=hush", "Cookie: b=hush"]).unwrap();
        other.set_bearer_token_file(&token).unwrap();
        let error = other.add_headers("AUTHORIZATION: hush").unwrap_err();
        assert_eq!(error.to_string(), expected);
        assert!(!format!("{other:?}").contains("hush"));
    }

    #[test]
    fn a_file_has_headers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("headers");
        fs::write(&path, "# mine\nX-Key: a: b\r\n\n  Cookie:c\n").unwrap();
        let login = login(&[&format!("@{}", path.display())]).unwrap();
        assert_eq!(
            login.header_names().collect::<Vec<_>>(),
            ["x-key", "cookie"]
        );
        assert_eq!(login.headers[0].1, "a: b");
        let mut login = login;
        fs::write(&path, "X-Key: a\n\nhush\n").unwrap();
        let error = login
            .add_headers(&format!("@{}", path.display()))
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "--header @{}: line 3: write a header as 'Name: value'",
                path.display()
            )
        );
    }

    #[test]
    fn files_that_cannot_be_used_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let error = || {
            let error = Login::default().set_bearer_token_file(&path).unwrap_err();
            assert_eq!(
                error.subject(),
                format!("--bearer-token-file {}", path.display())
            );
            error.detail().to_string()
        };
        assert_eq!(error(), "no such file: check the path");
        for (text, expected) in [
            ("", "the file is empty: put the token into it"),
            (" \n", "the file is empty: put the token into it"),
            (
                "Bearer hush",
                "the file has more than a token: put only the token into it",
            ),
            (
                "hush\x01",
                "the token has characters that no token can have",
            ),
        ] {
            fs::write(&path, text).unwrap();
            assert_eq!(error(), expected);
        }
        fs::write(&path, "x".repeat(70_000)).unwrap();
        assert_eq!(error(), "the file is too long: check the path");
        fs::write(&path, b"\xff\xfe").unwrap();
        assert_eq!(error(), "the file is not text: check the path");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(error(), "not a regular file");
    }
}
