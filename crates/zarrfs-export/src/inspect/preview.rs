//! Reads a plane of an array for a picture: numbers and their range.
//!
//! A plane consists of the last two selected dimensions that have several elements; the others are fixed at their first
//! element. All elements of the plane are read, even if only some are drawn: the range of the drawn elements alone, and
//! so the colours, would change with the size of the picture. If this would decode more than 1 GiB, only the drawn
//! elements are read.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::formats::elements;
use crate::inspect::selected_elements::SelectedElements;
use zarr_format::error::{Error, Result};
use zarr_format::grid::Selection;
use zarr_format::model::{DataType, bytes_of};
use zarrfs_array::array::OpenArray;

use zarrfs_store::request_context::RequestContext;

/// The size of a picture.
#[derive(Clone, Copy, Debug)]
pub struct PictureSize {
    /// Maximum number of rows.
    pub rows: u64,
    /// Maximum number of columns.
    pub columns: u64,
    /// Whether a cell is twice as high as wide, like a character of a terminal.
    pub is_tall: bool,
}

/// A plane of numbers.
#[derive(Clone, Debug)]
pub struct NumberPlane {
    /// The selection along each dimension: one element, except for the dimensions of the plane.
    pub selection: Selection,
    /// The dimensions of rows and columns, if there are two.
    pub axes: (Option<usize>, Option<usize>),
    /// The number of columns of the picture.
    pub width: usize,
    /// The drawn numbers, row by row; `None` for the fill value and for values that are not finite.
    pub drawn: Vec<Option<f64>>,
    /// The steps along rows and along columns: one element of each step is drawn.
    pub steps: (u64, u64),
    /// The range of all numbers.
    pub all: Range,
    /// The range of the numbers other than the fill value. The colours are scaled to this range.
    pub valued: Range,
    /// The kinds of elements in the plane that are drawn without a colour.
    pub dark: DarkElements,
    /// The chunks of the whole plane, if not all of its elements were read but only the drawn ones.
    pub unread: Option<ChunksUnder>,
}

/// The chunks that a selection covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunksUnder {
    /// Number of chunks.
    pub count: u64,
    /// Decoded bytes of these chunks.
    pub bytes: u64,
}

/// The minimum and maximum of some numbers.
#[derive(Clone, Debug, Default)]
pub struct Range {
    ends: Option<[Extreme; 2]>,
}

/// A number and the bytes of its element.
#[derive(Clone, Debug)]
struct Extreme {
    number: f64,
    element: Vec<u8>,
}

/// The kinds of elements without a colour that a plane contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DarkElements {
    /// The fill value, if it is a finite number.
    pub fill: bool,
    /// NaN or NaT.
    pub nan: bool,
    /// Infinities.
    pub infinite: bool,
}

impl NumberPlane {
    /// Reads a plane, sampled to the size of a picture. Fails with `Unsupported` if the elements are not numbers.
    /// `progress` receives the bytes that were read and the total.
    pub fn read(
        context: &RequestContext,
        array: &Arc<OpenArray>,
        selection: &Selection,
        size: PictureSize,
        progress: &dyn Fn(u64, u64),
    ) -> Result<NumberPlane> {
        let about = |error: Error| error.about(array.path());
        let (data_type, fill) = (&array.array().data_type, &array.array().fill_value);
        number_of(data_type, &fill.bytes).map_err(about)?;
        let (selection, axes) = plane_of(selection);
        let count = |axis: Option<usize>| {
            axis.and_then(|axis| selection.axes.get(axis))
                .map_or(1, |axis| axis.count)
        };
        let (rows, columns) = (count(axes.0), count(axes.1));
        let steps = steps(rows, columns, size);
        let chunks = chunks_under(array, &selection)?;
        // Decoding 1 GiB takes some seconds from a local disk, and a minute over a usual connection.
        let is_whole = chunks.cost() <= 1 << 30 || steps == (1, 1);
        let (read, read_steps) = if is_whole {
            (selection.clone(), steps)
        } else {
            (thinned(&selection, axes, steps), (1, 1))
        };
        let elements = SelectedElements::new(array.clone(), read)?;
        let columns = if is_whole {
            columns
        } else {
            columns.div_ceil(steps.1)
        };
        let mut reader = PlaneReader {
            data_type,
            fill: (!fill.is_none).then_some(&fill.bytes[..]),
            columns,
            steps: read_steps,
            column: 0,
            skipped: (0, 0),
            drawn: Vec::new(),
            all: Range::default(),
            valued: Range::default(),
            dark: DarkElements::default(),
        };
        let (size, total) = (elements.element_size().max(1), elements.len());
        let mut done = 0;
        progress(0, total);
        elements.read(context, &mut |bytes| {
            for element in bytes.chunks_exact(size) {
                reader.add(element).map_err(about)?;
            }
            done += bytes.len() as u64;
            progress(done, total);
            Ok(true)
        })?;
        Ok(NumberPlane {
            selection,
            axes,
            width: usize::try_from(columns.div_ceil(read_steps.1)).unwrap_or(usize::MAX),
            drawn: reader.drawn,
            steps,
            all: reader.all,
            valued: reader.valued,
            dark: reader.dark,
            unread: (!is_whole).then_some(chunks),
        })
    }

