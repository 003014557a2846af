//! Writes classic netCDF headers: names, counts, types and attributes, big-endian, padded to four bytes.

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use crate::formats::cf::attributes::FILL;
use crate::formats::conversion::{BigEndian, Conversion, Utf8, Widened, WidenedUnsigned};
use crate::formats::netcdf::names::{is_name, unique_names};
use zarr_format::model::{Array, Attributes, DataType, TimeUnit};

/// Whether CF demands that an attribute has the type of its variable. For limits such as `valid_max`, returns true only
/// for integers, because limits of floats might be rounded to 32-bit floats.
pub(crate) fn has_variable_type(name: &str, is_integer: bool) -> bool {
    match name {
        FILL | "missing_value" => true,
        "flag_masks" | "flag_values" | "valid_max" | "valid_min" | "valid_range" => is_integer,
        _ => false,
    }
}

/// A variant of the classic netCDF file format.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    /// CDF-1, whose offsets are below 2 GiB.
    First,
    /// CDF-2, which has 64-bit offsets.
    Second,
}

/// When the elements of an array are read for the netCDF file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ElementsIn {
    /// The elements are read from the store on demand.
    Store,
    /// The numbers are read when the file is opened, to check that they fit the narrower type of the file.
    Numbers,
    /// The texts are read when the file is opened, and padded to the longest one.
    Texts,
}

/// A data type of classic netCDF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NetcdfType {
    Byte,
    Char,
    Short,
    Int,
    Float,
    Double,
}

impl NetcdfType {
    /// Returns the netCDF type for a data type, and when the elements are read. Returns `None` if netCDF has no such
    /// type.
    pub(crate) fn of(data_type: &DataType) -> Option<(NetcdfType, ElementsIn)> {
        let (kind, come) = match data_type {
            DataType::Bool | DataType::Int(1) => (NetcdfType::Byte, ElementsIn::Store),
            DataType::FixedBytes(length) | DataType::FixedText(length) if *length > 0 => {
                (NetcdfType::Char, ElementsIn::Store)
            }
            DataType::Text | DataType::Object => (NetcdfType::Char, ElementsIn::Texts),
            DataType::Int(2) | DataType::UInt(1) => (NetcdfType::Short, ElementsIn::Store),
            DataType::Int(4) | DataType::UInt(2) => (NetcdfType::Int, ElementsIn::Store),
            DataType::Int(_)
            | DataType::UInt(_)
            | DataType::DateTime(_)
            | DataType::TimeDelta(_) => (NetcdfType::Int, ElementsIn::Numbers),
            DataType::Float(2 | 4) => (NetcdfType::Float, ElementsIn::Store),
            DataType::Float(8) => (NetcdfType::Double, ElementsIn::Store),
            _ => return None,
        };
        Some((kind, come))
    }

    /// Returns the number that stands for the type in a netCDF header.
    fn code(self) -> u32 {
        self as u32 + 1
    }

    fn is_integer(self) -> bool {
        !matches!(
            self,
            NetcdfType::Char | NetcdfType::Float | NetcdfType::Double
        )
    }

    /// Returns the size of an element of the netCDF type in bytes.
    pub(crate) fn size(self) -> usize {
        match self {
            NetcdfType::Byte | NetcdfType::Char => 1,
            NetcdfType::Short => 2,
            NetcdfType::Int | NetcdfType::Float => 4,
            NetcdfType::Double => 8,
        }
    }

    /// Returns the conversion from a data type to the netCDF type, or `None` if elements are written as decoded.
    pub(crate) fn conversion(self, data_type: &DataType) -> Option<Arc<dyn Conversion>> {
        match (self.size(), data_type) {
            (_, DataType::FixedText(length)) => Some(Arc::new(Utf8 { size: 4 * length })),
            (1, _) => None,
            (_, DataType::Float(2)) => Some(Arc::new(Widened::HalfFloat)),
            (_, DataType::UInt(width)) => Some(Arc::new(WidenedUnsigned { width: *width })),
            (size, _) => Some(Arc::new(BigEndian {
                size,
                word: size,
                inverts_top: false,
            })),
        }
    }

    /// Returns the array's fill value in the netCDF type, or `None` if the type cannot hold it.
    fn fill_of(self, array: &Array) -> Option<Vec<u8>> {
        let fill = &array.fill_value.bytes;
        match NetcdfType::of(&array.data_type)? {
            (_, ElementsIn::Numbers) => {
                Some(narrowed(&array.data_type, fill)?.to_be_bytes().to_vec())
            }
            (_, ElementsIn::Texts) => None,
            (_, ElementsIn::Store) => match self.conversion(&array.data_type) {
                None => Some(fill.clone()),
                Some(conversion) => {
                    let mut bytes = vec![0; conversion.written_size()];
                    conversion.convert(fill, &mut bytes);
                    Some(bytes)
                }
            },
        }
    }

