//! The geotransform of a map: the affine map from pixels to coordinates.
//!
//! Three attributes can state it: `GeoTransform` of GDAL, `spatial:transform` of GeoZarr, and `proj:transform` of STAC,
//! which EOPF uses.

use serde_json::Value;

use crate::formats::TakenDimension;
use crate::formats::maps::PlaneSize;
use zarr_format::model::Attributes;

/// The affine map (GDAL's geotransform) from pixel indices to coordinates of a map. The fields are in GDAL's order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct GeoTransform {
    /// The x coordinate of the first pixel's outer corner.
    pub(crate) x: f64,
    /// The change of x from one pixel to the next in a row.
    pub(crate) width: f64,
    /// The change of x from one pixel to the next in a column.
    pub(crate) skew_x: f64,
    /// The y coordinate of the first pixel's outer corner.
    pub(crate) y: f64,
    /// The change of y from one pixel to the next in a row.
    pub(crate) skew_y: f64,
    /// The change of y from one pixel to the next in a column.
    pub(crate) height: f64,
}

/// A geotransform, and the name of the attribute that states it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttributeTransform {
    pub(crate) transform: GeoTransform,
    pub(crate) attribute: &'static str,
}

/// The positions of pixels along a row or a column: the outer edge of the first pixel, and the distance between pixels.
#[derive(Clone, Copy)]
pub(crate) struct Pixels {
    pub(crate) corner: f64,
    pub(crate) step: f64,
}

impl Pixels {
    /// Returns pixels with the distance `step`, the first of which is centred at `first`.
    pub(crate) fn around(first: f64, step: f64) -> Pixels {
        let corner = first - step / 2.0;
        Pixels { corner, step }
    }

    /// Whether pixels are at the positions of other pixels within a quarter of a pixel, at both ends of a line of
    /// `length` pixels.
    pub(crate) fn is_near(self, other: Pixels, length: u64) -> bool {
        let most = other.step.abs() / 4.0;
        let between =
            |number: f64| (self.corner - other.corner + (self.step - other.step) * number).abs();
        between(0.0) <= most && between(length as f64) <= most
    }
}

impl AttributeTransform {
    /// Returns the geotransform that the attributes of a map state, or `None` if they state none.
    pub(crate) fn of(attributes: &Attributes) -> Option<AttributeTransform> {
        let of_gdal = attributes.get("GeoTransform").as_ref().and_then(numbers);
        let of_gdal = of_gdal.map(|found| (found, "GeoTransform"));
        let found = of_gdal
            .or_else(|| Some((of_geozarr(attributes)?, "spatial:transform")))
            .or_else(|| Some((of_stac(attributes)?, "proj:transform")));
        let (transform, attribute) = found.filter(|(transform, _)| transform.is_place())?;
        Some(AttributeTransform {
            transform,
            attribute,
        })
    }
}

impl GeoTransform {
    /// Returns the geotransform of a plane that covers the bounds in the attributes of a map, given its size in pixels.
    /// The first row is at the top.
    pub(crate) fn of_bounds(attributes: &Attributes, size: PlaneSize) -> Option<GeoTransform> {
        let [left, bottom, right, top] = bounds(attributes)?;
        // If pixels are nodes of a grid, the bounds are the centres of the outer pixels, not their edges.
        let is_node = is_of_nodes(attributes);
        let steps = |count: u64| if is_node { count.saturating_sub(1) } else { count } as f64;
        let (width, height) = (
            (right - left) / steps(size.columns),
            (bottom - top) / steps(size.rows),
        );
        let half = if is_node { 0.5 } else { 0.0 };
        let place = GeoTransform {
            x: left - half * width,
            y: top - half * height,
            ..GeoTransform::straight(width, height)
        };
        (place.is_place() && width > 0.0 && height < 0.0).then_some(place)
    }

    /// Returns the geotransform of pixels with the given width and height, of which the first begins at 0.
    pub(crate) fn straight(width: f64, height: f64) -> GeoTransform {
        GeoTransform::from([0.0, width, 0.0, 0.0, 0.0, height])
    }

    /// Returns the geotransform of a map whose rows run along x and whose columns run along y.
    pub(crate) fn from_pixels(columns: Pixels, rows: Pixels) -> GeoTransform {
        GeoTransform {
            x: columns.corner,
            y: rows.corner,
            ..GeoTransform::straight(columns.step, rows.step)
        }
    }

