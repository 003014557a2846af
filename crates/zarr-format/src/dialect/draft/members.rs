//! Members that several drafts share: version, key suffix, extensions.

use serde_json::{Map, Value};

use crate::dialect::members::list;
use crate::error::{Error, Result};

/// Whether `zarr_format` is a URI, as in every draft. In final v3 it is a number.
pub(super) fn has_uri(members: &Map<String, Value>) -> bool {
    members.get("zarr_format").is_some_and(is_uri)
}

fn is_uri(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.contains("://"))
}

/// Checks the version at the end of the URI (drafts, "zarr_format"). Later minor versions are compatible.
///
/// Fails with `Unsupported` for another major version, or if there is no URI.
pub(super) fn check_version(members: &Map<String, Value>) -> Result<()> {
    let found = members.get("zarr_format").unwrap_or(&Value::Null);
    let wrong = || {
        Error::unsupported(
            "zarr_format",
            format!("expected the URI of the core specification, version 3, found {found}"),
        )
    };
    let uri = found.as_str().filter(|_| is_uri(found)).ok_or_else(wrong)?;
    let version = uri.rsplit('/').find(|part| !part.is_empty());
    let major = version.and_then(|version| version.split('.').next());
    if major == Some("3") {
        Ok(())
    } else {
        Err(wrong())
    }
}

/// Reads `metadata_key_suffix`. It is a part of a name, so a slash in it is `Corrupt`.
pub(super) fn key_suffix(value: &Value) -> Result<String> {
    let is_plain = |text: &&str| {
        text.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
    };
    match value.as_str().filter(is_plain) {
        Some(text) => Ok(text.to_string()),
        None => Err(Error::corrupt(
            "metadata_key_suffix",
            format!("expected letters, digits and . - _ only, found {value}"),
        )),
    }
}

/// Fails for extensions that must be understood, since none is supported (drafts, "extensions").
pub(super) fn check_extensions(members: &Map<String, Value>) -> Result<()> {
    for extension in list(members, "extensions")? {
        if extension.get("must_understand") != Some(&Value::Bool(false)) {
            let uri = uri_of(extension);
            return Err(Error::unsupported(
                "extensions",
                format!("{uri} is not known and has to be understood"),
            ));
        }
    }
    Ok(())
}

/// Returns the URI of an extension, or the whole extension if it has no URI.
pub(super) fn uri_of(extension: &Value) -> String {
    let uri = extension.get("extension").and_then(Value::as_str);
    uri.map_or_else(|| extension.to_string(), str::to_string)
}

/// Fails for members that a draft does not define.
pub(super) fn refuse_unknown(members: &Map<String, Value>, known: &[&str]) -> Result<()> {
    match members.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => {
            let known = known.join(", ");
            Err(Error::unsupported(
                name,
                format!("a member that is not known; there are {known}"),
            ))
        }
    }
}
