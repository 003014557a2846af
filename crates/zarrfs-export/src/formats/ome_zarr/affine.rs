//! Affine maps between low-dimensional spaces: a matrix and an offset.

/// An affine map: each output coordinate is a sum of multiples of the input coordinates and an offset.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AffineMap {
    /// The matrix: one row per output, with the factor of each input.
    rows: Vec<Vec<f64>>,
    /// The offset of each output coordinate.
    offset: Vec<f64>,
    inputs: usize,
}

/// An input coordinate that is restricted to every `step`th index, from `start` on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TakenInput {
    pub(crate) input: usize,
    pub(crate) start: f64,
    pub(crate) step: f64,
}

impl AffineMap {
    /// Builds an affine map, or returns `None` if a row has the wrong length, or if the numbers of rows and offsets
    /// differ.
    pub(crate) fn new(rows: Vec<Vec<f64>>, offset: Vec<f64>, inputs: usize) -> Option<AffineMap> {
        let is_whole = rows.iter().all(|row| row.len() == inputs);
        (is_whole && rows.len() == offset.len()).then_some(AffineMap {
            rows,
            offset,
            inputs,
        })
    }

    pub(crate) fn identity(rank: usize) -> AffineMap {
        AffineMap::scale(&vec![1.0; rank])
    }

    /// Returns the affine map that multiplies each coordinate by its factor.
    pub(crate) fn scale(factors: &[f64]) -> AffineMap {
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

    /// Returns the affine map that adds an offset to each coordinate.
    pub(crate) fn translation(offset: &[f64]) -> AffineMap {
        AffineMap {
            offset: offset.to_vec(),
            ..AffineMap::identity(offset.len())
        }
    }

    /// Returns the affine map followed by a scaling, or `None` if the number of factors is wrong.
    pub(crate) fn scaled(&self, factors: &[f64]) -> Option<AffineMap> {
        self.then(&AffineMap::scale(factors))
    }

    /// Returns the affine map followed by a translation, or `None` if the number of offsets is wrong.
    pub(crate) fn moved(&self, offset: &[f64]) -> Option<AffineMap> {
        self.then(&AffineMap::translation(offset))
    }

    pub(crate) fn inputs(&self) -> usize {
        self.inputs
    }

    pub(crate) fn outputs(&self) -> usize {
        self.rows.len()
    }

    /// Returns the factor by which an input coordinate contributes to an output coordinate.
    pub(crate) fn factor(&self, output: usize, input: usize) -> f64 {
        let row = self.rows.get(output);
        let factor = row.and_then(|row| row.get(input)).copied();
        factor.unwrap_or(0.0)
    }

    pub(crate) fn offset(&self, output: usize) -> f64 {
        self.offset.get(output).copied().unwrap_or(0.0)
    }

    /// Returns the affine map followed by the map `next`, or `None` if `next` has another number of inputs.
    pub(crate) fn then(&self, next: &AffineMap) -> Option<AffineMap> {
        if next.inputs != self.outputs() {
            return None;
        }
        let through = |row: &Vec<f64>, of: &dyn Fn(usize) -> f64| -> f64 {
            // Products with a factor 0 are skipped, because 0 times infinity would be NaN.
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

    /// Returns the inverse affine map, or `None` if the map is not invertible.
    pub(crate) fn inverse(&self) -> Option<AffineMap> {
        let rank = self.inputs;
        if self.outputs() != rank || !self.is_finite() {
            return None;
        }
        // Gauss-Jordan elimination: the row operations that make the matrix the identity make the identity its inverse.
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
            // NaN (0/0) means that the row has only zeros. A pivot below 1e-12 of its row's largest number is only a
            // rounding error, so the matrix has no inverse.
            if part(pivot).is_nan() || part(pivot) < 1e-12 {
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

    /// Whether all factors and offsets are finite.
    pub(crate) fn is_finite(&self) -> bool {
        let mut all = self.rows.iter().flatten().chain(&self.offset);
        all.all(|number| number.is_finite())
    }

    /// Returns for each input the only output that depends on it. Returns `None` if an input affects several outputs,
    /// or an output depends on several inputs.
    pub(crate) fn permutation(&self) -> Option<Vec<usize>> {
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

    /// Restricts an affine map to some of its inputs, and returns which outputs remain. Each removed input must have an
    /// output that depends on it alone, and affect no other output; this output is removed, too. Otherwise returns
    /// `None`.
    pub(crate) fn taken(&self, inputs: &[TakenInput]) -> Option<(AffineMap, Vec<usize>)> {
        let mut outputs: Vec<usize> = (0..self.outputs()).collect();
        let is_taken = |input: usize| inputs.iter().any(|taken| taken.input == input);
        for input in (0..self.inputs).filter(|&input| !is_taken(input)) {
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
            outputs.retain(|&other| other != output);
        }
        let rows = outputs.iter().map(|&output| {
            let row = inputs.iter();
            row.map(|taken| self.factor(output, taken.input) * taken.step)
                .collect()
        });
        let offset = outputs.iter().map(|&output| {
            let parts = inputs.iter();
            let parts = parts.map(|taken| self.factor(output, taken.input) * taken.start);
            self.offset(output) + parts.sum::<f64>()
        });
        let map = AffineMap::new(rows.collect(), offset.collect(), inputs.len())?;
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
    fn affine_maps_are_composed_in_order() {
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
    fn a_map_composed_with_its_inverse_is_the_identity() {
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
    fn only_independent_dimensions_can_be_dropped() {
        let turned = map(
            &[&[2.0, 0.0, 0.0], &[0.0, 0.6, -0.8], &[0.0, 0.8, 0.6]],
            &[1.0, 2.0, 3.0],
        );
        let taken = |input, start, step| TakenInput { input, start, step };
        let inputs = [taken(1, 5.0, 1.0), taken(2, 0.0, 2.0)];
        let (plane, outputs) = turned.taken(&inputs).unwrap();
        assert_eq!(outputs, [1, 2]);
        assert_eq!(plane, map(&[&[0.6, -1.6], &[0.8, 1.2]], &[5.0, 7.0]));
        let inputs = [taken(0, 0.0, 1.0), taken(1, 0.0, 1.0)];
        assert_eq!(turned.taken(&inputs), None);
    }
}
