//! `zarrfs preview`: the values of a plane as a picture.

use super::cat::{open_array, select};
use super::cp::split;
use super::named_faults::named;
use super::paint::{Paint, terminal_width};
use super::picture::{Picture, Rgb, scaled_colour};
use super::{PreviewArgs, report, shown};
use crate::error::Result;
use crate::grid::Selection;
use crate::inspect::locate::StorePath;
use crate::inspect::preview::NumberPlane;
use crate::request_context::UNLIMITED;

/// The most pixels along each side of a picture in a file.
const MAX_SIDE: u64 = 1024;

/// The most lines of a picture on a terminal.
const MAX_LINES: u64 = 32;

/// The colour of the fill value and of what is no number.
const NOTHING: Rgb = [48, 48, 48];

/// Letters from light to dark, for a terminal without colours.
const LETTERS: [char; 10] = [' ', '.', ':', '-', '=', '+', '*', '#', '%', '@'];

/// Prints or writes the picture.
pub(super) fn preview(args: &PreviewArgs) -> Result<bool> {
    let (path, selection) = split(&args.path);
    let located = args.store.open(path)?;
    let shown = show(args, &located, (path, selection.unwrap_or("...")));
    named(&located, path, shown)
}

/// Shows selected elements of the array that was typed as `path`.
fn show(args: &PreviewArgs, located: &StorePath, (path, selection): (&str, &str)) -> Result<bool> {
    let array = open_array(located)?;
    let paint = Paint::of_stdout();
    let sides = match (&args.output, paint.is_on()) {
        (Some(_), _) => (MAX_SIDE, MAX_SIDE),
        (None, true) => (2 * MAX_LINES, terminal_width() as u64),
        (None, false) => (MAX_LINES, terminal_width() as u64),
    };
    let selection = select((&args.store, path), located, selection)?;
    let plane = NumberPlane::read(&UNLIMITED, &array, &selection, sides)?;
    let picture = picture(&plane);
    match &args.output {
        Some(path) => picture.write(path)?,
        None if paint.is_on() => picture.to_lines().iter().for_each(report::print),
        None => plain_lines(&plane).iter().for_each(report::print),
    }
    report::print(legend(&plane, &selection));
    Ok(true)
}

fn picture(plane: &NumberPlane) -> Picture {
    let colours = plane
        .shares()
        .map(|share| share.map_or(NOTHING, scaled_colour));
    Picture {
        width: plane.width,
        pixels: colours.collect(),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the share is between 0 and 1"
)]
fn plain_lines(plane: &NumberPlane) -> Vec<String> {
    let letter = |share: Option<f64>| {
        let place = share.map(|share| (share * 9.0).round() as usize);
        place
            .and_then(|place| LETTERS.get(place).copied())
            .unwrap_or(' ')
    };
    let letters: Vec<char> = plane.shares().map(letter).collect();
    let rows = letters.chunks(plane.width.max(1));
    rows.map(|row| row.iter().collect()).collect()
}

fn legend(plane: &NumberPlane, selection: &Selection) -> String {
    let range = match plane.range() {
        Some((low, high)) => format!("values from {low} to {high}"),
        None => "no values".to_string(),
    };
    let steps = match plane.steps {
        (1, 1) => String::new(),
        (rows, columns) => format!(", one of {rows} rows and one of {columns} columns"),
    };
    format!(
        "{range}; elements {}{steps}",
        shown::shape(&selection.shape())
    )
}
