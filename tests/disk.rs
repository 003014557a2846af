//! The cache on disk: what is asked of the store below, what is on the disk, and that neither a kill, nor another
//! process, nor wrong bytes, nor a disk that fails is ever seen in a read.

mod common;

#[path = "disk/asking.rs"]
mod asking;
#[path = "disk/failing.rs"]
mod failing;
#[path = "disk/holding.rs"]
mod holding;
#[path = "disk/killed.rs"]
mod killed;
#[path = "disk/place.rs"]
mod place;
#[path = "disk/spilling.rs"]
mod spilling;
