//! `.nrrd` and `.nhdr`: nearly raw raster data (teem's NRRD0005), with or without the elements.
//!
//! `.nhdr` is only a header, for the elements in the `.raw` file. NRRD lists sizes with the fastest dimension first, so
//! elements stay in C order. Attributes become key/value pairs.

use serde_json::Value;

use crate::formats::axes::{AxisMeaning, Dimensions, dimensions_of, has_scale, joined};
use crate::formats::format::filling;
use crate::formats::volumes::{Placement, TextHeader};
use crate::formats::{FileParts, Subject};
use zarr_format::model::{Attributes, DataType};

/// Makes a `.nrrd` file of header and elements; `None` if NRRD cannot hold the array.
pub(crate) fn parts(subject: &Subject) -> Option<FileParts> {
    let TextHeader { text, left_out } = header(subject)?;
    // A comment of spaces aligns the elements; the empty line after it ends the header.
    let filling = filling(text.len() + "#\n\n".len());
    let header = format!("{text}#{}\n\n", " ".repeat(filling));
    Some(FileParts {
        left_out,
        ..FileParts::plain(header.into_bytes())
    })
}

/// Makes a `.nhdr` file of the header alone, for the elements in the `.raw` file.
pub(crate) fn detached(subject: &Subject) -> Option<FileParts> {
    let file = subject.raw_file_alone()?;
    let TextHeader { text, left_out } = header(subject)?;
    Some(FileParts {
        left_out,
        ..FileParts::text(format!("{text}data file: {file}\n"))
    })
}

/// Maximum size in bytes of an attribute that is copied to the header, and of all copied attributes.
const MAX_VALUE: usize = 1 << 10;
const MAX_VALUES: usize = 32 << 10;

/// The names of NRRD's fields. No attribute is written with such a name, since some programs do not distinguish fields
/// from key/value pairs.
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

fn header(subject: &Subject) -> Option<TextHeader> {
    let type_name = type_name(&subject.array.data_type)?;
    if !subject.is_image(16) {
        return None;
    }
    let dimensions = dimensions_of(subject);
    let axes = &dimensions.axes;
    let (rank, sizes) = (axes.len(), joined(subject.shape.iter().rev()));
    let mut text = format!("NRRD0005\ntype: {type_name}\ndimension: {rank}\n");
    let is_space = is_in_space(&dimensions);
    let of_body = space_of_body(&dimensions);
    if let Some(name) = of_body {
        text += &format!("space: {name}\n");
    } else if is_space {
        text += &format!("space dimension: {rank}\n");
    }
    text += &format!("sizes: {sizes}\n");
    if is_space {
        text += &space(&Placement::of(&dimensions), axes.len());
    } else if has_scale(axes) {
        text += &spacings(axes);
    }
    if axes.iter().any(|axis| axis.name.is_some()) {
        text += &format!(
            "labels: {}\n",
            quoted(axes.iter().rev().map(|axis| axis.name.as_deref()))
        );
    }
    if let Some(Value::String(unit)) = subject.array.attributes.get("units") {
        text += &sample_units(&unit);
    }
    text += "endian: little\nencoding: raw\n";
    let pairs = pairs(&subject.array.attributes);
    text += &pairs.text;
    let mut left_out = dimensions.left_out.clone();
    left_out.extend(dimensions.without_directions().filter(|_| !is_space));
    let oblique = dimensions.oblique.as_ref();
    let ways = oblique.and_then(|oblique| oblique.orientation.as_ref());
    left_out.extend(
        ways.filter(|_| is_space && of_body.is_none())
            .map(|ways| format!("{ways}: the header supports only x, y, z and time")),
    );
    left_out.extend(pairs.left_out);
    Some(TextHeader { text, left_out })
}

/// Whether the header states directions in space instead of spacings: for an oblique image, and for at most 3
/// dimensions with a known scale that are all directions of space or all of unknown kind.
fn is_in_space(dimensions: &Dimensions) -> bool {
    use crate::formats::axes::AxisKind::Other;
    let axes = &dimensions.axes;
    if dimensions.oblique.is_some() {
        // teem supports spaces of at most 8 dimensions, so larger ones are written as spacings.
        return axes.len() <= 8;
    }
    let is_space = axes.iter().all(|axis| axis.kind.is_space());
    let is_unknown = axes.iter().all(|axis| axis.kind == Other);
    has_scale(axes) && axes.len() <= 3 && (is_space || is_unknown)
}