    /// Returns the bytes of a JSON number in the netCDF type, or `None` if the type cannot hold it.
    #[expect(clippy::cast_possible_truncation, reason = "a float may be rounded")]
    fn bytes_of(self, number: &Value) -> Option<Vec<u8>> {
        let integer = || integer(number);
        Some(match self {
            NetcdfType::Byte => i8::try_from(integer()?).ok()?.to_be_bytes().to_vec(),
            NetcdfType::Char => vec![u8::try_from(integer()?).ok()?],
            NetcdfType::Short => i16::try_from(integer()?).ok()?.to_be_bytes().to_vec(),
            NetcdfType::Int => i32::try_from(integer()?).ok()?.to_be_bytes().to_vec(),
            NetcdfType::Float => (float(number)? as f32).to_be_bytes().to_vec(),
            NetcdfType::Double => float(number)?.to_be_bytes().to_vec(),
        })
    }
}

/// Converts an element that is an integer to an `i32`, or returns `None` if it does not fit.
pub(crate) fn narrowed(data_type: &DataType, element: &[u8]) -> Option<i32> {
    let mut bytes = [0; 8];
    bytes.get_mut(..element.len())?.copy_from_slice(element);
    match data_type {
        DataType::UInt(_) => i32::try_from(u64::from_le_bytes(bytes)).ok(),
        _ => i32::try_from(i64::from_le_bytes(bytes)).ok(),
    }
}

/// Converts the JSON value of an attribute to an integer, or returns `None` if it is not one.
#[expect(clippy::cast_possible_truncation, reason = "the number is checked")]
pub(crate) fn integer(value: &Value) -> Option<i128> {
    let whole = value.as_f64();
    let whole = whole.filter(|number| number.fract() == 0.0 && number.abs() < 9e15);
    let of_float = whole.map(|whole| i128::from(whole as i64));
    let of_u64 = || value.as_u64().map(i128::from);
    value.as_i64().map(i128::from).or_else(of_u64).or(of_float)
}

/// Whether the fill value of the array marks missing values although no attribute says so. This is assumed for an array
/// that xarray wrote (it has `_ARRAY_DIMENSIONS`), unless the fill value is 0, which may only be the default.
pub(crate) fn has_implied_fill(array: &Array) -> bool {
    let is_xarray = array.attributes.get("_ARRAY_DIMENSIONS").is_some();
    let is_zero = array.fill_value.bytes.iter().all(|&byte| byte == 0);
    let has_none = is_zero || array.attributes.get(FILL).is_some();
    let is_number = !matches!(
        array.data_type,
        DataType::Bool | DataType::FixedBytes(_) | DataType::FixedText(_)
    ) && !array.data_type.is_variable();
    is_xarray && is_number && !has_none
}

