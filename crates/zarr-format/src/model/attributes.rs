//! Stores the user attributes of a node as JSON text.
//!
//! Numbers and words stay as their author wrote them. Data can be read without attributes, so attributes that do not
//! parse are not an error: they are replaced by a single attribute that states the error. The text may be a slice of
//! the metadata document, shared with other owners. It is parsed into values on demand, and the values are not cached.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::error::{Error, Result};
use crate::json_text::{self, MemberChange, ObjectText};

/// Name of the attribute that states why the stored attributes do not parse.
pub const FAULT: &str = "zarrfs_error";

/// Name of the attribute in the header of a decoded file that says how many attributes the header lacks.
pub const LEFT_OUT: &str = "zarrfs_left_out";

/// Maximum length in bytes of attributes that a decoded file (such as a netCDF or NumPy file) has in full in its
/// header. A header is built on each lookup of the file, and takes up to twenty times this length meanwhile.
pub const MAX_IN_FILES: usize = 1 << 20;

/// Names of attributes that give elements their meaning, or that a file format reads, sorted. If all attributes are too
/// long for the header of a decoded file, it has only these: without `scale_factor`, for example, programs would read
/// wrong numbers.
const MEANINGFUL: [&str; 70] = [
    "Conventions",
    "GeoTransform",
    "_ARRAY_DIMENSIONS",
    "_CRS",
    "_FillValue",
    "_Unsigned",
    "_index",
    "add_offset",
    "ancillary_variables",
    "axis",
    "azimuth_of_central_line",
    "bounds",
    "calendar",
    "cell_measures",
    "cell_methods",
    "climatology",
    "column-order",
    "compress",
    "coordinates",
    "crs_wkt",
    "dtype",
    "earth_radius",
    "encoding-type",
    "encoding-version",
    "false_easting",
    "false_northing",
    "fixed_angle_axis",
    "flag_masks",
    "flag_meanings",
    "flag_values",
    "formula_terms",
    "grid_mapping",
    "grid_mapping_name",
    "grid_north_pole_latitude",
    "grid_north_pole_longitude",
    "inverse_flattening",
    "latitude_of_projection_origin",
    "long_name",
    "longitude_of_central_meridian",
    "longitude_of_prime_meridian",
    "longitude_of_projection_origin",
    "missing_value",
    "multiscales",
    "north_pole_grid_longitude",
    "ome",
    "omero",
    "origin",
    "perspective_point_height",
    "positive",
    "proj:code",
    "proj:projjson",
    "proj:wkt2",
    "rectified_grid_angle",
    "scale_factor",
    "scale_factor_at_central_meridian",
    "scale_factor_at_projection_origin",
    "semi_major_axis",
    "semi_minor_axis",
    "spacing",
    "spatial:transform",
    "spatial_ref",
    "standard_name",
    "standard_parallel",
    "straight_vertical_longitude_from_pole",
    "sweep_angle_axis",
    "title",
    "units",
    "valid_max",
    "valid_min",
    "valid_range",
];

/// User attributes of a node, as the text of a JSON object.
#[derive(Clone, Debug)]
pub struct Attributes {
    text: Bytes,
    fault: Option<Arc<str>>,
    /// Shorter attributes for the headers of decoded files, or `None` if all attributes fit in a header.
    in_files: Option<Arc<Attributes>>,
}

impl Attributes {
    /// Parses user attributes and copies them without whitespace; fails with `Corrupt` if the text is not a JSON
    /// object.
    pub fn parse(text: &str) -> Result<Attributes> {
        json_text::check_object(text)?;
        Ok(Attributes::of(json_text::compact(text).into(), None))
    }

    /// Parses user attributes from a slice of a document, without a copy; fails with `Corrupt` if the slice is not a
    /// JSON object.
    pub fn shared(text: Bytes) -> Result<Attributes> {
        let checked = str::from_utf8(&text).map_err(|error| Error::corrupt("", error))?;
        json_text::check_object(checked)?;
        Ok(Attributes::of(text, None))
    }

