//! Compares elements by value across data types of the same kind.
//!
//! 5 equals 5 in an `int16` and a `uint64`, in any byte order; a NaN equals any NaN, and 0 equals -0; text equals
//! text with the same characters. An integer never equals a float, since programs see two data types.

use std::borrow::Cow;

use crate::formats::elements;
use zarr_format::dialect::v3;
use zarr_format::model::{Array, DataType, Node};

/// The value of an element, independent of its data type.
#[derive(PartialEq)]
enum ElementValue<'a> {
    Whole(i128),
    /// The bits of a double; all NaN have the same bits, and so have both zeros.
    Float(u64),
    Complex(u64, u64),
    /// The bytes without padding.
    Bytes(Cow<'a, [u8]>),
}

/// Returns the kind of an array's values. Data types of the same kind may have equal elements.
pub(super) fn kind_of(array: &Array) -> String {
    let kind = match &array.data_type {
        DataType::Bool => "boolean",
        DataType::Int(_) | DataType::UInt(_) => "integer",
        DataType::Float(_) => "float",
        DataType::Complex(_) => "complex",
        DataType::FixedText(_) | DataType::Text | DataType::Object => "text",
        DataType::FixedBytes(_) | DataType::Bytes => "bytes",
        _ => {
            let rendered = v3::render(&Node::Array(Box::new(array.clone())));
            return rendered["data_type"].to_string();
        }
    };
    kind.to_string()
}

/// Whether two elements with types of the same kind have equal values.
pub(super) fn are_equal(one: TypedElement<'_>, other: TypedElement<'_>) -> bool {
    (one.data_type == other.data_type && one.bytes == other.bytes) || one.value() == other.value()
}

/// An element in little-endian bytes, with its type.
#[derive(Clone, Copy)]
pub(super) struct TypedElement<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) data_type: &'a DataType,
}

impl<'a> TypedElement<'a> {
    fn value(self) -> ElementValue<'a> {
        let element = self.bytes;
        match self.data_type {
            DataType::Int(_) => ElementValue::Whole(elements::integer(element, true)),
            DataType::UInt(_) => ElementValue::Whole(elements::integer(element, false)),
            DataType::Float(_) => ElementValue::Float(float(element)),
            DataType::Complex(_) => {
                let (real, imaginary) = element.split_at(element.len() / 2);
                ElementValue::Complex(float(real), float(imaginary))
            }
            DataType::FixedText(_) => {
                ElementValue::Bytes(elements::text(element).into_bytes().into())
            }
            DataType::FixedBytes(_) => ElementValue::Bytes(elements::unpadded(element).into()),
            _ => ElementValue::Bytes(element.into()),
        }
    }
}

/// Returns the bits of a float as a double; all NaN have the same bits, and so have both zeros.
fn float(element: &[u8]) -> u64 {
    match elements::float(element).unwrap_or(f64::NAN) {
        number if number.is_nan() => f64::NAN.to_bits(),
        0.0 => 0,
        number => number.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_one_kind_are_equal_by_value() {
        use DataType::{Bytes, Complex, FixedBytes, FixedText, Float, Int, Text, UInt};
        let text = |text: &str| -> Vec<u8> {
            text.chars()
                .flat_map(|letter| u32::from(letter).to_le_bytes())
                .collect()
        };
        let single = |number: f32| number.to_le_bytes().to_vec();
        let double = |number: f64| number.to_le_bytes().to_vec();
        let green = "gr\u{fc}n";
        for (is_equal, (bytes, one), (other_bytes, other)) in [
            (true, (vec![5], UInt(1)), (vec![5, 0, 0, 0], Int(4))),
            (true, (vec![0xfe], Int(1)), (vec![0xfe, 0xff], Int(2))),
            (true, (vec![0xff; 8], UInt(8)), (vec![0xff; 8], UInt(8))),
            (true, (single(1.5), Float(4)), (double(1.5), Float(8))),
            (
                true,
                (vec![1, 0x7c], Float(2)),
                (single(f32::NAN), Float(4)),
            ),
            (true, (double(-0.0), Float(8)), (vec![0; 4], Float(4))),
            (true, (vec![0; 8], Complex(8)), (vec![0; 16], Complex(16))),
            (
                true,
                (text("gr\u{fc}n\0\0"), FixedText(6)),
                (green.into(), Text),
            ),
            (true, (b"ab\0".into(), FixedBytes(3)), (b"ab".into(), Bytes)),
            (false, (vec![0xff], UInt(1)), (vec![0xff], Int(1))),
            (false, (vec![0xff; 8], UInt(8)), (vec![0xff; 8], Int(8))),
            (false, (single(1.1), Float(4)), (double(1.1), Float(8))),
            (
                false,
                (b"\0ab".into(), FixedBytes(3)),
                (b"ab".into(), Bytes),
            ),
        ] {
            let [first, second] = [(&bytes, &one), (&other_bytes, &other)]
                .map(|(bytes, data_type)| TypedElement { bytes, data_type });
            assert_eq!(are_equal(first, second), is_equal, "{one:?} {other:?}");
        }
    }
}
