//! Reads the credentials that a user gives for web servers: headers, a token, netrc.
//!
//! `Login` has the credentials, and `OriginLogin` binds them to the server of one store. `netrc` and `token_file` read
//! the files. `SentLogin` names the credentials of a request, for the message if the server refuses it. No error, log
//! message or `Debug` output here contains a secret.

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

mod netrc;
pub(crate) mod origin_login;
mod token_file;

/// Maximum length of a file with credentials, in bytes.
const MAX_FILE: u64 = 64 << 10;

/// Credentials for web servers. Headers and tokens are sent only to the store's server, not to a server that it
/// redirects to. A netrc file states a server for each of its passwords.
#[derive(Clone, Default)]
pub struct Login {
    headers: Vec<(HeaderName, HeaderValue)>,
    token: Option<Arc<TokenFile>>,
    netrc: Option<Arc<Netrc>>,
}

opaque_debug!(Login);

impl Login {
    /// Adds the header `Name: value`, or with `@FILE` the headers in a file, one a line. The error is `Invalid` if a
    /// header is malformed, or if zarrfs sets the header itself.
    pub fn add_headers(&mut self, text: &str) -> Result<()> {
        let Some(path) = text.strip_prefix('@') else {
            let header = parse_header(text);
            self.headers
                .push(header.map_err(|error| error.about("--header"))?);
            return self.check();
        };
        let subject = format!("--header @{path}");
        let text = read_file(Path::new(path)).map_err(|error| error.about(&subject))?;
        let headers = parse_headers(&text).map_err(|error| error.about(&subject))?;
        self.headers.extend(headers);
        self.check()
    }

    /// Sends the token in a file as `Authorization: Bearer TOKEN`. The error is `Invalid` if the file has no token.
    pub fn set_bearer_token_file(&mut self, path: &Path) -> Result<()> {
        let file = TokenFile::open(path)
            .map_err(|error| error.about(format!("--bearer-token-file {}", path.display())))?;
        self.token = Some(Arc::new(file));
        self.check()
    }

    /// Sends the user and password that a netrc file has for the requested server.
    pub fn set_netrc(&mut self, path: &Path) -> Result<()> {
        let text =
            read_file(path).map_err(|error| error.about(format!("--netrc {}", path.display())))?;
        self.netrc = Some(Arc::new(Netrc::parse(path, &text)));
        Ok(())
    }

    /// Fails with `Invalid` if several credentials would set the header `Authorization`.
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

    /// Returns the name of the first command-line option that gives credentials, or `None` if none does.
    pub fn first_option(&self) -> Option<&'static str> {
        let given = [
            (!self.headers.is_empty(), "--header"),
            (self.token.is_some(), "--bearer-token-file"),
            (self.netrc.is_some(), "--netrc"),
        ];
        let first = given.into_iter().find(|(is_given, _)| *is_given);
        first.map(|(_, option)| option)
    }

    /// Whether the user has given credentials for a host.
    pub(crate) fn is_for(&self, host: &str) -> bool {
        let has_entry = |netrc: &Arc<Netrc>| netrc.authorization(host, None, true).is_some();
        !self.headers.is_empty()
            || self.token.is_some()
            || self.netrc.as_ref().is_some_and(has_entry)
    }

    /// Returns the names of the headers that the user gives for requests.
    pub fn header_names(&self) -> impl Iterator<Item = &str> {
        self.headers.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the path of the file with the bearer token.
    pub fn bearer_token_file(&self) -> Option<&Path> {
        self.token.as_ref().map(|file| file.path())
    }

    /// Returns the path of the netrc file.
    pub fn netrc(&self) -> Option<&Path> {
        self.netrc.as_ref().map(|netrc| netrc.path())
    }
}

/// Returns the default path of the netrc file: the environment variable NETRC, or `~/.netrc`.
pub fn default_netrc() -> Result<PathBuf> {
    let given = env::var_os("NETRC").filter(|path| !path.is_empty());
    let home = || env::home_dir().map(|home| home.join(".netrc"));
    let Some(path) = given.map(PathBuf::from).or_else(home) else {
        let why = "you have no home directory: name the file in the environment variable NETRC";
        return Err(Error::invalid("--netrc", why));
    };
    std::path::absolute(&path).map_err(|error| Error::os(path.display(), error))
}

/// Reads a small file with credentials. A pipe is refused, because it can be read only once but a second zarrfs process
/// reads the file again.
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
    // Without O_NONBLOCK, the open of a pipe without a writer would block.
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

/// Parses a header, `Name: value`. The error does not repeat the value, which may be secret.
fn parse_header(text: &str) -> Result<(HeaderName, HeaderValue)> {
    let malformed = || Error::invalid("", "write a header as 'Name: value'");
    let (name, value) = text.split_once(':').ok_or_else(malformed)?;
    // If the colon is in the wrong place, the name may be a secret, so the error does not contain it.
    let name: HeaderName = name.trim().parse().map_err(|_| malformed())?;
    if let Some(instead) = replacement_of(name.as_str()) {
        let why = format!("the header {name} cannot be set: {instead}");
        return Err(Error::invalid("", why));
    }
    let value = value.trim();
    if value.is_empty() {
        return Err(Error::invalid(
            "",
            format!("the header {name} has no value"),
        ));
    }
    let mut value: HeaderValue = value.parse().map_err(|_| {
        let why = format!("the value of the header {name} has control characters");
        Error::invalid("", why)
    })?;
    value.set_sensitive(true);
    Ok((name, value))
}

