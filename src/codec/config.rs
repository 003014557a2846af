//! A codec's configuration, read member by member.
//!
//! Every fault is `Corrupt` and names the codec, the member and what was expected of it, so a person can
//! mend the document. Members that no codec asks for are left alone. What a value means is the codec's
//! business.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::model::CodecSpec;

/// The configuration of one codec.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Members<'a> {
    codec: &'a str,
    members: &'a Map<String, Value>,
}

impl<'a> Members<'a> {
    /// Takes the configuration out of `spec`.
    pub(crate) fn of(spec: &'a CodecSpec) -> Members<'a> {
        Members {
            codec: &spec.name,
            members: &spec.configuration,
        }
    }

    /// Returns a member; `null` is as good as none, since writers put it for "default".
    pub(crate) fn get(&self, name: &str) -> Option<&'a Value> {
        self.members.get(name).filter(|value| !value.is_null())
    }

    /// Checks that there are no members but these, where a specification reserves all others.
    pub(crate) fn only(&self, known: &[&str]) -> Result<()> {
        match self
            .members
            .keys()
            .find(|name| !known.contains(&name.as_str()))
        {
            Some(name) => Err(self.wrong(name, format!("no member but {}", known.join(", ")))),
            None => Ok(()),
        }
    }

    /// Returns an integer within `range`.
    pub(crate) fn integer(&self, name: &str, range: RangeInclusive<i64>) -> Result<Option<i64>> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let number = value.as_i64().filter(|number| range.contains(number));
        let expected = || format!("an integer from {} to {}", range.start(), range.end());
        number.map(Some).ok_or_else(|| self.wrong(name, expected()))
    }

    /// Returns the nearest level in `range`: writers differ in what they allow, and no level matters to
    /// whoever decodes.
    pub(crate) fn level(&self, name: &str, range: RangeInclusive<i64>) -> Result<Option<i64>> {
        let level = self.integer(name, i64::MIN..=i64::MAX)?;
        Ok(level.map(|level| level.clamp(*range.start(), *range.end())))
    }

    /// Returns true or false.
    pub(crate) fn boolean(&self, name: &str) -> Result<Option<bool>> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        value
            .as_bool()
            .map(Some)
            .ok_or_else(|| self.wrong(name, "true or false"))
    }

    /// Returns one of the words of `allowed`.
    pub(crate) fn word(
        &self,
        name: &str,
        allowed: &[&'static str],
    ) -> Result<Option<&'static str>> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let found = allowed.iter().find(|&&word| value.as_str() == Some(word));
        let expected = || format!("one of {}", allowed.join(", "));
        found
            .copied()
            .map(Some)
            .ok_or_else(|| self.wrong(name, expected()))
    }

    /// Returns a list of integers that must be there.
    pub(crate) fn integers(&self, name: &str) -> Result<Vec<u64>> {
        let list = self.get(name).and_then(Value::as_array);
        let numbers: Option<Vec<u64>> =
            list.and_then(|list| list.iter().map(Value::as_u64).collect());
        numbers.ok_or_else(|| self.wrong(name, "a list of integers"))
    }

    /// Returns a list of codecs that must be there (core specification, "codecs"); a bare name stands for
    /// a codec without configuration.
    pub(crate) fn codecs(&self, name: &str) -> Result<Vec<CodecSpec>> {
        let list = self.get(name).and_then(Value::as_array);
        let codecs: Option<Vec<CodecSpec>> = list.and_then(|list| list.iter().map(codec).collect());
        codecs.ok_or_else(|| self.wrong(name, "a list of codecs"))
    }

    /// Builds the error for a member that is not what it should be.
    pub(crate) fn wrong(&self, name: &str, expected: impl std::fmt::Display) -> Error {
        let found = self.members.get(name).map_or("nothing".to_string(), brief);
        let member = format!("codec {}: configuration.{name}", self.codec);
        Error::corrupt(member, format!("expected {expected}, found {found}"))
    }
}

/// Reads one codec, as an object or as a bare name.
fn codec(value: &Value) -> Option<CodecSpec> {
    if let Value::String(name) = value {
        return Some(CodecSpec {
            name: name.clone(),
            configuration: Map::new(),
        });
    }
    let name = value.get("name")?.as_str()?;
    let configuration = match value.get("configuration") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(members)) => members.clone(),
        Some(_) => return None,
    };
    Some(CodecSpec {
        name: name.to_string(),
        configuration,
    })
}

/// Returns a value as JSON, cut where it would fill the screen.
fn brief(value: &Value) -> String {
    const MOST: usize = 60;
    let text = value.to_string();
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec(configuration: Value) -> CodecSpec {
        CodecSpec::new("gzip", configuration)
    }

    #[test]
    fn errors_name_codec_member_and_expectation() {
        let spec = spec(json!({ "level": "high" }));
        let error = Members::of(&spec).integer("level", 0..=9).unwrap_err();
        let text =
            "codec gzip: configuration.level: expected an integer from 0 to 9, found \"high\"";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn null_is_absent_and_ranges_hold() {
        let spec = spec(json!({ "a": null, "b": 10, "c": true, "d": "x" }));
        let members = Members::of(&spec);
        assert_eq!(members.integer("a", 0..=9).unwrap(), None);
        assert!(members.integer("b", 0..=9).is_err());
        assert_eq!(members.boolean("c").unwrap(), Some(true));
        assert_eq!(members.word("d", &["x", "y"]).unwrap(), Some("x"));
        assert!(members.word("c", &["x"]).is_err());
    }

    #[test]
    fn codecs_are_objects_or_names() {
        let spec = spec(
            json!({ "codecs": ["bytes", { "name": "gzip", "configuration": { "level": 1 } }] }),
        );
        let codecs = Members::of(&spec).codecs("codecs").unwrap();
        assert_eq!(codecs.len(), 2);
        assert!(codecs[0].configuration.is_empty());
        assert_eq!(codecs[1].configuration["level"], 1);
    }

    #[test]
    fn lists_with_anything_else_are_refused() {
        let spec = spec(json!({ "codecs": [1], "shape": [1, -2] }));
        assert!(Members::of(&spec).codecs("codecs").is_err());
        assert!(Members::of(&spec).integers("shape").is_err());
        assert!(Members::of(&spec).integers("absent").is_err());
    }

    #[test]
    fn long_values_are_cut_in_messages() {
        let spec = spec(json!({ "level": "x".repeat(1000) }));
        let error = Members::of(&spec).integer("level", 0..=9).unwrap_err();
        assert!(error.to_string().len() < 200);
    }
}