    /// Returns the position of each number between minimum and maximum, from 0 to 1.
    pub fn shares(&self) -> impl Iterator<Item = Option<f64>> {
        let range = self.valued.numbers().filter(|(low, high)| low < high);
        // Halved, since the difference of two large numbers may overflow to infinity.
        let half = |number: f64| number / 2.0;
        let share = move |value: f64| {
            range.map_or(1.0, |(low, high)| {
                (half(value) - half(low)) / (half(high) - half(low))
            })
        };
        self.drawn.iter().map(move |value| value.map(share))
    }
}

impl Range {
    /// Returns the minimum and maximum element, or `None` if there are no numbers.
    pub fn elements(&self) -> Option<[&[u8]; 2]> {
        let ends = self.ends.as_ref()?;
        Some(ends.each_ref().map(|end| &end.element[..]))
    }

    /// Returns the minimum and maximum as numbers.
    pub fn numbers(&self) -> Option<(f64, f64)> {
        let [low, high] = self.ends.as_ref()?;
        Some((low.number, high.number))
    }

    /// Extends the range to include a number.
    fn add(&mut self, number: f64, element: &[u8], data_type: &DataType) {
        let new = || Extreme {
            number,
            element: element.to_vec(),
        };
        let Some([low, high]) = &mut self.ends else {
            self.ends = Some([new(), new()]);
            return;
        };
        // Several large integers convert to the same float.
        let compared = |end: &Extreme| {
            let whole = |element| whole_of(data_type, element);
            let order = number.partial_cmp(&end.number)?;
            Some(match order {
                Ordering::Equal if element != end.element => {
                    whole(element).cmp(&whole(&end.element))
                }
                order => order,
            })
        };
        if compared(low) == Some(Ordering::Less) {
            *low = new();
        }
        if compared(high) == Some(Ordering::Greater) {
            *high = new();
        }
    }
}

/// Receives the elements of a plane in C order; keeps the drawn ones, and the ranges of all numbers.
struct PlaneReader<'a> {
    data_type: &'a DataType,
    /// The fill value, if the array has one.
    fill: Option<&'a [u8]>,
    columns: u64,
    steps: (u64, u64),
    /// The column of the next element.
    column: u64,
    /// The number of rows and columns until the next one that is drawn; 0 if the current one is drawn.
    skipped: (u64, u64),
    drawn: Vec<Option<f64>>,
    all: Range,
    valued: Range,
    dark: DarkElements,
}

impl PlaneReader<'_> {
    fn add(&mut self, element: &[u8]) -> Result<()> {
        let number = number_of(self.data_type, element)?;
        let is_fill = self.fill == Some(element);
        self.dark.nan |= number.is_none_or(f64::is_nan);
        self.dark.infinite |= number.is_some_and(f64::is_infinite);
        let number = number.filter(|number| number.is_finite());
        if let Some(number) = number {
            self.all.add(number, element, self.data_type);
            self.dark.fill |= is_fill;
            if !is_fill {
                self.valued.add(number, element, self.data_type);
            }
        }
        if self.skipped == (0, 0) {
            self.drawn.push(number.filter(|_| !is_fill));
        }
        self.column += 1;
        self.skipped.1 = after(self.skipped.1, self.steps.1);
        if self.column >= self.columns {
            self.column = 0;
            self.skipped = (after(self.skipped.0, self.steps.0), 0);
        }
        Ok(())
    }
}

/// Returns the number of rows or columns until the next drawn one, after moving to the next row or column.
fn after(skipped: u64, step: u64) -> u64 {
    skipped.checked_sub(1).unwrap_or(step - 1)
}

