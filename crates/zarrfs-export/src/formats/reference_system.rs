//! Finds a map's reference system in attributes: an EPSG code, WKT, or a projection.

use serde_json::Value;

use crate::formats::{epsg_codes, grid_mapping, projjson};
use zarr_format::model::Attributes;

/// A reference system.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ReferenceSystem {
    /// The form that GDAL reads: `EPSG:4326`, the code of another authority, a URL, or WKT.
    pub(super) text: String,
    /// The same as WKT 1, if available.
    pub(super) wkt1: Option<String>,
}

impl ReferenceSystem {
    /// Returns the reference system in the attributes of a node.
    pub(super) fn told(attributes: &Attributes) -> Option<ReferenceSystem> {
        let made = grid_mapping::system_of(attributes);
        let told = told_texts(attributes);
        // A code means the same system to all programs.
        let numbered = told.iter().find(|text| epsg(text).is_some());
        let text = numbered
            .or_else(|| told.iter().find(|text| is_text(text)))
            .or(told.first())
            .or(made.as_ref())?
            .clone();
        let mut texts = told.iter().chain(&made);
        let wkt1 = texts.find(|text| is_wkt1(text)).cloned();
        Some(ReferenceSystem { text, wkt1 })
    }

    /// Returns the reference system that the root of an EOPF product gives for all of its projected maps.
    pub(super) fn of_product(root: &Attributes) -> Option<ReferenceSystem> {
        let others = root.get("other_metadata")?;
        let names = ["horizontal_CRS_code", "horizontal_crs_code"];
        let told = names.iter().find_map(|name| others.get(name))?;
        Some(ReferenceSystem {
            text: spelled(told)?,
            wkt1: None,
        })
    }

    /// Returns the default system of longitudes and latitudes, WGS 84.
    pub(super) fn of_degrees() -> ReferenceSystem {
        ReferenceSystem {
            text: "EPSG:4326".to_string(),
            wkt1: None,
        }
    }

    /// Returns its EPSG code.
    pub(super) fn code(&self) -> Option<u16> {
        epsg(&self.text)
    }

    /// Whether it is given as WKT.
    pub(super) fn is_text(&self) -> bool {
        is_text(&self.text)
    }

    /// Whether it is geographic (longitude and latitude).
    pub(super) fn is_geographic(&self) -> bool {
        if self.is_text() {
            let upper = self.text.to_ascii_uppercase();
            return !["PROJCS[", "PROJCRS[", "PROJECTEDCRS["]
                .iter()
                .any(|keyword| upper.contains(keyword));
        }
        self.code().is_some_and(epsg_codes::is_geographic)
    }

    /// Whether it is known to be projected.
    pub(super) fn is_plane(&self) -> bool {
        match self.code() {
            Some(code) if !self.is_text() => epsg_codes::is_plane(code),
            _ => self.is_text() && !self.is_geographic(),
        }
    }

    /// Returns its name for a message: the code, or the first name in its WKT.
    pub(super) fn shown(&self) -> String {
        let first = self.text.split('"').nth(1);
        let named = first.filter(|_| self.is_text());
        let named = named.unwrap_or(&self.text);
        named.chars().take(100).collect()
    }

    /// Whether its unit is the kilometre.
    pub(super) fn is_in_kilometres(&self) -> bool {
        let lower = self.text.to_ascii_lowercase();
        self.is_text() && (lower.contains("\"kilomet") || lower.contains("\"km\""))
    }
}

fn is_text(system: &str) -> bool {
    system.contains('[')
}

fn is_wkt1(system: &str) -> bool {
    let upper = system.trim_start().to_ascii_uppercase();
    ["PROJCS[", "GEOGCS[", "COMPD_CS["]
        .iter()
        .any(|keyword| upper.starts_with(keyword))
}

/// Returns all explicit reference systems in attributes: GDAL's `_CRS`, `proj:` of GeoZarr and STAC, `crs_wkt` of CF,
/// `spatial_ref`, and `crs`.
fn told_texts(attributes: &Attributes) -> Vec<String> {
    let mut told = Vec::new();
    if let Some(of_gdal) = attributes.get("_CRS") {
        let member = |name: &str| of_gdal.get(name).cloned();
        told.extend(member("wkt").and_then(|text| spelled(&text)));
        told.extend(member("url").and_then(|text| spelled(&text)));
        told.extend(member("projjson").and_then(|system| of_json(&system)));
    }
    let nested = attributes.get("geo");
    let nested = nested.as_ref().and_then(|geo| geo.get("proj"));
    let member = |name: &str| {
        let own = attributes.get(&format!("proj:{name}"));
        own.or_else(|| nested.and_then(|proj| proj.get(name)).cloned())
    };
    told.extend(member("code").and_then(|code| numbered(&code).or_else(|| spelled(&code))));
    told.extend(member("epsg").and_then(|number| numbered(&number)));
    told.extend(member("wkt2").and_then(|text| spelled(&text)));
    told.extend(member("projjson").and_then(|system| of_json(&system)));
    for name in ["crs_wkt", "spatial_ref"] {
        told.extend(attributes.get(name).and_then(|text| spelled(&text)));
    }
    // Other programs use this attribute for other values.
    let crs = attributes.get("crs").and_then(|text| spelled(&text));
    told.extend(crs.filter(|text| is_text(text) || epsg(text).is_some()));
    told
}

