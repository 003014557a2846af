//! Arrays and groups as files of other formats, and facts about them.
//!
//! [`formats`] lays an array or a group out as a file of another format, such as `.npy`, `.tif` or `.nc4`: what comes before
//! the elements, the elements, and what comes after them, so that any range of the file can be read. [`compare`] says
//! where two arrays differ. [`inspect`] has the facts that commands print and the names by which files are opened.
//!
//! ```
//! use zarr_format::model::DataType;
//! use zarrfs_export::formats;
//!
//! let npy = formats::format("npy").expect("a format");
//! assert_eq!(npy.extension, "npy");
//! assert_eq!(formats::descr::of(&DataType::Int(4)), Some("'<i4'".to_string()));
//! assert!(formats::format("doc").is_err());
//! ```

#![warn(missing_docs, unreachable_pub, clippy::all)]
#![cfg_attr(
    test,
    allow(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss,
        clippy::expect_used,
        clippy::panic,
        clippy::unwrap_used,
        reason = "a test that panics has failed, and its numbers are small"
    )
)]

pub mod formats;

pub mod compare;

pub mod inspect;
