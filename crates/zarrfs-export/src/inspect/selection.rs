//! Parses selections: `0,:,10:20`, `...`, `::2`, `-1`, `t=3`, `time=2020-01-01`.
//!
//! The syntax is numpy's, plus names of dimensions. A number selects one element and drops its dimension; a slice keeps
//! the dimension. A slice that exceeds the dimension is clipped, and a number that exceeds it is an error. Nothing here
//! reads the store: the caller supplies the labels of dimensions through `labels`.

use std::num::{IntErrorKind, ParseIntError};

use crate::inspect::labels::Labels;
use zarr_format::error::{Error, Result};
use zarr_format::grid::{SelectedAxis, Selection};
use zarr_format::model::MAX_RANK;

/// A function that returns the labels of a dimension (the values of its coordinate variable), or `None` if it has none.
pub type LabelsOf<'a> = dyn Fn(usize) -> Result<Option<Labels>> + 'a;

/// The dimensions of an array to which a selection can refer.
pub struct SelectableDimensions<'a> {
    /// Length of each dimension.
    pub shape: &'a [u64],
    /// Name of each dimension that has one.
    pub names: &'a [Option<String>],
    /// Returns the labels of a dimension.
    pub labels: &'a LabelsOf<'a>,
    /// Whether a date that is coarser than the labels selects a slice, such as all hours of a day.
    pub has_slices_of_dates: bool,
}

/// The reason why the selection along a dimension is invalid.
enum PartFault {
    /// A mistake in the selection; the text is a message for the user.
    Wrong(String),
    /// The labels of the dimension could not be read.
    Failed(Error),
}

impl From<String> for PartFault {
    fn from(why: String) -> PartFault {
        PartFault::Wrong(why)
    }
}

/// A selection split at its commas: the texts for named dimensions, each with the index of its dimension, and then the
/// texts without a name.
type SortedParts<'t> = (Vec<(usize, &'t str)>, Vec<&'t str>);

type PartResult<T> = std::result::Result<T, PartFault>;

/// Parses a selection of an array without dimension names. Fails with `Invalid` where numpy would.
pub fn parse(text: &str, shape: &[u64]) -> Result<Selection> {
    let dimensions = SelectableDimensions {
        shape,
        names: &[],
        labels: &|_| Ok(None),
        has_slices_of_dates: false,
    };
    dimensions.select(text)
}

