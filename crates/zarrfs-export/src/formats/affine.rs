//! Affine maps between spaces of a few dimensions: a matrix and an offset.

/// A map from places with `inputs` coordinates to places with as many as there are rows.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AffineMap {
    /// For each coordinate of the result the factors of those of the place.
    rows: Vec<Vec<f64>>,
    /// What is added to each coordinate of the result.
    offset: Vec<f64>,
    inputs: usize,
}

/// A number that is a smaller part than this of the largest one that was in its row is what rounding has left of 0.
const SMALLEST_PIVOT: f64 = 1e-12;

impl AffineMap {
    /// Builds a map; nothing if a row has another number of factors, or there are more rows or fewer than offsets.
    pub(super) fn new(rows: Vec<Vec<f64>>, offset: Vec<f64>, inputs: usize) -> Option<AffineMap> {
        let is_whole = rows.iter().all(|row| row.len() == inputs);
        (is_whole && rows.len() == offset.len()).then_some(AffineMap {
            rows,
            offset,
            inputs,
        })
    }

    /// Returns the map of each place to itself.
    pub(super) fn identity(rank: usize) -> AffineMap {
        AffineMap::scale(&vec![1.0; rank])
    }

    /// Returns the map that multiplies each coordinate.
    pub(super) fn scale(factors: &[f64]) -> AffineMap {
        let rank = factors.len();
        let row = |(place, &factor): (usize, &f64)| {
            let mut row = vec![0.0; rank];
            row[place] = factor;
            row
        };
        AffineMap {
            rows: factors.iter().enumerate().map(row).collect(),
            offset: vec![0.0; rank],
            inputs: rank,
        }
    }

    /// Returns the map that adds to each coordinate.
    pub(super) fn translation(offset: &[f64]) -> AffineMap {
        AffineMap {
            offset: offset.to_vec(),
            ..AffineMap::identity(offset.len())
        }
    }

    /// Returns the map whose results are multiplied by these factors; nothing if they are not as many.
    pub(super) fn scaled(&self, factors: &[f64]) -> Option<AffineMap> {
        self.then(&AffineMap::scale(factors))
    }

    /// Returns the map to whose results these numbers are added; nothing if they are not as many.
    pub(super) fn moved(&self, offset: &[f64]) -> Option<AffineMap> {
        self.then(&AffineMap::translation(offset))
    }

    /// Returns the number of coordinates of a place.
    pub(super) fn inputs(&self) -> usize {
        self.inputs
    }

    /// Returns the number of coordinates of a result.
    pub(super) fn outputs(&self) -> usize {
        self.rows.len()
    }

    /// Returns how much a coordinate of the result grows with one of the place.
    pub(super) fn factor(&self, output: usize, input: usize) -> f64 {
        let row = self.rows.get(output);
        let factor = row.and_then(|row| row.get(input)).copied();
        factor.unwrap_or(0.0)
    }

    /// Returns a coordinate of the place that the first one is mapped to.
    pub(super) fn offset(&self, output: usize) -> f64 {
        self.offset.get(output).copied().unwrap_or(0.0)
    }

    /// Returns the map that applies this one and then the next; nothing if that takes another number of coordinates.
    pub(super) fn then(&self, next: &AffineMap) -> Option<AffineMap> {
        if next.inputs != self.outputs() {
            return None;
        }
        let through = |row: &Vec<f64>, of: &dyn Fn(usize) -> f64| -> f64 {
            // A factor of 0 takes no part, also where the other one is not finite.
            let parts = row.iter().enumerate();
            let parts = parts.map(|(middle, &factor)| (factor, of(middle)));
            let parts = parts.filter(|&(factor, other)| factor != 0.0 && other != 0.0);
            parts.map(|(factor, other)| factor * other).sum()
        };
        let rows = next.rows.iter().map(|row| {
            let input = |input| through(row, &|middle| self.factor(middle, input));
            (0..self.inputs).map(input).collect()
        });
        let offset = next.rows.iter().zip(&next.offset);
        let offset = offset.map(|(row, added)| through(row, &|middle| self.offset(middle)) + added);
        Some(AffineMap {
            rows: rows.collect(),
            offset: offset.collect(),
            inputs: self.inputs,
        })
    }

    /// Returns the map that takes this one back; nothing if it has none.
    pub(super) fn inverse(&self) -> Option<AffineMap> {
        let rank = self.inputs;
        if self.outputs() != rank || !self.is_finite() {
            return None;
        }
        // The matrix beside the identity, which becomes the inverse as the matrix becomes the identity.
        let mut left = self.rows.clone();
        let mut right = AffineMap::identity(rank).rows;
        let largest = |row: &Vec<f64>| {
            row.iter()
                .fold(0.0_f64, |most, number| most.max(number.abs()))
        };
        let mut largest: Vec<f64> = left.iter().map(largest).collect();
        for column in 0..rank {
            let part = |row: usize| (left[row][column] / largest[row]).abs();
            let pivot = (column..rank).max_by(|&a, &b| part(a).total_cmp(&part(b)))?;
            // A row of zeros has no part, which is not a number.
            if part(pivot).is_nan() || part(pivot) < SMALLEST_PIVOT {
                return None;
            }
            let number = left[pivot][column];
            largest.swap(column, pivot);
            left.swap(column, pivot);
            right.swap(column, pivot);
            for matrix in [&mut left, &mut right] {
                for factor in &mut matrix[column] {
                    *factor /= number;
                }
            }
            let taken: Vec<f64> = left.iter().map(|row| row[column]).collect();
            for matrix in [&mut left, &mut right] {
                let factors = matrix[column].clone();
                let others = matrix.iter_mut().zip(&taken).enumerate();
                for (_, (numbers, times)) in others.filter(|(row, _)| *row != column) {
                    for (number, factor) in numbers.iter_mut().zip(&factors) {
                        *number -= times * factor;
                    }
                }
            }
        }
        let matrix = AffineMap::new(right, vec![0.0; rank], rank)?;
        let back: Vec<f64> = self.offset.iter().map(|offset| -offset).collect();
        let inverse = AffineMap::translation(&back).then(&matrix)?;
        inverse.is_finite().then_some(inverse)
    }