/// Reduces a selection to its plane; also returns the dimensions of rows and columns.
fn plane_of(selection: &Selection) -> (Selection, (Option<usize>, Option<usize>)) {
    let kept = selection.remaining_axes().into_iter().rev();
    let is_long = |axis: &usize| selection.axes.get(*axis).is_some_and(|axis| axis.count > 1);
    let mut long = kept.clone().filter(is_long);
    let (columns, rows) = match (long.next(), long.next()) {
        (None, _) => (kept.clone().next(), None),
        found => found,
    };
    let mut selection = selection.clone();
    for (axis, selected) in selection.axes.iter_mut().enumerate() {
        if Some(axis) != rows && Some(axis) != columns && !selected.is_index {
            selected.count = selected.count.min(1);
            selected.is_index = selected.count == 1;
        }
    }
    (selection, (rows, columns))
}

/// Returns the sampling steps along rows and columns, so that the picture keeps the proportions of the plane.
fn steps(rows: u64, columns: u64, size: PictureSize) -> (u64, u64) {
    let (most_rows, most_columns) = (size.rows.max(1), size.columns.max(1));
    if !size.is_tall {
        let step = rows.div_ceil(most_rows).max(columns.div_ceil(most_columns));
        return (step.max(1), step.max(1));
    }
    // A small plane is drawn with two characters for each element.
    if rows <= most_rows && columns <= most_columns / 2 {
        return (1, 1);
    }
    let step = rows
        .div_ceil(most_rows.saturating_mul(2))
        .max(columns.div_ceil(most_columns))
        .max(1);
    (step.saturating_mul(2).min(rows.max(1)), step)
}

/// Returns a selection of only the elements that are drawn, one of each step.
fn thinned(
    selection: &Selection,
    axes: (Option<usize>, Option<usize>),
    steps: (u64, u64),
) -> Selection {
    let mut selection = selection.clone();
    for (axis, step) in [(axes.0, steps.0), (axes.1, steps.1)] {
        let Some(axis) = axis.and_then(|axis| selection.axes.get_mut(axis)) else {
            continue;
        };
        axis.count = axis.count.div_ceil(step);
        let factor = i64::try_from(step).unwrap_or(i64::MAX);
        axis.step = axis.step.saturating_mul(factor);
    }
    selection
}

impl ChunksUnder {
    /// Returns the cost of reading these chunks, in bytes. Each chunk counts as at least 64 KiB, since a request takes
    /// about as long as transferring that many bytes.
    fn cost(self) -> u64 {
        self.bytes.max(self.count.saturating_mul(64 << 10))
    }
}

fn chunks_under(array: &OpenArray, selection: &Selection) -> Result<ChunksUnder> {
    let grid = array.decoded_grid()?;
    let mut count = 1_u64;
    for (axis, selected) in selection.axes.iter().enumerate() {
        let Some(last) = selected.count.checked_sub(1) else {
            return Ok(ChunksUnder { count: 0, bytes: 0 });
        };
        let ends = [0, last].map(|number| grid.chunk_at(axis, selected.at(number)));
        let along = (ends[0].abs_diff(ends[1]) + 1).min(selected.count);
        count = count.saturating_mul(along);
    }
    let shape = grid.chunk_shape().iter().zip(&array.array().shape);
    let shape: Vec<u64> = shape.map(|(&chunk, &length)| chunk.min(length)).collect();
    let chunk = bytes_of(&shape, array.array().element_size()?)?;
    Ok(ChunksUnder {
        count,
        bytes: count.saturating_mul(chunk),
    })
}

/// Returns an element as an integer, or `None` for other types.
fn whole_of(data_type: &DataType, element: &[u8]) -> Option<i128> {
    match data_type {
        DataType::UInt(_) => Some(elements::integer(element, false)),
        DataType::Int(_) | DataType::DateTime(_) | DataType::TimeDelta(_) => {
            Some(elements::integer(element, true))
        }
        _ => None,
    }
}

