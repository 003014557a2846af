//! Keys of a bucket that are no paths, as paths: a slash that follows a slash, `.` and `..` between slashes, and control
//! characters, which file systems and clients of object stores do not take.
//!
//! Signs stand for them, the same that rclone uses: the fullwidth slash U+FF0F for the empty name between two slashes, one
//! and two fullwidth dots U+FF0E, and U+2400 to U+2421 for control characters. A sign that a key has itself follows a quote. Each key has one spelling, and
//! each spelling is that of one key, so that nothing is hidden by something else.

use std::borrow::Cow;

/// Says that the next character stands for itself.
const QUOTE: char = '\u{201b}';

/// Names that no path has, and what is shown for them.
const NAMES: [(&str, &str); 3] = [
    ("", "\u{ff0f}"),
    (".", "\u{ff0e}"),
    ("..", "\u{ff0e}\u{ff0e}"),
];

/// The sign of the control character 0; those of the others follow.
const FIRST_SIGN: u32 = 0x2400;

/// The control character after the first 32, and its sign.
const DELETE: (char, char) = ('\u{7f}', '\u{2421}');

/// Returns a key of a bucket as a path. A slash at the end stays: such a key is the marker of a folder.
pub(super) fn shown(key: &str) -> Cow<'_, str> {
    if key.is_empty() || !is_odd(key) {
        return Cow::Borrowed(key);
    }
    let (names, end) = split_end(key);
    let names: Vec<String> = names.split('/').map(shown_name).collect();
    Cow::Owned(names.join("/") + end)
}

/// Returns the key of a bucket that is shown as `path`; nothing if none is.
pub(super) fn stored(path: &str) -> Option<Cow<'_, str>> {
    if !has_signs(path) {
        return Some(Cow::Borrowed(path));
    }
    let (names, end) = split_end(path);
    let names: Option<Vec<String>> = names.split('/').map(stored_name).collect();
    Some(Cow::Owned(names?.join("/") + end))
}

/// Whether a path may be that of a key with another spelling.
pub(super) fn has_signs(path: &str) -> bool {
    path.contains(|letter: char| is_sign(letter) || letter.is_ascii_control())
}

/// Returns a key without a slash at its end, and that slash.
fn split_end(key: &str) -> (&str, &str) {
    match key.strip_suffix('/') {
        Some(names) => (names, "/"),
        None => (key, ""),
    }
}

/// Whether a path has a name that URLs cannot hold: libraries take `.` and `..` out of them.
pub(super) fn is_lost_in_urls(path: &str) -> bool {
    let dots = [NAMES[1].1, NAMES[2].1];
    path.split('/').any(|name| dots.contains(&name))
}

/// Whether a key is not a path, or has one of the signs.
fn is_odd(key: &str) -> bool {
    let (names, _) = split_end(key);
    let is_name = |name: &str| NAMES.iter().any(|(odd, _)| *odd == name);
    has_signs(key) || names.split('/').any(is_name)
}

/// Whether a character may stand for another one.
fn is_sign(letter: char) -> bool {
    matches!(letter, QUOTE | '\u{ff0f}' | '\u{ff0e}') || control(letter).is_some()
}

/// Returns the control character that a sign stands for.
fn control(sign: char) -> Option<char> {
    if sign == DELETE.1 {
        return Some(DELETE.0);
    }
    let code = (sign as u32).checked_sub(FIRST_SIGN)?;
    (code < 32).then(|| char::from_u32(code))?
}

/// Returns the sign of a control character.
fn sign(letter: char) -> Option<char> {
    match letter {
        letter if letter == DELETE.0 => Some(DELETE.1),
        letter if letter.is_ascii_control() => char::from_u32(FIRST_SIGN + letter as u32),
        _ => None,
    }
}

fn shown_name(name: &str) -> String {
    if let Some((_, shown)) = NAMES.iter().find(|(odd, _)| *odd == name) {
        return (*shown).to_string();
    }
    let mut text = String::with_capacity(name.len());
    if NAMES.iter().any(|(_, shown)| *shown == name) {
        text.push(QUOTE);
    }
    for letter in name.chars() {
        if letter == QUOTE || control(letter).is_some() {
            text.push(QUOTE);
        }
        text.push(sign(letter).unwrap_or(letter));
    }
    text
}

fn stored_name(shown: &str) -> Option<String> {
    if let Some((name, _)) = NAMES.iter().find(|(_, sign)| *sign == shown) {
        return Some((*name).to_string());
    }
    let mut name = String::with_capacity(shown.len());
    let mut letters = shown.chars();
    while let Some(letter) = letters.next() {
        name.push(match letter {
            QUOTE => letters.next()?,
            letter => control(letter).unwrap_or(letter),
        });
    }
    // A quote that is not needed is no spelling.
    (shown_name(&name) == shown).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_keys_stay_as_they_are() {
        for key in ["", "a", "a/b.c", "a/b/", "...", "..a/b..", "caf\u{e9} %2F"] {
            assert_eq!(shown(key), key);
            assert_eq!(stored(key).unwrap(), key);
        }
    }

    #[test]
    fn each_key_has_one_spelling() {
        let cases = [
            ("a//b", "a/\u{ff0f}/b"),
            ("/a", "\u{ff0f}/a"),
            ("a//", "a/\u{ff0f}/"),
            ("a/./b", "a/\u{ff0e}/b"),
            ("../a/..", "\u{ff0e}\u{ff0e}/a/\u{ff0e}\u{ff0e}"),
            ("a\nb\u{7f}", "a\u{240a}b\u{2421}"),
            ("a/\u{ff0e}", "a/\u{201b}\u{ff0e}"),
            ("\u{240a}", "\u{201b}\u{240a}"),
            ("\u{201b}x", "\u{201b}\u{201b}x"),
            ("\u{201b}\u{ff0e}", "\u{201b}\u{201b}\u{ff0e}"),
            ("x\u{ff0e}", "x\u{ff0e}"),
        ];
        for (key, path) in cases {
            assert_eq!(shown(key), path, "{key:?}");
            assert_eq!(stored(path).as_deref(), Some(key), "{path:?}");
        }
        for path in ["\u{201b}", "\u{201b}a", "a/\u{201b}b/c", "a\nb"] {
            assert_eq!(stored(path), None, "{path:?}");
        }
    }
}