    /// Returns the x positions of the pixels of a row.
    pub(crate) fn columns(&self) -> Pixels {
        Pixels {
            corner: self.x,
            step: self.width,
        }
    }

    /// Returns the y positions of the pixels of a column.
    pub(crate) fn rows(&self) -> Pixels {
        Pixels {
            corner: self.y,
            step: self.height,
        }
    }

    /// Returns the six numbers of the geotransform in GDAL's order.
    pub(crate) fn numbers(&self) -> [f64; 6] {
        [
            self.x,
            self.width,
            self.skew_x,
            self.y,
            self.skew_y,
            self.height,
        ]
    }

    pub(crate) fn is_finite(&self) -> bool {
        self.numbers().iter().all(|number| number.is_finite())
    }

    /// Whether the rows do not run along x, or the columns not along y.
    pub(crate) fn is_skewed(&self) -> bool {
        self.skew_x != 0.0 || self.skew_y != 0.0
    }

    /// Whether the numbers can be a geotransform: pixels have an area, and coordinates are not just pixel indices,
    /// which programs write if they know no position.
    fn is_place(&self) -> bool {
        let area = self.width * self.height - self.skew_x * self.skew_y;
        let is_identity = *self == GeoTransform::straight(1.0, 1.0);
        self.is_finite() && area != 0.0 && area.is_finite() && !is_identity
    }

    /// Returns the geotransform with its x coordinates multiplied by `along_x` and its y coordinates by `along_y`.
    pub(crate) fn scaled(self, along_x: f64, along_y: f64) -> GeoTransform {
        let [x, width, skew_x, y, skew_y, height] = self.numbers();
        let numbers = [
            x * along_x,
            width * along_x,
            skew_x * along_x,
            y * along_y,
            skew_y * along_y,
            height * along_y,
        ];
        // Adding 0 turns -0 into 0, because files would show the sign of -0.
        numbers.map(|number| number + 0.0).into()
    }

    /// Returns the geotransform of pixels enlarged by these factors, with the same corner of the first pixel.
    pub(crate) fn coarsened(self, columns: f64, rows: f64) -> GeoTransform {
        GeoTransform {
            width: self.width * columns,
            skew_x: self.skew_x * rows,
            skew_y: self.skew_y * columns,
            height: self.height * rows,
            ..self
        }
    }

    /// Returns the geotransform of an index range, whose pixels are as large as the range's steps.
    pub(crate) fn taken(self, columns: &TakenDimension, rows: &TakenDimension) -> GeoTransform {
        let corner = |taken: &TakenDimension| taken.start as f64 + 0.5 - taken.step as f64 / 2.0;
        let (column, row) = (corner(columns), corner(rows));
        let steps = self.coarsened(columns.step as f64, rows.step as f64);
        // Adding 0 turns -0 into 0, because files would show the sign of -0.
        GeoTransform {
            x: self.x + self.width * column + self.skew_x * row,
            y: self.y + self.skew_y * column + self.height * row,
            skew_x: steps.skew_x + 0.0,
            skew_y: steps.skew_y + 0.0,
            ..steps
        }
    }

    /// Whether the geotransform in a group's attributes fits an array of this size. If not, it belongs to another array
    /// of the group.
    pub(crate) fn fits(&self, group: &Attributes, size: PlaneSize) -> bool {
        if shape(group).is_some() {
            return fits_shape(group, size);
        }
        match bounds(group) {
            Some([left, bottom, right, top]) if !self.is_skewed() => {
                let covers = |length: f64, step: f64, count: u64| {
                    (length.abs() - step.abs() * count as f64).abs() <= 1.5 * step.abs()
                };
                covers(right - left, self.width, size.columns)
                    && covers(top - bottom, self.height, size.rows)
            }
            _ => true,
        }
    }
}

impl From<[f64; 6]> for GeoTransform {
    fn from([x, width, skew_x, y, skew_y, height]: [f64; 6]) -> GeoTransform {
        GeoTransform {
            x,
            width,
            skew_x,
            y,
            skew_y,
            height,
        }
    }
}

