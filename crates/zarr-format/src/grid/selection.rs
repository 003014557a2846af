//! Describes which elements of an array a slice such as `[0, 10:20:2]` selects.
//!
//! The order of dimensions does not change. This module neither reads elements nor parses slices.

use super::Region;

/// Selected elements along one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectedAxis {
    /// Index of the first selected element.
    pub start: u64,
    /// Distance from one selected element to the next; never 0.
    pub step: i64,
    /// Number of selected elements.
    pub count: u64,
    /// Whether a single index was given, so that the selection drops the dimension.
    pub is_index: bool,
}

impl SelectedAxis {
    /// Returns the index in the array of selected element `number`.
    pub fn at(&self, number: u64) -> u64 {
        let offset = i128::from(self.step) * i128::from(number);
        u64::try_from(i128::from(self.start) + offset).unwrap_or_default()
    }

    /// Selects a whole dimension.
    pub fn all(length: u64) -> SelectedAxis {
        SelectedAxis {
            start: 0,
            step: 1,
            count: length,
            is_index: false,
        }
    }

    /// Returns how many consecutive selected elements, beginning with `number`, have indices in `start .. start +
    /// length`. The index of `number` must be in this range.
    pub fn count_within(&self, number: u64, start: u64, length: u64) -> u64 {
        let at = self.at(number);
        let room = if self.step > 0 {
            (start.saturating_add(length)).saturating_sub(at.saturating_add(1))
        } else {
            at.saturating_sub(start)
        };
        let within = (room / self.step.unsigned_abs().max(1)).saturating_add(1);
        within.min(self.count.saturating_sub(number))
    }
}

/// A selection of elements of an array, as a slice makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// The selected elements along each dimension of the array.
    pub axes: Vec<SelectedAxis>,
}

impl Selection {
    /// Selects a whole array.
    pub fn whole(shape: &[u64]) -> Selection {
        let axes = shape.iter().map(|&length| SelectedAxis::all(length));
        Selection {
            axes: axes.collect(),
        }
    }

    /// Selects a box of elements; no dimension is dropped.
    pub fn of_region(region: &Region) -> Selection {
        let axes = region.start.iter().zip(&region.shape);
        let axes = axes.map(|(&start, &count)| SelectedAxis {
            start,
            ..SelectedAxis::all(count)
        });
        Selection {
            axes: axes.collect(),
        }
    }

    /// Returns the shape of the selection, without dropped dimensions.
    pub fn shape(&self) -> Vec<u64> {
        let remaining = self.axes.iter().filter(|axis| !axis.is_index);
        remaining.map(|axis| axis.count).collect()
    }

    /// Returns the dimensions of the array that the selection does not drop, by number.
    pub fn remaining_axes(&self) -> Vec<usize> {
        let axes = self.axes.iter().enumerate();
        let remaining = axes.filter(|(_, axis)| !axis.is_index);
        remaining.map(|(axis, _)| axis).collect()
    }

    /// Returns all dimensions of the array, reordered: first the dropped dimensions, then the others in the order
    /// `order`.
    pub fn order_of(&self, order: &[usize]) -> Vec<usize> {
        let axes = self.axes.iter().enumerate();
        let dropped = axes.filter(|(_, axis)| axis.is_index).map(|(axis, _)| axis);
        let remaining = self.remaining_axes();
        let ordered = order
            .iter()
            .filter_map(|&place| remaining.get(place).copied());
        dropped.chain(ordered).collect()
    }

    /// Returns the selection as a box in all dimensions of the array, or `None` if it skips or reverses elements.
    pub fn region(&self) -> Option<Region> {
        let is_run = |axis: &SelectedAxis| axis.step == 1 || axis.count <= 1;
        self.axes.iter().all(is_run).then(|| Region {
            start: self.axes.iter().map(|axis| axis.start).collect(),
            shape: self.axes.iter().map(|axis| axis.count).collect(),
        })
    }

    /// Returns the smallest box that contains the selection.
    pub fn bounds(&self) -> Region {
        let ends = self.axes.iter().map(|axis| {
            let last = axis.at(axis.count.saturating_sub(1));
            (axis.start.min(last), axis.start.max(last))
        });
        let (start, last): (Vec<u64>, Vec<u64>) = ends.unzip();
        let lengths = start.iter().zip(&last).zip(&self.axes);
        let shape = lengths.map(|((&start, &last), axis)| match axis.count {
            0 => 0,
            _ => (last - start).saturating_add(1),
        });
        Region {
            shape: shape.collect(),
            start: start.into_iter().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_within_a_chunk_are_counted() {
        for (start, step, count) in [(0, 1, 20), (1, 3, 6), (19, -4, 5), (7, 100, 1), (5, -1, 6)] {
            let axis = SelectedAxis {
                start,
                step,
                count,
                is_index: false,
            };
            for number in 0..count {
                let chunk = axis.at(number) / 6;
                let same = (number..count).take_while(|&next| axis.at(next) / 6 == chunk);
                let expected = same.count() as u64;
                assert_eq!(
                    axis.count_within(number, chunk * 6, 6),
                    expected,
                    "{axis:?}"
                );
            }
        }
    }

    #[test]
    fn the_bounds_of_a_selection_include_both_ends() {
        for (start, step, count, expected) in [
            (2, 1, 3, (2, 3)),
            (1, 3, 3, (1, 7)),
            (9, -4, 3, (1, 9)),
            (5, 2, 0, (5, 0)),
        ] {
            let axis = SelectedAxis {
                start,
                step,
                count,
                is_index: false,
            };
            let bounds = Selection { axes: vec![axis] }.bounds();
            assert_eq!((bounds.start[0], bounds.shape[0]), expected, "{axis:?}");
        }
    }

    #[test]
    fn dropped_dimensions_come_first_in_the_order() {
        let dropped = SelectedAxis {
            is_index: true,
            ..SelectedAxis::all(1)
        };
        let remaining = SelectedAxis::all(4);
        let selection = Selection {
            axes: vec![remaining, dropped, remaining],
        };
        assert_eq!(selection.order_of(&[1, 0]), [1, 2, 0]);
        assert_eq!(selection.remaining_axes(), [0, 2]);
    }
}
