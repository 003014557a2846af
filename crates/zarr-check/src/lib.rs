//! Checks the documents, keys, copies and chunks of a store against the specifications.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use zarr_check::{CheckContext, Severity, check};
//! use zarrfs_array::array::{Arrays, Engine, EngineDisk, Limits};
//! use zarrfs_array::hierarchy::Hierarchy;
//! use zarrfs_store::StoreConfig;
//! use zarrfs_store::request_context::UNLIMITED;
//! use zarrfs_store::stats::Stats;
//! use zarrfs_store::sync::budget::MemoryBudget;
//!
//! # fn main() -> zarr_format::error::Result<()> {
//! let stats = Arc::new(Stats::default());
//! let store = zarrfs_store::open(&UNLIMITED, "../../samples/climate.zarr", &StoreConfig::default(), &stats)?;
//! let memory = MemoryBudget::new(64 << 20, stats.clone());
//! let timeout = Duration::from_secs(60);
//! let limits = Limits { memory: 64 << 20, max_chunk: 16 << 20, timeout, fetches: 0, lossy: false };
//! let hierarchy = Arc::new(Hierarchy::new(store).within(&memory));
//! let engine = Engine::within(memory.clone(), limits, stats, EngineDisk::default());
//! let context = CheckContext {
//!     arrays: Arc::new(Arrays::new(hierarchy.clone(), engine)),
//!     hierarchy: hierarchy.clone(),
//!     memory,
//!     data: true,
//!     is_remote: false,
//!     threads: 2,
//!     progress: Arc::default(),
//! };
//! let root = hierarchy.root(&UNLIMITED)?.expect("a node");
//! let summary = check(&context, &root, &mut |finding| {
//!     println!("{}: {}", finding.key, finding.message)
//! });
//! assert_eq!(summary.count(Severity::Error), 0);
//! # Ok(())
//! # }
//! ```
//!
//! A check only reads, and continues after a fault; only `fix` writes: it rebuilds consolidated metadata on request.
//!
//! The walk: `walk` goes through the hierarchy in the order of `node_order`; its threads take their work from
//! `work_queue`. `node` checks one node, with these modules:
//! - `documents` checks its documents, and `consolidated` the copies of them.
//! - `group_folder`, `draft_folders` and `array_keys` check the keys in its folders.
//! - `conventions`, `cf_attributes` and `anndata` check its attributes, and `sibling_arrays` compares the arrays of a
//!   group.
//! - `shards` checks shard indexes, and `data` decodes chunks, with memory that `room` reserves.
//! - `advice` suggests improvements.
//! - `foreign` recognizes bytes that are neither a chunk nor a document, `not_shown` reports entries that are not
//!   keys, and `other_formats` reports folders that are not stores.
//!
//! Each `Finding` is passed on while the walk continues. In stores on a network, one listing covers many nodes
//! (`announced`); chunks are only requested one by one if the data are checked.

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

mod advice;
mod anndata;
mod announced;
mod array_keys;
mod cf_attributes;
mod checked_node;
mod chunk_place;
mod codes;
mod consolidated;
mod context;
mod conventions;
mod data;
mod document_meaning;
mod documents;
mod draft_folders;
mod finding;
mod findings;
mod fix;
mod foreign;
mod group_folder;
mod key_findings;
mod leftovers;
mod lost_top;
mod names;
mod node;
mod node_findings;
mod node_order;
mod node_path;
mod not_shown;
mod other_formats;
mod passed_over;
mod room;
mod shards;
mod sibling_arrays;
mod stored_keys;
mod text_elements;
mod walk;
mod work_queue;

pub use codes::CODES;
pub use context::{CheckContext, CheckProgress};
pub use finding::{Finding, Severity, SpecSection};
pub use fix::rebuild_consolidated;
pub use walk::{CheckSummary, check};
