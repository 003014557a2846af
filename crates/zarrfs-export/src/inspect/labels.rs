//! Selects by labels: the values of a dimension's coordinate variable.
//!
//! A single label selects its element and drops the dimension. A slice of labels keeps the dimension, and includes the
//! elements of its two end labels. Numbers are compared in the precision of the variable, so that 0.1 matches a
//! float32. A date matches all times in its period: 2020-03 matches every second of the month.

use std::cmp::Ordering;

use crate::formats::cf::times::{Calendar, SECOND, period_of, split_times, time_text};
use zarr_format::grid::SelectedAxis;

/// The labels along a dimension (the values of its coordinate variable), one per element.
#[derive(Clone, Debug, PartialEq)]
pub enum Labels {
    /// The labels are integers.
    Integers(Vec<i128>),
    /// The labels are other numbers. The boolean says whether they are stored as float32.
    Floats(Vec<f64>, bool),
    /// The labels are texts.
    Texts(Vec<String>),
    /// The labels are times of a calendar, in nanoseconds since 1970; `None` stands for NaT.
    Times(Vec<Option<i128>>, Calendar),
}

/// Compares the label at an index with the label that the user wrote: less, equal or greater. The result is `None` if
/// the two are not comparable.
type Compare<'a> = Box<dyn Fn(usize) -> Option<Ordering> + 'a>;

impl Labels {
    /// Returns the number of labels.
    pub fn len(&self) -> usize {
        match self {
            Labels::Integers(values) => values.len(),
            Labels::Floats(values, _) => values.len(),
            Labels::Texts(values) => values.len(),
            Labels::Times(values, _) => values.len(),
        }
    }

    /// Whether there are no labels.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether two lists have equal labels in the same order. An integer may equal a float, and NaN equals NaN.
    pub fn are_same(&self, others: &Labels) -> bool {
        match (self, others) {
            (Labels::Floats(own, _), Labels::Floats(others, _)) => {
                let is_same = |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan());
                own.len() == others.len() && own.iter().zip(others).all(is_same)
            }
            (Labels::Integers(whole), Labels::Floats(floats, _))
            | (Labels::Floats(floats, _), Labels::Integers(whole)) => {
                let is_same = |(&whole, &float): (&i128, &f64)| whole_number(float) == Some(whole);
                whole.len() == floats.len() && whole.iter().zip(floats).all(is_same)
            }
            (own, others) => own == others,
        }
    }

    /// Returns the elements that a label, or a slice `FROM:TO:STEP` of labels, selects. Fails with the reason if no
    /// element has such a label.
    pub fn select(&self, part: &str) -> Result<SelectedAxis, String> {
        let parts = match self {
            Labels::Times(..) => split_times(part),
            _ => part.split(':').map(str::trim).collect(),
        };
        match *parts.as_slice() {
            [one] => self.one(one),
            [from, to] => self.between(from, to, 1),
            [from, to, step] => {
                let step = step.parse().ok().filter(|&step| step != 0);
                self.between(
                    from,
                    to,
                    step.ok_or("the step must be an integer other than 0")?,
                )
            }
            _ => Err(format!("'{part}' is neither a label nor a slice of labels")),
        }
    }

    /// Returns the elements that a label or a slice of labels selects. A date that is coarser than the labels selects a
    /// slice, as in pandas and xarray.
    pub fn select_dates(&self, part: &str) -> Result<SelectedAxis, String> {
        if let Labels::Times(values, calendar) = self
            && let [one] = split_times(part)[..]
            && let Some(period) = period_of(one, *calendar)
            && period.end - period.start > resolution(values)
            && self.range(one, one)?.is_some()
        {
            return self.between(one, one, 1);
        }
        self.select(part)
    }

    fn one(&self, label: &str) -> Result<SelectedAxis, String> {
        let compare = self.compare(label)?;
        let mut found = (0..self.len()).filter(|&at| compare(at) == Some(Ordering::Equal));
        match (found.next(), found.next()) {
            (Some(at), None) => Ok(SelectedAxis {
                start: at as u64,
                is_index: true,
                ..SelectedAxis::all(1)
            }),
            (Some(_), Some(_)) => Err(format!(
                "'{label}' is the label of several elements; select '{label}:{label}'"
            )),
            (None, _) => Err(format!("no element is labelled '{label}'{}", self.ends())),
        }
    }

    /// Selects the elements from one label to another, which the user may write in either order.
    fn between(&self, from: &str, to: &str, step: i64) -> Result<SelectedAxis, String> {
        let nothing = || format!("no element between '{from}' and '{to}'{}", self.ends());
        let range = self.range(from, to)?;
        let range = if range.is_none() {
            self.range(to, from)?
        } else {
            range
        };
        let (first, last) = range.ok_or_else(nothing)?;
        let span = (last - first) as u64;
        Ok(SelectedAxis {
            start: if step > 0 { first as u64 } else { last as u64 },
            step,
            count: span / step.unsigned_abs() + 1,
            is_index: false,
        })
    }

    /// Returns the first and the last element with a label from `from` to `to`, or `None` if no element has such a
    /// label.
    fn range(&self, from: &str, to: &str) -> Result<Option<(usize, usize)>, String> {
        let (low, high) = (self.bound(from)?, self.bound(to)?);
        let is_in = |at: &usize| {
            let of = |bound: &Option<Compare>| bound.as_ref().map(|compare| compare(*at));
            !matches!(of(&low), Some(None | Some(Ordering::Less)))
                && !matches!(of(&high), Some(None | Some(Ordering::Greater)))
        };
        let found: Vec<usize> = (0..self.len()).filter(is_in).collect();
        match (found.first(), found.last()) {
            (Some(&first), Some(&last)) if last - first + 1 == found.len() => {
                Ok(Some((first, last)))
            }
            (Some(_), _) => {
                Err("the labels are not in order, so slices are not possible".to_string())
            }
            (None, _) => Ok(None),
        }
    }

    /// Returns a comparison of the dimension's labels with one end of a slice, or `None` for an empty text, which means
    /// no limit.
    fn bound<'a>(&'a self, label: &'a str) -> Result<Option<Compare<'a>>, String> {
        match label {
            "" => Ok(None),
            label => self.compare(label).map(Some),
        }
    }

    /// Returns a comparison of the dimension's labels with `label`. Fails if `label` has another type than the labels,
    /// such as a text among numbers.
    fn compare<'a>(&'a self, label: &'a str) -> Result<Compare<'a>, String> {
        let number = || label.parse::<f64>();
        let no_number = || format!("'{label}' is not a number, and the labels are numbers");
        Ok(match self {
            Labels::Integers(values) => match label.parse::<i128>() {
                Ok(label) => Box::new(move |at| Some(values.get(at)?.cmp(&label))),
                Err(_) => {
                    let label = number().map_err(|_| no_number())?;
                    Box::new(move |at| as_float(*values.get(at)?).partial_cmp(&label))
                }
            },
            Labels::Floats(values, is_single) => {
                let label = number().map_err(|_| no_number())?;
                let label = if *is_single { rounded(label) } else { label };
                Box::new(move |at| values.get(at)?.partial_cmp(&label))
            }
            Labels::Texts(values) => Box::new(move |at| Some(values.get(at)?.as_str().cmp(label))),
            Labels::Times(values, calendar) => {
                let period = period_of(label, *calendar);
                let wrong = || format!("'{label}' is not a time, such as 2020-01-31T12:00");
                let period = period.ok_or_else(wrong)?;
                Box::new(move |at| {
                    let time = (*values.get(at)?)?;
                    Some(match time {
                        _ if time < period.start => Ordering::Less,
                        _ if time >= period.end => Ordering::Greater,
                        _ => Ordering::Equal,
                    })
                })
            }
        })
    }

    /// Returns the last part of an error message, which shows the first and the last label of the dimension.
    fn ends(&self) -> String {
        let show = |at: usize| match self {
            Labels::Integers(values) => values.get(at).map(ToString::to_string),
            Labels::Floats(values, _) => values.get(at).map(ToString::to_string),
            Labels::Texts(values) => values.get(at).cloned(),
            Labels::Times(values, calendar) => {
                let time = values.get(at).copied().flatten();
                time.map(|time| time_text(time, *calendar))
            }
        };
        let ends = show(0).zip(show(self.len().saturating_sub(1)));
        ends.map_or(String::new(), |(first, last)| {
            format!("; the labels are from {first} to {last}")
        })
    }
}

