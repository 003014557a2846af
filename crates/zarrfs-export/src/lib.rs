//! Exports arrays and groups as files of other formats, and inspects and compares stores.
//!
//! [`formats`] presents an array or a group as a file of another format, such as `.npy`, `.tif` or `.nc4`: a header,
//! the elements and a trailer. A reader can read any range of such a file. [`compare`] finds the regions in which two
//! arrays differ. [`inspect`] collects the facts that commands print, and parses the names of files.
//!
//! ```
//! use zarr_format::model::DataType;
//! use zarrfs_export::formats;
//!
//! let npy = formats::format("npy").expect("a format");
//! assert_eq!(npy.extension, "npy");
//! assert_eq!(formats::npy::descr(&DataType::Int(4)), Some("'<i4'".to_string()));
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
