//! Tests of the disk cache: its requests, its entries, and its failures.
//!
//! Reads stay correct if a process is killed, other processes share the folder, bytes are damaged or the disk fails.

mod asking;
mod failing;
mod fixture;
mod holding;
mod killed;
mod lengths;
mod shared;
mod spilling;