    fn of(text: Bytes, fault: Option<Arc<str>>) -> Attributes {
        let mut attributes = Attributes {
            text,
            fault,
            in_files: None,
        };
        if attributes.text.len() > MAX_IN_FILES {
            attributes.in_files = Some(Arc::new(attributes.meaningful()));
        }
        attributes
    }

    /// Returns the attributes for the header of a decoded file: all attributes, or `meaningful` if all are too long.
    pub fn in_files(&self) -> &Attributes {
        self.in_files.as_deref().unwrap_or(self)
    }

    /// Whether all attributes fit in the header of a decoded file.
    pub fn is_in_files(&self) -> bool {
        self.in_files.is_none()
    }

    /// Returns a sentence that says how many attributes the header of a decoded file lacks, or `None` if it has all of
    /// them.
    pub fn left_out(&self) -> Option<String> {
        match self.in_files().get(LEFT_OUT) {
            Some(Value::String(text)) if !self.is_in_files() => Some(text),
            _ => None,
        }
    }

    /// Returns the attributes that give elements their meaning, and an attribute that counts the others.
    pub fn meaningful(&self) -> Attributes {
        // A map, since of attributes with equal names only the last one counts.
        let mut found = BTreeMap::new();
        let mut count = 0_u64;
        // The error is ignored, since attributes that do not parse have no members.
        let _ = json_text::visit_members(self.text(), &mut |name, place| {
            count += 1;
            if let Ok(place_of_name) = MEANINGFUL.binary_search(&name) {
                found.insert(place_of_name, place.whole);
            }
        });
        let (mut members, mut length) = (Vec::new(), 0);
        for place in found.into_values() {
            let member = self.text().get(place).unwrap_or_default();
            if length + member.len() <= MAX_IN_FILES / 2 {
                length += member.len();
                members.push(member.to_string());
            }
        }
        let others = count - members.len() as u64;
        if others > 0 {
            let why = format!(
                "{others} of {count} attributes do not fit in the {MAX_IN_FILES} bytes of a header"
            );
            members.push(format!("{}:{}", json!(LEFT_OUT), json!(why)));
        }
        Attributes {
            text: format!("{{{}}}", members.join(",")).into(),
            fault: None,
            in_files: None,
        }
    }

    /// Returns the length in bytes of the text of the attributes, including the shorter text for headers of decoded
    /// files.
    pub fn text_bytes(&self) -> u64 {
        let in_files = self.in_files.as_ref().map_or(0, |brief| brief.text.len());
        (self.text.len() + in_files) as u64
    }

    /// Returns the substitute for stored attributes that do not parse: an attribute that says why.
    pub fn unreadable(why: impl Display) -> Attributes {
        let why = why.to_string();
        Attributes::of(json!({ FAULT: why }).to_string().into(), Some(why.into()))
    }

    /// Returns why the stored attributes do not parse, or `None` if they do.
    pub fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Returns the attributes as the text of a JSON object.
    pub fn text(&self) -> &str {
        str::from_utf8(&self.text).unwrap_or_default()
    }

    /// Returns the text of the attributes as `Bytes`, which can be shared.
    pub fn shared_text(&self) -> &Bytes {
        &self.text
    }

    /// Whether there are no attributes.
    pub fn is_empty(&self) -> bool {
        json_text::is_empty(self.text())
    }

