//! Draws pictures: in half blocks on a terminal, or as PNG or SVG.

use std::fmt::Write as _;
use std::path::Path;

use crate::cli::output::OutputFile;
use crate::cli::terminal::{Paint, is_utf8, terminal_width};
use zarr_format::error::{Error, Result};

/// A colour as red, green and blue, each from 0 to 255.
pub(super) type Rgb = [u8; 3];

/// A picture in memory; its pixels are stored row by row.
pub(super) struct Picture {
    pub(super) width: usize,
    pub(super) pixels: Vec<Rgb>,
}

/// The form in which a picture is shown.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Drawing {
    File,
    Colours,
    Letters,
    Facts,
}

impl Drawing {
    /// Chooses the form in which a picture is shown: a file or JSON if requested, otherwise what the terminal can show.
    pub(super) fn of(is_file: bool, is_json: bool) -> Drawing {
        match (is_file, is_json) {
            (true, _) => Drawing::File,
            (false, true) => Drawing::Facts,
            (false, false) if Paint::of_stdout().is_on() && is_utf8() => Drawing::Colours,
            (false, false) => Drawing::Letters,
        }
    }

    /// Returns the largest numbers of rows and columns that a picture can have in a file, on the terminal, or in JSON
    /// (`in_json`).
    pub(super) fn max_cells(self, in_json: u64) -> (u64, u64) {
        let (lines, columns) = (32, terminal_width() as u64);
        match self {
            Drawing::Letters => (lines, columns),
            // A half-block character shows two pixels, one above the other.
            Drawing::Colours => (2 * lines, columns),
            Drawing::Facts => (in_json, in_json),
            Drawing::File => (1024, 1024),
        }
    }
}

/// Dark grey: the colour of missing chunks, and of elements without a value to show, such as NaN.
pub(super) const GREY: Rgb = [48, 48, 48];

impl Picture {
    fn height(&self) -> usize {
        self.pixels.len().checked_div(self.width).unwrap_or(0)
    }

    fn at(&self, row: usize, column: usize) -> Option<Rgb> {
        self.pixels.get(row * self.width + column).copied()
    }

    /// Returns the picture as lines of coloured half-block characters; a line shows two rows of pixels.
    pub(super) fn to_lines(&self) -> Vec<String> {
        let rows = (0..self.height()).step_by(2);
        rows.map(|row| self.line(row)).collect()
    }

    fn line(&self, row: usize) -> String {
        let mut line = String::new();
        for column in 0..self.width {
            let [r, g, b] = self.at(row, column).unwrap_or_default();
            let _ = write!(line, "\u{1b}[38;2;{r};{g};{b}m");
            if let Some([r, g, b]) = self.at(row + 1, column) {
                let _ = write!(line, "\u{1b}[48;2;{r};{g};{b}m");
            }
            line.push_str("\u{2580}\u{1b}[0m");
        }
        line
    }

    /// Writes a PNG or SVG file, by its extension.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let file = match path.extension().and_then(|ending| ending.to_str()) {
            Some("png") => self.to_png(path)?,
            Some("svg") => self.to_svg().into_bytes(),
            _ => {
                let why = "the name of a picture must end in .png or .svg";
                return Err(Error::invalid(path.display(), why));
            }
        };
        let output = OutputFile::create(path)?;
        output.write(&file)?;
        output.keep()
    }

    /// Returns how many pixels of the image file show one pixel of the picture, 1 to 32. Small pictures are enlarged to
    /// at least 512 pixels on the longer side, if 32 is enough for that.
    fn scale(&self) -> usize {
        let side = self.width.max(self.height()).max(1);
        512_usize.div_ceil(side).clamp(1, 32)
    }

    /// Returns the picture as a PNG file; `path` is only for errors.
    fn to_png(&self, path: &Path) -> Result<Vec<u8>> {
        let failed = |error: png::EncodingError| Error::invalid(path.display(), error);
        let scale = self.scale();
        let side = |cells: usize| u32::try_from(cells * scale).unwrap_or(u32::MAX);
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, side(self.width), side(self.height()));
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header().map_err(failed)?;
        let mut bytes = Vec::with_capacity(self.pixels.len() * scale * scale * 3);
        for row in self.pixels.chunks(self.width.max(1)) {
            let line: Vec<u8> = row.iter().flat_map(|pixel| pixel.repeat(scale)).collect();
            (0..scale).for_each(|_| bytes.extend_from_slice(&line));
        }
        writer.write_image_data(&bytes).map_err(failed)?;
        writer.finish().map_err(failed)?;
        Ok(file)
    }

    /// Returns the picture as an SVG file; neighbours of the same colour in a row are one rectangle.
    fn to_svg(&self) -> String {
        let scale = self.scale();
        let (width, height) = (self.width * scale, self.height() * scale);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {} {}\" shape-rendering=\"crispEdges\">\n",
            self.width,
            self.height()
        );
        for row in 0..self.height() {
            let mut column = 0;
            while let Some(colour) = self.at(row, column).filter(|_| column < self.width) {
                let alike =
                    (column..self.width).take_while(|&next| self.at(row, next) == Some(colour));
                let run = alike.count().max(1);
                let [r, g, b] = colour;
                let _ = writeln!(
                    out,
                    "<rect x=\"{column}\" y=\"{row}\" width=\"{run}\" height=\"1\" fill=\"#{r:02x}{g:02x}{b:02x}\"/>"
                );
                column += run;
            }
        }
        out.push_str("</svg>\n");
        out
    }
}

/// Colour scale for values from 0 to 1: from dark blue through green to yellow, with increasing lightness.
const SCALE: [Rgb; 9] = [
    [68, 1, 84],
    [71, 44, 122],
    [59, 81, 139],
    [44, 113, 142],
    [33, 144, 141],
    [39, 173, 129],
    [92, 200, 99],
    [170, 220, 50],
    [253, 231, 37],
];

/// Returns the colour on the scale for a value from 0 to 1.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the value is cut off to lie in the scale, and colours are mixed of bytes"
)]
pub(super) fn scaled_colour(value: f64) -> Rgb {
    let steps = SCALE.len() - 1;
    let place = value.clamp(0.0, 1.0) * 8.0;
    let first = (place as usize).min(steps - 1);
    let part = place - f64::from(first as u32);
    let (low, high) = (SCALE[first], SCALE[first + 1]);
    std::array::from_fn(|i| {
        (f64::from(low[i]) * (1.0 - part) + f64::from(high[i]) * part).round() as u8
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_svg_has_a_rectangle_for_each_run() {
        let (red, blue) = ([255, 0, 0], [0, 0, 255]);
        let picture = Picture {
            width: 3,
            pixels: vec![red, red, blue, blue, blue, blue],
        };
        let svg = picture.to_svg();
        assert_eq!(svg.matches("<rect").count(), 3);
        assert!(svg.contains("<rect x=\"2\" y=\"0\" width=\"1\" height=\"1\" fill=\"#0000ff\"/>"));
        assert_eq!(picture.to_lines().len(), 1);
    }

    #[test]
    fn fractions_map_to_the_whole_colour_scale() {
        assert_eq!(scaled_colour(-1.0), SCALE[0]);
        assert_eq!(scaled_colour(1.0), SCALE[8]);
        assert_eq!(scaled_colour(0.5), SCALE[4]);
    }
}
