//! `.vrt`: XML with which GDAL reads `NAME.raw`, a band for each plane of rows and columns.
//!
//! Bands, rows and columns are places in the file, so the dimensions may have any order. What attributes say of the
//! reference system, the place of the first pixel, the unit and the packing of numbers reaches GDAL.

use serde_json::Value;

use crate::export::axes::{AxisKind, AxisMeaning, axes_of, has_scale};
use crate::export::raster::no_data;
use crate::export::{FileParts, Format, Subject};
use crate::model::DataType;

/// The XML.
pub const FORMAT: Format = Format {
    extension: "vrt",
    parts: Some(|subject| xml(subject).map(FileParts::text)),
    ragged: None,
    is_basic: false,
};

/// The most bands: each takes about 300 bytes.
const MAX_BANDS: u64 = 4096;

fn type_name(data_type: &DataType) -> Option<&'static str> {
    Some(match data_type {
        DataType::Bool | DataType::UInt(1) => "Byte",
        DataType::Int(1) => "Int8",
        DataType::Int(2) => "Int16",
        DataType::UInt(2) => "UInt16",
        DataType::Int(4) => "Int32",
        DataType::UInt(4) => "UInt32",
        DataType::Int(8) => "Int64",
        DataType::UInt(8) => "UInt64",
        DataType::Float(4) => "Float32",
        DataType::Float(8) => "Float64",
        DataType::Complex(8) => "CFloat32",
        DataType::Complex(16) => "CFloat64",
        _ => return None,
    })
}

/// Returns the dimensions of rows and columns: those with these names, or the last two.
fn plane(axes: &[AxisMeaning]) -> Option<(usize, usize)> {
    let find = |kind| axes.iter().position(|axis| axis.kind == kind);
    match (find(AxisKind::Y), find(AxisKind::X)) {
        (Some(rows), Some(columns)) => Some((rows, columns)),
        _ => Some((axes.len().checked_sub(2)?, axes.len().checked_sub(1)?)),
    }
}

fn xml(subject: &Subject) -> Option<String> {
    let data_type = type_name(&subject.array.data_type)?;
    let (shape, name) = (subject.shape, subject.text_name()?);
    if !subject.is_image(crate::model::MAX_RANK) || shape.len() < 2 {
        return None;
    }
    let axes = axes_of(subject);
    let (rows, columns) = plane(&axes)?;
    let steps = steps(subject)?;
    let step = |axis: usize| steps.get(axis).copied();
    let narrow = |length: u64| i32::try_from(length).ok();
    let (pixel, line) = (narrow(step(columns)?)?, narrow(step(rows)?)?);
    let (height, width) = (narrow(*shape.get(rows)?)?, narrow(*shape.get(columns)?)?);
    let mut text = format!("<VRTDataset rasterXSize=\"{width}\" rasterYSize=\"{height}\">\n");
    text += &georeference(subject, &axes[rows], &axes[columns]);
    for (band, offset) in (1..).zip(offsets(subject, &steps, (rows, columns))?) {
        text += &format!(
            "  <VRTRasterBand dataType=\"{data_type}\" band=\"{band}\" subClass=\"VRTRawRasterBand\">\n{}    \
             <SourceFilename relativeToVRT=\"1\">{name}.raw</SourceFilename>\n    \
             <ImageOffset>{offset}</ImageOffset>\n    <PixelOffset>{pixel}</PixelOffset>\n    \
             <LineOffset>{line}</LineOffset>\n    <ByteOrder>LSB</ByteOrder>\n  </VRTRasterBand>\n",
            band_lines(subject)
        );
    }
    Some(text + "</VRTDataset>\n")
}

/// Returns the step in bytes along each dimension.
fn steps(subject: &Subject) -> Option<Vec<u64>> {
    let mut step = subject.array.data_type.size()? as u64;
    let mut steps = Vec::new();
    for &length in subject.shape.iter().rev() {
        steps.push(step);
        step = step.checked_mul(length)?;
    }
    steps.reverse();
    Some(steps)
}