/// Returns NRRD's name of an image's anatomical space; `None` if the image has no anatomical orientation, or if NRRD
/// has no anatomical space with the image's dimensions.
fn space_of_body(dimensions: &Dimensions) -> Option<&'static str> {
    use crate::formats::axes::AxisKind::{Time, X, Y, Z};
    let oblique = dimensions.oblique.as_ref();
    let oblique = oblique.filter(|oblique| oblique.orientation.is_some())?;
    let kinds: Vec<_> = oblique.axes.iter().map(|axis| axis.kind).collect();
    let has_all = [X, Y, Z].iter().all(|kind| kinds.contains(kind));
    match (has_all, kinds.len(), kinds.first()) {
        (true, 3, _) => Some("left-posterior-superior"),
        (true, 4, Some(Time)) => Some("left-posterior-superior-time"),
        _ => None,
    }
}

/// Returns the header lines with the directions and the origin of an image in space.
fn space(place: &Placement, rank: usize) -> String {
    let vector = |numbers: Vec<f64>| {
        let numbers: Vec<String> = numbers.iter().map(f64::to_string).collect();
        format!("({})", numbers.join(","))
    };
    let direction = |dimension| {
        let spacing = place.spacing.get(dimension).copied().unwrap_or(1.0);
        let components = (0..rank).map(|component| match place.direction(dimension, component) {
            0.0 => 0.0,
            part => part * spacing,
        });
        vector(components.collect())
    };
    let mut text = format!("space directions: {}\n", joined((0..rank).map(direction)));
    if place.units.iter().any(Option::is_some) {
        let units = place.units.iter();
        text += &format!("space units: {}\n", quoted(units.map(Option::as_deref)));
    }
    text + &format!("space origin: {}\n", vector(place.origin.clone()))
}

/// Returns the header lines with spacings and origins, for dimensions that are not all directions of space.
fn spacings(axes: &[AxisMeaning]) -> String {
    let numbers = |value: fn(&AxisMeaning) -> f64| joined(axes.iter().rev().map(value));
    let mut text = format!("spacings: {}\n", numbers(AxisMeaning::step));
    text += &format!("axis mins: {}\n", numbers(|axis| axis.origin));
    // With "node", the axis minimum is the position of the first element; with "cell", it would be half an element
    // before it.
    text += &format!("centerings: {}\n", joined(vec!["node"; axes.len()]));
    if axes.iter().any(|axis| axis.unit.is_some()) {
        text += &format!(
            "units: {}\n",
            quoted(axes.iter().rev().map(|axis| axis.unit.as_deref()))
        );
    }
    text
}

/// Joins texts, each in quotes; a missing text is empty.
fn quoted<'a>(texts: impl Iterator<Item = Option<&'a str>>) -> String {
    let quoted = |text: Option<&str>| {
        let plain = text.unwrap_or_default().chars();
        let plain: String = plain
            .filter(|letter| !letter.is_control() && !"\"\\".contains(*letter))
            .collect();
        format!("\"{plain}\"")
    };
    joined(texts.map(quoted))
}

/// Returns the header line with the unit of the elements, or an empty text if the unit is too long or has several
/// lines.
fn sample_units(unit: &str) -> String {
    let is_plain = !unit.trim().is_empty() && !unit.contains(|letter: char| letter.is_control());
    if is_plain && unit.len() <= MAX_VALUE {
        format!("sample units: {}\n", unit.trim())
    } else {
        String::new()
    }
}

/// Writes the attributes as key/value pairs of NRRD. The message in `left_out` names those that are too long.
fn pairs(attributes: &Attributes) -> TextHeader {
    let (mut text, mut long) = (String::new(), Vec::new());
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
        } else if is_key && !value.is_empty() {
            long.push(name);
        }
    }
    let left_out = (!long.is_empty()).then(|| {
        // The message names at most 8 attributes.
        let others = long.split_off(long.len().min(8));
        let more = if others.is_empty() { "" } else { " and others" };
        let (names, most) = (long.join(", "), MAX_VALUE);
        format!("attributes {names}{more}: longer than {most} bytes each or {MAX_VALUES} in total")
    });
    TextHeader {
        text,
        left_out: left_out.into_iter().collect(),
    }
}
