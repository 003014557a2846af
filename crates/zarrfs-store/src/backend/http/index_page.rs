//! Parses index pages, the HTML or JSON in which web servers list a directory.
//!
//! HTML of nginx, Apache, lighttpd, Python, rclone and others is supported, and JSON of nginx and Caddy. Links on any
//! other page are ignored. Sizes on index pages are rounded, so only names are used. A truncated page is the error
//! `Corrupt`, never a listing with fewer names.

use html5gum::{Token, Tokenizer};
use serde_json::Value;

use super::urls::{Relation, UrlSpace};
use crate::{EntryKind, Key};
use zarr_format::error::{Error, Result};

/// The names on an index page, each with its kind: file or directory.
pub(super) type LinkedNames = Vec<(Vec<u8>, EntryKind)>;

/// Returns the names on a directory's index page, or `None` if the page is no index page.
pub(super) fn names(
    urls: &UrlSpace,
    folder: &Key,
    kind: &str,
    page: &[u8],
) -> Result<Option<LinkedNames>> {
    match kind.split(';').next().unwrap_or_default().trim() {
        "text/html" | "application/xhtml+xml" => in_html(urls, folder, page),
        "application/json" => in_json(page),
        _ => Ok(None),
    }
}

pub(super) fn is_html(kind: &str) -> bool {
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("text/html") || kind.eq_ignore_ascii_case("application/xhtml+xml")
}

fn in_html(urls: &UrlSpace, folder: &Key, page: &[u8]) -> Result<Option<LinkedNames>> {
    let (mut names, mut title) = (LinkedNames::new(), String::new());
    let (mut in_title, mut has_end) = (false, false);
    for token in Tokenizer::new(page) {
        let token = match token {
            Ok(token) => token,
            Err(never) => match never {},
        };
        match token {
            Token::StartTag(tag) if tag.name.as_slice() == b"a" => {
                let link = tag.attributes.get(&b"href"[..]);
                let link = link.and_then(|link| str::from_utf8(link.as_slice()).ok());
                names.extend(link.and_then(|link| linked(urls, folder, link)));
            }
            Token::StartTag(tag) if tag.name.as_slice() == b"title" => in_title = true,
            Token::EndTag(tag) if tag.name.as_slice() == b"title" => in_title = false,
            Token::EndTag(tag) if tag.name.as_slice() == b"html" => has_end = true,
            Token::String(text) if in_title => {
                title.push_str(&String::from_utf8_lossy(text.as_slice()));
            }
            _ => {}
        }
    }
    let title = title.trim().to_ascii_lowercase();
    let titles = [
        "index of ",
        "directory listing for ",
        "directory listing of ",
        "listing of ",
    ];
    match (titles.iter().any(|known| title.starts_with(known)), has_end) {
        (true, true) => Ok(Some(names)),
        (true, false) => Err(Error::corrupt("", "the server's index page is cut off")),
        (false, _) => Ok(None),
    }
}

/// Returns the name that a link on an index page points to, or `None` if the link sorts the page or leaves the
/// directory.
fn linked(urls: &UrlSpace, folder: &Key, link: &str) -> Option<(Vec<u8>, EntryKind)> {
    if link.contains(['?', '#']) {
        return None;
    }
    match urls.relation(folder, link) {
        Relation::Child(name, is_folder) => Some((checked(name)?, kind(is_folder))),
        Relation::Same | Relation::Elsewhere => None,
    }
}

fn kind(is_folder: bool) -> EntryKind {
    if is_folder {
        EntryKind::Directory
    } else {
        EntryKind::File
    }
}

fn checked(name: Vec<u8>) -> Option<Vec<u8>> {
    Key::root().child(&name).ok()?;
    Some(name)
}

/// Reads a JSON listing, an array of objects with a `name`. Directories have the `type` "directory" or a true `is_dir`.
fn in_json(page: &[u8]) -> Result<Option<LinkedNames>> {
    let Ok(Value::Array(entries)) = serde_json::from_slice(page) else {
        // The response is not a JSON listing: it may be truncated, or an object that the server sends for the
        // directory.
        return Ok(None);
    };
    let names: Option<Vec<_>> = entries.iter().map(json_entry).collect();
    let Some(names) = names else { return Ok(None) };
    let valid = |(name, kind): (&str, EntryKind)| Some((checked(name.into())?, kind));
    Ok(Some(names.into_iter().filter_map(valid).collect()))
}

