//! The FUSE mount: receives kernel requests and sends the replies of the vfs.
//!
//! - `adapter` implements fuser's trait, with `negotiation`, `names`, `changes` and `open_files`.
//! - `dispatch` runs a request in the event loop or in a pool (`waiting_loops` decides which); `deadline` refuses it
//!   when its time is up or its `caller` was interrupted.
//! - `reply` sends the result, `failure_reporter` records errors, `failed_reads` answers the reads that the kernel
//!   repeats after an error, and `access` logs each request.
//! - `invalidation` drops the kernel's pages, `kernel_readahead` sets its read-ahead size, and `passthrough` makes it
//!   read stored files itself.
//! - `session` serves the mount, and `serve` ends it.
//!
//! fuser's types stay in this folder; mounting and unmounting are our own (`mount`), since fuser's can lose unmounts.

mod access;
mod adapter;
mod caller;
mod changes;
mod convert;
mod deadline;
mod directory;
mod dispatch;
mod failed_reads;
mod failure_reporter;
mod invalidation;
mod kernel_call;
mod kernel_readahead;
pub mod mount;
mod names;
mod negotiation;
mod open_files;
mod passthrough;
mod reply;
mod request;
pub mod serve;
pub mod session;
mod waiting_loops;
mod xattr;
