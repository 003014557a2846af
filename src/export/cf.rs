//! `NAME.cf.EXT`: the values that the attributes of an array say its elements mean, by the CF conventions.
//!
//! `scale_factor`, `add_offset`, `_FillValue`, `missing_value`, `_Unsigned`, `units` of time and xarray's `dtype` are
//! applied to each element by itself. Types are those that xarray gives. The fill value of v2 stands for `_FillValue`, as
//! xarray has it; that of final v3 does not.

use std::sync::Arc;

use serde_json::Value;

use crate::dialect::fill_json;
use crate::export::calendar::Calendar;
use crate::export::cf_attributes::{AttributeNumber, fill_numbers};
use crate::export::cf_numbers::{FillNumber, Stored};
use crate::export::cf_values::{CfConversion, Meaning};
use crate::export::conversion::Conversion;
use crate::export::times::{TimeCount, unit_of};
use crate::model::{Array, Attributes, DataType, TimeUnit};

/// The attributes that are applied, and so have no meaning for the values.
const APPLIED: [&str; 5] = [
    "scale_factor",
    "add_offset",
    "_FillValue",
    "missing_value",
    "_Unsigned",
];

/// An array as its attributes mean it.
pub struct DecodedArray {
    /// The array with the type and the attributes that the values have.
    pub array: Array,
    /// What becomes of each element; nothing if it stays as it is.
    pub conversion: Option<Arc<dyn Conversion>>,
}

/// Returns an array as its attributes mean it; nothing if its elements are no numbers.
pub fn decoded(array: &Array) -> Option<DecodedArray> {
    let stored = match &array.data_type {
        // Times are what they mean.
        DataType::Bool | DataType::DateTime(_) | DataType::TimeDelta(_) => None,
        DataType::Complex(_) => None,
        data_type => Some(Stored::of(data_type)?),
    };
    let found = stored.map(|stored| Decoding::of(array, stored));
    let Some(decoding) = found.filter(|decoding| !decoding.is_identity()) else {
        return Some(DecodedArray {
            array: array.clone(),
            conversion: None,
        });
    };
    let data_type = decoding.data_type();
    let mut attributes = without(&array.attributes, &APPLIED);
    if matches!(data_type, DataType::DateTime(_) | DataType::TimeDelta(_)) {
        attributes = without(&attributes, &["units", "calendar"]);
    }
    if !matches!(
        data_type,
        DataType::Int(_) | DataType::UInt(_) | DataType::Float(_)
    ) {
        attributes = without(&attributes, &["dtype"]);
    }
    let mut described = Array {
        data_type,
        attributes,
        ..array.clone()
    };
    let conversion = decoding.conversion();
    let mut fill = vec![0; conversion.written_size()];
    if let Some(whole) = array.fill_value.bytes.get(..decoding.stored.size()) {
        conversion.convert(whole, &mut fill);
    }
    described.fill_value.json = fill_json::value(&described.data_type, &fill);
    described.fill_value.bytes = fill;
    Some(DecodedArray {
        array: described,
        conversion: Some(Arc::new(conversion)),
    })
}

fn without(attributes: &Attributes, names: &[&str]) -> Attributes {
    let removed: Vec<_> = names
        .iter()
        .filter(|name| attributes.get(name).is_some())
        .map(|name| ((*name).to_string(), None))
        .collect();
    if removed.is_empty() {
        return attributes.clone();
    }
    attributes.edited(&removed)
}

/// How the elements of an array are decoded.
struct Decoding {
    /// What is stored, after `_Unsigned`.
    stored: Stored,
    meaning: Meaning,
    fills: Vec<FillNumber>,
    is_reread: bool,
}

/// What `units` say that numbers count.
#[derive(Clone, Copy, PartialEq)]
enum Counted {
    Times(Option<TimeCount>),
    /// Durations of so many nanoseconds.
    Durations(i64),
    Other,
}

impl Decoding {
    fn of(array: &Array, found: Stored) -> Decoding {
        let attributes = &array.attributes;
        let stored = signed_as_told(found, attributes);
        let mut fills = fill_numbers(array, found);
        let has_fill = !fills.is_empty();
        fills.retain(|fill| !fill.is_nan());
        let fills: Vec<FillNumber> = fills
            .into_iter()
            .map(|fill| reread(fill.fill(), stored, stored != found))
            .collect();
        let number = |name| AttributeNumber::read(&attributes.get(name)?);
        let (scale, offset) = (number("scale_factor"), number("add_offset"));
        let counted = counted(attributes);
        let number = numbers_of(
            stored,
            (scale, offset),
            (!fills.is_empty(), has_fill),
            counted,
        );
        Decoding {
            stored,
            is_reread: stored != found,
            meaning: meaning_of(
                attributes,
                (stored, !fills.is_empty()),
                number,
                (scale, offset),
                counted,
            ),
            fills,
        }
    }

    fn is_identity(&self) -> bool {
        self.meaning == Meaning::Same && !self.is_reread
    }

    fn data_type(&self) -> DataType {
        let unit = |name: &str| TimeUnit {
            name: name.to_string(),
            scale: 1,
        };
        match self.meaning {
            Meaning::Same => self.stored.data_type(),
            Meaning::Truth => DataType::Bool,
            Meaning::Single { .. } => DataType::Float(4),
            Meaning::Half { .. } => DataType::Float(2),
            Meaning::Double { .. } => DataType::Float(8),
            Meaning::Long { .. } => DataType::Int(8),
            Meaning::Time { .. } => DataType::DateTime(unit("ns")),
            Meaning::Duration { name, .. } => DataType::TimeDelta(unit(name)),
        }
    }

