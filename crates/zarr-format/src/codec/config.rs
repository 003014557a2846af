//! Reads and checks the parameters in the configuration of a codec.
//!
//! Every fault is `Corrupt` and names the codec, the parameter and the expected value, so that the metadata can be
//! corrected. Parameters that a codec does not read are ignored.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::model::CodecSpec;

/// The configuration object of a codec in the metadata.
#[derive(Clone, Copy, Debug)]
pub(super) struct Configuration<'a> {
    codec: &'a str,
    members: &'a Map<String, Value>,
}

impl<'a> Configuration<'a> {
    pub(super) fn of(spec: &'a CodecSpec) -> Configuration<'a> {
        Configuration {
            codec: &spec.name,
            members: &spec.configuration,
        }
    }

    /// Returns the value of a parameter. `null` counts as missing, since some writers store `null` for the default.
    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        self.members.get(name).filter(|value| !value.is_null())
    }

    /// Checks that there are no parameters except `known`, for codecs whose specification reserves all other names.
    pub(super) fn only(&self, known: &[&str]) -> Result<()> {
        match self
            .members
            .keys()
            .find(|name| !known.contains(&name.as_str()))
        {
            Some(name) => {
                Err(self.unexpected(name, format!("only the members {}", known.join(", "))))
            }
            None => Ok(()),
        }
    }

    /// Returns an integer parameter; fails if it is outside `range`.
    pub(super) fn integer(&self, name: &str, range: RangeInclusive<i64>) -> Result<Option<i64>> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let number = value.as_i64().filter(|number| range.contains(number));
        let expected = || format!("an integer from {} to {}", range.start(), range.end());
        number
            .map(Some)
            .ok_or_else(|| self.unexpected(name, expected()))
    }

    pub(super) fn unsigned(&self, name: &str, range: RangeInclusive<u32>) -> Result<Option<u32>> {
        let wide = i64::from(*range.start())..=i64::from(*range.end());
        let number = self.integer(name, wide)?;
        Ok(number.and_then(|number| u32::try_from(number).ok()))
    }

    /// Returns a compression level, clamped to `range`: writers allow different levels, and decoding does not depend on
    /// the level.
    pub(super) fn level(&self, name: &str, range: RangeInclusive<i32>) -> Result<Option<i32>> {
        let level = self.integer(name, i64::MIN..=i64::MAX)?;
        Ok(level.map(|level| {
            let out_of_range = if level < 0 {
                range.start()
            } else {
                range.end()
            };
            let level = i32::try_from(level).unwrap_or(*out_of_range);
            level.clamp(*range.start(), *range.end())
        }))
    }

    pub(super) fn boolean(&self, name: &str) -> Result<Option<bool>> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        value
            .as_bool()
            .map(Some)
            .ok_or_else(|| self.unexpected(name, "true or false"))
    }

    /// Returns a string parameter; fails if its value is not in `allowed`.
    pub(super) fn keyword(
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
            .ok_or_else(|| self.unexpected(name, expected()))
    }

    /// Returns a required parameter that is a list of integers. Writers in R store a list of a single integer as a
    /// number.
    pub(super) fn integers(&self, name: &str) -> Result<Vec<u64>> {
        let list = self.get(name).map(|value| match value {
            Value::Array(list) => list.as_slice(),
            number => std::slice::from_ref(number),
        });
        let numbers: Option<Vec<u64>> =
            list.and_then(|list| list.iter().map(Value::as_u64).collect());
        numbers.ok_or_else(|| self.unexpected(name, "a list of integers"))
    }

    /// Returns a required parameter that is a list of codecs (core specification, "codecs"). A codec may be written as
    /// its name alone, without configuration.
    pub(super) fn codecs(&self, name: &str) -> Result<Vec<CodecSpec>> {
        let list = self.get(name).and_then(Value::as_array);
        let codecs: Option<Vec<CodecSpec>> =
            list.and_then(|list| list.iter().map(codec_spec).collect());
        codecs.ok_or_else(|| self.unexpected(name, "a list of codecs"))
    }

    pub(super) fn unexpected(&self, name: &str, expected: impl std::fmt::Display) -> Error {
        let found = self
            .members
            .get(name)
            .map_or("nothing".to_string(), shortened);
        let member = format!("codec {}: configuration.{name}", self.codec);
        Error::corrupt(member, format!("expected {expected}, found {found}"))
    }
}

/// Reads a codec of the metadata, written as an object or as its name alone.
fn codec_spec(value: &Value) -> Option<CodecSpec> {
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

/// Returns a value as JSON, truncated to 60 characters to keep error messages short.
fn shortened(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
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
    fn errors_name_the_codec_the_member_and_the_expected_value() {
        let spec = spec(json!({ "level": "high" }));
        let error = Configuration::of(&spec)
            .integer("level", 0..=9)
            .unwrap_err();
        let text =
            "codec gzip: configuration.level: expected an integer from 0 to 9, found \"high\"";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn null_counts_as_absent_and_values_are_checked() {
        let spec = spec(json!({ "a": null, "b": 10, "c": true, "d": "x" }));
        let config = Configuration::of(&spec);
        assert_eq!(config.integer("a", 0..=9).unwrap(), None);
        assert!(config.integer("b", 0..=9).is_err());
        assert_eq!(config.boolean("c").unwrap(), Some(true));
        assert_eq!(config.keyword("d", &["x", "y"]).unwrap(), Some("x"));
        assert!(config.keyword("c", &["x"]).is_err());
    }

    #[test]
    fn codecs_are_objects_or_names() {
        let spec = spec(
            json!({ "codecs": ["bytes", { "name": "gzip", "configuration": { "level": 1 } }] }),
        );
        let codecs = Configuration::of(&spec).codecs("codecs").unwrap();
        assert_eq!(codecs.len(), 2);
        assert!(codecs[0].configuration.is_empty());
        assert_eq!(codecs[1].configuration["level"], 1);
    }

    #[test]
    fn invalid_or_missing_lists_are_refused() {
        let spec = spec(json!({ "codecs": [1], "shape": [1, -2] }));
        assert!(Configuration::of(&spec).codecs("codecs").is_err());
        assert!(Configuration::of(&spec).integers("shape").is_err());
        assert!(Configuration::of(&spec).integers("absent").is_err());
    }

    #[test]
    fn long_values_are_shortened_in_messages() {
        let spec = spec(json!({ "level": "x".repeat(1000) }));
        let error = Configuration::of(&spec)
            .integer("level", 0..=9)
            .unwrap_err();
        assert!(error.to_string().len() < 200);
    }
}
