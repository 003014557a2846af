//! `.mrc`: images, volumes and stacks of volumes of MRC2014, little-endian.
//!
//! Cell lengths are in angstrom if the unit of the array is known. The header marks minimum, maximum and mean as
//! undetermined, because they depend on all elements.

use std::sync::Arc;

use crate::formats::axes::{AxisMeaning, dimensions_of};
use crate::formats::conversion::{Conversion, Widened};
use crate::formats::units::{Quantity, Unit};
use crate::formats::volumes::{HeaderBytes, single};
use crate::formats::{ElementForm, FileParts, Subject};
use zarr_format::model::DataType;

/// Returns the MRC mode, which is the number for a data type. MRC has no unsigned bytes, so they are written as 16-bit
/// numbers.
fn mode(data_type: &DataType) -> Option<i32> {
    Some(match data_type {
        DataType::Bool | DataType::Int(1) => 0,
        DataType::Int(2) => 1,
        DataType::Float(4) => 2,
        DataType::Complex(8) => 4,
        DataType::UInt(1 | 2) => 6,
        DataType::Float(2) => 12,
        _ => return None,
    })
}

/// Makes an `.mrc` file of header and elements; `None` if MRC cannot hold the array.
pub(crate) fn parts(subject: &Subject) -> Option<FileParts> {
    let mode = mode(&subject.array.data_type)?;
    if !subject.is_image(4) || subject.shape.len() < 2 {
        return None;
    }
    let is_widened = subject.array.data_type == DataType::UInt(1);
    let dimensions = dimensions_of(subject);
    Some(FileParts {
        left_out: dimensions.left_out_without_directions(),
        header: header(subject, &dimensions.axes, mode)?,
        elements: Some(ElementForm {
            order: None,
            conversion: is_widened.then(|| Arc::new(Widened::Byte) as Arc<dyn Conversion>),
        }),
        ..FileParts::default()
    })
}

fn header(subject: &Subject, axes: &[AxisMeaning], mode: i32) -> Option<Vec<u8>> {
    let lengths = subject.shape.iter().rev();
    let lengths: Vec<i32> = lengths
        .map(|&length| i32::try_from(length).ok())
        .collect::<Option<_>>()?;
    let length = |place: usize| lengths.get(place).copied().unwrap_or(1);
    let sections = length(2).checked_mul(length(3))?;
    // In MRC, the space group is 401 for a stack of volumes, 1 for a volume and 0 for an image.
    let space_group = match lengths.len() {
        4 => 401,
        3 => 1,
        _ => 0,
    };
    let mut header = HeaderBytes::new(1024);
    put_cell(&mut header, axes, length);
    let mut put = |place: usize, bytes: [u8; 4]| header.put(place, &bytes);
    for (place, number) in [length(0), length(1), sections, mode].iter().enumerate() {
        put(4 * place, number.to_le_bytes());
    }
    // MRC2014 marks the statistics of the elements as undetermined by maximum < minimum, mean < both, and RMS < 0.
    put(80, single(-1.0));
    put(84, single(-2.0));
    put(216, single(-1.0));
    put(88, i32::to_le_bytes(space_group));
    put(108, 20_141_i32.to_le_bytes());
    put(208, *b"MAP ");
    put(212, [0x44, 0x44, 0, 0]);
    Some(header.0)
}

/// Writes the cell size and the origin of an image to the MRC header, in the order columns, rows, sections.
fn put_cell(header: &mut HeaderBytes, axes: &[AxisMeaning], length: impl Fn(usize) -> i32) {
    for (place, direction) in (0..3).zip(1_i32..) {
        let axis = axes.iter().rev().nth(place);
        let factor = axis.map_or(1.0, angstroms);
        let (step, origin) = axis.map_or((1.0, 0.0), |axis| (axis.step(), axis.origin));
        let side = f64::from(length(place)) * step.abs() * factor;
        let mut put = |start: usize, bytes: [u8; 4]| header.put(start + 4 * place, &bytes);
        put(28, length(place).to_le_bytes());
        put(40, single(side));
        put(52, single(90.0));
        put(64, direction.to_le_bytes());
        put(196, single(origin * factor));
    }
}

/// Returns the number of angstroms per unit of a dimension, or 1 if the unit is unknown.
fn angstroms(axis: &AxisMeaning) -> f64 {
    let unit = Unit::of(axis).filter(|unit| unit.quantity == Quantity::Length);
    unit.map_or(1.0, |unit| unit.in_power_of_ten(-10))
}
