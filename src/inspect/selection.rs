//! Which elements of an array a person means, in the words of numpy: `0,:,10:20`, `...`, `::2`, `-1`.
//!
//! A number takes one element and drops its dimension, a slice keeps it. Slices are cut off at the edges, numbers are
//! not. Nothing is read here.

use crate::error::{Error, Result};
use crate::export::TakenDimension;
use crate::grid::Region;
use crate::model::MAX_RANK;

/// The elements that are selected along one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectedAxis {
    /// The first element.
    pub start: u64,
    /// From one element to the next; never 0.
    pub step: i64,
    /// How many elements.
    pub count: u64,
    /// Whether it is one element by its number, so that the dimension is dropped.
    pub is_index: bool,
}

impl SelectedAxis {
    /// Returns where selected element `number` lies.
    pub fn at(&self, number: u64) -> u64 {
        let offset = i128::from(self.step) * i128::from(number);
        u64::try_from(i128::from(self.start) + offset).unwrap_or_default()
    }

    /// Selects all of a dimension.
    pub fn all(length: u64) -> SelectedAxis {
        SelectedAxis {
            start: 0,
            step: 1,
            count: length,
            is_index: false,
        }
    }
}

/// A selection of elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// What is selected along each dimension of the array.
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

    /// Reads a selection from an array of a shape; `Invalid` for what numpy would refuse.
    pub fn parse(text: &str, shape: &[u64]) -> Result<Selection> {
        let wrong = |why: String| Error::invalid(format!("selection '{text}'"), why);
        let bare = text.trim().trim_start_matches('[').trim_end_matches(']');
        let parts: Vec<&str> = match bare.trim() {
            "" => Vec::new(),
            bare => bare
                .trim_end_matches(',')
                .split(',')
                .map(str::trim)
                .collect(),
        };
        let is_dots = |part: &&&str| **part == "...";
        let dots = parts.iter().filter(is_dots).count();
        let given = parts.len() - dots;
        if dots > 1 {
            return Err(wrong("'...' may stand there once".to_string()));
        }
        if given > shape.len() || given > MAX_RANK {
            let why = format!("{given} dimensions, but the array has {}", shape.len());
            return Err(wrong(why));
        }
        let missing = shape.len() - given;
        let mut lengths = shape.iter().enumerate();
        let mut axes = Vec::with_capacity(shape.len());
        for part in parts {
            if part == "..." {
                axes.extend(
                    (&mut lengths)
                        .take(missing)
                        .map(|(_, &all)| SelectedAxis::all(all)),
                );
            } else if let Some((axis, &length)) = lengths.next() {
                axes.push(axis_of(part, length).map_err(|why| {
                    wrong(format!("{why} for dimension {axis} of {length} elements"))
                })?);
            }
        }
        axes.extend(lengths.map(|(_, &all)| SelectedAxis::all(all)));
        Ok(Selection { axes })
    }

    /// Returns the lengths of the dimensions that are left.
    pub fn shape(&self) -> Vec<u64> {
        let kept = self.axes.iter().filter(|axis| !axis.is_index);
        kept.map(|axis| axis.count).collect()
    }

    /// Returns what the dimensions are that are left.
    pub fn taken(&self) -> Vec<TakenDimension> {
        let kept = self.axes.iter().enumerate();
        let kept = kept.filter(|(_, axis)| !axis.is_index);
        kept.map(|(axis, selected)| TakenDimension {
            axis,
            start: selected.start,
            step: selected.step,
        })
        .collect()
    }

    /// Returns the box that is selected; nothing if elements in between are left out or the order is another.
    pub fn region(&self) -> Option<Region> {
        let is_run = |axis: &SelectedAxis| axis.step == 1 || axis.count <= 1;
        self.axes.iter().all(is_run).then(|| Region {
            start: self.axes.iter().map(|axis| axis.start).collect(),
            shape: self.axes.iter().map(|axis| axis.count).collect(),
        })
    }
}

