//! Tests of the disk cache: its requests, its entries, and its failures.
//!
//! Reads must be correct even if a process is killed, other processes use the same folder, bytes are damaged or the
//! disk fails.

mod asking;
mod failing;
mod fixture;
mod holding;
mod killed;
mod lengths;
mod shared;
mod spilling;
