//! The cache on disk: what is asked of the store below, what is on the disk, and that neither a kill, nor another
//! process, nor wrong bytes, nor a disk that fails is ever seen in a read.

mod asking;
mod failing;
mod fixture;
mod holding;
mod killed;
mod lengths;
mod shared;
mod spilling;