fn json_entry(entry: &Value) -> Option<(&str, EntryKind)> {
    let name = entry.get("name")?.as_str()?;
    let is_folder = match (entry.get("type"), entry.get("is_dir")) {
        (Some(kind), _) => kind.as_str()? == "directory",
        (None, Some(is_folder)) => is_folder.as_bool()?,
        (None, None) => return None,
    };
    Some((name.strip_suffix('/').unwrap_or(name), kind(is_folder)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: &str, page: &str) -> Result<Option<LinkedNames>> {
        let urls = UrlSpace::parse("http://host/top", "").unwrap();
        names(&urls, &Key::new("a").unwrap(), kind, page.as_bytes())
    }

    fn found(kind: &str, page: &str) -> Vec<(String, EntryKind)> {
        let names = read(kind, page).unwrap().unwrap().into_iter();
        names
            .map(|(name, kind)| (String::from_utf8(name).unwrap(), kind))
            .collect()
    }

    #[test]
    fn index_pages_of_known_servers_are_read() {
        let nginx = "<html>\r\n<head><title>Index of /top/a/</title></head>\r\n<body>\r\n\
            <h1>Index of /top/a/</h1><hr><pre><a href=\"../\">../</a>\r\n\
            <a href=\"c/\">c/</a>   21-Nov-2026 18:40   -\r\n\
            <a href=\"x%20%26%23.json\">x &amp;#.json</a>  21-Nov-2026 18:40   12K\r\n\
            </pre><hr></body>\r\n</html>\r\n";
        let expected = vec![
            ("c".to_string(), EntryKind::Directory),
            ("x &#.json".to_string(), EntryKind::File),
        ];
        assert_eq!(found("text/html", nginx), expected);
        let apache = "<!DOCTYPE HTML><html><head><title>Index of /top/a</title></head><body>\
            <table><tr><th><a href=\"?C=N;O=D\">Name</a></th></tr>\
            <tr><td><a href=\"/top/\">Parent Directory</a></td></tr>\
            <tr><td><a HREF='/top/a/b&amp;c'>b&amp;c</a></td></tr>\
            <!-- <a href=\"hidden\"> --></table></body></html>";
        assert_eq!(
            found("text/html;charset=UTF-8", apache),
            vec![("b&c".to_string(), EntryKind::File)]
        );
        let python = "<!DOCTYPE HTML>\n<html><head><title>Directory listing for /top/a/</title>\
            </head><body><ul><li><a href=\".zattrs\">.zattrs</a></li></ul></body></html>";
        assert_eq!(
            found("text/html; charset=utf-8", python),
            vec![(".zattrs".to_string(), EntryKind::File)]
        );
    }

    #[test]
    fn json_listings_are_read() {
        let nginx = r#"[{"name": "c", "type": "directory", "mtime": "x"},
            {"name": "d", "type": "file", "size": 3}]"#;
        let expected = vec![
            ("c".to_string(), EntryKind::Directory),
            ("d".to_string(), EntryKind::File),
        ];
        assert_eq!(found("application/json", nginx), expected);
        let caddy =
            r#"[{"name": "c/", "size": 1, "is_dir": true}, {"name": "d", "is_dir": false}]"#;
        assert_eq!(found("application/json", caddy), expected);
        assert_eq!(found("application/json; charset=utf-8", "[]"), []);
    }

    #[test]
    fn other_pages_are_not_listings() {
        let page =
            "<html><head><title>Our data</title></head><body><a href=\"b\">b</a></body></html>";
        assert_eq!(read("text/html", page).unwrap(), None);
        assert_eq!(read("text/plain", "a\nb").unwrap(), None);
        for other in [
            r#"{"zarr_format": 3}"#,
            "[1]",
            r#"[{"name": 1}]"#,
            r#"[{"name": "a"}]"#,
        ] {
            assert_eq!(read("application/json", other).unwrap(), None, "{other}");
        }
    }

    #[test]
    fn a_truncated_index_page_is_an_error() {
        let page =
            "<html><head><title>Index of /top/a/</title></head><body><a href=\"b\">b</a><a hr";
        assert!(read("text/html", page).is_err());
    }
}
