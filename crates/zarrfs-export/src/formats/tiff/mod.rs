//! `.tif` and `.ome.tif`: uncompressed images with rows and columns in array order.
//!
//! `.tif` is a GeoTIFF if the array has a georeference, or else an ImageJ TIFF if possible, or else a file of plain
//! images, with 64-bit offsets if necessary. `stack` assigns the dimensions, `directory` writes the directories.

use crate::formats::maps::georeference::{Georeference, georeference};
use crate::formats::tiff::directory::{Tag, TagValue, shortest_header};
use crate::formats::tiff::stack::{ImageStack, MAX_PAGES, image_axes};
use crate::formats::{FileParts, Format, Subject};

mod directory;
mod geotiff;
mod imagej;
pub(crate) mod ome;
mod stack;

/// Directories and elements.
pub(crate) const FORMAT: Format = Format {
    extension: "tif",
    needs: "bool, int8 to int64, uint8 to uint64, float16 to float64, complex64 or complex128 in 2 \
            or more dimensions, none of length 0, and no more planes than TIFF has room for",
    parts: Some(parts),
    ragged: None,
    is_basic: false,
};

fn parts(subject: &Subject) -> Option<FileParts> {
    let axes = image_axes(subject);
    let stack = || ImageStack::of(subject, &axes);
    let first = stack()?;
    let mut map = georeference(subject, &axes, first.plane());
    if map.is_map {
        let mut left_out = std::mem::take(&mut map.left_out);
        match geotiff::parts(subject, map, first) {
            Some(mut parts) => {
                parts.left_out.extend(left_out);
                return Some(parts);
            }
            None => {
                let why =
                    "the georeference: a GeoTIFF has at most 65,535 bands, and no colour bands";
                left_out.push(why.to_string());
            }
        }
        map = Georeference {
            left_out,
            ..Georeference::default()
        };
    }
    // Bands without a place are the last choice, for more planes than a file may have directories.
    let parts = imagej::parts(subject, &axes, stack()?)
        .or_else(|| plain(subject, stack()?))
        .or_else(|| geotiff::parts(subject, Georeference::default(), stack()?));
    parts.map(|mut parts| {
        parts.left_out.extend(map.left_out);
        parts
    })
}

/// Returns a file of images in the order of the other dimensions, which get tifffile's names.
fn plain(subject: &Subject, stack: ImageStack) -> Option<FileParts> {
    let (count, size) = (stack.pages()?, stack.page_size()?);
    if count > MAX_PAGES {
        return None;
    }
    let pages = (0..count).map(|number| stack.page(number.checked_mul(size)?));
    let mut pages = pages.collect::<Option<Vec<_>>>()?;
    let elements = stack.elements();
    let own = (0..subject.shape.len()).collect();
    let order = elements.order.as_ref().unwrap_or(&own);
    let shape: Vec<u64> = order
        .iter()
        .filter_map(|&axis| subject.shape.get(axis).copied())
        .collect();
    let text = format!("{{\"shape\": {shape:?}}}");
    pages
        .first_mut()?
        .tags
        .push((Tag::Description, TagValue::Text(text)));
    Some(FileParts {
        header: shortest_header(&pages, size.checked_mul(count)?)?,
        elements: Some(elements),
        ..FileParts::default()
    })
}
