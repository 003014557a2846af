//! `.nrrd` and `.nhdr`: nearly raw raster data (teem's NRRD0005), in one file and beside the `.raw` file.
//!
//! The sizes stand fastest first, so that elements in C order stay where they are. Attributes become pairs of key and
//! value.

use serde_json::Value;

use crate::export::axes::{AxisMeaning, axes_of, has_scale, joined, placement_of};
use crate::export::format::filling;
use crate::export::{FileParts, Format, Subject};
use crate::model::{Attributes, DataType};

/// Header and elements.
pub const FORMAT: Format = Format {
    extension: "nrrd",
    needs: NEEDS,
    parts: Some(|subject| {
        let header = header(subject)?;
        // A comment fills it up, and an empty line ends it.
        let filling = filling(header.len() + "#\n\n".len());
        let header = format!("{header}#{}\n\n", " ".repeat(filling));
        Some(FileParts::plain(header.into_bytes()))
    }),
    ragged: None,
    is_basic: false,
};

/// The header alone, of the elements in the `.raw` file.
pub const DETACHED: Format = Format {
    extension: "nhdr",
    needs: DETACHED_NEEDS,
    parts: Some(|subject| {
        let file = subject.raw_file_alone()?;
        let header = header(subject)?;
        Some(FileParts::text(format!("{header}data file: {file}\n")))
    }),
    ragged: None,
    is_basic: false,
};

const NEEDS: &str = "bool, int8 to int64, uint8 to uint64, float32 or float64 in 1 to 16 dimensions, none of \
    length 0";
const DETACHED_NEEDS: &str = "bool, int8 to int64, uint8 to uint64, float32 or float64 in 1 to 16 dimensions, none of \
    length 0, and a name without control characters, quotes, < > & or %";

/// The most dimensions that teem reads.
const MAX_RANK: usize = 16;

/// The most bytes of an attribute that is copied, and of all of them.
const MAX_VALUE: usize = 1 << 10;
const MAX_VALUES: usize = 32 << 10;

/// Names of fields, which no attribute can have beside them: some programs take no notice of how both are written.
const FIELDS: [&str; 38] = [
    "dimension",
    "space dimension",
    "sizes",
    "type",
    "endian",
    "encoding",
    "content",
    "block size",
    "blocksize",
    "lineskip",
    "line skip",
    "byteskip",
    "byte skip",
    "min",
    "max",
    "oldmin",
    "old min",
    "oldmax",
    "old max",
    "datafile",
    "data file",
    "sampleunits",
    "sample units",
    "space",
    "space origin",
    "space directions",
    "space units",
    "measurement frame",
    "spacings",
    "thicknesses",
    "axismins",
    "axis mins",
    "axismaxs",
    "axis maxs",
    "centerings",
    "labels",
    "units",
    "kinds",
];

fn type_name(data_type: &DataType) -> Option<String> {
    Some(match data_type {
        DataType::Bool => "uint8".to_string(),
        DataType::Int(width) => format!("int{}", width * 8),
        DataType::UInt(width) => format!("uint{}", width * 8),
        DataType::Float(4) => "float".to_string(),
        DataType::Float(8) => "double".to_string(),
        _ => return None,
    })
}

fn header(subject: &Subject) -> Option<String> {
    let type_name = type_name(&subject.array.data_type)?;
    if !subject.is_image(MAX_RANK) {
        return None;
    }
    let axes = axes_of(subject);
    let (rank, sizes) = (axes.len(), joined(subject.shape.iter().rev()));
    let mut text = format!("NRRD0005\ntype: {type_name}\ndimension: {rank}\n");
    let is_space = has_scale(&axes) && rank <= 3 && is_all_space(&axes);
    if is_space {
        text += &format!("space dimension: {rank}\n");
    }
    text += &format!("sizes: {sizes}\n");
    if is_space {
        text += &space(&axes);
    } else if has_scale(&axes) {
        text += &spacings(&axes);
    }
    if axes.iter().any(|axis| axis.name.is_some()) {
        text += &format!(
            "labels: {}\n",
            quoted(axes.iter().map(|axis| axis.name.as_deref()))
        );
    }
    if let Some(Value::String(unit)) = subject.array.attributes.get("units") {
        text += &sample_units(&unit);
    }
    text += "endian: little\nencoding: raw\n";
    text += &pairs(&subject.array.attributes);
    Some(text)
}

