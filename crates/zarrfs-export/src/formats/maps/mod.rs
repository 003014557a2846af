//! Map formats, and what they share: rows, columns, and metadata of bands.
//!
//! `georeference` finds the reference system and the geotransform, with the help of the other modules here; `envi` and
//! `vrt` are formats.

use serde_json::Value;

use crate::formats::Subject;
use crate::formats::axes::{AxisKind, AxisMeaning};
use crate::formats::maps::georeference::escaped;
use crate::formats::netcdf::header::float;
use zarr_format::model::DataType;

pub(crate) mod coordinate_variable;
pub(crate) mod envi;
pub(crate) mod geo_transform;
pub(crate) mod georeference;
pub(crate) mod grid_mapping;
pub(crate) mod levels;
pub(crate) mod projjson;
pub(crate) mod reference_system;
pub(crate) mod vrt;

/// The indices of the two dimensions that are the rows and the columns of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlaneAxes {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// The number of rows and columns of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlaneSize {
    pub(crate) rows: u64,
    pub(crate) columns: u64,
}

impl PlaneAxes {
    /// Finds the rows and the columns by the names of the dimensions. If the names do not tell, takes the last two
    /// dimensions.
    pub(crate) fn of(axes: &[AxisMeaning]) -> Option<PlaneAxes> {
        let find = |kind| axes.iter().position(|axis| axis.kind == kind);
        match (find(AxisKind::Y), find(AxisKind::X)) {
            (Some(rows), Some(columns)) => Some(PlaneAxes { rows, columns }),
            _ => Some(PlaneAxes {
                rows: axes.len().checked_sub(2)?,
                columns: axes.len().checked_sub(1)?,
            }),
        }
    }

    /// Whether a dimension is that of the rows or that of the columns.
    pub(crate) fn contains(self, axis: usize) -> bool {
        axis == self.rows || axis == self.columns
    }

    /// Returns the number of rows and columns of an array with this shape; a missing dimension has length 0.
    pub(crate) fn size(self, shape: &[u64]) -> PlaneSize {
        let length = |axis: usize| shape.get(axis).copied().unwrap_or(0);
        PlaneSize {
            rows: length(self.rows),
            columns: length(self.columns),
        }
    }
}

/// Metadata of a band that GDAL stores, as texts that are escaped for XML.
pub(crate) struct BandFacts {
    pub(crate) unit: Option<String>,
    pub(crate) offset: Option<String>,
    pub(crate) scale: Option<String>,
    /// The number that marks missing values.
    pub(crate) no_data: Option<String>,
}

impl BandFacts {
    /// Returns the metadata that all bands of an array share. A unit of more than 1024 bytes is left out.
    pub(crate) fn of(subject: &Subject) -> BandFacts {
        let attribute = |name| subject.array.attributes.get(name);
        let number = |name| {
            let number = attribute(name).filter(Value::is_number);
            number.map(|number| number.to_string())
        };
        let fill = attribute("_FillValue").or_else(|| attribute("missing_value"));
        let unit = attribute("units");
        let unit = unit.as_ref().and_then(Value::as_str);
        BandFacts {
            unit: unit.map(escaped).filter(|unit| unit.len() <= 1024),
            offset: number("add_offset"),
            scale: number("scale_factor"),
            no_data: fill.and_then(|fill| number_text(&subject.array.data_type, &fill)),
        }
    }
}

/// Formats a fill value as GDAL reads it; `None` if elements of the data type cannot have this value.
fn number_text(data_type: &DataType, value: &Value) -> Option<String> {
    if value.is_number() {
        return Some(value.to_string());
    }
    // A JSON string is NaN, an infinity or a float in base64, which only float elements can have.
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
    use super::*;
    use serde_json::json;

    #[test]
    fn no_data_values_are_read_in_every_attribute_form() {
        let float = |value: Value| number_text(&DataType::Float(4), &value);
        assert_eq!(float(json!(-9999.0)).as_deref(), Some("-9999.0"));
        assert_eq!(float(json!("NaN")).as_deref(), Some("nan"));
        assert_eq!(float(json!("-Infinity")).as_deref(), Some("-inf"));
        // The two base64 texts are NaN and -9999 as xarray writes them.
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
