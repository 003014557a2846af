//! `.nii`: NIfTI-1, or NIfTI-2 where a dimension is longer than that can say.
//!
//! Dimensions are x, y, z, time and channel, fastest first. Where the array names all of its own, they are put in that
//! order, and the elements with them; else they are taken as they come.

use crate::export::axes::{AxisKind, AxisMeaning, axes_of};
use crate::export::header_bytes::{HeaderBytes, single};
use crate::export::units::Unit;
use crate::export::{ElementForm, FileParts, Format, Subject};
use crate::model::DataType;

/// Header and elements.
pub const FORMAT: Format = Format {
    extension: "nii",
    needs: "bool, int8 to int64, uint8 to uint64, float32, float64, complex64 or complex128 in 1 to \
            7 dimensions, none of length 0",
    parts: Some(parts),
    ragged: None,
    is_basic: false,
};

const MAX_RANK: usize = 7;

/// The number of a data type in the header, and its bits.
fn code(data_type: &DataType) -> Option<(i16, i16)> {
    Some(match data_type {
        DataType::Bool | DataType::UInt(1) => (2, 8),
        DataType::Int(2) => (4, 16),
        DataType::Int(4) => (8, 32),
        DataType::Float(4) => (16, 32),
        DataType::Complex(8) => (32, 64),
        DataType::Float(8) => (64, 64),
        DataType::Int(1) => (256, 8),
        DataType::UInt(2) => (512, 16),
        DataType::UInt(4) => (768, 32),
        DataType::Int(8) => (1024, 64),
        DataType::UInt(8) => (1280, 64),
        DataType::Complex(16) => (1792, 128),
        _ => return None,
    })
}

/// A dimension of the file: that of the array, or of one element.
struct FileAxis<'a> {
    length: u64,
    axis: Option<&'a AxisMeaning>,
}

fn parts(subject: &Subject) -> Option<FileParts> {
    let code = code(&subject.array.data_type)?;
    if !subject.is_image(MAX_RANK) {
        return None;
    }
    let axes = axes_of(subject);
    let order = order_of(&axes);
    let dimensions = dimensions(subject, &axes, order.as_deref());
    let is_short = |axis: &FileAxis| i16::try_from(axis.length).is_ok();
    let header = if dimensions.iter().all(is_short) {
        first(&dimensions, code)?
    } else {
        second(&dimensions, code)?
    };
    let is_own = |order: &Vec<usize>| order.iter().enumerate().all(|(place, &axis)| place == axis);
    Some(FileParts {
        header,
        elements: Some(ElementForm {
            order: order.filter(|order| !is_own(order)),
            conversion: None,
        }),
        ..FileParts::default()
    })
}

/// Returns the dimensions of the array from channel to x, if each is one of these and none is there twice.
fn order_of(axes: &[AxisMeaning]) -> Option<Vec<usize>> {
    let mut order: Vec<usize> = (0..axes.len()).collect();
    let kind = |&axis: &usize| axes.get(axis).map_or(AxisKind::Other, |axis| axis.kind);
    order.sort_by_key(|axis| std::cmp::Reverse(kind(axis)));
    let is_known = order.iter().all(|axis| kind(axis) != AxisKind::Other);
    let is_unique = order.windows(2).all(|pair| match pair {
        [slower, faster] => kind(slower) != kind(faster),
        _ => true,
    });
    (is_known && is_unique).then_some(order)
}

/// Returns the dimensions of the file, x first.
fn dimensions<'a>(
    subject: &Subject,
    axes: &'a [AxisMeaning],
    order: Option<&[usize]>,
) -> Vec<FileAxis<'a>> {
    let of_array = |axis: usize| FileAxis {
        length: subject.shape.get(axis).copied().unwrap_or(1),
        axis: axes.get(axis),
    };
    let Some(order) = order else {
        return (0..axes.len()).rev().map(of_array).collect();
    };
    let mut dimensions: Vec<FileAxis> = Vec::new();
    for &axis in order.iter().rev() {
        let slot = axes.get(axis).map_or(0, |axis| axis.kind as usize);
        while dimensions.len() < slot {
            dimensions.push(FileAxis {
                length: 1,
                axis: None,
            });
        }
        dimensions.push(of_array(axis));
    }
    dimensions
}

