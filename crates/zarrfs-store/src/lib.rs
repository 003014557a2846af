//! Zarr stores map keys to bytes in folders, archives, buckets and web servers.
//!
//! A [`Store`] is the abstract store interface of the Zarr specifications. [`backend`] implements it for folders, zip
//! archives, buckets, web servers, Icechunk repositories, kerchunk reference files and memory. [`layer`] has the
//! wrappers over a store: the metadata cache, the disk cache, read-ahead, counters. [`open`] builds a stack of them for
//! a path or URL. [`sync`] has the caches, pools and limits that threads share.
//!
//! A missing key is `Ok(None)`, and an error never means "missing". Each answer carries the version of the object, so
//! that caches can tell whether their copy is stale. This crate knows nothing of groups and arrays.
//!
//! ```
//! use std::sync::Arc;
//!
//! use zarrfs_store::request_context::UNLIMITED;
//! use zarrfs_store::stats::Stats;
//! use zarrfs_store::{Key, StoreConfig};
//!
//! # fn main() -> zarr_format::error::Result<()> {
//! let stats = Arc::new(Stats::default());
//! let store = zarrfs_store::open(&UNLIMITED, "../../samples/climate.zarr", &StoreConfig::default(), &stats)?;
//! let metadata = store.get(&UNLIMITED, &Key::new("tas/zarr.json")?, 1 << 20)?;
//! assert!(metadata.is_some_and(|object| object.bytes.starts_with(b"{")));
//! assert!(store.get(&UNLIMITED, &Key::new("no/such/key")?, 1 << 20)?.is_none());
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

pub mod backend;
mod change_log;
mod condition;
pub mod edit_distance;
mod failure_log;
pub mod layer;
pub mod listing;
mod location;
mod object;
mod path_locks;
pub mod request_context;
pub mod sparse;
mod stack;
pub mod stats;
mod store;
pub mod sync;
pub mod tree;
mod version;

pub use backend::reference::icechunk::{Icechunk, Revision};
pub use backend::reference::targets::VirtualPrefix;
pub use backend::{Login, default_netrc};
pub use change_log::{ChangeLog, Dependencies, LogPosition, MovingPosition, QueryStamp};
pub use condition::{Condition, ETag, PutBody};
pub use listing::{FlatListing, HiddenEntries, HiddenEntry, HiddenReason, LeftOut, Listing, Name};
pub use location::{
    at_revision, canonical_location, local_folder, local_path, normalized, redacted, split_revision,
};
pub(crate) use object::check_length;
pub use object::{ByteRange, EntryKind, Meta, Object, Reader, scatter};
pub use path_locks::{PathGuard, PathLocks};
pub use stack::{RemoteConfig, StoreConfig, StoreStack, error_of_file, open, open_cache_dir};
pub use store::{FOREVER, Hints, NoHints, Presence, Store, StoreInfo};
pub use tree::Tree;
pub use version::{ArchiveGeneration, StoreVersion, Version};
pub use zarr_format::{EncodedBy, Key};