/// Parses a file with one header a line. Empty lines, and lines that begin with `#`, are skipped.
fn parse_headers(text: &str) -> Result<Vec<(HeaderName, HeaderValue)>> {
    let lines = text
        .lines()
        .enumerate()
        .map(|(place, line)| (place, line.trim()));
    let mut headers = Vec::new();
    for (place, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let header = parse_header(line).map_err(|error| {
            Error::invalid("", format!("line {}: {}", place + 1, error.detail()))
        })?;
        headers.push(header);
    }
    if headers.is_empty() {
        let why = "the file has no headers: put one on each line, as 'Name: value'";
        return Err(Error::invalid("", why));
    }
    Ok(headers)
}

/// Returns what the user should do instead of setting a header that zarrfs sets itself, or `None` for other headers.
fn replacement_of(name: &str) -> Option<&'static str> {
    match name {
        "user-agent" => Some("use --storage-option user_agent=NAME"),
        _ if name.starts_with("proxy-") => Some("use --storage-option proxy_url=URL"),
        // The HTTP client sets these headers, since they belong to a single request or connection.
        "accept-encoding" | "connection" | "content-encoding" | "content-length"
        | "content-range" | "content-type" | "depth" | "destination" | "expect" | "host" | "if"
        | "keep-alive" | "overwrite" | "range" | "te" | "trailer" | "transfer-encoding"
        | "upgrade" => Some("zarrfs sets it"),
        _ if name.starts_with("if-") => Some("zarrfs sets it"),
        _ => None,
    }
}

/// Which credentials were sent with a request. The value is an extension of the response, for error messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SentLogin {
    #[default]
    Nothing,
    /// Headers from `--header`.
    Header,
    /// The token from `--bearer-token-file`.
    Token,
    /// User and password from `--netrc`.
    Netrc,
    /// User and password from the URL.
    Url,
}

/// The command-line options that give credentials, as messages list them.
pub(crate) const LOGIN_OPTIONS: &str = "--bearer-token-file, --header or --netrc";

impl SentLogin {
    /// Returns what the user can do after the server has refused the credentials with this status.
    pub(crate) fn hint(self, status: u16) -> String {
        let name = match self {
            SentLogin::Nothing if status == 401 => {
                return format!("the server wants a login: use {LOGIN_OPTIONS}");
            }
            SentLogin::Nothing => return format!("if the data needs a login, use {LOGIN_OPTIONS}"),
            SentLogin::Header => "the headers of --header",
            SentLogin::Token => "the token of --bearer-token-file",
            SentLogin::Netrc => "the user and password of --netrc",
            SentLogin::Url => "the user and password of the URL",
        };
        match status {
            401 if self == SentLogin::Token => {
                format!("{name} is not valid or has expired: put a new token into the file")
            }
            401 => format!("the server does not accept {name}: check them"),
            _ => format!("check the permissions of {name}"),
        }
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
    fn a_second_authorization_is_refused() {
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
    fn headers_are_read_from_a_file() {
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
    fn an_unusable_token_file_is_named() {
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

    #[test]
    fn a_header_is_parsed_into_name_and_value() {
        for (text, name, value) in [
            (
                "Authorization: Bearer a.b-c==",
                "authorization",
                "Bearer a.b-c==",
            ),
            ("X-Key:a:b", "x-key", "a:b"),
            ("cookie :  a=1; b=2 ", "cookie", "a=1; b=2"),
        ] {
            let header = parse_header(text).unwrap();
            assert_eq!(
                (header.0.as_str(), header.1.to_str().unwrap()),
                (name, value)
            );
            assert!(!format!("{header:?}").contains(value));
        }
    }

    #[test]
    fn errors_do_not_show_the_value_of_a_header() {
        for (text, expected) in [
            ("hush", "write a header as 'Name: value'"),
            ("", "write a header as 'Name: value'"),
            (": hush", "write a header as 'Name: value'"),
            ("Bearer hush: x", "write a header as 'Name: value'"),
            ("X-Key:", "the header x-key has no value"),
            (
                "X-Key: hush\r\nHost: x",
                "the value of the header x-key has control characters",
            ),
            (
                "X-Key: hu\x00sh",
                "the value of the header x-key has control characters",
            ),
            (
                "Host: hush",
                "the header host cannot be set: zarrfs sets it",
            ),
            (
                "content-length: 7",
                "the header content-length cannot be set: zarrfs sets it",
            ),
            (
                "RANGE: hush",
                "the header range cannot be set: zarrfs sets it",
            ),
            (
                "If-Match: hush",
                "the header if-match cannot be set: zarrfs sets it",
            ),
            ("If: hush", "the header if cannot be set: zarrfs sets it"),
            (
                "User-Agent: x",
                "the header user-agent cannot be set: use --storage-option user_agent=NAME",
            ),
            (
                "Proxy-Authorization: hush",
                "the header proxy-authorization cannot be set: use --storage-option proxy_url=URL",
            ),
        ] {
            assert_eq!(parse_header(text).unwrap_err().detail(), expected, "{text}");
        }
        let error = parse_headers("# none\n\n").unwrap_err();
        assert!(error.detail().starts_with("the file has no headers"));
    }

    #[test]
    fn a_refused_login_says_what_to_do() {
        for (sent, status, expected) in [
            (
                SentLogin::Nothing,
                401,
                "the server wants a login: use --bearer-token-file, --header or --netrc",
            ),
            (
                SentLogin::Token,
                401,
                "the token of --bearer-token-file is not valid or has expired: put a new token into the file",
            ),
            (
                SentLogin::Netrc,
                401,
                "the server does not accept the user and password of --netrc: check them",
            ),
            (
                SentLogin::Header,
                403,
                "check the permissions of the headers of --header",
            ),
        ] {
            assert_eq!(sent.hint(status), expected);
        }
    }
}
