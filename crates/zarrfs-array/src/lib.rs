//! Finds the nodes of a Zarr store; reads and writes the elements of arrays.
//!
//! [`hierarchy`] finds groups and arrays by their metadata, in any dialect. [`mod@array`] reads and writes elements: it
//! finds the chunks of a range, loads, decodes and caches them, and prefetches chunks for sequential readers.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use zarr_format::grid::Region;
//! use zarrfs_array::array::flat_file::FlatFile;
//! use zarrfs_array::array::{Arrays, Engine, Limits};
//! use zarrfs_array::hierarchy::Hierarchy;
//! use zarrfs_store::request_context::UNLIMITED;
//! use zarrfs_store::stats::Stats;
//! use zarrfs_store::{Key, StoreConfig};
//!
//! # fn main() -> zarr_format::error::Result<()> {
//! let stats = Arc::new(Stats::default());
//! let store = zarrfs_store::open(&UNLIMITED, "../../samples/climate.zarr", &StoreConfig::default(), &stats)?;
//! let hierarchy = Arc::new(Hierarchy::new(store));
//! let limits = Limits {
//!     memory: 64 << 20,
//!     max_chunk: 16 << 20,
//!     timeout: Duration::from_secs(60),
//!     fetches: 0,
//!     lossy: false,
//! };
//! let arrays = Arrays::new(hierarchy.clone(), Engine::new(limits, stats));
//! let node = hierarchy.node(&UNLIMITED, &Key::new("lat")?)?.expect("an array");
//! let array = arrays.open(&node)?;
//! let whole = Region::whole(&array.array().shape);
//! let file = FlatFile::new(array, whole)?;
//! let first = file.read(&UNLIMITED, 0..8)?; // The first element, a float64: little-endian, in C order.
//! assert_eq!(first.len(), 8);
//! # Ok(())
//! # }
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

pub mod hierarchy;

pub mod array;