/// Reads what is selected along one dimension.
fn axis_of(part: &str, length: u64) -> std::result::Result<SelectedAxis, String> {
    let numbers: Vec<&str> = part.split(':').map(str::trim).collect();
    let number = |text: &str| match text {
        "" => Ok(None),
        text => text
            .parse::<i64>()
            .map(Some)
            .map_err(|_| format!("'{part}' is neither a number nor a slice")),
    };
    match numbers.as_slice() {
        [one] => match number(one)? {
            None => Err("nothing is given".to_string()),
            Some(index) => {
                let whole = i128::from(length);
                let at = i128::from(index) + if index < 0 { whole } else { 0 };
                let start = u64::try_from(at).ok().filter(|&at| at < length);
                let start = start.ok_or_else(|| format!("{index} is out of bounds"))?;
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

/// Cuts a slice off at the edges, as Python's `slice.indices` does.
fn slice(
    from: Option<i64>,
    to: Option<i64>,
    step: i64,
    length: u64,
) -> std::result::Result<SelectedAxis, String> {
    if step == 0 {
        return Err("a step of 0".to_string());
    }
    let whole = i128::from(length);
    let (low, high) = if step > 0 {
        (0, whole)
    } else {
        (-1, whole - 1)
    };
    let bound = |given: Option<i64>, default: i128| match given {
        None => default,
        Some(given) if given < 0 => (i128::from(given) + whole).clamp(low, high),
        Some(given) => i128::from(given).clamp(low, high),
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
        let selection = Selection::parse(text, &[length]).unwrap();
        let axis = selection.axes[0];
        (0..axis.count).map(|number| axis.at(number)).collect()
    }

    #[test]
    fn slices_are_those_of_python() {
        // What `list(range(10))[...]` says.
        let expected: [(&str, &[u64]); 12] = [
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
        ];
        for (text, numbers) in expected {
            assert_eq!(picked(text, 10), numbers, "{text}");
        }
        assert!(picked("::-1", 0).is_empty());
        assert_eq!(picked("::9223372036854775807", u64::MAX).len(), 3);
    }

    #[test]
    fn dimensions_are_dropped_and_filled_in() {
        let shape = |text: &str| Selection::parse(text, &[4, 5, 6]).unwrap().shape();
        assert_eq!(shape(""), [4, 5, 6]);
        assert_eq!(shape("0"), [5, 6]);
        assert_eq!(shape("[..., 1]"), [4, 5]);
        assert_eq!(shape("0,...,1:3"), [5, 2]);
        assert_eq!(shape("0,1,2"), [0; 0]);
        assert_eq!(shape("0,1,2,..."), [0; 0]);
        assert_eq!(Selection::parse("...", &[]).unwrap().shape(), [0; 0]);
    }

    #[test]
    fn a_box_has_no_gaps() {
        let region = |text: &str| Selection::parse(text, &[4, 5]).unwrap().region();
        assert!(region("1:3,2").is_some() && region("::2,0").is_none());
        assert!(region("::-1,0").is_none() && region("0:1:-1,0").is_some());
    }

    #[test]
    fn faults_name_the_dimension() {
        let fault = |text: &str| Selection::parse(text, &[4, 5]).unwrap_err().to_string();
        assert_eq!(
            fault("0,5"),
            "selection '0,5': 5 is out of bounds for dimension 1 of 5 elements"
        );
        assert_eq!(
            fault("a"),
            "selection 'a': 'a' is neither a number nor a slice for dimension 0 of 4 elements"
        );
        assert!(fault("0,0,0").ends_with("3 dimensions, but the array has 2"));
        assert!(fault("...,...").ends_with("'...' may stand there once"));
        assert!(fault("::0").contains("a step of 0"));
        assert!(fault("0,,1").contains("3 dimensions") && fault(",1").contains("nothing is given"));
    }
}
