//! Reads the unit and the packing of a map's numbers from attributes.

use serde_json::Value;

use crate::formats::Subject;
use crate::formats::georeference::escaped;

/// Maximum number of bytes of a text that is written for each band.
const MAX_TEXT: usize = 1 << 10;

/// GDAL's per-band metadata, escaped for XML.
pub(super) struct BandFacts {
    pub(super) unit: Option<String>,
    pub(super) offset: Option<String>,
    pub(super) scale: Option<String>,
}

impl BandFacts {
    /// Returns the facts of an array, the same for each band. A unit of more than 1024 bytes is left out.
    pub(super) fn of(subject: &Subject) -> BandFacts {
        let attribute = |name| subject.array.attributes.get(name);
        let number = |name| {
            let number = attribute(name).filter(Value::is_number);
            number.map(|number| number.to_string())
        };
        let unit = attribute("units");
        let unit = unit.as_ref().and_then(Value::as_str);
        BandFacts {
            unit: unit.map(escaped).filter(|unit| unit.len() <= MAX_TEXT),
            offset: number("add_offset"),
            scale: number("scale_factor"),
        }
    }
}
