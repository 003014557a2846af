//! Parses numeric CF attributes: numbers, lists of one number, and fill values of xarray.

use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use crate::formats::cf::numbers::{FillNumber, Stored};
use zarr_format::model::{Array, Attributes};

/// The reason why the elements of an array cannot be decoded by the CF conventions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoValues {
    /// The elements of the array are not numbers.
    NotNumbers,
    /// An attribute is invalid; the text has its name and the reason.
    Attribute(String),
}

impl NoValues {
    /// Returns an error for an attribute with an invalid value; `wanted` describes the valid values.
    pub(crate) fn of(name: &str, value: &Value, wanted: &str) -> NoValues {
        NoValues::Attribute(format!(
            "the attribute {name} is {} but must be {wanted}",
            abbreviated(value)
        ))
    }
}

impl fmt::Display for NoValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoValues::NotNumbers => f.write_str("only numbers can be CF-decoded"),
            NoValues::Attribute(why) => write!(f, "cannot decode values by CF: {why}"),
        }
    }
}

/// Returns at most 60 characters of an attribute's value, for a message.
pub(crate) fn abbreviated(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// A number in an attribute. It remembers whether it was written as an integer or a float, because xarray chooses the
/// data type of decoded values by that.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum AttributeNumber {
    Whole(i128),
    Float(f64),
}

impl AttributeNumber {
    /// Parses a number, a list of one number, or a word such as `NaN` for a number that JSON lacks.
    pub(crate) fn read(value: &Value) -> Option<AttributeNumber> {
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
    pub(crate) fn to_float(self) -> f64 {
        match self {
            AttributeNumber::Whole(number) => number as f64,
            AttributeNumber::Float(number) => number,
        }
    }

    pub(crate) fn is_nan(self) -> bool {
        matches!(self, AttributeNumber::Float(number) if number.is_nan())
    }

    #[expect(clippy::cast_possible_truncation, reason = "the number is checked")]
    fn whole(self) -> Option<i128> {
        match self {
            AttributeNumber::Whole(number) => Some(number),
            AttributeNumber::Float(number) => {
                (number.fract() == 0.0 && number.abs() < 1e30).then_some(number as i128)
            }
        }
    }

    /// Returns the number as a JSON integer, or `None` if it is not an integer.
    pub(crate) fn whole_value(self) -> Option<Value> {
        let whole = self.whole()?;
        let signed = i64::try_from(whole).map(Value::from);
        signed
            .or_else(|_| u64::try_from(whole).map(Value::from))
            .ok()
    }

    pub(crate) fn fill(self) -> FillNumber {
        match self {
            AttributeNumber::Whole(number) => FillNumber::Whole(number),
            AttributeNumber::Float(number) => FillNumber::Float(number),
        }
    }
}

/// Reads `scale_factor` or `add_offset`; returns `None` if the attribute is missing or null.
pub(crate) fn packing_number(
    attributes: &Attributes,
    name: &str,
) -> Result<Option<AttributeNumber>, NoValues> {
    let value = attributes.get(name).unwrap_or_default();
    if value.is_null() {
        return Ok(None);
    }
    // Python writes NaN without quotes, which JSON does not allow. A number in quotes is a text for every reader of the
    // attribute.
    let is_number = !has_text(&value) || attributes.is_beyond_json(name, &value);
    let number = AttributeNumber::read(&value).filter(|_| is_number);
    let refused = || NoValues::of(name, &value, "a number");
    number.map(Some).ok_or_else(refused)
}

/// Whether a JSON value is text, or a list with text in it.
fn has_text(value: &Value) -> bool {
    match value {
        Value::Array(list) => list.iter().any(has_text),
        one => one.is_string(),
    }
}

/// Returns the numbers that mark missing values, including NaN: those of `missing_value`, and the fill value of v2 or
/// else `_FillValue`. Attributes have numbers of type `found`; after `_Unsigned` is applied, the elements have type
/// `stored`.
pub(crate) fn fill_numbers(
    array: &Array,
    found: Stored,
    stored: Stored,
) -> Result<Vec<AttributeNumber>, NoValues> {
    let mut fills = missing_numbers(&array.attributes)?;
    for fill in own_fills(array, found)? {
        let mut read = fill;
        if found != stored
            && let Some(whole) = fill.whole()
        {
            fills.retain(|missing| *missing != fill);
            let bytes = found.bytes_of(whole).or_else(|| stored.bytes_of(whole));
            let bytes = bytes.ok_or_else(|| {
                let wanted = format!("a value of type {}", found.data_type());
                NoValues::of(FILL, &Value::from(whole.to_string()), &wanted)
            })?;
            read = stored.number(&bytes).into();
        }
        fills.push(read);
    }
    // An integer never equals NaN, so xarray ignores a fill value of NaN here.
    if !found.is_float() {
        fills.retain(|fill| !fill.is_nan());
    }
    Ok(fills)
}

pub(crate) const FILL: &str = "_FillValue";

pub(crate) fn missing_numbers(attributes: &Attributes) -> Result<Vec<AttributeNumber>, NoValues> {
    listed_numbers(attributes, "missing_value", &AttributeNumber::read)
}

/// Returns the fill value of a v2 array, or else the numbers in `_FillValue`.
fn own_fills(array: &Array, stored: Stored) -> Result<Vec<AttributeNumber>, NoValues> {
    if array.dialect == "v2" && !array.fill_value.is_none {
        return Ok(vec![stored.number(&array.fill_value.bytes).into()]);
    }
    let encoded = |value: &Value| encoded_number(value).filter(|_| stored.is_float());
    listed_numbers(&array.attributes, FILL, &|value| {
        AttributeNumber::read(value).or_else(|| encoded(value))
    })
}

/// Returns the numbers of an attribute, whose value is a single number or a list of numbers.
fn listed_numbers(
    attributes: &Attributes,
    name: &str,
    read: &dyn Fn(&Value) -> Option<AttributeNumber>,
) -> Result<Vec<AttributeNumber>, NoValues> {
    let value = attributes.get(name).unwrap_or_default();
    let list = match &value {
        Value::Null => &[][..],
        Value::Array(list) => &list[..],
        one => std::slice::from_ref(one),
    };
    let numbers: Option<Vec<AttributeNumber>> = list.iter().map(read).collect();
    numbers.ok_or_else(|| NoValues::of(name, &value, "a number"))
}

impl From<FillNumber> for AttributeNumber {
    fn from(number: FillNumber) -> AttributeNumber {
        match number {
            FillNumber::Whole(number) => AttributeNumber::Whole(number),
            FillNumber::Float(number) => AttributeNumber::Float(number),
        }
    }
}

/// Parses a fill value as xarray writes it: the eight bytes of a double in base64.
pub(crate) fn encoded_number(value: &Value) -> Option<AttributeNumber> {
    let bytes = BASE64_STANDARD.decode(value.as_str()?).ok()?;
    let number = f64::from_le_bytes(bytes.try_into().ok()?);
    Some(AttributeNumber::Float(number))
}
