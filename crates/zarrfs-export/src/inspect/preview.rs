//! Reads a plane of an array for a picture: numbers and their range.
//!
//! A plane consists of the last two selected dimensions that have several elements; every other dimension is fixed at
//! its first element. All elements of the plane are read, even if only some are drawn: the range of the drawn elements
//! alone, and so the colours, would change with the size of the picture. If this would decode more than 1 GiB, only the
//! drawn elements are read.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::formats::elements;
use crate::inspect::selected_elements::SelectedElements;
use zarr_format::error::{Error, Result};
use zarr_format::grid::Selection;
use zarr_format::model::{DataType, bytes_of};
use zarrfs_array::array::OpenArray;

use zarrfs_store::request_context::RequestContext;

/// The size of a picture, in cells.
#[derive(Clone, Copy, Debug)]
pub struct PictureSize {
    /// Maximum number of rows of cells.
    pub rows: u64,
    /// Maximum number of columns of cells.
    pub columns: u64,
    /// Whether a cell is twice as high as wide, like a character of a terminal.
    pub is_tall: bool,
}

/// A plane of an array as numbers, sampled to the size of a picture.
#[derive(Clone, Debug)]
pub struct NumberPlane {
    /// The selected elements: one along each dimension, except along the dimensions of the plane.
    pub selection: Selection,
    /// The dimensions of the plane's rows and columns; `None` if the array has too few dimensions with several
    /// elements.
    pub axes: (Option<usize>, Option<usize>),
    /// The number of numbers in a row of the picture.
    pub width: usize,
    /// The numbers in the picture, row by row; `None` for the fill value and for values that are not finite.
    pub drawn: Vec<Option<f64>>,
    /// The sampling steps along rows and along columns: one element of each step is in the picture.
    pub steps: (u64, u64),
    /// The range of all numbers in the plane.
    pub all: Range,
    /// The range of the plane's numbers without the fill value, to which the colours are scaled.
    pub valued: Range,
    /// The kinds of elements in the plane that have no colour.
    pub dark: DarkElements,
    /// The number and size of the plane's chunks, if only the elements in the picture were read.
    pub unread: Option<ChunksUnder>,
}

/// The number and size of the chunks that a selection covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunksUnder {
    /// Number of chunks that the selection covers.
    pub count: u64,
    /// Size of all these chunks in bytes, decoded.
    pub bytes: u64,
}

/// The minimum and the maximum of the numbers in a plane.
#[derive(Clone, Debug, Default)]
pub struct Range {
    ends: Option<[Extreme; 2]>,
}

/// The minimum or the maximum, with the bytes of its element.
#[derive(Clone, Debug)]
struct Extreme {
    number: f64,
    element: Vec<u8>,
}

/// Which kinds of elements without a colour a plane contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DarkElements {
    /// Whether the plane contains the fill value as a finite number.
    pub fill: bool,
    /// Whether the plane contains NaN or NaT.
    pub nan: bool,
    /// Whether the plane contains infinite numbers.
    pub infinite: bool,
}

impl NumberPlane {
    /// Reads a plane of an array, sampled to the size of a picture. Fails with `Unsupported` if the elements are not
    /// numbers. `progress` receives the number of bytes that were read, and the total.
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
        // The limit is 1 GiB: decoding it takes some seconds from a local disk, and a minute over a usual connection.
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

    /// Returns for each number in the picture how far it is from the minimum to the maximum, from 0 to 1.
    pub fn shares(&self) -> impl Iterator<Item = Option<f64>> {
        let range = self.valued.numbers().filter(|(low, high)| low < high);
        // Numbers are halved before the subtraction, because the difference of two large numbers may overflow to
        // infinity.
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
    /// Returns the bytes of the minimum and the maximum element; `None` if the plane has no numbers.
    pub fn elements(&self) -> Option<[&[u8]; 2]> {
        let ends = self.ends.as_ref()?;
        Some(ends.each_ref().map(|end| &end.element[..]))
    }

    /// Returns the minimum and the maximum; `None` if the plane has no numbers.
    pub fn numbers(&self) -> Option<(f64, f64)> {
        let [low, high] = self.ends.as_ref()?;
        Some((low.number, high.number))
    }

    /// Extends the minimum and maximum to include a number.
    fn add(&mut self, number: f64, element: &[u8], data_type: &DataType) {
        let new = || Extreme {
            number,
            element: element.to_vec(),
        };
        let Some([low, high]) = &mut self.ends else {
            self.ends = Some([new(), new()]);
            return;
        };
        // Equal floats are compared again as integers, because several large integers convert to the same float.
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

/// Receives the elements of a plane in C order. Collects those in the picture, and the range of all numbers.
struct PlaneReader<'a> {
    data_type: &'a DataType,
    fill: Option<&'a [u8]>,
    columns: u64,
    steps: (u64, u64),
    /// The column of the next element in the plane.
    column: u64,
    /// The number of rows, and of columns, to skip before the next one that is in the picture.
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

/// Counts the rows or columns to skip down by one; after one that is in the picture, starts again from `step - 1`.
fn after(skipped: u64, step: u64) -> u64 {
    skipped.checked_sub(1).unwrap_or(step - 1)
}

/// Reduces a selection to two dimensions for a picture; also returns the dimensions of the rows and columns.
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

/// Returns the sampling steps along rows and columns that fit a plane into a picture and keep its proportions.
fn steps(rows: u64, columns: u64, size: PictureSize) -> (u64, u64) {
    let (most_rows, most_columns) = (size.rows.max(1), size.columns.max(1));
    if !size.is_tall {
        let step = rows.div_ceil(most_rows).max(columns.div_ceil(most_columns));
        return (step.max(1), step.max(1));
    }
    // Each element of a small plane gets two characters, because characters are about twice as high as wide.
    if rows <= most_rows && columns <= most_columns / 2 {
        return (1, 1);
    }
    let step = rows
        .div_ceil(most_rows.saturating_mul(2))
        .max(columns.div_ceil(most_columns))
        .max(1);
    (step.saturating_mul(2).min(rows.max(1)), step)
}

/// Reduces a selection to the elements in the picture: one of each sampling step.
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
    /// Returns the cost of reading the chunks, in bytes. Each chunk counts as at least 64 KiB, because a request takes
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

/// Returns an element as an integer, or `None` if its data type is not an integer or a time.
fn whole_of(data_type: &DataType, element: &[u8]) -> Option<i128> {
    match data_type {
        DataType::UInt(_) => Some(elements::integer(element, false)),
        DataType::Int(_) | DataType::DateTime(_) | DataType::TimeDelta(_) => {
            Some(elements::integer(element, true))
        }
        _ => None,
    }
}

/// Converts an element to a float: the magnitude of a complex number, `None` for NaT.
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
        // If cells are square, the steps along rows and columns are equal.
        assert_eq!(steps(100, 33, size(64, 32, false)), (2, 2));
        assert_eq!(steps(10, 1000, size(64, 80, false)), (13, 13));
        assert_eq!(steps(64, 80, size(64, 80, false)), (1, 1));
        // If cells are characters, which are twice as high as wide, the step along rows is twice that along columns.
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
