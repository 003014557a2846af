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
//!     notes: |_, _| Vec::new(),
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
//! In the words of this crate, a document is a metadata file, a draft is one of the drafts of Zarr v3, and copies are
//! those that consolidated metadata have of documents. A check only reads, and continues after a fault. Only `fix`
//! writes: it rebuilds consolidated metadata on request.
//!
//! - `walk` goes through the hierarchy in parallel. `node` checks one node; `folder`, `draft_folders` and `array_keys`
//!   check the keys in its folders, `shards` the indexes of shards; `chunk_data` decodes chunks. `work_queue` gives
//!   tasks to the threads and puts finished nodes in order.
//! - `rules` judges what `walk` has read. `documents` judges documents, `consolidated` the copies of them; `ome`,
//!   `datasets` and `anndata` judge attributes, `names` names. `foreign` recognizes bytes that are neither a chunk nor
//!   a document. `hints` suggests improvements. `nodes` and `keys` make the findings about whole nodes and single keys.
//! - `fix` rebuilds consolidated metadata.
//!
//! Each `Finding` is passed to the caller while the walk continues. In stores on a network, one listing covers many
//! nodes. Single chunks are only requested if all chunks are to be decoded.

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

mod context;
mod finding;
mod fix;
mod node_findings;
mod rules;
mod spec;
mod walk;

pub use context::{CheckContext, CheckCounts, CheckProgress};
pub use finding::{CODES, Finding, INDENT, Severity};
pub use fix::rebuild_consolidated;
pub use spec::SpecSection;
pub use walk::{CheckSummary, check};
