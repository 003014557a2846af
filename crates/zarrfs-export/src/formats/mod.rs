//! Virtual files of a box of an array: the formats, and the table of formats.
//!
//! Each format says which arrays it can hold, and makes the header and the trailer (`format`). `volumes` are formats
//! of images in space, `maps` those with a georeference, `tables` those of text; `netcdf`, `hdf5` and `tiff` are a
//! format each. `opened` reads such a file, `conversion` changes the form of elements, `axes`, `cf` and `ome_zarr`
//! interpret dimensions and attributes. To add a format, add a file and a line in `FORMATS`.

use crate::formats::group::GroupFormat;
use zarr_format::error::{Error, Result};

pub mod axes;
pub mod cf;
pub(crate) mod conversion;
pub(crate) mod elements;
mod format;
pub mod group;
pub(crate) mod hdf5;
pub(crate) mod maps;
pub(crate) mod member;
pub(crate) mod netcdf;
pub mod npy;
pub(crate) mod ome_zarr;
mod opened;
pub mod plain;
mod source_elements;
pub(crate) mod subject;
pub(crate) mod tables;
pub(crate) mod tiff;
mod units;
pub(crate) mod volumes;

pub use crate::formats::format::{ElementForm, FileParts, Format, Ragged};
pub use crate::formats::opened::Export;
pub use crate::formats::source_elements::SourceElements;
pub use crate::formats::subject::{Subject, TakenDimension};

/// All formats of arrays.
pub const FORMATS: &[&Format] = &[
    &npy::FORMAT,
    &plain::RAW,
    &plain::TXT,
    &npy::FORTRAN,
    &volumes::nrrd::FORMAT,
    &volumes::nrrd::DETACHED,
    &volumes::metaimage::FORMAT,
    &volumes::metaimage::DETACHED,
    &volumes::nifti::FORMAT,
    &volumes::fits::FORMAT,
    &volumes::mrc::FORMAT,
    &volumes::vti::FORMAT,
    &tiff::FORMAT,
    &tiff::ome::FORMAT,
    &maps::vrt::FORMAT,
    &maps::envi::HEADER,
    &maps::envi::ENVI,
    &tables::rows::CSV,
    &tables::rows::NDJSON,
];

/// All formats of groups.
pub const GROUP_FORMATS: &[&GroupFormat] = &[
    &netcdf::FORMAT,
    &hdf5::HDF5,
    &hdf5::NETCDF,
    &tiff::ome::PYRAMID,
    &tables::group::CSV,
    &tables::group::NDJSON,
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
            format!("unknown format; choose one of {}", names.join(", ")),
        )
    })
}