    fn object(&self) -> Option<ObjectText<'_>> {
        ObjectText::parse(self.text()).ok()
    }

    /// Returns the names and values of all attributes, as JSON text, in the stored order.
    pub fn members(&self) -> Vec<(String, &str)> {
        let object = self.object();
        let members = object.iter().flat_map(|object| {
            let members = object.members();
            members.map(|(name, value)| (name.to_string(), value))
        });
        members.collect()
    }

    /// Returns the value of an attribute; NaN and the infinities become strings. Returns `None` if the attribute is
    /// missing, or if its text is longer than `MAX_IN_FILES`: a parsed value takes many times the memory of its text.
    pub fn get(&self, name: &str) -> Option<Value> {
        let text = self.text();
        let place = json_text::find_member(text, name).ok()??;
        let value = text.get(place)?;
        (value.len() <= MAX_IN_FILES).then(|| value_of(value))?
    }

    /// Whether the value of an attribute is NaN, an infinity, or a list of numbers with a NaN or infinity, which
    /// standard JSON cannot express. The strings "NaN", "Infinity" and "-Infinity" count only in a list that also has
    /// numbers. `value` is the parsed attribute.
    pub fn is_beyond_json(&self, name: &str, value: &Value) -> bool {
        let list = match value {
            Value::Array(list) => &list[..],
            one => std::slice::from_ref(one),
        };
        let is_word =
            |value: &Value| matches!(value.as_str(), Some("NaN" | "Infinity" | "-Infinity"));
        let is_number = |value: &Value| value.is_number() || is_word(value);
        let place = || json_text::find_member(self.text(), name).ok().flatten();
        let is_bare = || {
            let text = place().and_then(|place| self.text().get(place));
            text.is_some_and(|text| !text.contains('"'))
        };
        list.iter().any(is_word)
            && list.iter().all(is_number)
            && (list.iter().any(Value::is_number) || is_bare())
    }

    /// Returns the attributes as JSON values; NaN and the infinities become strings.
    pub fn to_map(&self) -> Map<String, Value> {
        match value_of(self.text()) {
            Some(Value::Object(members)) => members,
            _ => Map::new(),
        }
    }

    /// Returns the attributes with one attribute added or replaced.
    pub fn with(&self, name: &str, value: &Value) -> Attributes {
        self.edited(&[(name.to_string(), Some(value.to_string()))])
    }

    /// Returns the attributes with `changes` applied.
    pub fn edited(&self, changes: &[MemberChange]) -> Attributes {
        let edited = self.object().map(|object| object.edited(changes, 1));
        let text = edited.map_or(self.text.clone(), |edited| {
            json_text::compact(&edited).into()
        });
        Attributes::of(text, self.fault.clone())
    }

    /// Fails with `Invalid` if a JSON object in the attributes has duplicate names.
    pub fn check_unique(&self) -> Result<()> {
        ObjectText::parse(self.text())?.check_unique()
    }

    /// Fails with `Invalid` if an author edited the substitute for `stored` attributes that do not parse: the edit
    /// would overwrite attributes that the author has not seen.
    pub fn check_replaces(&self, stored: &Attributes) -> Result<()> {
        match stored.fault() {
            Some(fault) if self.get(FAULT).is_some() && self != stored => {
                let why = format!(
                    "the stored attributes cannot be read ({fault}): write all attributes again, without {FAULT}, \
                     or correct the file in the store view"
                );
                Err(Error::invalid("attributes", why))
            }
            _ => Ok(()),
        }
    }
}

/// Parses JSON text; NaN and the infinities become strings.
fn value_of(text: &str) -> Option<Value> {
    json_text::parse(text.as_bytes()).ok()
}

impl Default for Attributes {
    fn default() -> Attributes {
        Attributes::from(Map::new())
    }
}

impl From<Map<String, Value>> for Attributes {
    fn from(members: Map<String, Value>) -> Attributes {
        Attributes::of(Value::Object(members).to_string().into(), None)
    }
}

