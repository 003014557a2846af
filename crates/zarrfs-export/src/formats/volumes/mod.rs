//! Formats of images in space, and what their headers share.

use crate::formats::axes::{AxisKind, AxisMeaning, Dimensions, Oblique};

pub(crate) mod fits;
pub(crate) mod metaimage;
pub(crate) mod mrc;
pub(crate) mod nifti;
pub(crate) mod nrrd;
pub(crate) mod vti;

/// The text of a header, and messages about metadata that the header omits.
struct TextHeader {
    text: String,
    left_out: Vec<String>,
}

/// A binary header that is filled field by field.
pub(crate) struct HeaderBytes(pub(crate) Vec<u8>);

impl HeaderBytes {
    pub(crate) fn new(length: usize) -> HeaderBytes {
        HeaderBytes(vec![0; length])
    }

    /// Writes a field at an offset of the header, unless the field would exceed its end.
    pub(crate) fn put(&mut self, place: usize, bytes: &[u8]) {
        let field = self.0.get_mut(place..place + bytes.len());
        if let Some(field) = field {
            field.copy_from_slice(bytes);
        }
    }
}

/// Encodes a number as a little-endian 32-bit float.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the header has floats of four bytes"
)]
pub(crate) fn single(number: f64) -> [u8; 4] {
    (number as f32).to_le_bytes()
}

/// Position and directions of an image in space, which has as many directions as the image has dimensions. All lists
/// have the order of the file, with the fastest dimension first.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Placement {
    /// The distance between neighbouring elements along each dimension; always positive.
    pub(crate) spacing: Vec<f64>,
    /// The position of the centre of the first element.
    pub(crate) origin: Vec<f64>,
    /// The direction of each dimension, as a unit vector.
    directions: Vec<Vec<f64>>,
    /// The unit of the coordinates along each direction of space.
    pub(crate) units: Vec<Option<String>>,
}

impl Placement {
    /// Returns the position and directions in space of an image, given the meaning of its dimensions.
    pub(crate) fn of(dimensions: &Dimensions) -> Placement {
        match &dimensions.oblique {
            Some(oblique) => Placement::of_oblique(oblique),
            None => Placement::of_axes(&dimensions.axes),
        }
    }

    fn of_axes(axes: &[AxisMeaning]) -> Placement {
        let rank = axes.len();
        let fastest_first = || axes.iter().rev();
        let components = components(&fastest_first().map(|axis| axis.kind).collect::<Vec<_>>());
        let (mut origin, mut units) = (vec![0.0; rank], vec![None; rank]);
        for (axis, &component) in fastest_first().zip(&components) {
            origin[component] = axis.origin;
            units[component].clone_from(&axis.unit);
        }
        let direction = |(axis, &component): (&AxisMeaning, &usize)| {
            let mut direction = vec![0.0; rank];
            direction[component] = axis.step().signum();
            direction
        };
        Placement {
            spacing: fastest_first().map(|axis| axis.step().abs()).collect(),
            origin,
            directions: fastest_first().zip(&components).map(direction).collect(),
            units,
        }
    }

    fn of_oblique(oblique: &Oblique) -> Placement {
        let rank = oblique.axes.len();
        let fastest_first = || oblique.axes.iter().enumerate().rev();
        let kinds: Vec<AxisKind> = fastest_first().map(|(_, axis)| axis.kind).collect();
        let components = components(&kinds);
        let (mut origin, mut units) = (vec![0.0; rank], vec![None; rank]);
        for ((output, axis), &component) in fastest_first().zip(&components) {
            origin[component] = oblique.map.offset(output);
            units[component].clone_from(&axis.unit);
        }
        let direction = |input: usize| {
            let mut direction = vec![0.0; rank];
            for ((output, _), &component) in fastest_first().zip(&components) {
                // Adding 0 turns -0 into 0, because files would show the sign of -0.
                direction[component] =
                    oblique.map.factor(output, input) / oblique.step(input) + 0.0;
            }
            direction
        };
        Placement {
            spacing: (0..rank).rev().map(|input| oblique.step(input)).collect(),
            origin,
            directions: (0..rank).rev().map(direction).collect(),
            units,
        }
    }

    pub(crate) fn direction(&self, dimension: usize, component: usize) -> f64 {
        let direction = self.directions.get(dimension);
        let found = direction.and_then(|direction| direction.get(component));
        found.copied().unwrap_or(0.0)
    }
}

/// Returns the direction of space along which each dimension runs, fastest dimension first. The directions have the
/// order of the dimensions, except that x, y and z are sorted among themselves. They are not sorted if one of them
/// occurs twice, if y occurs without x, or if z occurs without x and y.
fn components(kinds: &[AxisKind]) -> Vec<usize> {
    let mut components: Vec<usize> = (0..kinds.len()).collect();
    let places: Vec<usize> = (0..kinds.len())
        .filter(|&place| kinds[place].is_space())
        .collect();
    let number = |place: &usize| kinds[*place] as usize;
    let is_each = (0..places.len()).all(|kind| places.iter().any(|place| number(place) == kind));
    if is_each {
        for place in &places {
            components[*place] = places[number(place)];
        }
    }
    components
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(kind: AxisKind, scale: f64, origin: f64) -> AxisMeaning {
        AxisMeaning {
            name: None,
            kind,
            unit: None,
            scale: Some(scale),
            origin,
        }
    }

    #[test]
    fn directions_follow_the_axis_kinds_x_y_and_z() {
        let axes = [
            axis(AxisKind::X, 2.0, 5.0),
            axis(AxisKind::Y, -3.0, 6.0),
            axis(AxisKind::Z, 4.0, 7.0),
        ];
        let place = Placement::of_axes(&axes);
        assert_eq!(place.spacing, [4.0, 3.0, 2.0]);
        assert_eq!(place.origin, [5.0, 6.0, 7.0]);
        let directions = [[0.0, 0.0, 1.0], [0.0, -1.0, 0.0], [1.0, 0.0, 0.0]];
        assert_eq!(place.directions, directions);
        let unnamed = axes.clone().map(|axis| AxisMeaning {
            kind: AxisKind::Other,
            ..axis
        });
        let place = Placement::of_axes(&unnamed);
        assert_eq!(place.origin, [7.0, 6.0, 5.0]);
        let directions = [[1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, 1.0]];
        assert_eq!(place.directions, directions);
    }

    #[test]
    fn only_x_y_and_z_axes_are_sorted() {
        use AxisKind::{Channel, Other, Time, X, Y, Z};
        let cases: [(&[AxisKind], &[usize]); 7] = [
            (&[X, Y, Z, Channel, Time], &[0, 1, 2, 3, 4]),
            (&[Z, Y, X, Time], &[2, 1, 0, 3]),
            (&[Channel, Y, X], &[0, 2, 1]),
            (&[Y, Time, X], &[2, 1, 0]),
            (&[Z, X], &[0, 1]),
            (&[X, X, Y], &[0, 1, 2]),
            (&[Other, Other], &[0, 1]),
        ];
        for (kinds, expected) in cases {
            assert_eq!(components(kinds), expected, "{kinds:?}");
        }
    }
}
