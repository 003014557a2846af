//! Finds the value that marks missing elements for xarray and netCDF.
//!
//! In Zarr v2, missing elements have the fill value (xarray's `use_zarr_fill_value_as_mask`, netCDF's `_FillValue`). In
//! v3, they have the value of the attribute `_FillValue`, which xarray writes in base64 for floats. With a wrong value,
//! readers would take valid elements for missing ones, such as a longitude of 0, or missing elements for valid ones.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use half::f16;
use serde_json::{Value, json};

use zarr_format::dialect::fill;
use zarr_format::model::{Array, Attributes, DataType};

/// The attribute in which xarray and NCZarr store the names of dimensions in Zarr v2.
pub(super) const DIMENSIONS: &str = "_ARRAY_DIMENSIONS";

/// The attribute whose value marks missing elements.
const FILL: &str = "_FillValue";

/// Whether the fill value of an array marks missing elements, by the conventions for Zarr v2: the array has a fill
/// value and the attribute `_ARRAY_DIMENSIONS`.
fn is_fill_a_mask(array: &Array) -> bool {
    array.attributes.get(DIMENSIONS).is_some() && !array.fill_value.is_none
}

/// Whether xarray can open the array as a variable, because its dimensions have names.
fn is_named(array: &Array) -> bool {
    array.shape.is_empty() || array.dimension_names.iter().any(Option::is_some)
}

fn is_number(array: &Array) -> bool {
    matches!(
        array.data_type,
        DataType::Int(_) | DataType::UInt(_) | DataType::Float(_)
    )
}

/// Returns the value of the attribute `_FillValue` as an element, or `None` if the attribute is missing or invalid.
fn stated(array: &Array) -> Option<Vec<u8>> {
    let value = array.attributes.get(FILL)?;
    let number = match (&array.data_type, &value) {
        (DataType::Float(_), Value::String(text)) => match STANDARD.decode(text).ok() {
            Some(bytes) if bytes.len() == 8 => {
                let double = f64::from_le_bytes(bytes.try_into().ok()?);
                return parsed(&array.data_type, &double_value(double));
            }
            _ => value,
        },
        _ => value,
    };
    parsed(&array.data_type, &number)
}

fn parsed(data_type: &DataType, value: &Value) -> Option<Vec<u8>> {
    fill::parse(data_type, value).ok().map(|fill| fill.bytes)
}

/// Returns the value of a little-endian float of 2, 4 or 8 bytes as a double, or `None` for other lengths.
fn double_of(float: &[u8]) -> Option<f64> {
    match *float {
        [a, b] => Some(f16::from_le_bytes([a, b]).to_f64()),
        [a, b, c, d] => Some(f64::from(f32::from_le_bytes([a, b, c, d]))),
        _ => Some(f64::from_le_bytes(float.try_into().ok()?)),
    }
}

/// Returns a double as the JSON value that metadata have for a fill value.
fn double_value(double: f64) -> Value {
    fill::render(&DataType::Float(8), &double.to_le_bytes())
}

/// Whether the array has the same fill value in Zarr v2, where readers take elements with the fill value for missing.
pub(super) fn is_fill_for_v2(array: &Array) -> bool {
    !is_named(array)
        || is_fill_a_mask(array)
        || stated(array).as_ref() == Some(&array.fill_value.bytes)
}

/// Returns the fill value that an array gets in Zarr v2 instead of its own: the value of `_FillValue`, or `null` if the
/// array has none.
pub(super) fn value_for_v2(array: &Array) -> Value {
    let stated = stated(array);
    stated.map_or(Value::Null, |bytes| fill::render(&array.data_type, &bytes))
}

/// Returns the attributes of an array for Zarr v2. `_FillValue` is removed if the fill value in v2 is the same, because
/// netCDF derives a type from its JSON value and refuses a type other than the variable's.
pub(super) fn attributes_for_v2(array: &Array) -> Attributes {
    let Some(bytes) = stated(array) else {
        return array.attributes.clone();
    };
    if bytes == array.fill_value.bytes || !is_fill_for_v2(array) {
        return array.attributes.edited(&[(FILL.to_string(), None)]);
    }
    // JSON has no NaN, so a NaN keeps its base64 text.
    let number = fill::render(&array.data_type, &bytes);
    match array.attributes.get(FILL) {
        Some(Value::String(_)) if number.is_number() => array.attributes.with(FILL, &number),
        _ => array.attributes.clone(),
    }
}

/// Returns the attributes of an array for Zarr v3. `_FillValue` is added as xarray writes it, and `_ARRAY_DIMENSIONS`
/// is removed, since the names of dimensions are in `dimension_names`.
pub(super) fn attributes_for_v3(array: &Array) -> Attributes {
    let mut attributes = array.attributes.clone();
    if attributes.get(DIMENSIONS) == Some(json!(array.dimension_names)) {
        attributes = attributes.edited(&[(DIMENSIONS.to_string(), None)]);
    }
    match mask_in_v3(array) {
        Some(mask) if attributes.get(FILL).as_ref() != Some(&mask) => attributes.with(FILL, &mask),
        _ => attributes,
    }
}

/// Returns the value of `_FillValue` that marks missing elements in Zarr v3, or `None` if no value does.
fn mask_in_v3(array: &Array) -> Option<Value> {
    let mask = if is_fill_a_mask(array) {
        array.fill_value.bytes.clone()
    } else {
        stated(array)?
    };
    if !is_named(array) || !is_number(array) {
        return None;
    }
    Some(match (&array.data_type, double_of(&mask)) {
        (DataType::Float(_), Some(double)) => json!(STANDARD.encode(double.to_le_bytes())),
        _ => fill::render(&array.data_type, &mask),
    })
}
