//! Encodes attributes for HDF5: numbers, texts, lists, and references between dimensions and datasets.
//!
//! A value for which HDF5 has no type is written as JSON text, so no attribute is left out.

use serde_json::{Value, json};

use crate::formats::cf::attributes::FILL;
use crate::formats::hdf5::datatype::{
    HdfType, any_string, compound, double, integer, reference, references, string,
};
use crate::formats::hdf5::heap::GlobalHeap;
use crate::formats::hdf5::object::{ObjectHeader, attribute, dataspace, null_dataspace};
use crate::formats::netcdf::header::{
    float, has_implied_fill, has_variable_type, integer as integer_of, xarray_attributes,
};
use crate::formats::netcdf::names::{is_name, unique_names};
use zarr_format::dialect::fill;
use zarr_format::model::{Array, Attributes, DataType};

/// The value of an HDF5 attribute.
pub(super) enum HdfValue {
    /// Elements of an HDF5 data type, with the lengths of their dimensions; without dimensions, a scalar.
    Elements {
        kind: Vec<u8>,
        lengths: Vec<u64>,
        bytes: Vec<u8>,
    },
    FixedText(String),
    Text(String),
    Texts(Vec<String>),
    /// The value of `DIMENSION_LIST`: the object number of the dimension scale of each dimension, or `None`.
    Scales(Vec<Option<usize>>),
    /// The value of `REFERENCE_LIST`: the object numbers of the datasets that use a dimension scale, each with the
    /// index of the dataset's dimension.
    Scaled(Vec<(usize, u32)>),
}

impl HdfValue {
    fn integers(width: usize, lengths: Vec<u64>, numbers: &[i128]) -> Option<HdfValue> {
        // Integers of 2^63 and more need an unsigned type.
        let signed = numbers.iter().map(|&number| i64::try_from(number).ok());
        let is_signed = signed.clone().all(|number| number.is_some());
        let bytes = numbers.iter().map(|&number| {
            let bytes = match i64::try_from(number) {
                Ok(number) => number.to_le_bytes(),
                Err(_) => u64::try_from(number).ok()?.to_le_bytes(),
            };
            Some(bytes[..width].to_vec())
        });
        let is_mixed = !is_signed && numbers.iter().any(|&number| number < 0);
        (!is_mixed).then_some(HdfValue::Elements {
            kind: integer(width, is_signed),
            lengths,
            bytes: bytes.collect::<Option<Vec<_>>>()?.concat(),
        })
    }

    /// Returns the value of `_Netcdf4Dimid`: netCDF's number of the dimension that a dimension scale belongs to.
    pub(super) fn dimension_number(number: u64) -> Option<HdfValue> {
        HdfValue::integers(4, Vec::new(), &[i128::from(i32::try_from(number).ok()?)])
    }

    /// Encodes an attribute as an HDF5 message; `None` if it is too long. References to objects need `addresses`, the
    /// address of each object.
    pub(super) fn message(
        &self,
        name: &str,
        heap: &mut GlobalHeap,
        addresses: &[u64],
    ) -> Option<Vec<u8>> {
        let (kind, lengths, bytes) = match self {
            HdfValue::Elements {
                kind,
                lengths,
                bytes,
            } => (kind.clone(), dataspace(lengths)?, bytes.clone()),
            HdfValue::FixedText(text) => fixed_text(text)?,
            HdfValue::Text(text) => {
                let place = heap.put(text.len(), text.as_bytes())?;
                (any_string(), dataspace(&[])?, place)
            }
            HdfValue::Texts(texts) => {
                let places = texts
                    .iter()
                    .map(|text| heap.put(text.len(), text.as_bytes()));
                (any_string(), list(texts.len())?, joined(places)?)
            }
            HdfValue::Scales(scales) => {
                let places = scales.iter().map(|scale| match scale {
                    Some(scale) => heap.put(1, &address(addresses, *scale)?),
                    None => heap.put(0, b""),
                });
                (references(), list(scales.len())?, joined(places)?)
            }
            HdfValue::Scaled(users) => scaled(users, addresses)?,
        };
        attribute(name, &kind, &lengths, &bytes)
    }
}

/// The parts of an attribute message: the datatype message, the dataspace message and the bytes of the value.
type ValueMessages = (Vec<u8>, Vec<u8>, Vec<u8>);

