//! The cache on disk: what is asked of the store below, what is on the disk, and that neither a kill, nor another
//! process, nor wrong bytes, nor a disk that fails is ever seen in a read.

mod common;

#[path = "disk_cache/asking.rs"]
mod asking;
#[path = "disk_cache/failing.rs"]
mod failing;
#[path = "disk_cache/holding.rs"]
mod holding;
#[path = "disk_cache/killed.rs"]
mod killed;
#[path = "disk_cache/place.rs"]
mod place;
#[path = "disk_cache/spilling.rs"]
mod spilling;