/// Returns what the unit of a dimension is called here, and how many of that it is.
fn unit(axis: &AxisMeaning) -> (u8, f64) {
    match Unit::of(axis) {
        Some(Unit::Metre) => (1, 1.0),
        Some(Unit::Millimetre) => (2, 1.0),
        Some(Unit::Centimetre) => (2, 10.0),
        Some(Unit::Micrometre) => (3, 1.0),
        Some(Unit::Nanometre) => (3, 1e-3),
        Some(Unit::Angstrom) => (3, 1e-4),
        Some(Unit::Second) => (8, 1.0),
        Some(Unit::Minute) => (8, 60.0),
        Some(Unit::Hour) => (8, 3600.0),
        Some(Unit::Millisecond) => (16, 1.0),
        Some(Unit::Microsecond) => (24, 1.0),
        Some(Unit::Degree) | None => (0, 1.0),
    }
}

/// Scale, origin and unit of the dimensions.
struct World {
    units: u8,
    /// Distances between elements, positive.
    steps: [f64; 7],
    /// Rows of the affine map of x, y and z.
    rows: [[f64; 4]; 3],
}

fn world(dimensions: &[FileAxis]) -> World {
    let (mut units, mut steps, mut rows) = (0, [1.0; 7], [[0.0; 4]; 3]);
    for (place, row) in rows.iter_mut().enumerate() {
        row[place] = 1.0;
    }
    for (place, step) in steps.iter_mut().enumerate() {
        let Some(axis) = dimensions.get(place).and_then(|dimension| dimension.axis) else {
            continue;
        };
        let (code, factor) = unit(axis);
        if (place < 3 && code < 8) || (place == 3 && code >= 8) {
            // All directions of space have one unit; the last one counts, and others are not converted to it.
            units = if place < 3 {
                code | units & !7
            } else {
                code | units & 7
            };
        }
        *step = axis.step().abs() * factor;
        if let Some(row) = rows.get_mut(place) {
            row[place] = axis.step() * factor;
            row[3] = axis.origin * factor;
        }
    }
    World { units, steps, rows }
}

fn first(dimensions: &[FileAxis], (code, bits): (i16, i16)) -> Option<Vec<u8>> {
    let world = world(dimensions);
    let mut header = HeaderBytes::new(352);
    header.put(0, &348_i32.to_le_bytes());
    header.put(38, b"r");
    header.put(40, &i16::try_from(dimensions.len()).ok()?.to_le_bytes());
    for place in 0..7 {
        let length = dimensions
            .get(place)
            .map_or(1, |dimension| dimension.length);
        header.put(42 + 2 * place, &i16::try_from(length).ok()?.to_le_bytes());
        header.put(80 + 4 * place, &single(world.steps[place]));
    }
    header.put(70, &code.to_le_bytes());
    header.put(72, &bits.to_le_bytes());
    // pixdim[0] is the handedness of the other way to say where the image lies.
    header.put(76, &single(1.0));
    header.put(108, &single(352.0));
    header.put(112, &single(1.0));
    header.put(123, &[world.units]);
    header.put(254, &1_i16.to_le_bytes());
    for (place, number) in world.rows.iter().flatten().enumerate() {
        header.put(280 + 4 * place, &single(*number));
    }
    header.put(344, b"n+1\0");
    Some(header.0)
}

fn second(dimensions: &[FileAxis], (code, bits): (i16, i16)) -> Option<Vec<u8>> {
    let world = world(dimensions);
    let mut header = HeaderBytes::new(544);
    header.put(0, &540_i32.to_le_bytes());
    header.put(4, b"n+2\0\r\n\x1a\n");
    header.put(12, &code.to_le_bytes());
    header.put(14, &bits.to_le_bytes());
    header.put(16, &i64::try_from(dimensions.len()).ok()?.to_le_bytes());
    for place in 0..7 {
        let length = dimensions
            .get(place)
            .map_or(1, |dimension| dimension.length);
        header.put(24 + 8 * place, &i64::try_from(length).ok()?.to_le_bytes());
        header.put(112 + 8 * place, &world.steps[place].to_le_bytes());
    }
    header.put(104, &1_f64.to_le_bytes());
    header.put(168, &544_i64.to_le_bytes());
    header.put(176, &1_f64.to_le_bytes());
    header.put(348, &1_i32.to_le_bytes());
    for (place, number) in world.rows.iter().flatten().enumerate() {
        header.put(400 + 8 * place, &number.to_le_bytes());
    }
    header.put(500, &i32::from(world.units).to_le_bytes());
    Some(header.0)
}