/// Returns an element as a number: the magnitude of a complex number, `None` for NaT.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a number has at most eight bytes, and a colour shows no more than its first digits"
)]
fn number_of(data_type: &DataType, element: &[u8]) -> Result<Option<f64>> {
    let no_number = || Error::unsupported("data_type", format!("{data_type} is not numeric"));
    Ok(match data_type {
        DataType::Bool | DataType::UInt(_) => Some(elements::integer(element, false) as u64 as f64),
        DataType::Int(_) => Some(elements::integer(element, true) as i64 as f64),
        DataType::DateTime(_) | DataType::TimeDelta(_) => {
            let count = elements::integer(element, true) as i64;
            (count != i64::MIN).then_some(count as f64)
        }
        DataType::Float(_) => elements::float(element),
        DataType::Complex(width) => {
            let parts = element.split_at_checked(width / 2).ok_or_else(no_number)?;
            elements::float(parts.0)
                .zip(elements::float(parts.1))
                .map(|(re, im)| re.hypot(im))
        }
        DataType::Small(number) if element.len() == number.word => number.value(element),
        _ => return Err(no_number()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(rows: u64, columns: u64, is_tall: bool) -> PictureSize {
        PictureSize {
            rows,
            columns,
            is_tall,
        }
    }

    #[test]
    fn the_plane_is_the_last_two_long_dimensions() {
        let plane = |shape: &[u64], text: &str| {
            let (selection, axes) =
                plane_of(&crate::inspect::selection::parse(text, shape).unwrap());
            (selection.shape(), axes)
        };
        assert_eq!(
            plane(&[5, 7, 100, 33], "..."),
            (vec![100, 33], (Some(2), Some(3)))
        );
        assert_eq!(
            plane(&[100, 33, 1, 1], "..."),
            (vec![100, 33], (Some(0), Some(1)))
        );
        assert_eq!(plane(&[5, 7, 9], ":,2,:"), (vec![5, 9], (Some(0), Some(2))));
        assert_eq!(plane(&[1, 9], "..."), (vec![9], (None, Some(1))));
        assert_eq!(plane(&[1, 1], "..."), (vec![1], (None, Some(1))));
        assert_eq!(plane(&[3, 4], "1,2"), (vec![], (None, None)));
        assert_eq!(plane(&[], "..."), (vec![], (None, None)));
        assert_eq!(plane(&[4, 0, 3], "...").0.iter().product::<u64>(), 0);
    }

    #[test]
    fn a_preview_keeps_the_aspect_ratio_of_its_plane() {
        // Square cells: the same step along both dimensions.
        assert_eq!(steps(100, 33, size(64, 32, false)), (2, 2));
        assert_eq!(steps(10, 1000, size(64, 80, false)), (13, 13));
        assert_eq!(steps(64, 80, size(64, 80, false)), (1, 1));
        // Characters are twice as high as wide.
        assert_eq!(steps(32, 40, size(32, 80, true)), (1, 1));
        assert_eq!(steps(32, 80, size(32, 80, true)), (2, 1));
        assert_eq!(steps(1000, 1000, size(32, 80, true)), (32, 16));
        assert_eq!(steps(1, 1000, size(32, 80, true)), (1, 13));
        for (rows, columns) in [(7, 900), (900, 7), (1, 1), (100, 400), (u64::MAX, u64::MAX)] {
            for size in [size(32, 80, true), size(64, 20, false), size(1, 1, true)] {
                let steps = steps(rows, columns, size);
                assert!(rows.div_ceil(steps.0) <= size.rows, "{rows} {steps:?}");
                assert!(
                    columns.div_ceil(steps.1) <= size.columns,
                    "{columns} {steps:?}"
                );
            }
        }
    }

    #[test]
    fn the_range_of_large_integers_is_exact() {
        let data_type = DataType::Int(8);
        let mut range = Range::default();
        for number in [i64::MAX - 1, i64::MAX, i64::MAX - 2, -5] {
            let element = number.to_le_bytes();
            let number = number_of(&data_type, &element).unwrap().unwrap();
            range.add(number, &element, &data_type);
        }
        let ends = [-5, i64::MAX].map(i64::to_le_bytes);
        assert_eq!(range.elements(), Some([&ends[0][..], &ends[1][..]]));
    }

    #[test]
    fn elements_are_converted_to_numbers() {
        let number = |data_type, bytes: &[u8]| number_of(&data_type, bytes).unwrap();
        assert_eq!(number(DataType::Int(2), &[0xff, 0xff]), Some(-1.0));
        assert_eq!(number(DataType::UInt(2), &[0xff, 0xff]), Some(65535.0));
        assert_eq!(number(DataType::Float(2), &[0, 0x3c]), Some(1.0));
        let complex = [3_f32.to_le_bytes(), 4_f32.to_le_bytes()].concat();
        assert_eq!(number(DataType::Complex(8), &complex), Some(5.0));
        assert!(number_of(&DataType::Raw(2), &[0, 0]).is_err());
    }
}