/// Attributes are equal if their names and values have the same JSON text, apart from order and whitespace.
impl PartialEq for Attributes {
    fn eq(&self, other: &Attributes) -> bool {
        let sorted = |attributes: &Attributes| {
            let members = attributes.members().into_iter();
            let mut members: Vec<(String, String)> = members
                .map(|(name, value)| (name, json_text::compact(value)))
                .collect();
            members.sort();
            members
        };
        json_text::is_same(self.text(), other.text()) || sorted(self) == sorted(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Attributes {
        Attributes::parse(text).unwrap()
    }

    #[test]
    fn numbers_and_nan_stay_as_they_were_written() {
        let attributes = read(r#" {"a": NaN, "b": 1.0, "c": 123456789012345678901234567890} "#);
        let text = r#"{"a":NaN,"b":1.0,"c":123456789012345678901234567890}"#;
        assert_eq!(attributes.text(), text);
        assert_eq!(attributes.get("a"), Some(json!("NaN")));
        let more = attributes.with("d", &json!([1]));
        assert_eq!(more.text(), text.replace('}', r#","d":[1]}"#));
    }

    #[test]
    fn values_beyond_json_do_not_hide_other_attributes() {
        let attributes = read(r#"{"note": "caf\udce9", "big": -1e999, "ok": 5}"#);
        let values = json!({"note": "caf\u{fffd}", "big": "-Infinity", "ok": 5});
        assert_eq!(Value::Object(attributes.to_map()), values);
    }

    #[test]
    fn attributes_with_numbers_beyond_json_are_recognized() {
        let attributes = read(
            r#"{"a": NaN, "b": "NaN", "c": [0.0, "Infinity"], "d": ["NaN"], "e": [NaN], "f": [1], "g": [NaN, "x"], "h": -1e999}"#,
        );
        let values = attributes.to_map();
        let beyond = values
            .iter()
            .filter(|(name, value)| attributes.is_beyond_json(name, value));
        let names: Vec<&String> = beyond.map(|(name, _)| name).collect();
        assert_eq!(names, ["a", "c", "e", "h"]);
    }

    #[test]
    fn attributes_are_compared_regardless_of_order() {
        assert_eq!(read(r#"{"a": 1, "b": 2}"#), read(r#"{"b":2,"a":1}"#));
        assert_ne!(read(r#"{"a": 1}"#), read(r#"{"a":1.0}"#));
        assert_ne!(read(r#"{"a": 1, "a": 1}"#), read(r#"{"a":1}"#));
        assert!(read("{ }").is_empty() && Attributes::default().is_empty());
    }

    #[test]
    fn unreadable_attributes_can_only_be_replaced_as_a_whole() {
        let broken = Attributes::unreadable("a/.zattrs: not JSON");
        assert!(!broken.is_empty());
        assert!(read(r#"{"b": 1}"#).check_replaces(&broken).is_ok());
        assert!(read(broken.text()).check_replaces(&broken).is_ok());
        let more = broken.with("b", &json!(1));
        let error = more.check_replaces(&broken).unwrap_err().to_string();
        assert!(error.contains("a/.zattrs: not JSON"), "{error}");
        assert!(more.check_replaces(&read("{}")).is_ok());
    }

    /// Invariant (metadata): If the attributes of a node are long, the headers of files contain only the ones that
    /// describe elements. So headers stay small.
    #[test]
    fn long_attributes_are_reduced_to_meaningful_ones_in_files() {
        assert!(MEANINGFUL.is_sorted());
        let others: Vec<String> = (0..100_000).map(|n| format!(r#""a{n:05}":{n}"#)).collect();
        let text = format!(
            r#"{{"units": "x", {}, "units": "m", "scale_factor": 1.50}}"#,
            others.join(",")
        );
        let long = read(&text);
        assert!(!long.is_in_files() && long.get("a00001").is_some());
        let in_files = long.in_files();
        assert!(
            in_files
                .text()
                .starts_with(r#"{"scale_factor":1.50,"units":"m","#),
            "{}",
            in_files.text()
        );
        let sentence = long.left_out().unwrap();
        assert!(
            sentence.starts_with("100001 of 100003 attributes"),
            "{sentence}"
        );
        assert_eq!(in_files.get(LEFT_OUT), Some(json!(sentence)));
        assert!(long.text_bytes() > text.len() as u64);
        let short = read(r#"{"units": "m", "zarrfs_left_out": "x"}"#);
        assert!(short.is_in_files() && short.left_out().is_none() && short.in_files() == &short);
        let one = read(&format!(r#"{{"units": "{}"}}"#, "m".repeat(MAX_IN_FILES)));
        assert_eq!(one.get("units"), None);
        assert_eq!(one.in_files().get("units"), None);
    }
}