    /// Whether all numbers are finite.
    pub(super) fn is_finite(&self) -> bool {
        let mut all = self.rows.iter().flatten().chain(&self.offset);
        all.all(|number| number.is_finite())
    }

    /// Returns for each coordinate of a place the one of the result that it alone makes; nothing if one makes several, or
    /// is made of several.
    pub(super) fn permutation(&self) -> Option<Vec<usize>> {
        if self.outputs() != self.inputs {
            return None;
        }
        let alone = |input: usize| {
            let is_made = |output: &usize| self.factor(*output, input) != 0.0;
            let mut outputs = (0..self.outputs()).filter(is_made);
            outputs.next().filter(|_| outputs.next().is_none())
        };
        let places: Vec<usize> = (0..self.inputs).map(alone).collect::<Option<_>>()?;
        let is_all = (0..self.outputs()).all(|output| places.contains(&output));
        is_all.then_some(places)
    }

    /// Returns the map of the places that are `step` apart from `start` on along each kept coordinate. Others are dropped,
    /// with the coordinate of the result that each of them alone makes; nothing if one makes more.
    pub(super) fn taken(&self, kept: &[(usize, f64, f64)]) -> Option<(AffineMap, Vec<usize>)> {
        let mut outputs: Vec<usize> = (0..self.outputs()).collect();
        let is_kept = |input: usize| kept.iter().any(|&(axis, ..)| axis == input);
        for input in (0..self.inputs).filter(|&input| !is_kept(input)) {
            let is_made = |output: &usize| self.factor(*output, input) != 0.0;
            let made: Vec<usize> = (0..self.outputs()).filter(is_made).collect();
            let [output] = made[..] else { return None };
            let others = (0..self.inputs).filter(|&other| other != input);
            if others
                .into_iter()
                .any(|other| self.factor(output, other) != 0.0)
            {
                return None;
            }
            outputs.retain(|&kept| kept != output);
        }
        let rows = outputs.iter().map(|&output| {
            let row = kept.iter();
            row.map(|&(axis, _, step)| self.factor(output, axis) * step)
                .collect()
        });
        let offset = outputs.iter().map(|&output| {
            let parts = kept.iter();
            let parts = parts.map(|&(axis, start, _)| self.factor(output, axis) * start);
            self.offset(output) + parts.sum::<f64>()
        });
        let map = AffineMap::new(rows.collect(), offset.collect(), kept.len())?;
        Some((map, outputs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(rows: &[&[f64]], offset: &[f64]) -> AffineMap {
        let inputs = rows[0].len();
        let rows = rows.iter().map(|row| row.to_vec()).collect();
        AffineMap::new(rows, offset.to_vec(), inputs).unwrap()
    }

    #[test]
    fn maps_follow_one_another() {
        let scaled = AffineMap::scale(&[2.0, 3.0]);
        let moved = scaled.then(&AffineMap::translation(&[1.0, -1.0])).unwrap();
        assert_eq!(moved, map(&[&[2.0, 0.0], &[0.0, 3.0]], &[1.0, -1.0]));
        let turned = moved.then(&map(&[&[0.0, -1.0], &[1.0, 0.0]], &[5.0, 6.0]));
        let turned = turned.unwrap();
        assert_eq!(turned, map(&[&[0.0, -3.0], &[2.0, 0.0]], &[6.0, 7.0]));
        assert_eq!(turned.permutation(), Some(vec![1, 0]));
        assert_eq!(turned.then(&AffineMap::identity(3)), None);
    }

    #[test]
    fn a_map_and_its_inverse_are_the_identity() {
        let there = map(
            &[&[0.0, 2.0, 0.0], &[1.0, 0.5, 0.0], &[0.25, 0.0, 4.0]],
            &[1.0, 2.0, 3.0],
        );
        let back = there.inverse().unwrap();
        assert_eq!(there.then(&back), Some(AffineMap::identity(3)));
        assert_eq!(there.permutation(), None);
        let flat = map(&[&[1.0, 2.0], &[2.0, 4.0]], &[0.0, 0.0]);
        assert_eq!(flat.inverse(), None);
        let projected = map(&[&[1.0, 2.0]], &[0.0]);
        assert_eq!(projected.inverse(), None);
    }

    #[test]
    fn dimensions_are_dropped_where_they_stand_alone() {
        let turned = map(
            &[&[2.0, 0.0, 0.0], &[0.0, 0.6, -0.8], &[0.0, 0.8, 0.6]],
            &[1.0, 2.0, 3.0],
        );
        let (plane, outputs) = turned.taken(&[(1, 5.0, 1.0), (2, 0.0, 2.0)]).unwrap();
        assert_eq!(outputs, [1, 2]);
        assert_eq!(plane, map(&[&[0.6, -1.6], &[0.8, 1.2]], &[5.0, 7.0]));
        assert_eq!(turned.taken(&[(0, 0.0, 1.0), (1, 0.0, 1.0)]), None);
    }
}
