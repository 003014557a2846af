//! Assembles a mount: the store, its layers, the views, and the control socket.
//!
//! `fuse/` answers the kernel's requests; `cli/` parses the command line.

pub mod commands;
pub mod control_socket;
pub mod open;
pub mod protocol;
mod summary;
