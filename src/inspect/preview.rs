//! A plane of an array as numbers, thinned out to the size of a picture.
//!
//! Of more than two dimensions that are selected the first ones are seen at their first element.

use std::sync::Arc;

use crate::array::OpenArray;
use crate::error::{Error, Result};
use crate::grid::Selection;
use crate::inspect::selected::SelectedElements;
use crate::model::DataType;

use crate::request_context::RequestContext;
use half::f16;

/// A plane of numbers, row after row.
#[derive(Clone, Debug, PartialEq)]
pub struct NumberPlane {
    /// Numbers of a row.
    pub width: usize,
    /// Nothing for the fill value and for what is no number.
    pub values: Vec<Option<f64>>,
    /// Every how many elements there is a number, along rows and along columns.
    pub steps: (u64, u64),
}

impl NumberPlane {
    /// Reads a plane of at most so many rows and columns; `Unsupported` for elements that are no numbers.
    pub fn read(
        context: &RequestContext,
        array: &Arc<OpenArray>,
        selection: &Selection,
        (max_rows, max_columns): (u64, u64),
    ) -> Result<NumberPlane> {
        let data_type = &array.array().data_type;
        let fill = &array.array().fill_value.bytes;
        let (selection, steps) = thinned(selection, (max_rows, max_columns));
        let elements = SelectedElements::new(array.clone(), selection)?;
        number_of(data_type, fill).map_err(|error| error.about(array.path()))?;
        let size = elements.element_size().max(1);
        let mut values = Vec::new();
        elements.read(context, &mut |bytes| {
            for element in bytes.chunks_exact(size) {
                let value = number_of(data_type, element)?.filter(|value| value.is_finite());
                values.push(value.filter(|_| element != fill.as_slice()));
            }
            Ok(true)
        })?;
        let width = elements.shape().last().copied().unwrap_or(1);
        Ok(NumberPlane {
            width: usize::try_from(width).unwrap_or(usize::MAX),
            values,
            steps,
        })
    }

    /// Returns where each number lies between the least and the largest, from 0 to 1.
    pub fn shares(&self) -> impl Iterator<Item = Option<f64>> {
        let range = self.range().filter(|(low, high)| low < high);
        let share = move |value: f64| range.map_or(1.0, |(low, high)| (value - low) / (high - low));
        self.values.iter().map(move |value| value.map(share))
    }

    /// Returns the least and the largest number; nothing if there is none.
    pub fn range(&self) -> Option<(f64, f64)> {
        let values = self.values.iter().flatten();
        values.fold(None, |range: Option<(f64, f64)>, &value| {
            let (low, high) = range.unwrap_or((value, value));
            Some((low.min(value), high.max(value)))
        })
    }
}

/// Takes one element along all but the last two dimensions that are left, and every nth element along these.
fn thinned(selection: &Selection, (max_rows, max_columns): (u64, u64)) -> (Selection, (u64, u64)) {
    let mut selection = selection.clone();
    let mut steps = [1, 1];
    let mut limits = [max_columns, max_rows].into_iter().zip(&mut steps);
    for axis in selection
        .axes
        .iter_mut()
        .rev()
        .filter(|axis| !axis.is_index)
    {
        match limits.next() {
            None => {
                axis.count = axis.count.min(1);
                axis.is_index = axis.count == 1;
            }
            Some((limit, step)) => {
                *step = axis.count.div_ceil(limit.max(1)).max(1);
                axis.count = axis.count.div_ceil(*step);
                let factor = i64::try_from(*step).unwrap_or(i64::MAX);
                axis.step = axis.step.saturating_mul(factor);
            }
        }
    }
    let [columns, rows] = steps;
    (selection, (rows, columns))
}

/// Returns an element as a number: of a complex one its magnitude, nothing for what is not a time.
#[expect(
    clippy::cast_precision_loss,
    reason = "a colour shows no more than the first digits"
)]
fn number_of(data_type: &DataType, element: &[u8]) -> Result<Option<f64>> {
    let no_number = || Error::unsupported("data_type", format!("{data_type} is no number"));
    let mut wide = [0; 8];
    let mut word = |bytes: &[u8]| {
        wide.fill(0);
        if let Some(low) = wide.get_mut(..bytes.len()) {
            low.copy_from_slice(bytes);
        }
        u64::from_le_bytes(wide)
    };
    Ok(match data_type {
        DataType::Bool | DataType::UInt(_) => Some(word(element) as f64),
        DataType::Int(width) => {
            let unused = 64 - 8 * u32::try_from(*width).unwrap_or(8).min(8);
            Some(((word(element) << unused).cast_signed() >> unused) as f64)
        }
        DataType::DateTime(_) | DataType::TimeDelta(_) => {
            let count = word(element).cast_signed();
            (count != i64::MIN).then_some(count as f64)
        }
        DataType::Float(_) => float(element),
        DataType::Complex(width) => {
            let parts = element.split_at_checked(width / 2).ok_or_else(no_number)?;
            float(parts.0)
                .zip(float(parts.1))
                .map(|(re, im)| re.hypot(im))
        }
        DataType::Small(number) if element.len() == number.word => number.value(element),
        _ => return Err(no_number()),
    })
}

fn float(bytes: &[u8]) -> Option<f64> {
    match *bytes {
        [a, b] => Some(f16::from_le_bytes([a, b]).to_f64()),
        [a, b, c, d] => Some(f64::from(f32::from_le_bytes([a, b, c, d]))),
        [a, b, c, d, e, f, g, h] => Some(f64::from_le_bytes([a, b, c, d, e, f, g, h])),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_planes_are_thinned_out() {
        let selection = Selection::parse("...", &[5, 7, 100, 33]).unwrap();
        let (thin, steps) = thinned(&selection, (64, 32));
        assert_eq!((thin.shape(), steps), (vec![50, 17], (2, 2)));
        let (thin, steps) = thinned(&Selection::parse("...", &[9]).unwrap(), (1, 3));
        assert_eq!((thin.shape(), steps), (vec![3], (1, 3)));
    }

    #[test]
    fn elements_are_numbers() {
        let number = |data_type, bytes: &[u8]| number_of(&data_type, bytes).unwrap();
        assert_eq!(number(DataType::Int(2), &[0xff, 0xff]), Some(-1.0));
        assert_eq!(number(DataType::UInt(2), &[0xff, 0xff]), Some(65535.0));
        assert_eq!(number(DataType::Float(2), &[0, 0x3c]), Some(1.0));
        let complex = [3_f32.to_le_bytes(), 4_f32.to_le_bytes()].concat();
        assert_eq!(number(DataType::Complex(8), &complex), Some(5.0));
        assert!(number_of(&DataType::Raw(2), &[0, 0]).is_err());
    }
}
