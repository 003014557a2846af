//! A mount put together: the store, its layers, the views over them.
//!
//! What the kernel asks of a mount is in `fuse/`; what a person types is in `cli/`.

pub mod open;
