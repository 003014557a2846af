//! Finds a map's reference system in attributes: an EPSG code, WKT, or a projection.

use serde_json::Value;

use crate::formats::maps::{grid_mapping, projjson};
use zarr_format::model::Attributes;

/// A reference system of map coordinates.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReferenceSystem {
    /// The reference system in a form that GDAL reads: `EPSG:4326`, the code of another authority, a URL, or WKT.
    pub(crate) text: String,
    /// The reference system as WKT 1, if the attributes have it in this form.
    pub(crate) wkt1: Option<String>,
}

impl ReferenceSystem {
    /// Returns the reference system that a node's attributes state, or `None` if they state none.
    pub(crate) fn of(attributes: &Attributes) -> Option<ReferenceSystem> {
        let made = grid_mapping::system_of(attributes);
        let texts = declared_texts(attributes);
        // An EPSG code is preferred, because all programs understand it in the same way.
        let numbered = texts.iter().find(|text| epsg(text).is_some());
        let text = numbered
            .or_else(|| texts.iter().find(|text| is_text(text)))
            .or(texts.first())
            .or(made.as_ref())?
            .clone();
        let mut all = texts.iter().chain(&made);
        let wkt1 = all.find(|text| is_wkt1(text)).cloned();
        Some(ReferenceSystem { text, wkt1 })
    }

    /// Returns the reference system that the root of an EOPF product states for all of its projected maps.
    pub(crate) fn of_product(root: &Attributes) -> Option<ReferenceSystem> {
        let others = root.get("other_metadata")?;
        let names = ["horizontal_CRS_code", "horizontal_crs_code"];
        let code = names.iter().find_map(|name| others.get(name))?;
        Some(ReferenceSystem {
            text: normalized(code)?,
            wkt1: None,
        })
    }

    /// Returns WGS 84, the reference system that is assumed for longitudes and latitudes.
    pub(crate) fn of_degrees() -> ReferenceSystem {
        ReferenceSystem {
            text: "EPSG:4326".to_string(),
            wkt1: None,
        }
    }

    /// Returns the EPSG code of the reference system, or `None` if it has none.
    pub(crate) fn code(&self) -> Option<u16> {
        epsg(&self.text)
    }

    /// Whether the reference system is stored as WKT.
    pub(crate) fn is_text(&self) -> bool {
        is_text(&self.text)
    }

    /// Whether the reference system has longitudes and latitudes as coordinates.
    pub(crate) fn is_geographic(&self) -> bool {
        if self.is_text() {
            let upper = self.text.to_ascii_uppercase();
            return !["PROJCS[", "PROJCRS[", "PROJECTEDCRS["]
                .iter()
                .any(|keyword| upper.contains(keyword));
        }
        self.code().is_some_and(is_geographic)
    }

    /// Whether the reference system is known to be a projected one.
    pub(crate) fn is_plane(&self) -> bool {
        match self.code() {
            Some(code) if !self.is_text() => is_plane(code),
            _ => self.is_text() && !self.is_geographic(),
        }
    }

    /// Returns a name of the reference system for messages: the code, or the first name in the WKT.
    pub(crate) fn label(&self) -> String {
        let first = self.text.split('"').nth(1);
        let named = first.filter(|_| self.is_text());
        let named = named.unwrap_or(&self.text);
        named.chars().take(100).collect()
    }

