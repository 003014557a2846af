//! Mounts a Zarr store as a directory. `ARCHITECTURE.md` has the drawing.
//!
//! The modules stand in the order of their imports: each may use only those above it and its own folder;
//! `tests/project/layers.rs` holds that.

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

pub mod error;
pub mod known;
pub mod request_context;
pub mod spelling;

pub mod failures;
pub mod stats;

pub mod sync;

pub mod json_text;

pub mod model;

pub mod grid;

pub mod store;

pub mod dialect;

pub mod codec;

pub mod overlay;

pub mod hierarchy;

pub mod array;

pub mod export;

pub mod compare;

pub mod inspect;

pub mod check;

pub mod view;

pub mod vfs;

pub mod mount;

pub mod fuse;

pub mod cli;
