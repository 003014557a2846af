//! Parses a header that a user gives, and refuses those that zarrfs sets.

use http::{HeaderName, HeaderValue};

use zarr_format::error::{Error, Result};

/// Parses `Name: value`. The error does not repeat the value.
pub(super) fn parse(text: &str) -> Result<(HeaderName, HeaderValue)> {
    let malformed = || Error::invalid("", "write a header as 'Name: value'");
    let (name, value) = text.split_once(':').ok_or_else(malformed)?;
    // Another text before the colon may be a secret.
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

/// Parses the lines of a file. Empty lines, and lines that begin with `#`, are skipped.
pub(super) fn parse_all(text: &str) -> Result<Vec<(HeaderName, HeaderValue)>> {
    let lines = text
        .lines()
        .enumerate()
        .map(|(place, line)| (place, line.trim()));
    let mut headers = Vec::new();
    for (place, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let header = parse(line).map_err(|error| {
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

/// Returns what to do in place of a header that zarrfs sets, or `None` for other headers.
fn replacement_of(name: &str) -> Option<&'static str> {
    match name {
        "user-agent" => Some("use --storage-option user_agent=NAME"),
        _ if name.starts_with("proxy-") => Some("use --storage-option proxy_url=URL"),
        // These belong to a single request or connection.
        "accept-encoding" | "connection" | "content-encoding" | "content-length"
        | "content-range" | "content-type" | "depth" | "destination" | "expect" | "host" | "if"
        | "keep-alive" | "overwrite" | "range" | "te" | "trailer" | "transfer-encoding"
        | "upgrade" => Some("zarrfs sets it"),
        _ if name.starts_with("if-") => Some("zarrfs sets it"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_has_a_name_and_a_value() {
        for (text, name, value) in [
            (
                "Authorization: Bearer a.b-c==",
                "authorization",
                "Bearer a.b-c==",
            ),
            ("X-Key:a:b", "x-key", "a:b"),
            ("cookie :  a=1; b=2 ", "cookie", "a=1; b=2"),
        ] {
            let header = parse(text).unwrap();
            assert_eq!(
                (header.0.as_str(), header.1.to_str().unwrap()),
                (name, value)
            );
            assert!(!format!("{header:?}").contains(value));
        }
    }

    #[test]
    fn faults_do_not_repeat_the_value() {
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
            assert_eq!(parse(text).unwrap_err().detail(), expected, "{text}");
        }
        let error = parse_all("# none\n\n").unwrap_err();
        assert!(error.detail().starts_with("the file has no headers"));
    }
}