fn fixed_text(text: &str) -> Option<ValueMessages> {
    Some(if text.is_empty() {
        let kind = string(1, false)?;
        (kind, null_dataspace(), Vec::new())
    } else {
        let kind = string(text.len(), !text.is_ascii())?;
        (kind, dataspace(&[])?, text.as_bytes().to_vec())
    })
}

/// Encodes `REFERENCE_LIST`: the datasets that use a dimension scale, each with the index of its dimension.
fn scaled(users: &[(usize, u32)], addresses: &[u64]) -> Option<ValueMessages> {
    let parts = [
        ("dataset", 0, reference()),
        ("dimension", 8, integer(4, false)),
    ];
    let bytes = users.iter().map(|(object, dimension)| {
        let address = address(addresses, *object)?;
        Some([&address[..], &dimension.to_le_bytes()].concat())
    });
    Some((compound(12, &parts)?, list(users.len())?, joined(bytes)?))
}

fn address(addresses: &[u64], object: usize) -> Option<[u8; 8]> {
    addresses.get(object).map(|address| address.to_le_bytes())
}

fn list(length: usize) -> Option<Vec<u8>> {
    dataspace(&[length as u64])
}

fn joined(parts: impl Iterator<Item = Option<Vec<u8>>>) -> Option<Vec<u8>> {
    Some(parts.collect::<Option<Vec<_>>>()?.concat())
}

/// Returns the HDF5 attributes of a Zarr group.
pub(super) fn of_group(attributes: &Attributes) -> Vec<(String, HdfValue)> {
    let values = attributes.to_map();
    let names = unique_names(values.keys(), is_own);
    let list = values.iter().zip(names).map(|((own, value), name)| {
        let value = value_of(attributes, own, value);
        (name, value)
    });
    list.collect()
}

/// Whether the JSON value of an attribute is a valid fill value for a data type.
pub(crate) fn is_fill(data_type: &DataType, value: &Value) -> bool {
    let elements = of_type(data_type, value);
    elements.is_some_and(|(lengths, _)| lengths.iter().all(|&length| length == 1))
}

/// Returns the HDF5 attributes of an array whose elements have the HDF5 type `kind`. The fill value has the same type.
pub(super) fn of_array(array: &Array, kind: &HdfType) -> Vec<(String, HdfValue)> {
    let typed = |lengths: Vec<u64>, decoded: &[u8]| HdfValue::Elements {
        kind: kind.message.clone(),
        lengths,
        bytes: kind.written(decoded),
    };
    let mut values = array.attributes.to_map();
    values.remove("_ARRAY_DIMENSIONS");
    let is_fill = values
        .get(FILL)
        .is_none_or(|value| is_fill(&array.data_type, value));
    let names = unique_names(values.keys(), |name| {
        // netCDF rejects a `_FillValue` whose type is not that of the variable.
        is_own(name) && (name != FILL || is_fill)
    });
    let is_integer = matches!(array.data_type, DataType::Int(_) | DataType::UInt(_));
    let list = values.iter().zip(names).map(|((own, value), name)| {
        let numbers = has_variable_type(&name, is_integer)
            .then(|| of_type(&array.data_type, value))
            .flatten();
        let value = match numbers {
            Some((lengths, numbers)) => typed(lengths, &numbers),
            None => value_of(&array.attributes, own, value),
        };
        (name, value)
    });
    let mut list: Vec<_> = list.collect();
    if has_implied_fill(array) && number_of(&array.data_type, &json!(0)).is_some() {
        list.push((FILL.to_string(), typed(Vec::new(), &array.fill_value.bytes)));
    }
    for (name, value) in xarray_attributes(array) {
        if array.attributes.get(name).is_none() {
            list.push((name.to_string(), text(value)));
        }
    }
    if kind.letters.is_some() && matches!(array.data_type, DataType::FixedText(_)) {
        list.push(("_Encoding".to_string(), text("utf-8".to_string())));
    }
    list
}

/// Whether users may give an attribute this name. HDF5 and netCDF reserve some names for dimensions.
fn is_own(name: &str) -> bool {
    let is_reserved = [
        "CLASS",
        "NAME",
        "DIMENSION_LIST",
        "REFERENCE_LIST",
        "DIMENSION_LABELS",
        "_Netcdf4Dimid",
        "_Netcdf4Coordinates",
        "_NCProperties",
    ];
    is_name(name) && !is_reserved.contains(&name)
}

