//! `.mha` and `.mhd`: ITK's MetaImage, in one file or as a header for `.raw`.

use crate::formats::axes::{AxisMeaning, Dimensions, dimensions_of, joined};
use crate::formats::format::filling;
use crate::formats::units::{self, Quantity, Unit};
use crate::formats::volumes::{Placement, TextHeader};
use crate::formats::{FileParts, Subject};
use zarr_format::model::DataType;

/// Makes a `.mha` file of header and elements; `None` if MetaImage cannot hold the array.
pub(crate) fn parts(subject: &Subject) -> Option<FileParts> {
    let TextHeader { text, left_out } = header(subject, "LOCAL")?;
    // A comment of dashes, which programs ignore, aligns the elements in the file.
    let comment = |length| format!("Comment = {}\n", "-".repeat(length));
    let filling = filling(text.len() + comment(1).len());
    let header = comment(1 + filling) + &text;
    Some(FileParts {
        left_out,
        ..FileParts::plain(header.into_bytes())
    })
}

/// Makes a `.mhd` file of the header alone, for the elements in the `.raw` file.
pub(crate) fn detached(subject: &Subject) -> Option<FileParts> {
    let file = subject.raw_file_alone()?;
    let TextHeader { text, left_out } = header(subject, &file)?;
    Some(FileParts {
        left_out,
        ..FileParts::text(text)
    })
}

fn type_name(data_type: &DataType) -> Option<&'static str> {
    Some(match data_type {
        DataType::Int(1) => "MET_CHAR",
        DataType::Bool | DataType::UInt(1) => "MET_UCHAR",
        DataType::Int(2) => "MET_SHORT",
        DataType::UInt(2) => "MET_USHORT",
        DataType::Int(4) => "MET_INT",
        DataType::UInt(4) => "MET_UINT",
        // `MET_LONG` is not used, because its size differs between platforms.
        DataType::Int(8) => "MET_LONG_LONG",
        DataType::UInt(8) => "MET_ULONG_LONG",
        DataType::Float(4) => "MET_FLOAT",
        DataType::Float(8) => "MET_DOUBLE",
        _ => return None,
    })
}

/// Returns the text of a MetaImage header. `file` is the name of the file with the elements, or `LOCAL` if they follow
/// the header.
fn header(subject: &Subject, file: &str) -> Option<TextHeader> {
    let type_name = type_name(&subject.array.data_type)?;
    if !subject.is_image(10) {
        return None;
    }
    let dimensions = dimensions_of(subject);
    let place = Placement::of(&dimensions);
    let rank = subject.shape.len();
    let matrix = (0..rank).flat_map(|dimension| {
        let place = &place;
        (0..rank).map(move |component| place.direction(dimension, component))
    });
    let lines = [
        ("ObjectType", "Image".to_string()),
        ("NDims", rank.to_string()),
        ("BinaryData", "True".to_string()),
        ("BinaryDataByteOrderMSB", "False".to_string()),
        ("CompressedData", "False".to_string()),
        ("TransformMatrix", joined(matrix)),
        ("Offset", joined(&place.origin)),
        ("CenterOfRotation", joined(vec![0; rank])),
        ("ElementSpacing", joined(&place.spacing)),
        ("DimSize", joined(subject.shape.iter().rev())),
        ("ElementType", type_name.to_string()),
        ("ElementDataFile", file.to_string()),
    ];
    let mut lines: Vec<(&str, String)> = lines.into();
    let distance_unit = distance_unit(&place);
    if let Some(unit) = distance_unit {
        lines.insert(5, ("DistanceUnits", unit.to_string()));
    }
    if let Some(sides) = sides(&dimensions, &place) {
        lines.insert(5, ("AnatomicalOrientation", sides));
    }
    let lines = lines
        .iter()
        .map(|(name, value)| format!("{name} = {value}\n"));
    let is_supported = |axis: &&AxisMeaning| distance_unit.is_some() && is_length(axis);
    let axes = dimensions.axes.iter().filter(|axis| !is_supported(axis));
    let mut left_out = dimensions.left_out.clone();
    left_out.extend(units::left_out(
        axes,
        "the header supports one of um, mm and cm for all lengths",
    ));
    Some(TextHeader {
        text: lines.collect(),
        left_out,
    })
}

/// Returns ITK's letters for the anatomical side at which each dimension begins. Returns `None` unless the image has
/// three anatomical dimensions; their directions are in LPS space (left, posterior, superior).
fn sides(dimensions: &Dimensions, place: &Placement) -> Option<String> {
    let oblique = dimensions.oblique.as_ref()?;
    if oblique.orientation.is_none() || oblique.axes.len() != 3 {
        return None;
    }
    let side = |dimension: usize| {
        let part = |component: usize| place.direction(dimension, component);
        let longest = (0..3).max_by(|&a, &b| part(a).abs().total_cmp(&part(b).abs()))?;
        let (from, to) = *[('R', 'L'), ('A', 'P'), ('I', 'S')].get(longest)?;
        Some(if part(longest) > 0.0 { from } else { to })
    };
    (0..3).map(side).collect()
}

fn is_length(axis: &AxisMeaning) -> bool {
    Unit::of(axis).is_some_and(|unit| unit.quantity == Quantity::Length)
}

/// Returns MetaIO's name for the unit of length; `None` if dimensions have different units, or if MetaIO has no name
/// for the unit.
fn distance_unit(place: &Placement) -> Option<&'static str> {
    let units = place.units.iter().flatten();
    let mut lengths = units
        .filter_map(|name| Unit::named(name))
        .filter(|unit| unit.quantity == Quantity::Length);
    let first = lengths.next()?;
    match first.symbol {
        _ if lengths.any(|other| other != first) => None,
        "\u{b5}m" => Some("um"),
        symbol @ ("mm" | "cm") => Some(symbol),
        _ => None,
    }
}
