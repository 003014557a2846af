//! `.hdr` beside `.img`, `.bsq`, `.bil`, `.bip` and `.flt`: the raster files of ENVI and of ESRI.
//!
//! Both families look for `NAME.hdr` beside the file with the elements, so the header is one for both: ENVI's lines, which
//! have an equals sign, and ESRI's, which have none; either passes over those of the other. No byte is moved: the
//! dimensions of the array say which interleave it is.

use serde_json::Value;

use crate::export::axes::{AxisKind, AxisMeaning, axes_of};
use crate::export::netcdf_header::float;
use crate::export::{FileParts, Format, Subject};
use crate::model::DataType;

/// The header.
pub const HEADER: Format = Format {
    extension: "hdr",
    parts: Some(|subject| header(subject).map(FileParts::text)),
    ragged: None,
    is_basic: false,
};

/// The elements, for ENVI.
pub const ENVI: Format = Format {
    extension: "img",
    parts: Some(|subject| {
        envi_type(&subject.array.data_type)?;
        header(subject).map(|_| FileParts::plain(Vec::new()))
    }),
    ragged: None,
    is_basic: false,
};

/// The elements, band after band.
pub const BSQ: Format = Format {
    extension: "bsq",
    parts: Some(|subject| elements(subject, Interleave::Bsq)),
    ragged: None,
    is_basic: false,
};

/// The elements, of each row one band after the other.
pub const BIL: Format = Format {
    extension: "bil",
    parts: Some(|subject| elements(subject, Interleave::Bil)),
    ragged: None,
    is_basic: false,
};

/// The elements, of each pixel one band after the other.
pub const BIP: Format = Format {
    extension: "bip",
    parts: Some(|subject| elements(subject, Interleave::Bip)),
    ragged: None,
    is_basic: false,
};

/// The elements of a grid of floats.
pub const FLT: Format = Format {
    extension: "flt",
    parts: Some(|subject| {
        let is_grid = subject.shape.len() == 2 && subject.array.data_type == DataType::Float(4);
        header(subject)
            .filter(|_| is_grid)
            .map(|_| FileParts::plain(Vec::new()))
    }),
    ragged: None,
    is_basic: false,
};

/// The order of bands, rows and columns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Interleave {
    Bsq,
    Bil,
    Bip,
}

impl Interleave {
    fn name(self) -> &'static str {
        match self {
            Interleave::Bsq => "bsq",
            Interleave::Bil => "bil",
            Interleave::Bip => "bip",
        }
    }
}

/// An array as bands of rows of pixels.
struct Bands {
    interleave: Interleave,
    count: u64,
    rows: u64,
    columns: u64,
    /// The dimensions of rows and columns.
    axes: (AxisMeaning, AxisMeaning),
}