/// Encodes a JSON number, or a list of numbers, in a numeric data type. Returns its dimensions and its bytes.
fn of_type(data_type: &DataType, value: &Value) -> Option<(Vec<u64>, Vec<u8>)> {
    match value {
        Value::Array(list) if !list.is_empty() => {
            let numbers = list.iter().map(|number| number_of(data_type, number));
            let numbers: Option<Vec<Vec<u8>>> = numbers.collect();
            Some((vec![list.len() as u64], numbers?.concat()))
        }
        number => Some((Vec::new(), number_of(data_type, number)?)),
    }
}

/// Encodes a JSON number in a numeric data type; `None` if the type cannot hold it.
fn number_of(data_type: &DataType, value: &Value) -> Option<Vec<u8>> {
    let number = match data_type {
        DataType::Int(_) => json!(i64::try_from(integer_of(value)?).ok()?),
        DataType::UInt(_) => json!(u64::try_from(integer_of(value)?).ok()?),
        DataType::Float(_) => match float(value)? {
            number if number.is_nan() => json!("NaN"),
            number if number.is_infinite() && number > 0.0 => json!("Infinity"),
            number if number.is_infinite() => json!("-Infinity"),
            number => json!(number),
        },
        _ => return None,
    };
    Some(fill::parse(data_type, &number).ok()?.bytes)
}

/// Returns a text as netCDF-C writes it: with a fixed length, unless it is long or contains a zero character.
pub(super) fn text(text: String) -> HdfValue {
    let is_short = text.len() < ObjectHeader::MAX_MESSAGE / 2;
    if is_short && !text.contains('\0') {
        HdfValue::FixedText(text)
    } else {
        HdfValue::Text(text)
    }
}

/// Converts the JSON value of an attribute to an HDF5 value. A list with numbers that JSON does not have, such as NaN,
/// becomes doubles.
fn value_of(attributes: &Attributes, name: &str, value: &Value) -> HdfValue {
    let is_number = attributes.is_beyond_json(name, value);
    let numbers = is_number.then(|| of_type(&DataType::Float(8), value));
    match numbers.flatten() {
        Some((lengths, bytes)) => HdfValue::Elements {
            kind: double(),
            lengths,
            bytes,
        },
        None => encoded(value),
    }
}

fn encoded(value: &Value) -> HdfValue {
    let list = match value {
        Value::Array(list) if !list.is_empty() => list,
        _ => std::slice::from_ref(value),
    };
    let lengths = match value {
        Value::Array(_) => vec![list.len() as u64],
        _ => Vec::new(),
    };
    let texts: Option<Vec<String>> = list
        .iter()
        .map(|text| text.as_str().map(str::to_string))
        .collect();
    match (texts, value) {
        (_, Value::String(string)) => text(string.clone()),
        // Each text of a list takes 16 bytes of the message for its address in the heap, and a message has at most 64
        // KiB.
        (Some(texts), Value::Array(_)) if texts.len() < 4000 => HdfValue::Texts(texts),
        _ if list.len() > 7000 => text(value.to_string()),
        _ => {
            let numbers = booleans(list, lengths.clone());
            let numbers = numbers.or_else(|| numbers_of(list, lengths));
            numbers.unwrap_or_else(|| text(value.to_string()))
        }
    }
}

fn booleans(list: &[Value], lengths: Vec<u64>) -> Option<HdfValue> {
    let bytes = list.iter().map(|value| value.as_bool().map(u8::from));
    let bytes = bytes.collect::<Option<Vec<u8>>>()?;
    Some(HdfValue::Elements {
        kind: integer(1, true),
        lengths,
        bytes,
    })
}

fn numbers_of(list: &[Value], lengths: Vec<u64>) -> Option<HdfValue> {
    if !list.iter().all(Value::is_number) {
        return None;
    }
    if !list.iter().any(Value::is_f64) {
        let integers = list.iter().map(integer_of).collect::<Option<Vec<_>>>()?;
        if let Some(integers) = HdfValue::integers(8, lengths.clone(), &integers) {
            return Some(integers);
        }
    }
    let numbers = list
        .iter()
        .map(|number| number.as_f64().map(f64::to_le_bytes));
    Some(HdfValue::Elements {
        kind: double(),
        lengths,
        bytes: numbers.collect::<Option<Vec<_>>>()?.concat(),
    })
}
