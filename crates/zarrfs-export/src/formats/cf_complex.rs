//! Masks complex numbers of CF: missing values become NaN in both parts, as in xarray.
//!
//! CF does not pack complex numbers, so `scale_factor` and `add_offset` stay attributes.

use serde_json::Value;

use crate::formats::cf_attributes::{
    AttributeNumber, FILL, NoValues, encoded_number, missing_numbers,
};
use crate::formats::conversion::{Conversion, digest_of};
use zarr_format::model::Array;

/// Replaces missing complex numbers by NaN.
#[derive(Debug)]
pub(super) struct ComplexMask {
    /// Size of a number in bytes.
    size: usize,
    /// The numbers that mark missing values. They are doubles, as in xarray: a number in an attribute does not equal
    /// an element that was rounded to a float.
    fills: Vec<[f64; 2]>,
}

impl ComplexMask {
    /// Returns the mask of an array, or `None` if no number marks missing values.
    pub(super) fn of(array: &Array, size: usize) -> Result<Option<ComplexMask>, NoValues> {
        let missing = missing_numbers(&array.attributes)?.into_iter();
        let mut fills: Vec<[f64; 2]> = missing.map(|number| [number.to_float(), 0.0]).collect();
        fills.extend(fill_number(array, size)?);
        fills.retain(|[real, imaginary]| !real.is_nan() && !imaginary.is_nan());
        Ok((!fills.is_empty()).then_some(ComplexMask { size, fills }))
    }
}

/// Returns the number of the fill value of v2 or of `_FillValue`, or `None` without a fill value.
fn fill_number(array: &Array, size: usize) -> Result<Option<[f64; 2]>, NoValues> {
    if array.dialect == "v2" && !array.fill_value.is_none {
        let bytes = &array.fill_value.bytes;
        return Ok(match size {
            8 => pairs::<4>(bytes).next().map(|pair| pair.map(wide)),
            _ => pairs::<8>(bytes)
                .next()
                .map(|pair| pair.map(f64::from_le_bytes)),
        });
    }
    let value = array.attributes.get(FILL).unwrap_or_default();
    let part = |value: &Value| {
        let number = AttributeNumber::read(value).or_else(|| encoded_number(value))?;
        Some(number.to_float())
    };
    let number = match &value {
        Value::Null => return Ok(None),
        Value::Array(parts) => match parts.as_slice() {
            [real, imaginary] => part(real).zip(part(imaginary)),
            _ => None,
        },
        real => part(real).zip(Some(0.0)),
    };
    let refused = || NoValues::of(FILL, &value, "a number, or a list of two");
    number
        .map(|(real, imaginary)| Some([real, imaginary]))
        .ok_or_else(refused)
}

fn wide(part: [u8; 4]) -> f64 {
    f64::from(f32::from_le_bytes(part))
}

/// Returns the two parts of each complex number.
fn pairs<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [[u8; N]; 2]> {
    let parts = bytes.as_chunks::<N>().0.as_chunks::<2>().0;
    parts.iter().copied()
}

/// Copies complex numbers, and writes `nothing` into both parts of missing ones.
fn mask<const N: usize>(
    decoded: &[u8],
    written: &mut [u8],
    nothing: [u8; N],
    is_fill: impl Fn([[u8; N]; 2]) -> bool,
) {
    let places = written.as_chunks_mut::<N>().0.as_chunks_mut::<2>().0;
    for (pair, place) in pairs::<N>(decoded).zip(places) {
        *place = if is_fill(pair) { [nothing; 2] } else { pair };
    }
}

impl Conversion for ComplexMask {
    fn written_size(&self) -> usize {
        self.size
    }

    fn convert(&self, decoded: &[u8], written: &mut [u8]) {
        let fills = &self.fills;
        if self.size == 8 {
            let is_fill = |pair: [[u8; 4]; 2]| fills.contains(&pair.map(wide));
            mask(decoded, written, f32::NAN.to_le_bytes(), is_fill);
        } else {
            let is_fill = |pair: [[u8; 8]; 2]| fills.contains(&pair.map(f64::from_le_bytes));
            mask(decoded, written, f64::NAN.to_le_bytes(), is_fill);
        }
    }

    fn digest(&self) -> u64 {
        digest_of(self)
    }
}