fn elements(subject: &Subject, interleave: Interleave) -> Option<FileParts> {
    let bands = bands_of(subject)?;
    // One band has any interleave.
    let is_so = bands.interleave == interleave || subject.shape.len() == 2;
    let is_held = esri_type(&subject.array.data_type).is_some() && header(subject).is_some();
    (is_so && is_held).then(|| FileParts::plain(Vec::new()))
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
    let axes = axes_of(subject);
    let kinds: Vec<AxisKind> = axes.iter().map(|axis| axis.kind).collect();
    let (interleave, plane) = match kinds[..] {
        [_, _] => (Interleave::Bsq, (0, 1)),
        [AxisKind::Y, AxisKind::X, _] => (Interleave::Bip, (0, 1)),
        [AxisKind::Y, _, AxisKind::X] => (Interleave::Bil, (0, 2)),
        [_, _, _] => (Interleave::Bsq, (1, 2)),
        _ => return None,
    };
    let (&rows, &columns) = (subject.shape.get(plane.0)?, subject.shape.get(plane.1)?);
    let (y, x) = (axes.get(plane.0)?, axes.get(plane.1)?);
    let others = (0..axes.len()).filter(|&axis| axis != plane.0 && axis != plane.1);
    let count = others.filter_map(|axis| subject.shape.get(axis)).product();
    Some(Bands {
        interleave,
        count,
        rows,
        columns,
        axes: (y.clone(), x.clone()),
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

/// Returns the name of a type and its bits; nothing if ESRI's files cannot hold it.
fn esri_type(data_type: &DataType) -> Option<(&'static str, usize)> {
    Some(match data_type {
        DataType::Bool | DataType::UInt(1) => ("UNSIGNEDINT", 8),
        DataType::Int(width @ (1 | 2 | 4)) => ("SIGNEDINT", width * 8),
        DataType::UInt(width @ (2 | 4)) => ("UNSIGNEDINT", width * 8),
        DataType::Float(4) => ("FLOAT", 32),
        _ => return None,
    })
}

/// Returns the header for both families; without the lines of one that cannot hold the elements.
fn header(subject: &Subject) -> Option<String> {
    let bands = bands_of(subject)?;
    let envi = envi_type(&subject.array.data_type);
    let esri = esri_type(&subject.array.data_type);
    let envi = envi.map(|code| envi_lines(subject, &bands, code));
    let esri = esri.map(|named| esri_lines(subject, &bands, named));
    match (envi, esri) {
        (None, None) => None,
        (envi, esri) => Some(envi.unwrap_or_default() + &esri.unwrap_or_default()),
    }
}

fn envi_lines(subject: &Subject, bands: &Bands, code: u32) -> String {
    let interleave = bands.interleave.name();
    let mut text = format!(
        "ENVI\nsamples = {}\nlines = {}\nbands = {}\nheader offset = 0\nfile type = ENVI Standard\n\
         data type = {code}\ninterleave = {interleave}\nbyte order = 0\n",
        bands.columns, bands.rows, bands.count
    );
    if let Some(no_data) = no_data(subject) {
        text += &format!("data ignore value = {no_data}\n");
    }
    if let Some(Corner {
        x,
        y,
        width,
        height,
    }) = corner(bands)
    {
        // The corner of the first pixel, not its centre.
        let (x, y) = (x - width / 2.0, y + height / 2.0);
        text += &format!("map info = {{Arbitrary, 1, 1, {x}, {y}, {width}, {height}}}\n");
    }
    text
}

fn esri_lines(subject: &Subject, bands: &Bands, (name, bits): (&str, usize)) -> String {
    let (rows, columns, count) = (bands.rows, bands.columns, bands.count);
    let layout = bands.interleave.name().to_ascii_uppercase();
    let mut text = format!(
        "BYTEORDER I\nLAYOUT {layout}\nNROWS {rows}\nNCOLS {columns}\nNBANDS {count}\nNBITS {bits}\n\
         PIXELTYPE {name}\n"
    );
    if let Some(no_data) = no_data(subject) {
        text += &format!("NODATA {no_data}\n");
    }
    if let Some(Corner {
        x,
        y,
        width,
        height,
    }) = corner(bands)
    {
        text += &format!("ULXMAP {x}\nULYMAP {y}\nXDIM {width}\nYDIM {height}\n");
    }
    text
}

/// Where a map lies whose first row is the northernmost.
struct Corner {
    /// The centre of the first pixel.
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

/// Returns where a map lies; nothing if that is not known, or if it is not a map with the north above.
fn corner(bands: &Bands) -> Option<Corner> {
    let (y, x) = &bands.axes;
    let (width, height) = (x.scale?, -y.scale?);
    (width > 0.0 && height > 0.0).then_some(Corner {
        x: x.origin,
        y: y.origin,
        width,
        height,
    })
}

/// Returns the number that stands for no value.
pub(super) fn no_data(subject: &Subject) -> Option<String> {
    let attribute = |name| subject.array.attributes.get(name);
    let value = attribute("_FillValue").or_else(|| attribute("missing_value"))?;
    number_text(&subject.array.data_type, &value)
}

/// Returns a number as GDAL reads it.
fn number_text(data_type: &DataType, value: &Value) -> Option<String> {
    if value.is_number() {
        return Some(value.to_string());
    }
    // Only elements that are floats can be NaN, or a float in base64.
    let is_float = matches!(data_type, DataType::Float(_));
    let number = float(value).filter(|_| is_float)?;
    Some(match number {
        number if number.is_nan() => "nan".to_string(),
        number if number.is_infinite() && number > 0.0 => "inf".to_string(),
        number if number.is_infinite() => "-inf".to_string(),
        number => Value::from(number).to_string(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_that_stand_for_no_value_have_the_forms_of_attributes() {
        let float = |value: Value| number_text(&DataType::Float(4), &value);
        assert_eq!(float(json!(-9999.0)).as_deref(), Some("-9999.0"));
        assert_eq!(float(json!("NaN")).as_deref(), Some("nan"));
        assert_eq!(float(json!("-Infinity")).as_deref(), Some("-inf"));
        // As xarray writes NaN and -9999.
        assert_eq!(float(json!("AAAAAAAA+H8=")).as_deref(), Some("nan"));
        assert_eq!(float(json!("AAAAAICHw8A=")).as_deref(), Some("-9999.0"));
        assert_eq!(float(json!("none")), None);
        assert_eq!(number_text(&DataType::Int(2), &json!("NaN")), None);
        assert_eq!(
            number_text(&DataType::Int(2), &json!(-1)).as_deref(),
            Some("-1")
        );
    }
}
