//! Virtual files of a box of an array: the formats, and the table of formats.
//!
//! Each format is a file of this folder: it says which arrays it can hold, and makes the header and the trailer
//! (`format`). `opened` reads such a file, `conversion` changes the form of elements, `axes` interprets dimensions.
//! To add a format, add a file and a line in `FORMATS`.

use crate::formats::group::GroupFormat;
use zarr_format::error::{Error, Result};

mod affine;
pub mod axes;
mod axis_kind;
mod band_facts;
mod body_place;
pub mod calendar;
pub mod cf;
mod cf_attributes;
mod cf_complex;
mod cf_counts;
mod cf_numbers;
mod cf_values;
pub mod conversion;
mod coordinate_systems;
pub mod coordinate_variable;
pub mod descr;
mod dimensions;
mod epsg_codes;
pub mod fits;
mod format;
pub mod georeference;
mod grid_mapping;
pub mod group;
pub mod hdf5;
mod header_bytes;
pub mod map_layout;
mod mapping_numbers;
pub mod member;
mod member_texts;
pub mod metaimage;
pub mod mrc;
pub mod netcdf;
mod netcdf_header;
mod netcdf_names;
pub mod nifti;
pub mod npy;
pub mod nrrd;
pub mod ome_zarr;
mod opened;
mod orientation;
mod placement;
mod projjson;
pub mod raster;
pub mod raw;
mod reference_system;
pub mod removed;
mod source_elements;
pub mod surroundings;
pub mod table;
mod text_cell;
mod text_column;
pub mod text_rows;
mod text_table;
pub mod tiff;
pub mod times;
mod told_place;
mod transformation;
pub mod txt;
mod units;
pub mod vrt;
pub mod vti;
mod wkt2;

pub use crate::formats::format::{ElementForm, FileParts, Format, Ragged, Subject, TakenDimension};
pub use crate::formats::opened::Export;
pub use crate::formats::source_elements::SourceElements;

/// All formats of arrays.
pub const FORMATS: &[&Format] = &[
    &npy::FORMAT,
    &raw::FORMAT,
    &txt::FORMAT,
    &npy::FORTRAN,
    &nrrd::FORMAT,
    &nrrd::DETACHED,
    &metaimage::FORMAT,
    &metaimage::DETACHED,
    &nifti::FORMAT,
    &fits::FORMAT,
    &mrc::FORMAT,
    &vti::FORMAT,
    &tiff::FORMAT,
    &tiff::ome::FORMAT,
    &vrt::FORMAT,
    &raster::HEADER,
    &raster::ENVI,
    &text_rows::CSV,
    &text_rows::NDJSON,
];

/// All formats of groups.
pub const GROUP_FORMATS: &[&GroupFormat] = &[
    &netcdf::FORMAT,
    &hdf5::HDF5,
    &hdf5::NETCDF,
    &tiff::ome::PYRAMID,
    &table::CSV,
    &table::NDJSON,
];

/// The formats of groups that can also hold one variable with its coordinates.
pub const VARIABLE_FORMATS: &[&GroupFormat] = &[&netcdf::FORMAT, &hdf5::HDF5, &hdf5::NETCDF];

/// Returns the format of an extension; `Invalid` if there is no such format.
pub fn format(extension: &str) -> Result<&'static Format> {
    let known = FORMATS.iter().find(|format| format.extension == extension);
    known.copied().ok_or_else(|| {
        let names: Vec<_> = FORMATS.iter().map(|format| format.extension).collect();
        Error::invalid(
            extension,
            format!("not a format; there are {}", names.join(", ")),
        )
    })
}