/// Returns the attributes by which xarray recognizes booleans, times and durations in a netCDF file.
pub(crate) fn xarray_attributes(array: &Array) -> Vec<(&'static str, String)> {
    match &array.data_type {
        DataType::Bool => vec![("dtype", "bool".to_string())],
        DataType::DateTime(unit) if array.attributes.get("units").is_none() => {
            let unit = cf_name_of(unit).map(|word| {
                let units = ("units", format!("{word} since 1970-01-01"));
                vec![units, ("calendar", "proleptic_gregorian".to_string())]
            });
            unit.unwrap_or_default()
        }
        DataType::TimeDelta(unit) if array.attributes.get("units").is_none() => {
            let unit = cf_name_of(unit).map(|word| {
                // xarray decodes durations only to `s`, `ms`, `us` and `ns`, so any other unit becomes `s`.
                let is_own = unit.name.ends_with('s');
                let own = if is_own { &unit.name } else { "s" };
                let dtype = ("dtype", format!("timedelta64[{own}]"));
                vec![("units", word.to_string()), dtype]
            });
            unit.unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

/// Returns a message that the file loses the array's unit of time; `None` if CF has the unit or the attributes state
/// one.
pub(crate) fn unit_left_out(path: &str, array: &Array) -> Option<String> {
    let (DataType::DateTime(unit) | DataType::TimeDelta(unit)) = &array.data_type else {
        return None;
    };
    let has_unit = cf_name_of(unit).is_some() || array.attributes.get("units").is_some();
    (!has_unit).then(|| {
        let data_type = &array.data_type;
        format!("{path}: the unit of {data_type}, which CF does not have; the numbers are kept")
    })
}

/// Returns CF's name of a numpy unit of time, or `None` if CF has no such unit.
fn cf_name_of(unit: &TimeUnit) -> Option<&'static str> {
    let word = match unit.name.as_str() {
        "D" => "days",
        "h" => "hours",
        "m" => "minutes",
        "s" => "seconds",
        "ms" => "milliseconds",
        "us" => "microseconds",
        "ns" => "nanoseconds",
        _ => return None,
    };
    (unit.scale == 1).then_some(word)
}

/// Parses a float that an attribute has as a string: JSON has no NaN or infinity, and xarray writes fill values as
/// base64.
pub(crate) fn float(value: &Value) -> Option<f64> {
    match value.as_str() {
        Some("NaN") => Some(f64::NAN),
        Some("Infinity") => Some(f64::INFINITY),
        Some("-Infinity") => Some(f64::NEG_INFINITY),
        Some(text) => {
            let bytes = BASE64_STANDARD.decode(text).ok()?;
            Some(f64::from_le_bytes(bytes.try_into().ok()?))
        }
        None => value.as_f64(),
    }
}

/// Whether a value is a valid `_FillValue` for a variable, that is, one number of the variable's type. A global
/// attribute of that name may have any value.
fn is_fill(variable: Option<NetcdfType>, value: &Value) -> bool {
    variable.is_none_or(|kind| of_type(kind, value).is_some_and(|(_, count, _)| count == 1))
}

/// An attribute, encoded for a netCDF header.
pub(crate) struct NetcdfAttribute {
    name: String,
    kind: NetcdfType,
    count: u64,
    bytes: Vec<u8>,
}

impl NetcdfAttribute {
    /// Encodes the attributes of an array as those of a netCDF variable.
    pub(crate) fn of_variable(array: &Array, kind: NetcdfType) -> Vec<NetcdfAttribute> {
        let mut list = NetcdfAttribute::list(&array.attributes, Some(kind));
        if has_implied_fill(array)
            && let Some(bytes) = kind.fill_of(array)
        {
            let name = FILL.to_string();
            list.push(NetcdfAttribute {
                name,
                kind,
                count: 1,
                bytes,
            });
        }
        let is_text =
            kind == NetcdfType::Char && !matches!(array.data_type, DataType::FixedBytes(_));
        let encoding = is_text.then(|| ("_Encoding", "utf-8".to_string()));
        for (name, text) in xarray_attributes(array).into_iter().chain(encoding) {
            if array.attributes.get(name).is_none() {
                list.push(NetcdfAttribute {
                    name: name.to_string(),
                    kind: NetcdfType::Char,
                    count: text.len() as u64,
                    bytes: text.into_bytes(),
                });
            }
        }
        list
    }

    /// Encodes the attributes of a variable (or of the file, without `variable`). Texts, numbers and lists of numbers
    /// keep their type; other values become JSON text. An attribute is renamed if netCDF does not allow its name, and
    /// so is a `_FillValue` that does not fit the variable.
    pub(crate) fn list(
        attributes: &Attributes,
        variable: Option<NetcdfType>,
    ) -> Vec<NetcdfAttribute> {
        let mut values = attributes.to_map();
        values.remove("_ARRAY_DIMENSIONS");
        let is_fill = values
            .get(FILL)
            .is_none_or(|value| is_fill(variable, value));
        let names = unique_names(values.keys(), |name| {
            is_name(name) && (name != FILL || is_fill)
        });
        let list = values.iter().zip(names).map(|((own, value), name)| {
            let typed = variable.filter(|kind| has_variable_type(&name, kind.is_integer()));
            let is_number = attributes.is_beyond_json(own, value);
            let double = || is_number.then(|| of_type(NetcdfType::Double, value))?;
            let typed = typed.and_then(|kind| of_type(kind, value));
            let (kind, count, bytes) = typed.or_else(double).unwrap_or_else(|| encoded(value));
            NetcdfAttribute {
                name,
                kind,
                count,
                bytes,
            }
        });
        list.collect()
    }
}

/// Encodes a number or a list of numbers in a netCDF type. Returns the type, the count and the bytes, or `None` if the
/// type cannot hold a number.
fn of_type(kind: NetcdfType, value: &Value) -> Option<(NetcdfType, u64, Vec<u8>)> {
    let numbers = match value {
        Value::Array(list) if !list.is_empty() => &list[..],
        value => std::slice::from_ref(value),
    };
    let bytes = numbers.iter().map(|number| kind.bytes_of(number));
    let bytes: Option<Vec<Vec<u8>>> = bytes.collect();
    Some((kind, numbers.len() as u64, bytes?.concat()))
}

/// Encodes the JSON value of an attribute; returns its netCDF type, its count and its bytes.
fn encoded(value: &Value) -> (NetcdfType, u64, Vec<u8>) {
    let numbers = match value {
        Value::Bool(truth) => vec![Value::from(u8::from(*truth))],
        Value::Number(_) => vec![value.clone()],
        Value::Array(list) if !list.is_empty() && list.iter().all(Value::is_number) => list.clone(),
        Value::String(text) => {
            return (
                NetcdfType::Char,
                text.len() as u64,
                text.clone().into_bytes(),
            );
        }
        other => {
            let text = other.to_string();
            return (NetcdfType::Char, text.len() as u64, text.into_bytes());
        }
    };
    let is_integer = numbers.iter().all(|number| !number.is_f64());
    let kinds: &[NetcdfType] = match (value, is_integer) {
        (Value::Bool(_), _) => &[NetcdfType::Byte],
        (_, true) => &[NetcdfType::Int],
        (_, false) => &[],
    };
    for &kind in kinds.iter().chain(&[NetcdfType::Double]) {
        let bytes: Option<Vec<Vec<u8>>> =
            numbers.iter().map(|number| kind.bytes_of(number)).collect();
        if let Some(bytes) = bytes {
            return (kind, numbers.len() as u64, bytes.concat());
        }
    }
    (NetcdfType::Char, 0, Vec::new())
}

/// The tag in front of a list in a netCDF header.
#[derive(Clone, Copy)]
pub(crate) enum ListTag {
    Dimensions = 10,
    Variables = 11,
    Attributes = 12,
}

/// Writes a classic netCDF header. The methods return `None` if a number is too large for CDF-1 or CDF-2.
pub(crate) struct HeaderWriter {
    variant: Variant,
    bytes: Vec<u8>,
}

impl HeaderWriter {
    /// Starts the header of a file without a record dimension.
    pub(crate) fn new(variant: Variant) -> HeaderWriter {
        let version = match variant {
            Variant::First => 1,
            Variant::Second => 2,
        };
        let bytes = [b"CDF".as_slice(), &[version], &[0; 4]].concat();
        HeaderWriter { variant, bytes }
    }

    /// Writes a count as a 32-bit number that is not negative.
    pub(crate) fn count(&mut self, count: u64) -> Option<()> {
        self.bytes.extend(i32::try_from(count).ok()?.to_be_bytes());
        Some(())
    }

    /// Writes the length of a dimension. Padding to a multiple of four bytes must not overflow 31 bits, so the largest
    /// lengths fail.
    pub(crate) fn dimension(&mut self, length: u64) -> Option<()> {
        i32::try_from(length.checked_add(3)?).ok()?;
        self.count(length)
    }

    /// Writes the tag and the length of a list in the header; an empty list is written as zeros.
    pub(crate) fn list_head(&mut self, tag: ListTag, length: usize) -> Option<()> {
        let tag = if length == 0 { 0 } else { tag as u32 };
        self.bytes.extend(tag.to_be_bytes());
        self.count(length as u64)
    }

    pub(crate) fn name(&mut self, name: &str) -> Option<()> {
        self.count(name.len() as u64)?;
        self.padded(name.as_bytes());
        Some(())
    }

    fn padded(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    pub(crate) fn kind(&mut self, kind: NetcdfType) {
        self.bytes.extend(kind.code().to_be_bytes());
    }

    pub(crate) fn attributes(&mut self, attributes: &[NetcdfAttribute]) -> Option<()> {
        self.list_head(ListTag::Attributes, attributes.len())?;
        for attribute in attributes {
            self.name(&attribute.name)?;
            self.kind(attribute.kind);
            self.count(attribute.count)?;
            self.padded(&attribute.bytes);
        }
        Some(())
    }

    /// Writes the padded size of a variable. A size beyond 32 bits is written as the largest number, and readers then
    /// compute the size themselves.
    pub(crate) fn variable_size(&mut self, size: u64) {
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        self.bytes.extend(size.to_be_bytes());
    }

    pub(crate) fn offset(&mut self, offset: u64) -> Option<()> {
        if self.variant == Variant::First {
            self.bytes.extend(i32::try_from(offset).ok()?.to_be_bytes());
        } else {
            self.bytes.extend(i64::try_from(offset).ok()?.to_be_bytes());
        }
        Some(())
    }

    /// Returns the finished header, whose length is a multiple of four bytes.
    pub(crate) fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_like_infinity_are_numbers_only_in_lists() {
        let text = r#"{"a": NaN, "b": [0.0, "Infinity"], "c": "NaN"}"#;
        let attributes = Attributes::parse(text).unwrap();
        let list = NetcdfAttribute::list(&attributes, None);
        let found: Vec<_> = list.iter().map(|found| (found.kind, found.count)).collect();
        let (double, text) = (NetcdfType::Double, NetcdfType::Char);
        assert_eq!(found, [(double, 1), (double, 2), (text, 3)]);
        assert_eq!(list[1].bytes[8..], f64::INFINITY.to_be_bytes());
    }
}
