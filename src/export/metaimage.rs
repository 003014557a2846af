//! `.mha` and `.mhd`: MetaImage of ITK, in one file and beside the `.raw` file.

use crate::export::axes::{axes_of, joined, placement_of};
use crate::export::format::filling;
use crate::export::{FileParts, Format, Subject};
use crate::model::DataType;

/// Header and elements.
pub const FORMAT: Format = Format {
    extension: "mha",
    needs: NEEDS,
    parts: Some(|subject| {
        let header = header(subject, "LOCAL")?;
        // A comment fills it up; programs take no notice of it.
        let comment = |length| format!("Comment = {}\n", "-".repeat(length));
        let filling = filling(header.len() + comment(1).len());
        let header = comment(1 + filling) + &header;
        Some(FileParts::plain(header.into_bytes()))
    }),
    ragged: None,
    is_basic: false,
};

/// The header alone, of the elements in the `.raw` file.
pub const DETACHED: Format = Format {
    extension: "mhd",
    needs: DETACHED_NEEDS,
    parts: Some(|subject| {
        let file = subject.raw_file_alone()?;
        header(subject, &file).map(FileParts::text)
    }),
    ragged: None,
    is_basic: false,
};

const NEEDS: &str = "bool, int8 to int64, uint8 to uint64, float32 or float64 in 1 to 10 dimensions, none of \
    length 0";
const DETACHED_NEEDS: &str = "bool, int8 to int64, uint8 to uint64, float32 or float64 in 1 to 10 dimensions, none of \
    length 0, and a name without control characters, quotes, < > & or %";

/// The most dimensions that MetaIO reads.
const MAX_RANK: usize = 10;

fn type_name(data_type: &DataType) -> Option<&'static str> {
    Some(match data_type {
        DataType::Int(1) => "MET_CHAR",
        DataType::Bool | DataType::UInt(1) => "MET_UCHAR",
        DataType::Int(2) => "MET_SHORT",
        DataType::UInt(2) => "MET_USHORT",
        DataType::Int(4) => "MET_INT",
        DataType::UInt(4) => "MET_UINT",
        // MET_LONG has another length on other systems.
        DataType::Int(8) => "MET_LONG_LONG",
        DataType::UInt(8) => "MET_ULONG_LONG",
        DataType::Float(4) => "MET_FLOAT",
        DataType::Float(8) => "MET_DOUBLE",
        _ => return None,
    })
}

/// Returns the header of elements that are in a file, or in this one, behind it.
fn header(subject: &Subject, file: &str) -> Option<String> {
    let type_name = type_name(&subject.array.data_type)?;
    if !subject.is_image(MAX_RANK) {
        return None;
    }
    let place = placement_of(&axes_of(subject));
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
    let lines = lines
        .iter()
        .map(|(name, value)| format!("{name} = {value}\n"));
    Some(lines.collect())
}
