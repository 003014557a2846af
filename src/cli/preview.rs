//! `zarrfs preview`: shows the values of a plane as a picture, and their range.

use serde_json::{Value, json};

use crate::cli::cp::split;
use crate::cli::picture::{Drawing, GREY, Picture, scaled_colour};
use crate::cli::progress::Progress;
use crate::cli::source::{SourceArray, SourceNode};
use crate::cli::terminal::terminal_width;
use crate::cli::{PreviewArgs, format, report};
use zarr_format::dialect::fill;
use zarr_format::error::Result;
use zarr_format::model::{Array, DataType};
use zarrfs_export::formats::cf::times::Calendar;
use zarrfs_export::formats::cf::times::time_text;
use zarrfs_export::inspect::coordinates::nanoseconds;
use zarrfs_export::inspect::preview::{NumberPlane, PictureSize, Range};
use zarrfs_store::request_context::UNLIMITED;

pub(super) fn preview(args: &PreviewArgs) -> Result<bool> {
    let (path, selection) = split(&args.path);
    let node = SourceNode::open(&args.store, path)?.in_group();
    let drawn = draw(args, &node, selection.unwrap_or("..."));
    node.name_errors(drawn)
}

/// Draws the selected plane of an array as picture, letters or JSON.
fn draw(args: &PreviewArgs, node: &SourceNode<'_>, selection: &str) -> Result<bool> {
    let array = node.open_array()?;
    let drawing = Drawing::of(args.output.is_some(), args.json);
    let selection = node.select(selection)?;
    let names = SourceArray::dimension_names(&node.located, &array)?;
    let (rows, columns) = drawing.max_cells(1024);
    let room = PictureSize {
        rows,
        columns,
        is_tall: drawing == Drawing::Letters,
    };
    let bar = Progress::new("reading");
    let progress = |done, total| bar.bytes(done, total);
    let plane = NumberPlane::read(&UNLIMITED, &array, &selection, room, &progress);
    drop(bar);
    let drawn = DrawnPlane {
        plane: &plane?,
        array: array.array(),
        names: &names,
    };
    match &args.output {
        Some(path) => drawn.picture().write(path)?,
        None if drawing == Drawing::Colours => {
            drawn.picture().to_lines().iter().for_each(report::print);
        }
        None if drawing == Drawing::Letters => drawn.letters().iter().for_each(report::print),
        None => {}
    }
    if args.json {
        report::print_json(&drawn.to_json());
    } else {
        drawn.legend(drawing).iter().for_each(report::print);
    }
    Ok(true)
}

/// A plane of numbers, with its array.
struct DrawnPlane<'a> {
    plane: &'a NumberPlane,
    array: &'a Array,
    names: &'a [Option<String>],
}

