//! `.vti`: a VTK image as XML, with the raw elements appended.

use crate::formats::axes::{Dimensions, dimensions_of, joined};
use crate::formats::format::filling;
use crate::formats::volumes::Placement;
use crate::formats::{FileParts, Subject, units};
use zarr_format::model::{DataType, bytes_of};

fn type_name(data_type: &DataType) -> Option<String> {
    Some(match data_type {
        DataType::Bool => "UInt8".to_string(),
        DataType::Int(width) => format!("Int{}", width * 8),
        DataType::UInt(width) => format!("UInt{}", width * 8),
        DataType::Float(width @ (4 | 8)) => format!("Float{}", width * 8),
        _ => return None,
    })
}

/// Makes a `.vti` file: the XML, the elements, and the end of the XML; `None` if VTK cannot hold the array.
pub(crate) fn parts(subject: &Subject) -> Option<FileParts> {
    let type_name = type_name(&subject.array.data_type)?;
    if !subject.is_image(3) {
        return None;
    }
    let length = bytes_of(subject.shape, subject.array.data_type.size()?).ok()?;
    let dimensions = dimensions_of(subject);
    let mut header = xml(subject, &dimensions, &type_name)?;
    let filling = filling(header.len() + "_".len() + size_of::<u64>());
    header += &" ".repeat(filling);
    header.push('_');
    let mut header = header.into_bytes();
    header.extend(length.to_le_bytes());
    let mut left_out = dimensions.left_out.clone();
    left_out.extend(units::left_out(
        dimensions.axes.iter(),
        "the format cannot store units",
    ));
    Some(FileParts {
        left_out,
        trailer: b"\n  </AppendedData>\n</VTKFile>\n".to_vec(),
        ..FileParts::plain(header)
    })
}

/// Returns the XML up to the underscore, after which the file has the length of the elements in bytes and the elements.
fn xml(subject: &Subject, dimensions: &Dimensions, type_name: &str) -> Option<String> {
    let place = Placement::of(dimensions);
    let three = |list: &[f64], other: f64| {
        joined((0..3).map(|axis| list.get(axis).copied().unwrap_or(other)))
    };
    let last = |axis: usize| {
        subject
            .shape
            .iter()
            .rev()
            .nth(axis)
            .map_or(0, |length| length - 1)
    };
    if (0..3).any(|axis| i32::try_from(last(axis)).is_err()) {
        return None;
    }
    let extent = joined((0..3).flat_map(|axis| [0, last(axis)]));
    let direction = (0..9).map(|at| match (at / 3, at % 3) {
        (component, dimension) if dimension < subject.shape.len() => {
            place.direction(dimension, component)
        }
        (component, dimension) => f64::from(u8::from(component == dimension)),
    });
    let (origin, spacing) = (three(&place.origin, 0.0), three(&place.spacing, 1.0));
    let (name, direction) = (subject.text_name()?, joined(direction));
    Some(format!(
        "<?xml version=\"1.0\"?>\n\
         <VTKFile type=\"ImageData\" version=\"1.0\" byte_order=\"LittleEndian\" header_type=\"UInt64\">\n  \
         <ImageData WholeExtent=\"{extent}\" Origin=\"{origin}\" Spacing=\"{spacing}\" Direction=\"{direction}\">\n    \
         <Piece Extent=\"{extent}\">\n      <PointData Scalars=\"{name}\">\n        \
         <DataArray type=\"{type_name}\" Name=\"{name}\" format=\"appended\" offset=\"0\"/>\n      \
         </PointData>\n    </Piece>\n  </ImageData>\n  <AppendedData encoding=\"raw\">\n   "
    ))
}
