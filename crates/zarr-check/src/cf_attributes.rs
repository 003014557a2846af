//! Checks CF attributes that xarray decodes, and lists arrays that they name.

use serde_json::Value;

use crate::documents::shown;
use crate::finding::{CF, Finding};
use zarr_format::model::{Array, DataType};
use zarrfs_export::formats::times::unit_of;
use zarrfs_store::Key;

/// The headings in the CF conventions.
const TIME: &str = "Time Coordinate";
const PACKED: &str = "Packed Data";
const CALENDAR: &str = "Calendar";

/// Units of CF without a fixed length, which xarray does not decode.
const OF_NO_LENGTH: [&str; 6] = ["week", "weeks", "month", "months", "year", "years"];

/// The calendars of CF.
const CALENDARS: [&str; 12] = [
    "",
    "standard",
    "gregorian",
    "proleptic_gregorian",
    "noleap",
    "365_day",
    "all_leap",
    "366_day",
    "360_day",
    "julian",
    "utc",
    "tai",
];

/// Returns the faults in the attributes by which an array is decoded.
pub(super) fn check(path: &Key, array: &Array) -> Vec<Finding> {
    let is_number = matches!(
        array.data_type,
        DataType::Int(_) | DataType::UInt(_) | DataType::Float(_)
    );
    if !is_number || !is_variable(array) {
        return Vec::new();
    }
    let packing = ["scale_factor", "add_offset"].into_iter();
    let packing = packing.filter_map(|name| packing_fault(path, array, name));
    packing.chain(time_fault(path, array)).collect()
}

/// Whether xarray treats an array as a variable: it is a scalar, or a dimension has a name.
fn is_variable(array: &Array) -> bool {
    array.shape.is_empty() || array.dimension_names.iter().any(Option::is_some)
}

/// Reports a scale factor or an offset that is not a number.
fn packing_fault(path: &Key, array: &Array, name: &str) -> Option<Finding> {
    let value = array.attributes.get(name)?;
    let is_wrong = match &value {
        Value::String(_) => !array.attributes.is_beyond_json(name, &value),
        Value::Array(list) => list.len() > 1,
        _ => false,
    };
    if !is_wrong {
        return None;
    }
    let message = format!(
        "{name} is {}; it must be a number, so that xarray does not open the array",
        shown(&value)
    );
    let finding = Finding::error("attribute-invalid", path, message);
    let finding = finding.mended_by("write the number without quotation marks");
    Some(finding.of_part(name).by(CF, PACKED))
}

/// Reports units or a calendar that xarray cannot decode as times.
fn time_fault(path: &Key, array: &Array) -> Option<Finding> {
    let text = |name: &str| {
        let value = array.attributes.get(name)?;
        Some(value.as_str()?.to_string())
    };
    let units = text("units")?;
    let (unit, date) = units.split_once("since")?;
    let (unit, date) = (unit.trim().to_ascii_lowercase(), date.trim());
    let calendar = text("calendar").unwrap_or_default();
    let calendar = calendar.to_ascii_lowercase();
    let refused = "so that xarray opens the array with decode_times=False alone";
    let told = |(name, value): (&str, &str), what: &str, remedy: &str| {
        let message = format!("{name} is {value:?}, which is no {what}, {refused}");
        let heading = if name == "units" { TIME } else { CALENDAR };
        let finding = Finding::error("attribute-invalid", path, message).mended_by(remedy);
        Some(finding.of_part(name).by(CF, heading))
    };
    if !CALENDARS.contains(&calendar.as_str()) && calendar != "none" {
        let remedy = "write the name of one, such as \"standard\"";
        return told(("calendar", &calendar), "calendar of CF", remedy);
    }
    let is_counted = match calendar.as_str() {
        "360_day" => unit.starts_with("month"),
        "noleap" | "365_day" => unit.starts_with("common_year"),
        _ => false,
    };
    if OF_NO_LENGTH.contains(&unit.as_str()) && !is_counted {
        let message = format!("units is {units:?}, and {unit} have no fixed length, {refused}");
        let finding = Finding::warning("attribute-invalid", path, message);
        let finding = finding.mended_by("count days since the date");
        return Some(finding.of_part("units").by(CF, TIME));
    }
    let is_right = (is_counted || unit_of(&unit).is_some()) && is_like_date(date);
    if is_right {
        return None;
    }
    let remedy = "write it such as \"days since 2000-01-01\"";
    told(("units", &units), "unit of time since a date", remedy)
}

/// Whether a text may begin with a date; only text that no reader accepts is rejected.
fn is_like_date(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let day = text.split([' ', 't', '_', ',']).next().unwrap_or_default();
    let is_worded = day.bytes().any(|byte| byte.is_ascii_alphabetic());
    let has_month = MONTHS.iter().any(|month| text.contains(month));
    if (is_worded && !has_month) || !text.bytes().any(|byte| byte.is_ascii_digit()) {
        return false;
    }
    let parts: Vec<Option<u32>> = day.split('-').map(|part| part.parse().ok()).collect();
    match parts.as_slice() {
        [Some(_), Some(month), Some(date)] if day.find('-') == Some(4) => {
            (1..=12).contains(month) && (1..=31).contains(date)
        }
        _ => true,
    }
}

/// The first letters of the months; readers look at no more.
const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];

/// Attributes that name other arrays.
const NAMING: [&str; 5] = [
    "bounds",
    "climatology",
    "coordinates",
    "grid_mapping",
    "ancillary_variables",
];

/// Returns the arrays that the attributes of an array name, each with the attribute.
pub(super) fn named_arrays(array: &Array) -> Vec<(&'static str, String)> {
    let mut named = Vec::new();
    for name in NAMING {
        let value = array.attributes.get(name);
        let Some(text) = value.as_ref().and_then(Value::as_str) else {
            continue;
        };
        let words = text
            .split_whitespace()
            .map(|word| word.trim_end_matches(':'));
        // Paths lead to other groups.
        let words = words.filter(|word| !word.is_empty() && !word.contains('/'));
        named.extend(words.map(|word| (name, word.to_string())));
    }
    named
}