impl DrawnPlane<'_> {
    fn picture(&self) -> Picture {
        let shares = self.plane.shares();
        let colours = shares.map(|share| share.map_or(GREY, scaled_colour));
        Picture {
            width: self.plane.width,
            pixels: colours.collect(),
        }
    }

    /// Returns the plane as lines of letters. If they fit, an element is two letters wide, since letters are twice as
    /// high as wide.
    fn letters(&self) -> Vec<String> {
        let width = self.plane.width.max(1);
        let is_doubled = self.plane.steps == (1, 1) && 2 * width <= terminal_width();
        let letters: Vec<char> = self
            .plane
            .shares()
            .map(|share| share.map_or(' ', letter))
            .collect();
        let line = |row: &[char]| {
            let twice = row.iter().flat_map(|&letter| [letter, letter]);
            let line: String = if is_doubled {
                twice.collect()
            } else {
                row.iter().collect()
            };
            line.trim_end().to_string()
        };
        letters.chunks(width).map(line).collect()
    }

    /// Returns the legend: the colours or letters of the smallest and largest values.
    fn legend(&self, drawing: Drawing) -> Vec<String> {
        let [least, largest, nothing] = match drawing {
            Drawing::Letters => ["'.'", "'@'", "blank"],
            _ => ["dark blue", "yellow", "grey"],
        };
        let mut signs = Vec::new();
        if let Some((low, high)) = self.plane.valued.numbers() {
            if low < high {
                signs.push(format!("{least} lowest"));
            }
            signs.push(format!("{largest} highest"));
        }
        let dark = self.dark();
        if !dark.is_empty() {
            signs.push(format!("{nothing} {}", dark.join(" and ")));
        }
        let mut lines = self.range_lines();
        lines.extend(self.plane_lines());
        if !signs.is_empty() {
            lines.push(signs.join(", "));
        }
        lines
    }

    /// Names the kinds of elements in the plane that have no colour, such as NaN.
    fn dark(&self) -> Vec<&'static str> {
        let dark = self.plane.dark;
        let is_time = matches!(
            self.array.data_type,
            DataType::DateTime(_) | DataType::TimeDelta(_)
        );
        let all = [
            (dark.fill, "the fill value"),
            (dark.nan && !is_time, "NaN"),
            (dark.nan && is_time, "NaT"),
            (dark.infinite, "infinity"),
        ];
        let there = all.into_iter().filter(|(is_there, _)| *is_there);
        there.map(|(_, what)| what).collect()
    }

    fn range_lines(&self) -> Vec<String> {
        let what = match self.array.data_type {
            DataType::Complex(_) => "magnitudes",
            _ => "values",
        };
        let Some(all) = self.ends(&self.plane.all) else {
            return vec!["no values".to_string()];
        };
        let mut line = format!("{what} from {} to {}", all[0], all[1]);
        match self.ends(&self.plane.valued) {
            Some(valued) if valued == all => {}
            Some(valued) => {
                line += &format!(
                    ", without the fill value from {} to {}",
                    valued[0], valued[1]
                );
            }
            None => line += ", all of them the fill value",
        }
        let mut lines = vec![line];
        if let Some(chunks) = self.plane.unread {
            lines.push(format!(
                "of the drawn elements only: the whole plane has {}, {} decoded",
                format::count(chunks.count, "chunk"),
                format::bytes(chunks.bytes)
            ));
        }
        lines
    }

    /// Returns the smallest and the largest value of a range as text.
    fn ends(&self, range: &Range) -> Option<[String; 2]> {
        if matches!(self.array.data_type, DataType::Complex(_)) {
            let (low, high) = range.numbers()?;
            return Some([low, high].map(|number| number.to_string()));
        }
        Some(range.elements()?.map(|element| self.text(element)))
    }

    /// Formats an element as text; a point in time as a date.
    fn text(&self, element: &[u8]) -> String {
        let time = || {
            let DataType::DateTime(unit) = &self.array.data_type else {
                return None;
            };
            let count = i64::from_le_bytes(element.try_into().ok()?);
            let time = i128::from(count).checked_mul(nanoseconds(unit)?)?;
            Some(time_text(time, Calendar::Gregorian))
        };
        time().unwrap_or_else(|| format::element(&self.array.data_type, element))
    }

    /// Returns lines about the rows and columns of the plane, and how many of them are drawn.
    fn plane_lines(&self) -> Vec<String> {
        let (rows, columns) = self.plane.axes;
        let axes = self.plane.selection.axes.iter().enumerate();
        let place = |axis: usize| format::dimension(self.names, axis);
        let mut parts = Vec::new();
        for (what, axis) in [("row", rows), ("column", columns)] {
            let selected = axis.and_then(|axis| self.plane.selection.axes.get(axis));
            if let Some((axis, selected)) = axis.zip(selected) {
                let count = format::count(selected.count, what);
                parts.push(format!("{count}: {}", place(axis)));
            }
        }
        let others = axes.filter(|(axis, _)| Some(*axis) != rows && Some(*axis) != columns);
        let others: Vec<String> = others
            .map(|(axis, selected)| format!("{} = {}", place(axis), selected.start))
            .collect();
        let mut lines = match parts.as_slice() {
            [] => vec!["one element".to_string()],
            parts => vec![parts.join(", ")],
        };
        if !others.is_empty() {
            lines.push(format!("at {}", others.join(", ")));
        }
        match self.plane.steps {
            (1, 1) => {}
            (every, 1) => lines.push(format!("every {} row drawn", ordinal(every))),
            (1, every) => lines.push(format!("every {} column drawn", ordinal(every))),
            (rows, columns) => lines.push(format!(
                "every {} row and every {} column drawn",
                ordinal(rows),
                ordinal(columns)
            )),
        }
        lines
    }

    fn to_json(&self) -> Value {
        let element = |element: &[u8]| fill::render(&self.array.data_type, element);
        let range = |range: &Range| match self.array.data_type {
            DataType::Complex(_) => json!(range.numbers().map(|(low, high)| [low, high])),
            _ => json!(range.elements().map(|ends| ends.map(element))),
        };
        let plane = self.plane;
        let axes = plane.selection.axes.iter();
        let dropped = axes.map(|axis| axis.is_index.then_some(axis.start));
        json!({
            "row_dimension": plane.axes.0,
            "column_dimension": plane.axes.1,
            "dimension_names": self.names,
            "shape": plane.selection.shape(),
            "at": dropped.collect::<Vec<_>>(),
            "range": range(&plane.all),
            "range_without_fill_value": range(&plane.valued),
            "is_whole": plane.unread.is_none(),
        })
    }
}

/// Returns a number as an ordinal: `2nd`, `3rd`.
fn ordinal(number: u64) -> String {
    let ending = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

/// Returns the letter for a value from 0 to 1: light letters for small values, dark letters for large ones.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the share is between 0 and 1"
)]
fn letter(share: f64) -> char {
    let place = (share * 8.0).round() as usize;
    let letters = ['.', ':', '-', '=', '+', '*', '#', '%', '@'];
    letters.get(place).copied().unwrap_or('@')
}