/// Returns a system as GDAL reads it: its EPSG code if it has one, or else the unchanged text.
fn spelled(value: &Value) -> Option<String> {
    let text = value.as_str()?.trim();
    match epsg(text) {
        _ if text.is_empty() => None,
        _ if is_crs84(text) => Some("OGC:CRS84".to_string()),
        Some(code) if !is_text(text) && !text.contains('+') => Some(format!("EPSG:{code}")),
        _ => Some(text.to_string()),
    }
}

/// Returns the system of an EPSG code, which some programs write as text.
fn numbered(value: &Value) -> Option<String> {
    let code: u16 = match value {
        Value::String(text) => text.trim().parse().ok()?,
        // Some writers have only floats; Rust formats a whole float without a point.
        number => number.as_f64()?.to_string().parse().ok()?,
    };
    if code == 0 {
        return None;
    }
    Some(format!("EPSG:{code}"))
}

/// Returns the system of a PROJJSON object: its EPSG code if it has one, or else WKT.
fn of_json(system: &Value) -> Option<String> {
    let code = projjson::code_of(system);
    let of_epsg = code.filter(|code| epsg(code).is_some());
    of_epsg.or_else(|| projjson::wkt_of(system))
}

/// Whether a name means WGS 84 with longitude before latitude.
fn is_crs84(system: &str) -> bool {
    !is_text(system) && system.to_ascii_uppercase().ends_with("CRS84")
}

/// Returns the EPSG code of a system: of `EPSG:32633` and similar names, or of the last identifier in WKT.
fn epsg(system: &str) -> Option<u16> {
    if is_crs84(system) {
        // In a map, longitude always comes before latitude.
        return Some(4326);
    }
    let upper = system.to_ascii_uppercase();
    let (_, after) = upper.rsplit_once("EPSG")?;
    let is_text = is_text(system);
    // The part after a plus is the vertical system.
    let after = if is_text {
        after
    } else {
        after.split('+').next()?
    };
    let digits = |letter: char| letter.is_ascii_digit();
    let end = after.trim_end_matches([']', ' ', '\n', '"']);
    let start = end
        .rfind(|letter| !digits(letter))
        .map_or(0, |place| place + 1);
    let between = end.get(..start)?;
    let allowed: &[char] = if is_text {
        &['"', ',', ' ']
    } else {
        &[':', '/', '0']
    };
    let is_plain = between
        .chars()
        .all(|letter| allowed.contains(&letter) || letter == '.' || digits(letter));
    // The identifier belongs to the whole system only if it is closed together with it.
    let closed = after.chars().filter(|&letter| letter == ']').count();
    let is_whole = !is_text || closed == 2;
    (is_plain && is_whole)
        .then(|| end.get(start..)?.parse().ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    fn told(attributes: Value) -> Option<ReferenceSystem> {
        let members: Map<String, Value> = serde_json::from_value(attributes).unwrap();
        ReferenceSystem::told(&members.into())
    }

    #[test]
    fn numbers_of_epsg_have_many_spellings() {
        let id = json!({"id": {"authority": "EPSG", "code": 3035}});
        for attributes in [
            json!({"proj:code": "EPSG:3035"}),
            json!({"proj:epsg": 3035}),
            json!({"proj:epsg": "3035"}),
            json!({"proj:epsg": 3035.0}),
            json!({"proj:code": 3035}),
            json!({"proj:code": 3035.0}),
            json!({"proj:projjson": id}),
            json!({"geo": {"proj": {"code": "EPSG:3035"}}}),
            json!({"_CRS": {"url": "http://www.opengis.net/def/crs/EPSG/0/3035"}}),
            json!({"spatial_ref": "urn:ogc:def:crs:EPSG::3035"}),
            json!({"crs": "+init=epsg:3035"}),
            json!({"proj:wkt2": "GEOGCRS[\"other\"]", "proj:code": "epsg:3035"}),
        ] {
            let found = told(attributes.clone()).unwrap();
            assert_eq!(found.code(), Some(3035), "{attributes}");
            assert!(!found.is_geographic());
        }
        for attributes in [
            json!({"proj:code": "OGC:CRS84"}),
            json!({"proj:code": "EPSG:4326+5773"}),
            json!({"crs": "urn:ogc:def:crs:OGC:1.3:CRS84"}),
        ] {
            let found = told(attributes.clone()).unwrap();
            assert_eq!(found.code(), Some(4326), "{attributes}");
            assert!(found.is_geographic());
        }
        for attributes in [
            json!({"proj:epsg": null, "proj:code": null}),
            json!({"proj:epsg": 0, "crs": "a name"}),
            json!({"proj:epsg": 0.5}),
            json!({"proj:epsg": 1e300, "proj:code": -1}),
            json!({"proj:projjson": {}, "spatial_ref": ""}),
        ] {
            assert_eq!(told(attributes.clone()), None, "{attributes}");
        }
    }

    #[test]
    fn a_text_of_the_first_version_is_there_beside_another() {
        let found =
            told(json!({"crs_wkt": "PROJCRS[\"a\"]", "grid_mapping_name": "latitude_longitude"}));
        let found = found.unwrap();
        assert_eq!(found.text, "PROJCRS[\"a\"]");
        assert!(found.wkt1.unwrap().starts_with("GEOGCS["));
    }
}
