//! `.hdr` next to `.img`: ENVI raster files.
//!
//! Elements stay in the order of the array. The header states this order (bsq, bil or bip), which follows from the
//! names of the dimensions.

use crate::formats::axes::{AxisKind, AxisMeaning};
use crate::formats::maps::geo_transform::GeoTransform;
use crate::formats::maps::georeference::{Georeference, georeference, map_axes};
use crate::formats::maps::reference_system::ReferenceSystem;
use crate::formats::maps::{BandFacts, PlaneAxes, PlaneSize};
use crate::formats::{FileParts, Subject};
use zarr_format::model::DataType;

pub(crate) const NEEDS: &str = "bool, int16 to int64, uint8 to uint64, float32, float64, complex64 or complex128 in 2 \
    or 3 dimensions, none of length 0 or beyond 2^31 - 1";

/// An array in the form that ENVI knows: bands of rows and columns.
struct Bands {
    /// ENVI's name for the order of the array's dimensions: bsq, bil or bip.
    interleave: &'static str,
    count: u64,
    size: PlaneSize,
    axes: Vec<AxisMeaning>,
    plane: PlaneAxes,
}

fn bands_of(subject: &Subject) -> Option<Bands> {
    if !subject.is_image(3)
        || subject
            .shape
            .iter()
            .any(|&length| i32::try_from(length).is_err())
    {
        return None;
    }
    let axes = map_axes(subject);
    let kinds: Vec<AxisKind> = axes.iter().map(|axis| axis.kind).collect();
    let (interleave, rows, columns) = match kinds[..] {
        [_, _] => ("bsq", 0, 1),
        [AxisKind::Y, AxisKind::X, _] => ("bip", 0, 1),
        [AxisKind::Y, _, AxisKind::X] => ("bil", 0, 2),
        [_, _, _] => ("bsq", 1, 2),
        _ => return None,
    };
    let plane = PlaneAxes { rows, columns };
    let others = (0..axes.len()).filter(|&axis| !plane.contains(axis));
    let count = others.filter_map(|axis| subject.shape.get(axis)).product();
    Some(Bands {
        interleave,
        count,
        size: plane.size(subject.shape),
        axes,
        plane,
    })
}

fn envi_type(data_type: &DataType) -> Option<u32> {
    Some(match data_type {
        DataType::Bool | DataType::UInt(1) => 1,
        DataType::Int(2) => 2,
        DataType::Int(4) => 3,
        DataType::Float(4) => 4,
        DataType::Float(8) => 5,
        DataType::Complex(8) => 6,
        DataType::Complex(16) => 9,
        DataType::UInt(2) => 12,
        DataType::UInt(4) => 13,
        DataType::Int(8) => 14,
        DataType::UInt(8) => 15,
        _ => return None,
    })
}

/// Describes the `.img` file, which has only the elements; `None` if ENVI cannot hold the elements.
pub(crate) fn image(subject: &Subject) -> Option<FileParts> {
    header(subject).map(|_| FileParts::plain(Vec::new()))
}

/// Makes the `.hdr` file; `None` if ENVI cannot hold the elements.
pub(crate) fn header(subject: &Subject) -> Option<FileParts> {
    let bands = bands_of(subject)?;
    let code = envi_type(&subject.array.data_type)?;
    let interleave = bands.interleave;
    let mut text = format!(
        "ENVI\nsamples = {}\nlines = {}\nbands = {}\nheader offset = 0\nfile type = ENVI Standard\n\
         data type = {code}\ninterleave = {interleave}\nbyte order = 0\n",
        bands.size.columns, bands.size.rows, bands.count
    );
    if let Some(no_data) = BandFacts::of(subject).no_data {
        text += &format!("data ignore value = {no_data}\n");
    }
    let mut map = georeference(subject, &bands.axes, bands.plane);
    text += &map_lines(&mut map);
    Some(FileParts {
        left_out: map.left_out,
        ..FileParts::text(text)
    })
}

/// Returns the header's lines for the reference system and the geotransform. Adds what ENVI cannot express to
/// `left_out`.
fn map_lines(map: &mut Georeference) -> String {
    let system = map.system.take();
    let place = map.place.filter(|place| {
        let is_straight = !place.is_skewed() && place.width > 0.0;
        if !is_straight {
            let sentence = "the georeference: ENVI requires rows that run east";
            map.left_out.push(sentence.to_string());
        }
        is_straight
    });
    let Some(place) = place else {
        if system.is_some() {
            let sentence = "the reference system: ENVI requires a georeference too";
            map.left_out.push(sentence.to_string());
        }
        return String::new();
    };
    match system {
        None => map_info("Arbitrary", place, ""),
        Some(system) => system_lines(&system, place).unwrap_or_else(|| {
            let label: String = system.text.chars().take(100).collect();
            map.left_out.push(format!(
                "the reference system {label}: ENVI supports neither EPSG codes nor WKT 2; use the .vrt"
            ));
            map_info("Arbitrary", place, "")
        }),
    }
}

/// Returns ENVI's header line `map info` for a geotransform. In ENVI, a positive pixel height means that north is up.
fn map_info(system: &str, place: GeoTransform, more: &str) -> String {
    let GeoTransform { x, y, width, .. } = place;
    let height = -place.height;
    format!("map info = {{{system}, 1, 1, {x}, {y}, {width}, {height}{more}}}\n")
}

/// Returns the header's lines for a reference system that has a name in ENVI or is known as WKT 1, with its
/// geotransform. Returns `None` for other systems.
fn system_lines(system: &ReferenceSystem, place: GeoTransform) -> Option<String> {
    match system.code() {
        Some(4326) => {
            let more = ", WGS-84, units=Degrees";
            return Some(map_info("Geographic Lat/Lon", place, more));
        }
        Some(code @ (32601..=32660 | 32701..=32760)) => {
            let (zone, half) = (code % 100, if code < 32700 { "North" } else { "South" });
            let more = format!(", {zone}, {half}, WGS-84, units=Meters");
            return Some(map_info("UTM", place, &more));
        }
        _ => {}
    }
    let text = system
        .wkt1
        .as_ref()
        .filter(|text| !text.contains(['{', '}']))?;
    let line: String = text.lines().map(str::trim).collect();
    let place = map_info("Arbitrary", place, "");
    Some(format!("{place}coordinate system string = {{{line}}}\n"))
}
