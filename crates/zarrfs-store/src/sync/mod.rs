//! Infrastructure that threads share: pools, locks, caches, memory budgets, clocks, limits.
//!
//! This folder knows nothing of stores and arrays, and holds no lock of its own while a callback runs.

pub mod aged_map;
pub mod allocator;
pub mod budget;
pub mod cache;
pub mod clock;
pub mod file_limits;
pub mod idle_memory;
pub mod locks;
pub mod pool;
pub mod read_bytes;
pub mod single_flight;
