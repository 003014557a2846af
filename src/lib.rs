//! Mounts a Zarr store as a directory: the program as a library, for its tests.
//!
//! `cli` parses the command line, `mount` assembles a mount, and `fuse` answers the requests of the kernel. `vfs` has
//! inodes and handles over a `view`, which shows a store as files. `ARCHITECTURE.md` has the drawing.

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

pub mod view;

pub mod vfs;

pub mod mount;

pub mod fuse;

pub mod cli;
