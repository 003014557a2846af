//! Names the credentials of a request, for the message if the server refuses it.

/// The credentials that were sent with a request. It is an extension of the response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SentLogin {
    /// No credentials.
    #[default]
    Nothing,
    /// `--header`.
    Header,
    /// `--bearer-token-file`.
    Token,
    /// `--netrc`.
    Netrc,
    /// The user and password in the URL.
    Url,
}

/// The options that give credentials, for messages.
pub(crate) const LOGIN_OPTIONS: &str = "--bearer-token-file, --header or --netrc";

impl SentLogin {
    /// Returns the next step after a refusal with this status.
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

    #[test]
    fn a_refusal_names_the_next_step() {
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
