//! The files of profiles, `~/.aws/config` and `~/.aws/credentials`, as AWS's own programs read them.
//!
//! A file is read whole or not at all; a line that is none of theirs is an error that says which. Sections and settings
//! with names that they do not allow are passed over. Nothing here knows what the settings mean.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::Path;

use super::variables::AwsVariables;

/// The settings of one section.
pub(super) type ProfileSettings = HashMap<String, String>;

/// The profiles and SSO sessions of both files.
#[derive(Debug, Default)]
pub(super) struct ProfileFiles {
    profiles: HashMap<String, ProfileSettings>,
    sessions: HashMap<String, ProfileSettings>,
}

impl ProfileFiles {
    /// Reads both files; one that is not there has no profiles.
    pub(super) fn read(variables: &AwsVariables) -> Result<ProfileFiles, String> {
        let mut files = ProfileFiles::default();
        let config = variables.config_file();
        files.add_config(&sections(&config, &text(&config)?)?);
        let credentials = variables.credentials_file();
        files.add_credentials(&sections(&credentials, &text(&credentials)?)?);
        Ok(files)
    }

    pub(super) fn profile(&self, name: &str) -> Option<&ProfileSettings> {
        self.profiles.get(name)
    }

    pub(super) fn session(&self, name: &str) -> Option<&ProfileSettings> {
        self.sessions.get(name)
    }

    /// Adds what `config` has: `[profile NAME]`, `[sso-session NAME]` and `[default]`, which counts only if there is no
    /// `[profile default]`.
    fn add_config(&mut self, sections: &[FileSection<'_>]) {
        let has_default = sections
            .iter()
            .any(|section| section.words() == (Some("profile"), "default"));
        for section in sections {
            let (place, name) = match section.words() {
                (Some("profile"), name) => (&mut self.profiles, name),
                (Some("sso-session"), name) => (&mut self.sessions, name),
                (None, "default") if !has_default => (&mut self.profiles, "default"),
                _ => continue,
            };
            merge(place, name, section);
        }
    }

    /// Adds what `credentials` has: `[NAME]`.
    fn add_credentials(&mut self, sections: &[FileSection<'_>]) {
        for section in sections {
            if let (None, name) = section.words() {
                merge(&mut self.profiles, name, section);
            }
        }
    }
}

/// Adds the settings of a section to those of its name.
fn merge(place: &mut HashMap<String, ProfileSettings>, name: &str, section: &FileSection<'_>) {
    if !is_identifier(name) {
        return;
    }
    let settings = place.entry(name.to_string()).or_default();
    for (key, value) in &section.settings {
        if is_identifier(key) {
            settings.insert(key.clone(), value.clone());
        }
    }
}

fn is_identifier(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-/.%@:+".contains(&byte);
    !name.is_empty() && name.bytes().all(fits)
}

/// Reads a file.
fn text(path: &Path) -> Result<String, String> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// A section as it is written.
struct FileSection<'a> {
    title: &'a str,
    settings: Vec<(String, String)>,
}

impl FileSection<'_> {
    /// Returns the kind and the name that the title has: `profile lab`, or `lab` alone.
    fn words(&self) -> (Option<&str>, &str) {
        match self.title.split_once(BLANKS) {
            Some((kind, name)) => (Some(kind), name.trim_matches(BLANKS)),
            None => (None, self.title),
        }
    }
}

const BLANKS: [char; 2] = [' ', '\t'];

/// Returns the sections of a text, of which `path` names the file in messages.
fn sections<'a>(path: &Path, text: &'a str) -> Result<Vec<FileSection<'a>>, String> {
    let mut sections = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let is_blank = line.trim_matches(BLANKS).is_empty();
        if is_blank || line.starts_with(['#', ';']) {
            continue;
        }
        add_line(&mut sections, line)
            .map_err(|what| format!("{}, line {}: {what}", path.display(), number + 1))?;
    }
    Ok(sections)
}

/// Adds a line to the sections that were before it; an error says what was expected there.
fn add_line<'a>(sections: &mut Vec<FileSection<'a>>, line: &'a str) -> Result<(), String> {
    if line.starts_with('[') {
        let title = without_comment(line, false);
        let title = title
            .strip_prefix('[')
            .and_then(|title| title.strip_suffix(']'));
        sections.push(FileSection {
            title: title
                .ok_or("expected ']' after the name")?
                .trim_matches(BLANKS),
            settings: Vec::new(),
        });
        return Ok(());
    }
    let settings = &mut sections
        .last_mut()
        .ok_or("expected a [profile NAME] before it")?
        .settings;
    if !line.starts_with(BLANKS) {
        settings.push(setting(line)?);
        return Ok(());
    }
    let (_, value) = settings
        .last_mut()
        .ok_or("expected a setting before what continues it")?;
    // What continues no value is a setting of its own, below that name.
    if value.is_empty() || value.starts_with('\n') {
        setting(line)?;
    }
    value.push('\n');
    value.push_str(line.trim_matches(BLANKS));
    Ok(())
}

/// Reads `NAME = VALUE`; names are written in any case.
fn setting(line: &str) -> Result<(String, String), Cow<'static, str>> {
    let line = without_comment(line, true);
    let (name, value) = line.split_once('=').ok_or("expected NAME = VALUE")?;
    let (name, value) = (name.trim_matches(BLANKS), value.trim_matches(BLANKS));
    if name.is_empty() {
        return Err("expected a name before '='".into());
    }
    Ok((name.to_ascii_lowercase(), value.to_string()))
}