/// Whether attributes state a shape or bounds, and a geotransform that fits a plane of `size`.
pub(crate) fn has_fitting_transform(attributes: &Attributes, size: PlaneSize) -> bool {
    let found = AttributeTransform::of(attributes).filter(|_| has_extent(attributes));
    found.is_some_and(|found| found.transform.fits(attributes, size))
}

/// Whether attributes say that the map from pixels to coordinates is not affine.
pub(crate) fn is_not_affine(attributes: &Attributes) -> bool {
    let kind = attributes.get("spatial:transform_type");
    kind.is_some_and(|kind| !kind.is_null() && kind != "affine")
}

fn of_geozarr(attributes: &Attributes) -> Option<GeoTransform> {
    if is_not_affine(attributes) {
        return None;
    }
    let found = of_matrix(&attributes.get("spatial:transform")?)?;
    if !is_of_nodes(attributes) {
        return Some(found);
    }
    // The attribute states the centre of the first pixel; a geotransform starts at its corner.
    Some(GeoTransform {
        x: found.x - (found.width + found.skew_x) / 2.0,
        y: found.y - (found.skew_y + found.height) / 2.0,
        ..found
    })
}

fn of_stac(attributes: &Attributes) -> Option<GeoTransform> {
    let value = attributes.get("proj:transform").or_else(|| {
        let mut geo = attributes.get("geo")?;
        Some(geo.get_mut("proj")?.get_mut("transform")?.take())
    })?;
    // Some programs write the geotransform as text, with the six numbers in GDAL's order.
    let is_text = value.is_string();
    if is_text {
        numbers(&value)
    } else {
        of_matrix(&value)
    }
}

/// Reads the first two rows of a matrix as a geotransform.
fn of_matrix(value: &Value) -> Option<GeoTransform> {
    let list = value
        .as_array()
        .filter(|list| [6, 9].contains(&list.len()))?;
    let [a, b, c, d, e, f] = numbers(&Value::from(list.get(..6)?.to_vec()))?.numbers();
    Some([c, a, b, f, d, e].into())
}

/// Parses the six numbers of a geotransform from a list, or from text separated by spaces.
fn numbers(value: &Value) -> Option<GeoTransform> {
    let numbers: Vec<f64> = match value {
        Value::String(text) => text
            .split_whitespace()
            .map(|word| word.parse().ok())
            .collect::<Option<_>>()?,
        Value::Array(list) => list.iter().map(Value::as_f64).collect::<Option<_>>()?,
        _ => return None,
    };
    <[f64; 6]>::try_from(numbers).ok().map(GeoTransform::from)
}

fn is_of_nodes(attributes: &Attributes) -> bool {
    let kind = attributes.get("spatial:registration");
    kind.is_some_and(|kind| kind == "node")
}

fn list(attributes: &Attributes, names: [&str; 2]) -> Option<Vec<Value>> {
    let mut lists = names.iter().map(|name| attributes.get(name));
    lists.find_map(|list| list?.as_array().cloned())
}

/// Returns the shape of a map that its attributes state.
fn shape(attributes: &Attributes) -> Option<Vec<Value>> {
    list(attributes, ["spatial:shape", "proj:shape"])
}

/// Returns the bounds of a map that its attributes state: left, bottom, right and top.
fn bounds(attributes: &Attributes) -> Option<[f64; 4]> {
    let bounds = list(attributes, ["spatial:bbox", "proj:bbox"])?;
    let bounds: Vec<f64> = bounds.iter().map(Value::as_f64).collect::<Option<_>>()?;
    bounds.try_into().ok()
}

/// Whether attributes state the shape or the bounds of a map, which show whether the map fits an array.
pub(crate) fn has_extent(attributes: &Attributes) -> bool {
    let names = ["spatial:shape", "proj:shape", "spatial:bbox", "proj:bbox"];
    names.into_iter().any(|name| attributes.get(name).is_some())
}