/// Returns the longest unit in nanoseconds, of at most a day, of which all times are multiples.
fn resolution(times: &[Option<i128>]) -> i128 {
    let units = [86_400 * SECOND, 3600 * SECOND, 60 * SECOND, SECOND];
    let are_multiples = |unit: &i128| times.iter().flatten().all(|time| time % unit == 0);
    units.into_iter().find(are_multiples).unwrap_or(1)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "what is beyond any coordinate becomes the nearest number, which none is"
)]
fn whole_number(value: f64) -> Option<i128> {
    (value.fract() == 0.0).then_some(value as i128)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a label with a fraction is compared with whole numbers"
)]
fn as_float(value: i128) -> f64 {
    value as f64
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the label is that of a float of four bytes"
)]
fn rounded(label: f64) -> f64 {
    f64::from(label as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_integers_and_floats_are_the_same_labels() {
        let whole = |values: &[i128]| Labels::Integers(values.to_vec());
        let floats = |values: &[f64]| Labels::Floats(values.to_vec(), false);
        let large = 1_i128 << 63;
        for (own, others, expected) in [
            (
                whole(&[0, -1, large]),
                floats(&[-0.0, -1.0, large as f64]),
                true,
            ),
            (whole(&[large + 1]), floats(&[large as f64]), false),
            (whole(&[1]), floats(&[1.5]), false),
            (whole(&[1]), floats(&[1.0, 2.0]), false),
            (whole(&[i128::MAX]), floats(&[f64::INFINITY]), false),
            (whole(&[0]), floats(&[f64::NAN]), false),
            (floats(&[f64::NAN]), floats(&[f64::NAN]), true),
            (whole(&[1]), Labels::Texts(vec!["1".to_string()]), false),
        ] {
            assert_eq!(own.are_same(&others), expected, "{own:?} {others:?}");
            assert_eq!(others.are_same(&own), expected, "{others:?} {own:?}");
        }
    }
}
