//! The FUSE mount: receives kernel requests and sends the replies of the vfs.
//!
//! - `adapter` implements fuser's trait (`xattr` does so for extended attributes); `request` describes one request of
//!   the kernel.
//! - `dispatch` runs a request in the event loop or in a pool; `deadline` answers EIO when the request's time is up,
//!   and EINTR when its `caller` was interrupted. A thread that still runs such a request changes nothing any
//!   more, and another thread takes its place in the pool.
//! - `reply` sends the result (`directory` packs a listing), and `failures` records errors.
//! - `invalidation` drops the kernel's pages, `kernel_readahead` sets its read-ahead size, and `passthrough` makes it
//!   read stored files itself.
//! - `session` serves the mount, and `serve` ends it.
//!
//! fuser's types stay in this folder; mounting and unmounting are our own (`mount`), since fuser's can lose unmounts.

mod adapter;
mod caller;
mod convert;
mod deadline;
mod directory;
mod dispatch;
mod failures;
mod invalidation;
mod kernel_readahead;
pub mod mount;
mod passthrough;
mod reply;
mod request;
pub mod serve;
pub mod session;
mod xattr;
