//! Where a map lies: the reference system and the place of the first pixel, as GDAL, GeoZarr and CF write them into
//! attributes of an array or of its group.

use serde_json::Value;

use crate::export::Subject;
use crate::export::axes::{AxisKind, AxisMeaning, has_scale};

/// Returns the dimensions of rows and columns: those with these names, or the last two.
pub(super) fn plane(axes: &[AxisMeaning]) -> Option<(usize, usize)> {
    let find = |kind| axes.iter().position(|axis| axis.kind == kind);
    match (find(AxisKind::Y), find(AxisKind::X)) {
        (Some(rows), Some(columns)) => Some((rows, columns)),
        _ => Some((axes.len().checked_sub(2)?, axes.len().checked_sub(1)?)),
    }
}

/// Returns the place of the first pixel in the order of GDAL: that of attributes, or else of the dimensions.
pub(super) fn place(subject: &Subject, y: &AxisMeaning, x: &AxisMeaning) -> Option<[f64; 6]> {
    transform(subject).or_else(|| {
        let axes = [y.clone(), x.clone()];
        let corner = |axis: &AxisMeaning| axis.origin - axis.step() / 2.0;
        has_scale(&axes).then(|| [corner(x), x.step(), 0.0, corner(y), 0.0, y.step()])
    })
}

/// Returns an attribute of the array, or of its group.
fn attribute(subject: &Subject, name: &str) -> Option<Value> {
    let own = subject.array.attributes.get(name);
    own.or_else(|| subject.group.and_then(|group| group.get(name)))
}

/// Returns the reference system as GDAL reads it: GDAL's own `_CRS`, GeoZarr's `proj:`, CF's `crs_wkt` and `spatial_ref`.
pub(super) fn reference_system(subject: &Subject) -> Option<String> {
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
pub(super) fn transform(subject: &Subject) -> Option<[f64; 6]> {
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
pub(super) fn escaped(text: &str) -> String {
    let plain: String = text.chars().filter(|letter| !letter.is_control()).collect();
    let plain = plain
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    plain.replace('"', "&quot;")
}
