//! Virtual files of arrays and groups in other formats, and the table of formats.
//!
//! Each format says which arrays it can hold, and makes the header and the trailer of a file (`format`). `volumes` has
//! the formats of images in space, `maps` those with a georeference, `tables` those of text; `netcdf`, `hdf5` and
//! `tiff` have one kind of file each. `opened` reads an open file, and `conversion` converts its elements. `axes`, `cf`
//! and `ome_zarr` interpret metadata: of dimensions, of CF, and of OME-Zarr. To add a format, add a file and an entry
//! in `FORMATS`.

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
pub(crate) mod netcdf;
pub mod npy;
pub(crate) mod ome_zarr;
mod opened;
pub mod plain;
pub(crate) mod subject;
pub(crate) mod tables;
pub(crate) mod tiff;
mod units;
pub(crate) mod volumes;

pub use crate::formats::format::{ElementForm, FileParts, Format, Ragged};
pub use crate::formats::opened::Export;
pub use crate::formats::opened::SourceElements;
pub use crate::formats::subject::{Subject, TakenDimension};

/// All file formats as which an array can be exported.
pub const FORMATS: &[&Format] = &[
    &npy::FORMAT,
    &plain::RAW,
    &plain::TXT,
    &Format::of_fixed_length(
        "f.npy",
        "elements of fixed length and of a data type of numpy",
        npy::fortran,
    ),
    &Format::of_fixed_length(
        "nrrd",
        "bool, int8 to int64, uint8 to uint64, float32 or float64 in 1 to 16 dimensions, none of length 0",
        volumes::nrrd::parts,
    ),
    &Format::of_fixed_length(
        "nhdr",
        "bool, int8 to int64, uint8 to uint64, float32 or float64 in 1 to 16 dimensions, none of length 0, and a name \
         without control characters, quotes, < > & or %",
        volumes::nrrd::detached,
    ),
    &Format::of_fixed_length(
        "mha",
        "bool, int8 to int64, uint8 to uint64, float32 or float64 in 1 to 10 dimensions, none of length 0",
        volumes::metaimage::parts,
    ),
    &Format::of_fixed_length(
        "mhd",
        "bool, int8 to int64, uint8 to uint64, float32 or float64 in 1 to 10 dimensions, none of length 0, and a name \
         without control characters, quotes, < > & or %",
        volumes::metaimage::detached,
    ),
    &Format::of_fixed_length(
        "nii",
        "bool, int8 to int64, uint8 to uint64, float32, float64, complex64 or complex128 in 1 to 7 dimensions, none \
         of length 0",
        volumes::nifti::parts,
    ),
    &Format::of_fixed_length(
        "fits",
        "bool, int8 to int64, uint8 to uint64, float16, float32 or float64 in 1 or more dimensions, none of length 0",
        volumes::fits::parts,
    ),
    &Format::of_fixed_length(
        "mrc",
        "bool, int8, int16, uint8, uint16, float16, float32 or complex64 in 2 to 4 dimensions, none of length 0 or \
         beyond 2^31 - 1",
        volumes::mrc::parts,
    ),
    &Format::of_fixed_length(
        "vti",
        "bool, int8 to int64, uint8 to uint64, float32 or float64 in 1 to 3 dimensions, none of length 0 or beyond \
         2^31, and a name without control characters, quotes, < > or &",
        volumes::vti::parts,
    ),
    &Format::of_fixed_length(
        "tif",
        "bool, int8 to int64, uint8 to uint64, float16 to float64, complex64 or complex128 in 2 or more dimensions, \
         none of length 0, and no more planes than TIFF has room for",
        tiff::parts,
    ),
    &Format::of_fixed_length(
        "ome.tif",
        "bool, int8 to int32, uint8 to uint32, float32, float64, complex64 or complex128 in 2 to 5 dimensions, none \
         of length 0, of at most 8192 planes",
        tiff::ome::parts,
    ),
    &Format::of_fixed_length(
        "vrt",
        "bool, int8 to int64, uint8 to uint64, float32, float64, complex64 or complex128 in 2 or more dimensions, \
         none of length 0, of at most 4096 planes, and a name without control characters, quotes, < > or &",
        maps::vrt::parts,
    ),
    &Format::of_fixed_length("hdr", maps::envi::NEEDS, maps::envi::header),
    &Format::of_fixed_length("img", maps::envi::NEEDS, maps::envi::image),
    &tables::CSV,
    &tables::NDJSON,
];

/// All file formats as which a group can be exported.
pub const GROUP_FORMATS: &[&GroupFormat] = &[
    &netcdf::FORMAT,
    &hdf5::HDF5,
    &hdf5::NETCDF,
    &tiff::ome::PYRAMID,
    &tables::group::CSV,
    &tables::group::NDJSON,
];

/// The formats of groups that can also hold a single array with its coordinate variables.
pub const VARIABLE_FORMATS: &[&GroupFormat] = &[&netcdf::FORMAT, &hdf5::HDF5, &hdf5::NETCDF];

/// Returns the format of arrays with a file extension. Fails with `Invalid` if there is no such format.
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
