//! What threads share: a pool, memory that is used again, a cache of values within a budget.
//!
//! Nothing here knows what a store or an array is. No lock of this folder is held while a caller's code runs.

pub mod allocator;
pub mod buffer;
pub mod cache;
pub mod pool;
pub mod read_bytes;
