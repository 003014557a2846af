//! The rows and the columns of a map among the dimensions of an array.

use crate::formats::axes::{AxisKind, AxisMeaning};

/// The dimensions of rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlaneAxes {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// The number of rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlaneSize {
    pub(crate) rows: u64,
    pub(crate) columns: u64,
}

impl PlaneAxes {
    /// Finds rows and columns by the names of the dimensions, or else takes the last two dimensions.
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

    /// Whether a dimension is that of rows or that of columns.
    pub(crate) fn contains(self, axis: usize) -> bool {
        axis == self.rows || axis == self.columns
    }

    /// Returns the size of the plane in an array of this shape; a missing dimension has length 0.
    pub(crate) fn size(self, shape: &[u64]) -> PlaneSize {
        let length = |axis: usize| shape.get(axis).copied().unwrap_or(0);
        PlaneSize {
            rows: length(self.rows),
            columns: length(self.columns),
        }
    }
}
