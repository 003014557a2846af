//! The numbers that attributes of CF give: as they are written, in lists of one, and as xarray encodes fill values.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use crate::export::cf_numbers::{FillNumber, Stored};
use crate::model::{Array, Attributes};

/// A number of an attribute; whether it was written as a whole one decides about types.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum AttributeNumber {
    Whole(i128),
    Float(f64),
}

impl AttributeNumber {
    /// Reads a number, a list of one, or a word for one that JSON lacks.
    pub(super) fn read(value: &Value) -> Option<AttributeNumber> {
        match value {
            Value::Number(number) => {
                let whole = number.as_i64().map(i128::from);
                let whole = whole.or_else(|| number.as_u64().map(i128::from));
                let number = number.as_f64().map(AttributeNumber::Float);
                whole.map(AttributeNumber::Whole).or(number)
            }
            Value::Array(list) => match list.as_slice() {
                [one] => AttributeNumber::read(one),
                _ => None,
            },
            Value::String(word) => {
                let number = match word.as_str() {
                    "NaN" => f64::NAN,
                    "Infinity" => f64::INFINITY,
                    "-Infinity" => f64::NEG_INFINITY,
                    _ => return None,
                };
                Some(AttributeNumber::Float(number))
            }
            _ => None,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "so does numpy")]
    pub(super) fn to_float(self) -> f64 {
        match self {
            AttributeNumber::Whole(number) => number as f64,
            AttributeNumber::Float(number) => number,
        }
    }

    pub(super) fn is_nan(self) -> bool {
        matches!(self, AttributeNumber::Float(number) if number.is_nan())
    }

    pub(super) fn fill(self) -> FillNumber {
        match self {
            AttributeNumber::Whole(number) => FillNumber::Whole(number),
            AttributeNumber::Float(number) => FillNumber::Float(number),
        }
    }
}

/// Returns the numbers that stand for no value, NaN among them; of `_FillValue` and `missing_value`, or the fill value of
/// v2. Elements are stored as `found` and read as `stored`, as which `_FillValue` is read, too.
pub(super) fn fill_numbers(array: &Array, found: Stored, stored: Stored) -> Vec<AttributeNumber> {
    let mut fills = missing_numbers(&array.attributes);
    if let Some(fill) = fill_number(array, found) {
        let read = match fill {
            AttributeNumber::Whole(number) if found != stored => {
                fills.retain(|missing| *missing != fill);
                stored.number(&number.to_le_bytes()[..stored.size()]).into()
            }
            fill => fill,
        };
        fills.push(read);
    }
    // Whole numbers are never NaN, and xarray drops such a fill value entirely.
    if !found.is_float() {
        fills.retain(|fill| !fill.is_nan());
    }
    fills
}

/// Returns the numbers of `missing_value`.
pub(super) fn missing_numbers(attributes: &Attributes) -> Vec<AttributeNumber> {
    match attributes.get("missing_value") {
        Some(Value::Array(list)) => list.iter().filter_map(AttributeNumber::read).collect(),
        Some(one) => AttributeNumber::read(&one).into_iter().collect(),
        None => Vec::new(),
    }
}

fn fill_number(array: &Array, stored: Stored) -> Option<AttributeNumber> {
    if array.dialect == "v2" && !array.fill_value.is_none {
        return Some(stored.number(&array.fill_value.bytes).into());
    }
    let fill = array.attributes.get("_FillValue")?;
    AttributeNumber::read(&fill).or_else(|| encoded_number(&fill))
}

impl From<FillNumber> for AttributeNumber {
    fn from(number: FillNumber) -> AttributeNumber {
        match number {
            FillNumber::Whole(number) => AttributeNumber::Whole(number),
            FillNumber::Float(number) => AttributeNumber::Float(number),
        }
    }
}

/// Reads a number of a fill value as xarray writes it: a float of eight bytes as base64.
pub(super) fn encoded_number(value: &Value) -> Option<AttributeNumber> {
    let bytes = BASE64_STANDARD.decode(value.as_str()?).ok()?;
    let number = f64::from_le_bytes(bytes.try_into().ok()?);
    Some(AttributeNumber::Float(number))
}
