//! Parses a netrc file: users and passwords by host.
//!
//! The first entry of a host is used, and the entry `default` for hosts that have no entry. As in curl, permissions of
//! the file do not matter, unknown words are skipped, and words can be quoted.

use std::fmt;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::str::Chars;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;

/// The users and passwords in a netrc file.
pub(super) struct Netrc {
    path: PathBuf,
    entries: Vec<Entry>,
}

/// The user and password that a netrc file has for a host.
#[derive(Default)]
struct Entry {
    /// The host; `None` for the entry `default`.
    machine: Option<String>,
    login: Option<String>,
    password: Option<String>,
}

impl fmt::Debug for Netrc {
    /// Prints the path of the netrc file, but no user and no password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Netrc").field(&self.path).finish()
    }
}

impl Netrc {
    pub(super) fn parse(path: &Path, text: &str) -> Netrc {
        let mut words = Words(text.chars().peekable());
        let mut entries: Vec<Entry> = Vec::new();
        while let Some(keyword) = words.keyword() {
            match keyword.as_str() {
                "machine" => entries.push(Entry {
                    machine: words.value(),
                    ..Entry::default()
                }),
                "default" => entries.push(Entry::default()),
                "login" | "password" | "account" => {
                    let value = words.value();
                    match entries.last_mut() {
                        Some(entry) if keyword == "login" => entry.login = value,
                        Some(entry) if keyword == "password" => entry.password = value,
                        Some(_) | None => {}
                    }
                }
                "macdef" => words.skip_macro(),
                _ => {}
            }
        }
        entries.retain(|entry| entry.login.is_some() || entry.password.is_some());
        Netrc {
            path: path.to_path_buf(),
            entries,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the header `Authorization` for a host, or `None` if the netrc file has no entry for the host. With
    /// `user`, the entry must have this user. With `with_default`, the entry `default` counts too.
    pub(super) fn authorization(
        &self,
        host: &str,
        user: Option<&str>,
        with_default: bool,
    ) -> Option<HeaderValue> {
        let host = bare(host);
        let is_wanted = |entry: &&Entry| {
            let is_of_host = match &entry.machine {
                Some(machine) => bare(machine).eq_ignore_ascii_case(host),
                None => with_default,
            };
            is_of_host && (user.is_none() || entry.login.as_deref() == user)
        };
        let entry = self.entries.iter().find(is_wanted)?;
        let login = entry.login.as_deref().unwrap_or_default();
        let password = entry.password.as_deref().unwrap_or_default();
        let pair = STANDARD.encode(format!("{login}:{password}"));
        let mut value = HeaderValue::from_str(&format!("Basic {pair}")).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

/// Removes the brackets of an IPv6 address, or the final dot of a host name.
fn bare(host: &str) -> &str {
    let host = host.strip_prefix('[').unwrap_or(host);
    let host = host.strip_suffix(']').unwrap_or(host);
    host.strip_suffix('.').unwrap_or(host)
}

struct Words<'a>(Peekable<Chars<'a>>);

impl Words<'_> {
    /// Returns the next word of a netrc file where a keyword may stand. There `#` starts a comment, which is skipped.
    fn keyword(&mut self) -> Option<String> {
        loop {
            self.skip_spaces();
            if self.0.peek() != Some(&'#') {
                return self.word();
            }
            self.skip_line();
        }
    }

    /// Returns the next word of a netrc file where a value stands, such as a password. There `#` does not start a
    /// comment.
    fn value(&mut self) -> Option<String> {
        self.skip_spaces();
        self.word()
    }

    fn word(&mut self) -> Option<String> {
        match self.0.peek()? {
            '"' => {
                self.0.next();
                Some(self.quoted())
            }
            _ => {
                let mut word = String::new();
                while let Some(letter) = self.0.next_if(|letter| !letter.is_whitespace()) {
                    word.push(letter);
                }
                Some(word)
            }
        }
    }

    /// Returns the rest of a quoted word of a netrc file, whose first quote was consumed.
    fn quoted(&mut self) -> String {
        let mut word = String::new();
        while let Some(letter) = self.0.next() {
            match letter {
                '"' => break,
                '\\' => match self.0.next() {
                    Some('n') => word.push('\n'),
                    Some('r') => word.push('\r'),
                    Some('t') => word.push('\t'),
                    Some(other) => word.push(other),
                    None => {}
                },
                _ => word.push(letter),
            }
        }
        word
    }

    /// Skips a macro of a netrc file: its name, and all lines up to an empty one.
    fn skip_macro(&mut self) {
        self.skip_line();
        while self.0.peek().is_some() && self.skip_line() {}
    }

    /// Skips the rest of a line. Returns whether it had a character other than spaces.
    fn skip_line(&mut self) -> bool {
        let mut has_text = false;
        for letter in self.0.by_ref() {
            if letter == '\n' {
                break;
            }
            has_text |= !letter.is_whitespace();
        }
        has_text
    }

    fn skip_spaces(&mut self) {
        while self.0.next_if(|letter| letter.is_whitespace()).is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the credentials `user:password` that a netrc file has for a host.
    fn pair(text: &str, host: &str, user: Option<&str>, with_default: bool) -> Option<String> {
        let netrc = Netrc::parse(Path::new("netrc"), text);
        let value = netrc.authorization(host, user, with_default)?;
        let encoded = value.to_str().unwrap().strip_prefix("Basic ").unwrap();
        Some(String::from_utf8(STANDARD.decode(encoded).unwrap()).unwrap())
    }

    fn of(text: &str, host: &str) -> Option<String> {
        pair(text, host, None, true)
    }

    #[test]
    fn the_first_entry_of_a_host_is_used() {
        let text = "machine a.example login me password p1\n\
                    machine b.example\n\tlogin you\n\taccount x password p2 # a comment\n\
                    # machine c.example login no password no\n\
                    machine A.example login other password p3\n\
                    default login anyone password p4";
        for (host, expected) in [
            ("a.example", "me:p1"),
            ("A.EXAMPLE", "me:p1"),
            ("a.example.", "me:p1"),
            ("b.example", "you:p2"),
            ("c.example", "anyone:p4"),
            ("sub.a.example", "anyone:p4"),
        ] {
            assert_eq!(of(text, host).as_deref(), Some(expected), "{host}");
        }
        assert_eq!(pair(text, "c.example", None, false), None);
        let of_other = pair(text, "a.example", Some("other"), false);
        assert_eq!(of_other.as_deref(), Some("other:p3"));
        assert_eq!(pair(text, "a.example", Some("nobody"), true), None);
    }

    #[test]
    fn quoted_words_are_unquoted_and_macros_skipped() {
        for (text, expected) in [
            (r#"machine h login "a b" password "c\"d\\e""#, "a b:c\"d\\e"),
            ("machine h login a password #b", "a:#b"),
            ("machine h port 21 login a password b", "a:b"),
            (
                "macdef init\nmachine h login x password y\n\nmachine h login a password b",
                "a:b",
            ),
            ("machine h login a", "a:"),
            ("machine h password b", ":b"),
            ("machine h\nmachine h login a password b", "a:b"),
            ("\u{feff}x machine h\r\nlogin a\r\npassword b\r\n", "a:b"),
            ("machine h login \u{fc} password b", "\u{fc}:b"),
        ] {
            assert_eq!(of(text, "h").as_deref(), Some(expected), "{text}");
        }
        let v6 = "machine ::1 login a password b";
        assert_eq!(of(v6, "[::1]").as_deref(), Some("a:b"));
        for text in [
            "",
            "machine",
            "login a password b",
            "machine h",
            "machine \"h",
            "macdef",
        ] {
            assert_eq!(of(text, "h"), None, "{text}");
        }
    }

    #[test]
    fn nothing_secret_is_shown() {
        let netrc = Netrc::parse(Path::new("/n"), "machine h login me password hush");
        assert_eq!(format!("{netrc:?}"), "Netrc(\"/n\")");
        let value = netrc.authorization("h", None, false);
        assert!(value.is_some_and(|value| value.is_sensitive()));
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_without_a_panic(text in "(machine|login|password|default|macdef|[ \\n\"#\\\\]|.){0,40}") {
            let netrc = Netrc::parse(Path::new("/n"), &text);
            let _ = netrc.authorization("h", Some("a"), true);
        }
    }
}
