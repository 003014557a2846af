//! Stores around a store: each adds one property to the store that it wraps and is a store itself.
//!
//! `store/stack.rs` puts them on each other; a layer does not know which one is below it.

pub mod counting;
pub mod disk_cache;
pub mod metadata_cache;
pub mod readahead;