/// Returns where each plane begins, in C order of the other dimensions; nothing if there are too many.
fn offsets(subject: &Subject, steps: &[u64], plane: (usize, usize)) -> Option<Vec<u64>> {
    let mut offsets = vec![0];
    let dimensions = subject.shape.iter().zip(steps).enumerate();
    for (axis, (&length, &step)) in dimensions {
        if axis == plane.0 || axis == plane.1 {
            continue;
        }
        if (offsets.len() as u64).checked_mul(length)? > MAX_BANDS {
            return None;
        }
        let inner = offsets
            .iter()
            .flat_map(|&offset| (0..length).map(move |at| offset + at * step));
        offsets = inner.collect();
    }
    Some(offsets)
}

/// Returns the lines about the values of a band.
fn band_lines(subject: &Subject) -> String {
    let attribute = |name| subject.array.attributes.get(name);
    let number = |name| {
        attribute(name)
            .filter(Value::is_number)
            .map(|value| value.to_string())
    };
    let lines = [
        ("NoDataValue", no_data(subject)),
        (
            "UnitType",
            attribute("units").and_then(|unit| unit.as_str().map(escaped)),
        ),
        ("Offset", number("add_offset")),
        ("Scale", number("scale_factor")),
    ];
    let lines = lines
        .into_iter()
        .filter_map(|(name, value)| value.map(|value| format!("    <{name}>{value}</{name}>\n")));
    lines.collect()
}

/// Returns the lines about reference system and place.
fn georeference(subject: &Subject, y: &AxisMeaning, x: &AxisMeaning) -> String {
    let mut text = String::new();
    if let Some(system) = reference_system(subject) {
        text += &format!(
            "  <SRS dataAxisToSRSAxisMapping=\"1,2\">{}</SRS>\n",
            escaped(&system)
        );
    }
    let place = transform(subject).or_else(|| {
        let axes = [y.clone(), x.clone()];
        let corner = |axis: &AxisMeaning| axis.origin - axis.step() / 2.0;
        has_scale(&axes).then(|| [corner(x), x.step(), 0.0, corner(y), 0.0, y.step()])
    });
    if let Some(place) = place {
        let place: Vec<String> = place.iter().map(f64::to_string).collect();
        text += &format!("  <GeoTransform>{}</GeoTransform>\n", place.join(", "));
    }
    text
}

/// Returns an attribute of the array, or of its group.
fn attribute(subject: &Subject, name: &str) -> Option<Value> {
    let own = subject.array.attributes.get(name);
    own.or_else(|| subject.group.and_then(|group| group.get(name)))
}

/// Returns the reference system as GDAL reads it: GDAL's own `_CRS`, GeoZarr's `proj:`, CF's `crs_wkt` and `spatial_ref`.
fn reference_system(subject: &Subject) -> Option<String> {
    let text = |name| match attribute(subject, name) {
        Some(Value::String(text)) if !text.is_empty() => Some(text),
        _ => None,
    };
    let of_gdal = attribute(subject, "_CRS").and_then(|system| {
        let member = |name| system.get(name).and_then(Value::as_str).map(str::to_string);
        member("wkt").or_else(|| member("url"))
    });
    let names = ["proj:wkt2", "proj:code", "crs_wkt", "spatial_ref"];
    of_gdal.or_else(|| names.into_iter().find_map(text))
}

/// Returns the place of the first pixel as GDAL writes it: `GeoTransform` of GDAL, or `spatial:transform` of GeoZarr.
fn transform(subject: &Subject) -> Option<[f64; 6]> {
    let numbers = |value: Value| -> Option<Vec<f64>> {
        match value {
            Value::String(text) => text
                .split_whitespace()
                .map(|word| word.parse().ok())
                .collect(),
            Value::Array(list) => list.iter().map(Value::as_f64).collect(),
            _ => None,
        }
    };
    let six = |name| {
        let numbers = attribute(subject, name).and_then(numbers)?;
        let is_finite = numbers.iter().all(|number| number.is_finite());
        <[f64; 6]>::try_from(numbers).ok().filter(|_| is_finite)
    };
    six("GeoTransform").or_else(|| {
        let [a, b, c, d, e, f] = six("spatial:transform")?;
        Some([c, a, b, f, d, e])
    })
}

/// Returns text as XML holds it.
fn escaped(text: &str) -> String {
    let plain: String = text.chars().filter(|letter| !letter.is_control()).collect();
    let plain = plain
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    plain.replace('"', "&quot;")
}
