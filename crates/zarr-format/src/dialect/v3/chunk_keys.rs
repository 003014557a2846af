//! Chunk key encodings of final v3: `default` and `v2` (core specification, "Chunk key encoding").

use serde_json::{Value, json};

use crate::dialect::members::{named, separator};
use crate::error::Result;
use crate::key::Key;
use crate::model::KeyScheme;

/// Returns the reason why no chunk can be found, or `None` if the encoding is known.
pub(super) fn undecodable(encoding: Option<&Value>) -> Option<String> {
    let (name, _) = named(encoding?, "chunk_key_encoding").ok()?;
    let known = ["default", "v2"].contains(&name);
    (!known).then(|| format!("chunk_key_encoding: {name} is not known; expected default or v2"))
}

/// Reads `chunk_key_encoding`: `default` puts `c` before the indices, `v2` puts nothing. Chunks with an unknown
/// encoding are never looked up (`undecodable`).
pub(super) fn parse(path: &Key, encoding: Option<&Value>) -> Result<KeyScheme> {
    let default = json!("default");
    let encoding = encoding.unwrap_or(&default);
    let (name, configuration) = named(encoding, "chunk_key_encoding")?;
    let (prefix, usual, scalar) = match name {
        "default" => ("c", '/', Some("c")),
        "v2" => ("", '.', Some("0")),
        _ => ("", '/', None),
    };
    let separator = match scalar {
        Some(_) => {
            let stated = configuration.and_then(|members| members.get("separator"));
            separator(stated, "separator")?.unwrap_or(usual)
        }
        None => usual,
    };
    let prefix = match prefix {
        "" => String::new(),
        prefix => format!("{prefix}{separator}"),
    };
    let within = |name: &str| {
        if path.is_root() {
            name.into()
        } else {
            [path.as_bytes(), b"/", name.as_bytes()].concat()
        }
    };
    Ok(KeyScheme {
        prefix: within(&prefix),
        separator,
        other_separator: None,
        scalar_keys: scalar.into_iter().map(within).collect(),
        v3: match scalar {
            Some(_) => {
                json!({ "name": name, "configuration": { "separator": separator.to_string() } })
            }
            None => encoding.clone(),
        },
    })
}
