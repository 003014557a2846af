//! Checks names of nodes: rules of specifications, portability, and almost equal names of siblings.

use std::collections::HashMap;

use icu_normalizer::DecomposingNormalizer;

use crate::finding::Finding;
use crate::spec::Spec;
use zarrfs_store::Key;

pub(crate) fn check_name(path: &Key, dialect: Option<&str>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let text = String::from_utf8_lossy(path.name()).into_owned();
    let is_draft = dialect.is_some_and(|name| name.starts_with("draft"));
    let spec = Spec::of(dialect);
    if (is_draft || dialect == Some("v3")) && path.name().iter().all(|&byte| byte == b'.') {
        let message = format!("the name {text} has only periods, which the specification forbids");
        let finding = Finding::error("name-not-allowed", path, message);
        findings.push(finding.with_section(spec.section("Node names")));
    } else if is_draft && !path.name().iter().all(|&byte| is_plain(byte)) {
        let message =
            format!("the name {text} has characters other than letters, digits, '-', '_' and '.'");
        let finding = Finding::error("name-not-allowed", path, message);
        findings.push(finding.with_section(spec.section("Node names")));
    } else if dialect == Some("v3") && text.starts_with("__") {
        let message = format!("the name {text} begins with __, which the specification reserves");
        let finding = Finding::error("name-reserved", path, message);
        findings.push(finding.with_section(Spec::V3.section("Node names")));
    } else if dialect == Some("v3") && !path.name().iter().all(|&byte| is_plain(byte)) {
        let message =
            format!("the name {text} has characters that the specification does not recommend");
        let finding = Finding::warning("name-not-recommended", path, message)
            .with_remedy("use only letters, digits, '-', '_' and '.'");
        findings.push(finding.with_section(Spec::V3.section("Node names")));
    }
    findings.extend(portability(path).map(|why| {
        let message = format!("the name is not portable: it {why}");
        Finding::warning("name-not-portable", path, message)
    }));
    let length = path.as_bytes().len();
    if length > 1024 {
        let message =
            format!("the key has {length} bytes; S3 and Google Cloud Storage allow at most 1024");
        findings.push(Finding::warning("key-too-long", path, message));
    }
    findings
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)
}

/// Returns the reason why some system cannot store a name, or `None` if every system can.
fn portability(path: &Key) -> Option<String> {
    let Ok(name) = str::from_utf8(path.name()) else {
        return Some("is not UTF-8, which buckets, macOS and Windows require".to_string());
    };
    if let Some(c) = name
        .chars()
        .find(|&c| "<>:\"\\|?*".contains(c) || c.is_control())
    {
        return Some(format!(
            "has the character {c:?}, which Windows does not allow"
        ));
    }
    if name.ends_with(['.', ' ']) {
        return Some("ends with a period or a space, which Windows drops".to_string());
    }
    let stem = name
        .split('.')
        .next()
        .unwrap_or_default()
        .to_ascii_lowercase();
    // Windows reserves the names of devices, such as `com1`, with any extension.
    let port = stem.strip_prefix("com").or(stem.strip_prefix("lpt"));
    let is_port = port.is_some_and(|number| matches!(number.as_bytes(), [b'1'..=b'9']));
    let is_device = is_port || matches!(stem.as_str(), "con" | "prn" | "aux" | "nul");
    is_device.then(|| "is the name of a Windows device".to_string())
}

/// Reports sibling nodes whose names differ only in case, which is an error in the Zarr v3 draft of 2019, or only in
/// how Unicode composes letters.
pub(crate) fn check_siblings(
    group: &Key,
    names: &[Vec<u8>],
    dialect: Option<&str>,
) -> Vec<Finding> {
    let mut by_folded: HashMap<String, &[u8]> = HashMap::new();
    let mut findings = Vec::new();
    for name in names {
        let text = String::from_utf8_lossy(name);
        let Some(first) = by_folded.insert(folded(&text), name) else {
            continue;
        };
        let Ok(path) = group.child(name) else {
            continue;
        };
        let first = String::from_utf8_lossy(first);
        if text.to_lowercase() != first.to_lowercase() {
            findings.push(other_form(&path, &text, &first));
            continue;
        }
        let message =
            format!("{text} and {first} differ only in case; macOS and Windows cannot store both");
        findings.push(match dialect {
            Some("draft2019") => Finding::error("names-differ-in-case", &path, message)
                .with_section(Spec::of(dialect).section("Node names")),
            _ => Finding::warning("names-differ-in-case", &path, message),
        });
    }
    findings
}

/// Returns a name as macOS compares names: in lower case, with decomposed letters.
fn folded(name: &str) -> String {
    let lower = name.to_lowercase();
    if lower.is_ascii() {
        return lower;
    }
    let normalizer = DecomposingNormalizer::new_nfd();
    normalizer.normalize(&lower).into_owned()
}

/// Reports sibling nodes whose names differ only in how Unicode composes letters.
fn other_form(path: &Key, name: &str, first: &str) -> Finding {
    let code_points = |name: &str| {
        let points = name.chars().filter(|c| !c.is_ascii());
        let points: Vec<String> = points.map(|c| format!("U+{:04X}", u32::from(c))).collect();
        points.join(" ")
    };
    let (own, other) = (code_points(name), code_points(first));
    let message =
        format!("{name} ({own}) and {first} ({other}) differ only in Unicode normalization");
    Finding::warning("names-differ-in-form", path, message)
        .with_remedy("rename one of them: macOS cannot store both")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_some_system_cannot_store_are_reported() {
        for (name, is_bad) in [
            ("temp", false),
            ("a:b", true),
            ("Con.x", true),
            ("lpt9", true),
            ("com0", false),
            ("com10", false),
            ("console", false),
            ("dot.", true),
            ("a\tb", true),
            ("gr\u{f6}sse", false),
        ] {
            let path = Key::new(format!("g/{name}")).unwrap();
            assert_eq!(portability(&path).is_some(), is_bad, "{name}");
        }
        assert!(portability(&Key::new(b"\xff".to_vec()).unwrap()).is_some());
    }

    #[test]
    fn sibling_names_that_macos_cannot_distinguish_are_reported() {
        let codes = |names: &[&str]| {
            let names: Vec<Vec<u8>> = names.iter().map(|name| name.as_bytes().to_vec()).collect();
            let findings = check_siblings(&Key::root(), &names, Some("v2")).into_iter();
            findings.map(|finding| finding.code).collect::<Vec<_>>()
        };
        let (composed, decomposed) = ("caf\u{e9}", "cafe\u{301}");
        assert_eq!(codes(&[decomposed, composed]), ["names-differ-in-form"]);
        assert_eq!(codes(&["CAF\u{c9}", decomposed]), ["names-differ-in-form"]);
        assert_eq!(codes(&["CAF\u{c9}", composed]), ["names-differ-in-case"]);
        assert_eq!(codes(&["cafe", composed]), [""; 0]);
    }
}
