//! `.vrt`: XML that lets GDAL read the `.raw` file, one band per plane.
//!
//! The XML states where each band, row and column is in the file, so the dimensions may have any order. It also gives
//! GDAL the reference system, the geotransform, the unit and the packing that the attributes state.

use crate::formats::maps::georeference::{Georeference, escaped, georeference, map_axes};
use crate::formats::maps::{BandFacts, PlaneAxes};
use crate::formats::{FileParts, Subject};
use zarr_format::model::DataType;

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

/// Makes the `.vrt` file of an array; `None` if GDAL cannot read the array's `.raw` file.
pub(crate) fn parts(subject: &Subject) -> Option<FileParts> {
    let data_type = type_name(&subject.array.data_type)?;
    let (shape, file) = (subject.shape, subject.raw_file()?);
    if !subject.is_image(zarr_format::model::MAX_RANK) || shape.len() < 2 {
        return None;
    }
    let axes = map_axes(subject);
    let plane = PlaneAxes::of(&axes)?;
    let PlaneAxes { rows, columns } = plane;
    let steps = steps(subject)?;
    let step = |axis: usize| steps.get(axis).copied();
    let narrow = |length: u64| i32::try_from(length).ok();
    let (pixel, line) = (narrow(step(columns)?)?, narrow(step(rows)?)?);
    let (height, width) = (narrow(*shape.get(rows)?)?, narrow(*shape.get(columns)?)?);
    let mut text = format!("<VRTDataset rasterXSize=\"{width}\" rasterYSize=\"{height}\">\n");
    let map = georeference(subject, &axes, plane);
    text += &place_lines(&map);
    let lines = band_lines(subject);
    for (band, offset) in (1..).zip(offsets(subject, &steps, plane)?) {
        text += &format!(
            "  <VRTRasterBand dataType=\"{data_type}\" band=\"{band}\" subClass=\"VRTRawRasterBand\">\n{}    \
             <SourceFilename relativeToVRT=\"1\">{file}</SourceFilename>\n    \
             <ImageOffset>{offset}</ImageOffset>\n    <PixelOffset>{pixel}</PixelOffset>\n    \
             <LineOffset>{line}</LineOffset>\n    <ByteOrder>LSB</ByteOrder>\n  </VRTRasterBand>\n",
            lines
        );
    }
    Some(FileParts {
        left_out: map.left_out,
        ..FileParts::text(text + "</VRTDataset>\n")
    })
}

/// Returns the distance in bytes between neighbouring elements in the `.raw` file, along each dimension.
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

/// Returns the offset of each band in the `.raw` file, in C order of the dimensions that are not rows or columns.
/// Returns `None` for more than 4096 bands, because each band takes about 300 bytes of XML.
fn offsets(subject: &Subject, steps: &[u64], plane: PlaneAxes) -> Option<Vec<u64>> {
    let mut offsets = vec![0];
    let dimensions = subject.shape.iter().zip(steps).enumerate();
    for (axis, (&length, &step)) in dimensions {
        if plane.contains(axis) {
            continue;
        }
        if (offsets.len() as u64).checked_mul(length)? > 4096 {
            return None;
        }
        let inner = offsets
            .iter()
            .flat_map(|&offset| (0..length).map(move |at| offset + at * step));
        offsets = inner.collect();
    }
    Some(offsets)
}

/// Returns the XML lines about a band's values: fill value, unit and packing.
fn band_lines(subject: &Subject) -> String {
    let facts = BandFacts::of(subject);
    let lines = [
        ("NoDataValue", facts.no_data),
        ("UnitType", facts.unit),
        ("Offset", facts.offset),
        ("Scale", facts.scale),
    ];
    let lines = lines
        .into_iter()
        .filter_map(|(name, value)| value.map(|value| format!("    <{name}>{value}</{name}>\n")));
    lines.collect()
}

/// Returns the XML lines of the reference system and the geotransform. They state no axis order, so GDAL puts
/// longitudes and eastings first in every system.
fn place_lines(map: &Georeference) -> String {
    let mut text = String::new();
    if let Some(system) = &map.system {
        text += &format!("  <SRS>{}</SRS>\n", escaped(&system.text));
    }
    if let Some(place) = map.place {
        let place: Vec<String> = place.numbers().iter().map(f64::to_string).collect();
        text += &format!("  <GeoTransform>{}</GeoTransform>\n", place.join(", "));
    }
    text
}