impl SelectableDimensions<'_> {
    /// Parses a selection. Texts without a name apply, in order, to the dimensions that are not named. Fails with
    /// `Invalid` if the selection has no meaning, and with the error of `labels` if labels cannot be read.
    pub fn select(&self, text: &str) -> Result<Selection> {
        let wrong = |why: String| Error::invalid(format!("selection '{text}'"), why);
        let explained = |fault| match fault {
            PartFault::Wrong(why) => wrong(why),
            PartFault::Failed(error) => error,
        };
        let (named, unnamed) = self.sorted(text).map_err(explained)?;
        let mut axes: Vec<Option<SelectedAxis>> = vec![None; self.shape.len()];
        for (axis, part) in named {
            let selected = self.labelled(axis, part).map_err(explained)?;
            if axes[axis].replace(selected).is_some() {
                return Err(wrong(format!("dimension {axis} is selected twice")));
            }
        }
        self.select_unnamed(&mut axes, &unnamed)
            .map_err(explained)?;
        let all = axes.iter().zip(self.shape);
        let all = all.map(|(axis, &length)| axis.unwrap_or(SelectedAxis::all(length)));
        Ok(Selection {
            axes: all.collect(),
        })
    }

    /// Splits a selection into texts for named dimensions and texts without a name.
    fn sorted<'t>(&self, text: &'t str) -> PartResult<SortedParts<'t>> {
        let bare = match text.trim().strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').ok_or_else(not_closed)?.trim(),
            None => text.trim(),
        };
        // A trailing comma is allowed, as in a Python tuple.
        let bare = bare
            .strip_suffix(',')
            .filter(|rest| !rest.is_empty())
            .unwrap_or(bare);
        let (mut named, mut unnamed) = (Vec::new(), Vec::new());
        for part in bare.split(',').map(str::trim).filter(|_| !bare.is_empty()) {
            match part.split_once('=') {
                None => unnamed.push(part),
                Some((name, part)) => named.push((self.place(name.trim())?, part.trim())),
            }
        }
        Ok((named, unnamed))
    }

    fn place(&self, wanted: &str) -> PartResult<usize> {
        let mut names = self.names.iter();
        let place = names.position(|name| name.as_deref() == Some(wanted));
        let known = place.filter(|&place| place < self.shape.len());
        Ok(known.ok_or_else(|| {
            let names: Vec<&str> = self.names.iter().flatten().map(String::as_str).collect();
            match names.as_slice() {
                [] => "the dimensions have no names".to_string(),
                names => format!(
                    "no dimension named '{wanted}'; the dimensions are {}",
                    names.join(", ")
                ),
            }
        })?)
    }

    fn select_unnamed(&self, axes: &mut [Option<SelectedAxis>], parts: &[&str]) -> PartResult<()> {
        let dots = parts.iter().filter(|part| **part == "...").count();
        let numbered = parts.len() - dots;
        if dots > 1 {
            return Err("'...' can be used only once".to_string().into());
        }
        let named = axes.iter().flatten().count();
        let rank = axes.len();
        let Some(missing) = (rank - named)
            .checked_sub(numbered)
            .filter(|_| numbered <= MAX_RANK)
        else {
            let beside = if named > 0 {
                " besides the named ones"
            } else {
                ""
            };
            let left = rank - named;
            return Err(format!(
                "{numbered} dimensions selected, but the array has {left}{beside}"
            )
            .into());
        };
        let mut free = axes
            .iter_mut()
            .enumerate()
            .filter(|(_, axis)| axis.is_none());
        for part in parts {
            if *part == "..." {
                (&mut free).take(missing).for_each(drop);
            } else if let Some((axis, selected)) = free.next() {
                *selected = Some(self.numbered(axis, part)?);
            }
        }
        Ok(())
    }

    fn length(&self, axis: usize) -> u64 {
        self.shape.get(axis).copied().unwrap_or(0)
    }

    /// Parses the selection along a dimension as an element number, or a slice of numbers.
    fn numbered(&self, axis: usize, part: &str) -> PartResult<SelectedAxis> {
        let length = self.length(axis);
        Ok(axis_of(part, length)
            .map_err(|why| format!("{why} for dimension {axis} of {length} elements"))?)
    }

    /// Adds to a message that the dimension has no labels by which elements could be selected.
    fn without_labels(&self, axis: usize, why: &str) -> String {
        let (name, length) = (self.names.get(axis).cloned().flatten(), self.length(axis));
        let name = name.unwrap_or_default();
        format!("{why}; select by number, since no array '{name}' with {length} labels was found")
    }

    /// Parses the selection along a dimension as a label or a slice of labels; as numbers if the dimension has no
    /// labels.
    fn labelled(&self, axis: usize, part: &str) -> PartResult<SelectedAxis> {
        if let Some(numbers) = part.strip_prefix('#') {
            return self.numbered(axis, numbers);
        }
        match (self.labels)(axis).map_err(PartFault::Failed)? {
            None => self.numbered(axis, part).map_err(|fault| match fault {
                PartFault::Wrong(why) => PartFault::Wrong(self.without_labels(axis, &why)),
                fault => fault,
            }),
            Some(labels) if self.has_slices_of_dates => Ok(labels.select_dates(part)?),
            Some(labels) => Ok(labels.select(part)?),
        }
    }
}

fn not_closed() -> String {
    "'[' has no ']'".to_string()
}

/// Parses a number of a slice. A number beyond 64 bits becomes the largest or smallest 64-bit number, because it is
/// clipped anyway.
fn whole_number(text: &str) -> Option<i64> {
    text.parse()
        .or_else(|error: ParseIntError| match error.kind() {
            IntErrorKind::PosOverflow => Ok(i64::MAX),
            IntErrorKind::NegOverflow => Ok(i64::MIN),
            _ => Err(error),
        })
        .ok()
}

/// Parses an element number, or a slice of numbers, along a dimension of `length` elements.
fn axis_of(part: &str, length: u64) -> std::result::Result<SelectedAxis, String> {
    let numbers: Vec<&str> = part.split(':').map(str::trim).collect();
    let number = |text: &str| match text {
        "" => Ok(None),
        text => whole_number(text)
            .map(Some)
            .ok_or_else(|| format!("'{part}' is neither a number nor a slice")),
    };
    match numbers.as_slice() {
        [one] => match number(one)? {
            None => Err("a dimension has no selection".to_string()),
            Some(index) => {
                let whole = i128::from(length);
                let at = i128::from(index) + if index < 0 { whole } else { 0 };
                let start = u64::try_from(at).ok().filter(|&at| at < length);
                let start = start.ok_or_else(|| format!("{one} is out of bounds"))?;
                Ok(SelectedAxis {
                    start,
                    step: 1,
                    count: 1,
                    is_index: true,
                })
            }
        },
        [from, to] => slice(number(from)?, number(to)?, 1, length),
        [from, to, step] => slice(
            number(from)?,
            number(to)?,
            number(step)?.unwrap_or(1),
            length,
        ),
        _ => Err(format!("'{part}' is neither a number nor a slice")),
    }
}