/// Whether attributes state a map of this size, or no size at all.
pub(crate) fn fits_shape(attributes: &Attributes, size: PlaneSize) -> bool {
    shape(attributes).is_none_or(|shape| {
        let shape: Vec<_> = shape.iter().rev().take(2).map(Value::as_u64).collect();
        shape == [Some(size.columns), Some(size.rows)]
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    fn attributes(value: Value) -> Attributes {
        let members: Map<String, Value> = serde_json::from_value(value).unwrap();
        members.into()
    }

    fn transform_of(value: &Value) -> Option<GeoTransform> {
        let found = AttributeTransform::of(&attributes(value.clone()));
        found.map(|found| found.transform)
    }

    #[test]
    fn transforms_are_read_in_gdal_and_affine_order() {
        let place = GeoTransform::from([5.0, 10.0, 0.5, 7.0, 0.25, -10.0]);
        for value in [
            json!({"GeoTransform": "5 10 0.5 7 0.25 -10"}),
            json!({"GeoTransform": [5, 10, 0.5, 7, 0.25, -10]}),
            json!({"spatial:transform": [10, 0.5, 5, 0.25, -10, 7]}),
            json!({"proj:transform": [10, 0.5, 5, 0.25, -10, 7, 0, 0, 1]}),
            json!({"proj:transform": "5 10 0.5 7 0.25 -10"}),
            json!({"geo": {"proj": {"transform": [10, 0.5, 5, 0.25, -10, 7]}}}),
            json!({"spatial:transform": [10, 0.5, 10.25, 0.25, -10, 2.125], "spatial:registration": "node"}),
        ] {
            assert_eq!(transform_of(&value), Some(place), "{value}");
        }
        for value in [
            json!({"GeoTransform": "0 1 0 0 0 1"}),
            json!({"GeoTransform": "0 0 0 0 0 0"}),
            json!({"GeoTransform": "1 2 3"}),
            json!({"spatial:transform": [10, 0, 5, 0, -10, 7], "spatial:transform_type": "rpc"}),
            json!({"spatial:transform": [1, 0, 0, 0, 1, 0, 0, 0]}),
            json!({"proj:transform": null}),
        ] {
            assert_eq!(transform_of(&value), None, "{value}");
        }
    }

    #[test]
    fn a_group_transform_fits_only_arrays_of_its_shape() {
        let place = GeoTransform::from([0.0, 10.0, 0.0, 70.0, 0.0, -10.0]);
        let size = |rows, columns| PlaneSize { rows, columns };
        let fits = |group: Value, size| place.fits(&attributes(group), size);
        assert!(fits(json!({}), size(7, 9)));
        assert!(fits(json!({"spatial:shape": [7, 9]}), size(7, 9)));
        assert!(!fits(json!({"spatial:shape": [7, 9]}), size(3, 4)));
        let bounds = json!({"spatial:bbox": [0, 0, 90, 70]});
        assert!(fits(bounds.clone(), size(7, 9)));
        assert!(!fits(bounds, size(3, 4)));
        // Arrays without dimension names use the geotransform of their group only if the group states a shape.
        let is_fitting = |shape: Value| {
            let group =
                json!({"spatial:transform": [10, 0, 0, 0, -10, 70], "spatial:shape": shape});
            has_fitting_transform(&attributes(group), size(7, 9))
        };
        assert!(is_fitting(json!([7, 9])));
        assert!(!is_fitting(json!([3, 4])));
        let shapeless = attributes(json!({"spatial:transform": [10, 0, 0, 0, -10, 70]}));
        assert!(!has_fitting_transform(&shapeless, size(7, 9)));
    }

    #[test]
    fn selected_pixels_keep_their_coordinates() {
        let whole = GeoTransform::from([10.0, 0.5, 0.25, 50.0, 0.125, -0.5]);
        let taken = |start, step| TakenDimension {
            axis: 0,
            start,
            step,
        };
        let centre = |place: GeoTransform, column: f64, row: f64| {
            let (column, row) = (column + 0.5, row + 0.5);
            [
                place.x + place.width * column + place.skew_x * row,
                place.y + place.skew_y * column + place.height * row,
            ]
        };
        for (columns, rows) in [(taken(0, 1), taken(0, 1)), (taken(3, 2), taken(9, -4))] {
            let place = whole.taken(&columns, &rows);
            for (column, row) in [(0.0, 0.0), (1.0, 0.0), (0.0, 2.0)] {
                let at = |taken: &TakenDimension, number: f64| {
                    taken.start as f64 + taken.step as f64 * number
                };
                let expected = centre(whole, at(&columns, column), at(&rows, row));
                assert_eq!(centre(place, column, row), expected);
            }
        }
        assert_eq!(whole.taken(&taken(0, 1), &taken(0, 1)), whole);
    }
}