/// Whether all dimensions are directions of space, or nothing is known of any.
fn is_all_space(axes: &[AxisMeaning]) -> bool {
    use crate::export::axes::AxisKind::{Other, X, Y, Z};
    let is_space = |axis: &AxisMeaning| matches!(axis.kind, X | Y | Z);
    axes.iter().all(is_space) || axes.iter().all(|axis| axis.kind == Other)
}

/// Returns directions and origin of an image in space.
fn space(axes: &[AxisMeaning]) -> String {
    let (place, rank) = (placement_of(axes), axes.len());
    let vector = |numbers: Vec<f64>| {
        let numbers: Vec<String> = numbers.iter().map(f64::to_string).collect();
        format!("({})", numbers.join(","))
    };
    let direction = |dimension| {
        let spacing = place.spacing.get(dimension).copied().unwrap_or(1.0);
        let components = (0..rank).map(|component| match place.direction(dimension, component) {
            0.0 => 0.0,
            sign => sign * spacing,
        });
        vector(components.collect())
    };
    let mut text = format!("space directions: {}\n", joined((0..rank).map(direction)));
    if let Some(unit) = axes.first().and_then(|axis| axis.unit.as_deref()) {
        text += &format!("space units: {}\n", quoted(axes.iter().map(|_| Some(unit))));
    }
    text + &format!("space origin: {}\n", vector(place.origin))
}

/// Returns spacing and origin of dimensions that are not all directions of space.
fn spacings(axes: &[AxisMeaning]) -> String {
    let numbers =
        |value: fn(&AxisMeaning) -> Option<f64>| {
            joined(axes.iter().rev().map(|axis| {
                value(axis).map_or_else(|| "nan".to_string(), |number| number.to_string())
            }))
        };
    let mut text = format!("spacings: {}\n", numbers(|axis| axis.scale));
    text += &format!(
        "axis mins: {}\n",
        numbers(|axis| axis.scale.map(|_| axis.origin))
    );
    if axes.iter().any(|axis| axis.unit.is_some()) {
        text += &format!(
            "units: {}\n",
            quoted(axes.iter().map(|axis| axis.unit.as_deref()))
        );
    }
    text
}

/// Returns texts in quotes, fastest dimension first.
fn quoted<'a>(texts: impl DoubleEndedIterator<Item = Option<&'a str>>) -> String {
    let quoted = |text: Option<&str>| {
        let plain = text.unwrap_or_default().chars();
        let plain: String = plain
            .filter(|letter| !letter.is_control() && !"\"\\".contains(*letter))
            .collect();
        format!("\"{plain}\"")
    };
    joined(texts.rev().map(quoted))
}

/// Returns the unit of the elements, if it is one line and short.
fn sample_units(unit: &str) -> String {
    let is_plain = !unit.trim().is_empty() && !unit.contains(|letter: char| letter.is_control());
    if is_plain && unit.len() <= MAX_VALUE {
        format!("sample units: {}\n", unit.trim())
    } else {
        String::new()
    }
}

/// Returns attributes as pairs of key and value, without those that are long.
fn pairs(attributes: &Attributes) -> String {
    let mut text = String::new();
    for (name, value) in attributes.to_map() {
        let value = match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        let is_key = !name.is_empty()
            && !name.starts_with('#')
            && !FIELDS.contains(&name.trim().to_ascii_lowercase().as_str())
            && !name.contains(|letter: char| letter.is_control() || ":=".contains(letter));
        if is_key && !value.is_empty() && value.len() <= MAX_VALUE && text.len() < MAX_VALUES {
            let value = value
                .replace('\\', "\\\\")
                .replace('\n', "\\n")
                .replace('\r', " ");
            text += &format!("{name}:={value}\n");
        }
    }
    text
}