    fn conversion(&self) -> CfConversion {
        CfConversion {
            stored: self.stored,
            meaning: self.meaning,
            fills: self.fills.clone(),
        }
    }
}

/// Returns the type of numbers whose sign `_Unsigned` corrects.
fn signed_as_told(stored: Stored, attributes: &Attributes) -> Stored {
    let told = attributes.get("_Unsigned");
    match told.as_ref().and_then(Value::as_str) {
        Some("true") => stored.unsigned(),
        Some("false") => stored.signed(),
        _ => stored,
    }
}

/// Returns a fill value of numbers whose sign was corrected as one of the corrected numbers.
fn reread(fill: FillNumber, stored: Stored, is_corrected: bool) -> FillNumber {
    match fill {
        FillNumber::Whole(number) if is_corrected => {
            stored.number(&number.to_le_bytes()[..stored.size()])
        }
        fill => fill,
    }
}

fn counted(attributes: &Attributes) -> Counted {
    let text = |name| match attributes.get(name) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    };
    let Some(units) = text("units") else {
        return Counted::Other;
    };
    if units.contains("since") {
        let calendar = text("calendar").unwrap_or("standard".to_string());
        let count = TimeCount::parse(&units, &calendar);
        return Counted::Times(count.filter(|count| count.calendar == Calendar::Gregorian));
    }
    // xarray knows durations by their long names alone, and times by short ones too.
    let is_whole = units.ends_with("seconds") || ["minutes", "hours", "days"].contains(&&*units);
    match unit_of(&units).filter(|_| is_whole && units == units.to_lowercase()) {
        Some(unit) => Counted::Durations(unit),
        None => Counted::Other,
    }
}

/// A type in which numbers are computed.
#[derive(Clone, Copy, PartialEq)]
enum Computed {
    AsStored,
    Single,
    Double,
    Long,
}

/// Chooses the type of numbers before they become times, as xarray does.
fn numbers_of(
    stored: Stored,
    (scale, offset): (Option<AttributeNumber>, Option<AttributeNumber>),
    (masks, has_fill): (bool, bool),
    counted: Counted,
) -> Computed {
    let is_scaled = scale.is_some() || offset.is_some();
    let chosen = match (scale, offset) {
        // Numbers of JSON are floats of eight bytes, or whole.
        (Some(AttributeNumber::Whole(_)), None) if !masks => Computed::Long,
        _ => Computed::Double,
    };
    let is_time = counted != Counted::Other;
    if is_scaled {
        if has_fill && !masks && !is_time {
            // A fill value that is NaN leaves the type alone.
            return Computed::AsStored;
        }
        return chosen;
    }
    if !masks || stored.is_float() {
        return Computed::AsStored;
    }
    if is_time {
        return Computed::Long;
    }
    if stored.size() <= 2 {
        Computed::Single
    } else {
        Computed::Double
    }
}

fn meaning_of(
    attributes: &Attributes,
    (stored, masks): (Stored, bool),
    computed: Computed,
    (scale, offset): (Option<AttributeNumber>, Option<AttributeNumber>),
    counted: Counted,
) -> Meaning {
    let factor = scale.map_or(1.0, AttributeNumber::to_float);
    let summand = offset.map_or(0.0, AttributeNumber::to_float);
    let told = attributes.get("dtype");
    let told = told.as_ref().and_then(Value::as_str).unwrap_or_default();
    match counted {
        Counted::Times(Some(count)) => Meaning::Time {
            count,
            factor,
            summand,
        },
        Counted::Durations(unit) if told.starts_with("timedelta64") => {
            let (name, step) = duration_unit(told);
            Meaning::Duration {
                unit,
                step,
                name,
                factor,
                summand,
            }
        }
        _ if told == "bool" && computed == Computed::AsStored => Meaning::Truth,
        _ => match (computed, stored) {
            (Computed::Long, _) => Meaning::Long {
                factor: match scale {
                    Some(AttributeNumber::Whole(factor)) => i64::try_from(factor).unwrap_or(1),
                    _ => 1,
                },
            },
            (Computed::Double, _) => Meaning::Double { factor, summand },
            (Computed::Single, _) => Meaning::Single { factor, summand },
            (Computed::AsStored, stored) => own_meaning(stored, (factor, summand), masks),
        },
    }
}

/// Returns what becomes of numbers that keep their type.
fn own_meaning(stored: Stored, (factor, summand): (f64, f64), masks: bool) -> Meaning {
    match stored {
        _ if !masks && factor == 1.0 && summand == 0.0 => Meaning::Same,
        Stored::F2 => Meaning::Half { factor, summand },
        Stored::F4 => Meaning::Single { factor, summand },
        Stored::F8 => Meaning::Double { factor, summand },
        _ => Meaning::Same,
    }
}

/// Returns the unit of numpy in which xarray has durations, and its nanoseconds.
fn duration_unit(told: &str) -> (&'static str, i64) {
    let unit = told.split(['[', ']']).nth(1).unwrap_or("ns");
    match unit {
        "ms" => ("ms", 1_000_000),
        "us" => ("us", 1_000),
        "ns" | "ps" | "fs" | "as" => ("ns", 1),
        _ => ("s", 1_000_000_000),
    }
}