/// Returns a line without blanks around it and the comment at its end, before which a blank has to be where
/// `needs_blank`.
fn without_comment(line: &str, needs_blank: bool) -> &str {
    let line = line.trim_matches(BLANKS);
    let mut is_after_blank = false;
    for (at, sign) in line.char_indices() {
        if "#;".contains(sign) && (is_after_blank || !needs_blank) {
            return line.get(..at).unwrap_or(line).trim_matches(BLANKS);
        }
        is_after_blank = sign.is_whitespace();
    }
    line
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Reads two texts.
    pub(in super::super) fn parsed(
        config: &str,
        credentials: &str,
    ) -> Result<ProfileFiles, String> {
        let mut files = ProfileFiles::default();
        files.add_config(&sections(Path::new("config"), config)?);
        files.add_credentials(&sections(Path::new("credentials"), credentials)?);
        Ok(files)
    }

    /// Writes profiles as `NAME: KEY=VALUE, ...`, in order.
    fn shown(sections: &HashMap<String, ProfileSettings>) -> Vec<String> {
        let mut lines: Vec<String> = sections
            .iter()
            .map(|(name, settings)| {
                let mut pairs: Vec<String> = settings
                    .iter()
                    .map(|(key, value)| format!("{key}={value}"))
                    .collect();
                pairs.sort();
                format!("{name}: {}", pairs.join(", "))
            })
            .collect();
        lines.sort();
        lines
    }

    #[test]
    fn config_is_read_as_amazons_programs_do() {
        for (text, expected) in [
            ("", &[][..]),
            ("[profile a]", &["a: "]),
            (
                "[profile a-b:c/d_e%f.g@h+]\n[profile a!b]",
                &["a-b:c/d_e%f.g@h+: "],
            ),
            ("[profile \ta \t]", &["a: "]),
            ("[profile\ta]", &["a: "]),
            ("[   profile a    ]\nn = v", &["a: n=v"]),
            ("[profile a]\r\nn = v", &["a: n=v"]),
            ("[profile a]\nn = v=w", &["a: n=v=w"]),
            ("[profile a]\nn = \u{1f602}", &["a: n=\u{1f602}"]),
            ("[profile a]\nn \t=  \tv \t", &["a: n=v"]),
            ("[profile a]\nn =", &["a: n="]),
            (
                "[profile a]\nn = v\n[profile b]\nm = w",
                &["a: n=v", "b: m=w"],
            ),
            ("\t \n[profile a]\n\t\n \nn = v\n\t \n", &["a: n=v"]),
            ("# c\n[profile a] # c\nn = v # c # d", &["a: n=v"]),
            ("; c\n[profile a]; c\nn = v ; c", &["a: n=v"]),
            ("[profile a]\nn = v; w\nm = x# y", &["a: m=x# y, n=v; w"]),
            (
                "[profile a]\nn = v\n \t -w \t \n -x # c",
                &["a: n=v\n-w\n-x # c"],
            ),
            (
                "[profile a]\nN = v\n[profile a]\nn = w\nm = x",
                &["a: m=x, n=w"],
            ),
            (
                "[profile default]\nn = v\n[default]\nm = w",
                &["default: n=v"],
            ),
            (
                "[default]\nm = w\n[profile default]\nn = v",
                &["default: n=v"],
            ),
            ("[profile a b]\nn = v\n[b]\nn = v", &[]),
            ("[profile a]\nin valid = v", &["a: "]),
            (
                "[profile a]\ns3 =\n n = v\n\t \n in valid =",
                &["a: s3=\nn = v\nin valid ="],
            ),
            ("[sso-sesion a]\nn = v\n[profilea]", &[]),
        ] {
            let files = parsed(text, "").unwrap();
            assert_eq!(shown(&files.profiles), expected, "{text:?}");
            assert!(files.sessions.is_empty());
        }
    }

    #[test]
    fn credentials_win_and_have_names_alone() {
        let config = "[profile a]\nn = v\nm = w\n[default]\nx = y\n[sso-session a]\nn = s";
        let credentials =
            "[  a  ]\nn = k\n[default]\nk = l\n[profile b]\nn = v\n[sso-session c]\nn = v";
        let files = parsed(config, credentials).unwrap();
        assert_eq!(shown(&files.profiles), ["a: m=w, n=k", "default: k=l, x=y"]);
        assert_eq!(shown(&files.sessions), ["a: n=s"]);
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        for (text, expected) in [
            ("[profile a", "line 1: expected ']' after the name"),
            ("n = v", "line 1: expected a [profile NAME] before it"),
            (" -v", "line 1: expected a [profile NAME] before it"),
            ("[profile a]\n= v", "line 2: expected a name before '='"),
            ("[profile a]\nn : v", "line 2: expected NAME = VALUE"),
            (
                "[profile a]\n -v",
                "line 2: expected a setting before what continues it",
            ),
            (
                "[profile a]\nn = v\n[profile a]\n -w",
                "line 4: expected a setting before",
            ),
            ("[profile a]\ns3 =\n v", "line 3: expected NAME = VALUE"),
            (
                "[profile a]\ns3 =\n = v",
                "line 3: expected a name before '='",
            ),
        ] {
            let error = parsed(text, "").unwrap_err();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }
}