/// Clips a slice at the ends of a dimension, as Python's `slice.indices` does.
fn slice(
    from: Option<i64>,
    to: Option<i64>,
    step: i64,
    length: u64,
) -> std::result::Result<SelectedAxis, String> {
    if step == 0 {
        return Err("the step must not be 0".to_string());
    }
    let whole = i128::from(length);
    let (low, high) = if step > 0 {
        (0, whole)
    } else {
        (-1, whole - 1)
    };
    let bound = |end: Option<i64>, default: i128| match end {
        None => default,
        Some(end) if end < 0 => (i128::from(end) + whole).clamp(low, high),
        Some(end) => i128::from(end).clamp(low, high),
    };
    let (first, last) = if step > 0 {
        (bound(from, low), bound(to, high))
    } else {
        (bound(from, high), bound(to, low))
    };
    let stride = i128::from(step).abs();
    let span = if step > 0 { last - first } else { first - last };
    let count = (span.max(0) + stride - 1) / stride;
    Ok(SelectedAxis {
        start: u64::try_from(first).unwrap_or_default(),
        step,
        count: u64::try_from(count).unwrap_or_default(),
        is_index: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picked(text: &str, length: u64) -> Vec<u64> {
        let selection = parse(text, &[length]).unwrap();
        let axis = selection.axes[0];
        (0..axis.count).map(|number| axis.at(number)).collect()
    }

    #[test]
    fn slices_select_as_in_python() {
        // The expected lists are the results of `list(range(10))[...]` in Python.
        let expected: [(&str, &[u64]); 15] = [
            ("2:5", &[2, 3, 4]),
            (":3", &[0, 1, 2]),
            ("-2:", &[8, 9]),
            ("::4", &[0, 4, 8]),
            ("::-4", &[9, 5, 1]),
            ("7:2:-2", &[7, 5, 3]),
            ("-100:100:5", &[0, 5]),
            ("5:2", &[]),
            ("20:", &[]),
            (":-8", &[0, 1]),
            (" 1 : 2 ", &[1]),
            ("-1", &[9]),
            ("[-1]", &[9]),
            ("8:99999999999999999999,", &[8, 9]),
            ("-99999999999999999999:2", &[0, 1]),
        ];
        for (text, numbers) in expected {
            assert_eq!(picked(text, 10), numbers, "{text}");
        }
        assert!(picked("::-1", 0).is_empty());
        assert_eq!(picked("::9223372036854775807", u64::MAX).len(), 3);
    }

    #[test]
    fn an_index_drops_a_dimension_and_an_ellipsis_fills_in() {
        let shape = |text: &str| parse(text, &[4, 5, 6]).unwrap().shape();
        assert_eq!(shape(""), [4, 5, 6]);
        assert_eq!(shape("0"), [5, 6]);
        assert_eq!(shape("[..., 1]"), [4, 5]);
        assert_eq!(shape("0,...,1:3"), [5, 2]);
        assert_eq!(shape("0,1,2"), [0; 0]);
        assert_eq!(shape("0,1,2,..."), [0; 0]);
        assert_eq!(parse("...", &[]).unwrap().shape(), [0; 0]);
    }

    #[test]
    fn only_forward_selections_without_gaps_are_regions() {
        let region = |text: &str| parse(text, &[4, 5]).unwrap().region();
        assert!(region("1:3,2").is_some() && region("::2,0").is_none());
        assert!(region("::-1,0").is_none() && region("0:1:-1,0").is_some());
    }

    #[test]
    fn selection_errors_name_the_dimension() {
        let fault = |text: &str| parse(text, &[4, 5]).unwrap_err().to_string();
        assert_eq!(
            fault("0,5"),
            "selection '0,5': 5 is out of bounds for dimension 1 of 5 elements"
        );
        assert_eq!(
            fault("a"),
            "selection 'a': 'a' is neither a number nor a slice for dimension 0 of 4 elements"
        );
        assert!(fault("0,0,0").ends_with("3 dimensions selected, but the array has 2"));
        assert!(fault("...,...").ends_with("'...' can be used only once"));
        assert!(fault("::0").contains("the step must not be 0"));
        assert!(
            fault("[0").ends_with("'[' has no ']'") && fault("0]").contains("neither a number")
        );
        assert!(fault("99999999999999999999").contains("99999999999999999999 is out of bounds"));
        assert!(
            fault(",").contains("a dimension has no selection")
                && fault("0,,").contains("a dimension has no selection")
        );
        assert!(
            fault("0,,1").contains("3 dimensions")
                && fault(",1").contains("a dimension has no selection")
        );
    }
}
