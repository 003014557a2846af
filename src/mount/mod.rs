//! A mount put together: the store, its layers, the views over them, and the socket by which commands reach it.
//!
//! What the kernel asks of a mount is in `fuse/`; what a person types is in `cli/`.

pub mod commands;
pub mod control_socket;
pub mod open;
pub mod protocol;
mod summary;
