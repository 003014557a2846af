//! `NAME.png`: a plane of an array as a small picture, so that file managers show one.
//!
//! Grey from the least to the largest number that is shown; bytes whose last dimension has three or four elements are
//! red, green and blue as they are. The picture is not compressed, so that its length follows from its sides.

use std::sync::Arc;

use crate::array::OpenArray;
use crate::error::{Error, Result};
use crate::grid::{SelectedAxis, Selection};
use crate::inspect::preview::{NumberPlane, is_number, sides_of};
use crate::model::{Array, DataType};

/// Why there is no picture, as it is said after the name of the format and a colon.
pub const NO_PICTURE: &str = "numbers alone, at least one, along a dimension";

/// The most pixels along each side.
const MAX_SIDE: u64 = 1024;

/// A picture of selected elements, not yet read.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanePicture {
    selection: Selection,
    /// The dimension of colours, if there is one.
    colours: Option<usize>,
    width: u32,
    height: u32,
}

impl PlanePicture {
    /// Returns the picture of selected elements; nothing if they are no numbers, or none.
    pub fn of(array: &Array, selection: Selection) -> Option<PlanePicture> {
        let kept = selection.kept();
        let length = |axis: &usize| selection.axes.get(*axis).map_or(0, |axis| axis.count);
        if !is_number(&array.data_type) || kept.is_empty() || selection.shape().contains(&0) {
            return None;
        }
        let is_coloured = array.data_type == DataType::UInt(1) && kept.len() >= 3;
        let last = kept.last().copied();
        let colours = last.filter(|last| is_coloured && (3..=4).contains(&length(last)));
        let plane = match colours {
            Some(axis) => one_of(&selection, axis, 0),
            None => selection.clone(),
        };
        let (rows, columns) = sides_of(&plane, (MAX_SIDE, MAX_SIDE));
        let side = |pixels: u64| u32::try_from(pixels).ok().filter(|&pixels| pixels > 0);
        Some(PlanePicture {
            colours,
            width: side(columns)?,
            height: side(rows)?,
            selection,
        })
    }

    /// Returns the length of the file in bytes.
    pub fn length(&self) -> Result<u64> {
        // Stored as it is, one picture of these sides is as long as another.
        let pixels = u64::from(self.width) * u64::from(self.height) * self.samples();
        let blank = vec![0; usize::try_from(pixels).unwrap_or(0)];
        Ok(self.encode(&blank)?.len() as u64)
    }

    fn samples(&self) -> u64 {
        if self.colours.is_some() { 3 } else { 1 }
    }

    /// Reads the elements and makes the file.
    pub fn read(&self, array: &Arc<OpenArray>) -> Result<Vec<u8>> {
        let plane =
            |selection: &Selection| NumberPlane::read(array, selection, (MAX_SIDE, MAX_SIDE));
        let Some(axis) = self.colours else {
            let plane = plane(&self.selection)?;
            let grey: Vec<u8> = plane
                .shares()
                .map(|share| byte(share.unwrap_or(0.0) * 255.0))
                .collect();
            return self.encode(&grey);
        };
        let mut pixels = Vec::new();
        for colour in 0..3_usize {
            let plane = plane(&one_of(&self.selection, axis, colour as u64))?;
            pixels.resize(plane.values.len() * 3, 0);
            // What is the fill value has no number here, and is shown as that.
            let fill = array.array().fill_value.bytes.first().copied().unwrap_or(0);
            for (pixel, value) in pixels.chunks_exact_mut(3).zip(&plane.values) {
                pixel[colour] = value.map_or(fill, byte);
            }
        }
        self.encode(&pixels)
    }

    fn encode(&self, samples: &[u8]) -> Result<Vec<u8>> {
        let failed = |error: png::EncodingError| Error::invalid("png", error);
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, self.width, self.height);
        encoder.set_color(if self.colours.is_some() {
            png::ColorType::Rgb
        } else {
            png::ColorType::Grayscale
        });
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_compression(png::Compression::NoCompression);
        encoder.set_filter(png::Filter::NoFilter);
        let mut writer = encoder.write_header().map_err(failed)?;
        writer.write_image_data(samples).map_err(failed)?;
        writer.finish().map_err(failed)?;
        Ok(file)
    }
}

/// Takes one element of those that are selected along a dimension.
fn one_of(selection: &Selection, axis: usize, number: u64) -> Selection {
    let mut one = selection.clone();
    if let Some(selected) = one.axes.get_mut(axis) {
        *selected = SelectedAxis {
            start: selected.at(number),
            is_index: true,
            ..SelectedAxis::all(1)
        };
    }
    one
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is cut off at the ends of a byte"
)]
fn byte(value: f64) -> u8 {
    value.clamp(0.0, 255.0).round() as u8
}
