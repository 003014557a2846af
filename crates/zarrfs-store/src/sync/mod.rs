//! What threads share: a pool, a clock, descriptors, limits, memory that is used again, a budget of memory, a cache of values within it.
//!
//! Nothing here knows what a store or an array is. No lock of this folder is held while a caller's code runs.

pub mod aged_map;
pub mod allocator;
pub mod budget;
pub mod cache;
pub mod clock;
pub mod descriptors;
pub mod file_sizes;
pub mod idle_memory;
pub mod locks;
pub mod memory_pressure;
pub mod pool;
pub mod read_bytes;
pub mod single_flight;
pub mod stepped_room;
