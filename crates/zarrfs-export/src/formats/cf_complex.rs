//! Complex numbers of CF: those that stand for no value become NaN in both parts, as xarray has them.
//!
//! CF packs no complex numbers, so `scale_factor` and `add_offset` stay attributes.

use serde_json::Value;

use crate::formats::cf_attributes::{
    AttributeNumber, FILL, NoValues, encoded_number, missing_numbers,
};
use crate::formats::conversion::{Conversion, digest_of};
use zarr_format::model::Array;

/// What becomes of each number.
#[derive(Debug)]
pub(super) struct ComplexMask {
    /// Bytes of a number.
    size: usize,
    /// The numbers that stand for no value. As xarray has it they are floats of eight bytes, so that one of an attribute that
    /// is rounded in the array is another one.
    fills: Vec<[f64; 2]>,
}

impl ComplexMask {
    /// Returns what becomes of the numbers of an array; nothing if none of them stands for no value.
    pub(super) fn of(array: &Array, size: usize) -> Result<Option<ComplexMask>, NoValues> {
        let missing = missing_numbers(&array.attributes)?.into_iter();
        let mut fills: Vec<[f64; 2]> = missing.map(|number| [number.to_float(), 0.0]).collect();
        fills.extend(fill_number(array, size)?);
        fills.retain(|[real, imaginary]| !real.is_nan() && !imaginary.is_nan());
        Ok((!fills.is_empty()).then_some(ComplexMask { size, fills }))
    }
}

/// Returns the number that the fill value of v2 or `_FillValue` is; nothing if there is none.
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

/// Returns the parts of complex numbers.
fn pairs<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [[u8; N]; 2]> {
    let parts = bytes.as_chunks::<N>().0.as_chunks::<2>().0;
    parts.iter().copied()
}

/// Writes complex numbers, `nothing` in both parts for those that stand for no value.
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