    /// Whether the unit of the reference system is the kilometre.
    pub(crate) fn is_in_kilometres(&self) -> bool {
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

/// Returns all reference systems that attributes state: in GDAL's `_CRS`, `proj:` of GeoZarr and STAC, `crs_wkt` of CF,
/// `spatial_ref`, and `crs`.
fn declared_texts(attributes: &Attributes) -> Vec<String> {
    let mut texts = Vec::new();
    if let Some(of_gdal) = attributes.get("_CRS") {
        let member = |name: &str| of_gdal.get(name).cloned();
        texts.extend(member("wkt").and_then(|text| normalized(&text)));
        texts.extend(member("url").and_then(|text| normalized(&text)));
        texts.extend(member("projjson").and_then(|system| of_json(&system)));
    }
    let nested = attributes.get("geo");
    let nested = nested.as_ref().and_then(|geo| geo.get("proj"));
    let member = |name: &str| {
        let own = attributes.get(&format!("proj:{name}"));
        own.or_else(|| nested.and_then(|proj| proj.get(name)).cloned())
    };
    texts.extend(member("code").and_then(|code| of_number(&code).or_else(|| normalized(&code))));
    texts.extend(member("epsg").and_then(|number| of_number(&number)));
    texts.extend(member("wkt2").and_then(|text| normalized(&text)));
    texts.extend(member("projjson").and_then(|system| of_json(&system)));
    for name in ["crs_wkt", "spatial_ref"] {
        texts.extend(attributes.get(name).and_then(|text| normalized(&text)));
    }
    // The value of `crs` is checked, because some programs use the name for values that are no reference system.
    let crs = attributes.get("crs").and_then(|text| normalized(&text));
    texts.extend(crs.filter(|text| is_text(text) || epsg(text).is_some()));
    texts
}

/// Returns a reference system in a form that GDAL reads: its EPSG code if it has one, or else its unchanged text.
fn normalized(value: &Value) -> Option<String> {
    let text = value.as_str()?.trim();
    match epsg(text) {
        _ if text.is_empty() => None,
        _ if is_crs84(text) => Some("OGC:CRS84".to_string()),
        Some(code) if !is_text(text) && !text.contains('+') => Some(format!("EPSG:{code}")),
        _ => Some(text.to_string()),
    }
}

/// Returns the reference system with an EPSG code, which some programs write as text.
fn of_number(value: &Value) -> Option<String> {
    let code: u16 = match value {
        Value::String(text) => text.trim().parse().ok()?,
        // Some JSON writers write all numbers as floats. Rust formats a float without a fraction as an integer.
        number => number.as_f64()?.to_string().parse().ok()?,
    };
    if code == 0 {
        return None;
    }
    Some(format!("EPSG:{code}"))
}

/// Returns the reference system of a PROJJSON object: its EPSG code if it has one, or else WKT.
fn of_json(system: &Value) -> Option<String> {
    let code = projjson::code_of(system);
    let of_epsg = code.filter(|code| epsg(code).is_some());
    of_epsg.or_else(|| projjson::wkt_of(system))
}

/// Whether the name of a reference system means WGS 84 with longitude before latitude.
fn is_crs84(system: &str) -> bool {
    !is_text(system) && system.to_ascii_uppercase().ends_with("CRS84")
}

/// Returns the EPSG code of a reference system. It is found in `EPSG:32633` and similar names, and in the last
/// identifier in WKT.
fn epsg(system: &str) -> Option<u16> {
    if is_crs84(system) {
        // CRS84 and EPSG:4326 differ only in the order of coordinates, and files put longitude first in every system.
        return Some(4326);
    }
    let upper = system.to_ascii_uppercase();
    let (_, after) = upper.rsplit_once("EPSG")?;
    let is_text = is_text(system);
    // A plus in the name of a compound system begins its vertical system, which maps ignore.
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
    // In WKT, the last identifier belongs to the whole system only if two brackets close after it: its own and the
    // system's.
    let closed = after.chars().filter(|&letter| letter == ']').count();
    let is_whole = !is_text || closed == 2;
    (is_plain && is_whole)
        .then(|| end.get(start..)?.parse().ok())
        .flatten()
}

/// Ranges of EPSG codes (first and last code) of two-dimensional geographic systems in EPSG 11.022. No projected system
/// has a code within these ranges.
const GEOGRAPHIC: &[u16] = &[
    3819, 3824, 3889, 3889, 3906, 3906, 4001, 4025, 4027, 4036, 4041, 4047, 4052, 4055, 4075, 4081,
    4120, 4216, 4218, 4326, 4463, 4463, 4470, 4470, 4475, 4483, 4490, 4490, 4555, 4558, 4600, 4646,
    4657, 4765, 4801, 4811, 4813, 4821, 4823, 4824, 4901, 5013, 5132, 5132, 5228, 5233, 5246, 5246,
    5252, 5252, 5264, 5264, 5324, 5324, 5340, 5340, 5354, 5354, 5360, 5360, 5365, 5365, 5371, 5381,
    5393, 5393, 5451, 5451, 5464, 5464, 5467, 5467, 5489, 5489, 5524, 5527, 5546, 5546, 5561, 5561,
    5593, 5593, 5681, 5681, 5886, 5886, 6135, 6135, 6207, 6207, 6311, 6311, 6318, 6325, 6365, 6365,
    6668, 6668, 6706, 6706, 6783, 6783, 6881, 6883, 6892, 6894, 6980, 6983, 6987, 6990, 7035, 7041,
    7073, 7073, 7084, 7088, 7133, 7139, 7373, 7373, 7683, 7686, 7798, 7798, 7844, 7844, 7881, 7881,
    7886, 7886, 8042, 8043, 8086, 8086, 8232, 8255, 8351, 8351, 8427, 8431, 8449, 8449, 8545, 8545,
    8685, 8685, 8694, 8818, 8860, 8902, 8907, 8907, 8949, 8949, 8972, 9019, 9053, 9140, 9148, 9148,
    9153, 9153, 9184, 9184, 9248, 9248, 9251, 9251, 9253, 9253, 9294, 9294, 9299, 9299, 9309, 9309,
    9333, 9333, 9364, 9364, 9372, 9372, 9380, 9384, 9403, 9403, 9453, 9453, 9470, 9470, 9474, 9475,
    9547, 9547, 9696, 9696, 9702, 9702, 9739, 9739, 9755, 9758, 9763, 9763, 9777, 9784, 9866, 9866,
    9871, 9871, 9939, 9939, 9964, 9964, 9969, 9969, 9974, 9974, 9990, 10158, 10175, 10178, 10185,
    10185, 10191, 10191, 10196, 10196, 10204, 10204, 10209, 10209, 10214, 10214, 10219, 10219,
    10224, 10224, 10229, 10229, 10237, 10237, 10249, 10249, 10252, 10252, 10256, 10256, 10260,
    10260, 10265, 10265, 10268, 10268, 10272, 10272, 10277, 10277, 10284, 10284, 10299, 10305,
    10307, 10312, 10328, 10328, 10345, 10414, 10468, 10468, 10475, 10475, 10571, 10571, 10606,
    10606, 10623, 10623, 10628, 10628, 10671, 10673, 20033, 20041, 20046, 20046,
];

/// Ranges of EPSG codes (first and last code) of three-dimensional geographic systems and of geocentric systems.
const OF_THREE_DIMENSIONS: &[u16] = &[
    3822, 3823, 3887, 3888, 4000, 4017, 4039, 4040, 4073, 4080, 4327, 4389, 4465, 4466, 4468, 4469,
    4472, 4473, 4479, 4482, 4556, 4557, 4882, 5012, 5244, 5245, 5250, 5251, 5262, 5263, 5322, 5323,
    5332, 5332, 5341, 5342, 5352, 5353, 5358, 5359, 5363, 5364, 5368, 5380, 5391, 5392, 5487, 5488,
    5544, 5545, 5558, 5558, 5560, 5560, 5591, 5592, 5828, 5830, 5884, 5885, 6133, 6134, 6309, 6310,
    6317, 6324, 6363, 6364, 6666, 6667, 6704, 6705, 6781, 6782, 6934, 6934, 6978, 6982, 6985, 6989,
    7034, 7042, 7071, 7072, 7085, 7087, 7134, 7138, 7371, 7372, 7656, 7685, 7789, 7789, 7796, 7797,
    7815, 7816, 7842, 7843, 7879, 7880, 7884, 7885, 7900, 7931, 8084, 8085, 8227, 8254, 8397, 8430,
    8541, 8544, 8683, 8684, 8697, 8817, 8898, 8901, 8905, 8906, 8915, 8948, 9001, 9018, 9070, 9139,
    9146, 9147, 9151, 9152, 9182, 9183, 9266, 9267, 9292, 9293, 9307, 9308, 9331, 9332, 9378, 9379,
    9468, 9469, 9545, 9546, 9694, 9695, 9700, 9701, 9753, 9754, 9775, 9783, 9892, 9893, 9988, 9989,
    10176, 10177, 10282, 10283, 10297, 10304, 10308, 10311, 10326, 10327, 10412, 10413, 10473,
    10474, 10569, 10570, 10604, 10605, 10669, 10672, 20039, 20040, 20044, 20045,
];

pub(crate) fn is_geographic(code: u16) -> bool {
    is_in(GEOGRAPHIC, code)
}

pub(crate) fn is_plane(code: u16) -> bool {
    !is_in(GEOGRAPHIC, code) && !is_in(OF_THREE_DIMENSIONS, code)
}

fn is_in(runs: &[u16], code: u16) -> bool {
    let mut runs = runs.chunks_exact(2);
    runs.any(|run| matches!(run, [first, last] if (first..=last).contains(&&code)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, json};

    fn system_of(attributes: Value) -> Option<ReferenceSystem> {
        let members: Map<String, Value> = serde_json::from_value(attributes).unwrap();
        ReferenceSystem::of(&members.into())
    }

    #[test]
    fn epsg_codes_are_found_in_every_spelling() {
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
            let found = system_of(attributes.clone()).unwrap();
            assert_eq!(found.code(), Some(3035), "{attributes}");
            assert!(!found.is_geographic());
        }
        for attributes in [
            json!({"proj:code": "OGC:CRS84"}),
            json!({"proj:code": "EPSG:4326+5773"}),
            json!({"crs": "urn:ogc:def:crs:OGC:1.3:CRS84"}),
        ] {
            let found = system_of(attributes.clone()).unwrap();
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
            assert_eq!(system_of(attributes.clone()), None, "{attributes}");
        }
    }

    #[test]
    fn wkt1_is_available_beside_wkt2() {
        let found = system_of(
            json!({"crs_wkt": "PROJCRS[\"a\"]", "grid_mapping_name": "latitude_longitude"}),
        );
        let found = found.unwrap();
        assert_eq!(found.text, "PROJCRS[\"a\"]");
        assert!(found.wkt1.unwrap().starts_with("GEOGCS["));
    }

    #[test]
    fn epsg_codes_are_classed_as_geographic_or_projected() {
        for code in [4326, 4258, 4490, 7844, 4001, 20046] {
            assert!(is_geographic(code), "{code}");
        }
        for code in [3035, 4491, 4087, 4499, 32633, 2056, 4647] {
            assert!(!is_geographic(code), "{code}");
            assert!(is_plane(code), "{code}");
        }
        // These codes are geographic systems of two or three dimensions, and geocentric systems.
        for code in [4326, 4979, 4978, 4937, 20045] {
            assert!(!is_plane(code), "{code}");
        }
    }
}
