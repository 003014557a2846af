//! The mount: kernel requests in, replies of the vfs out.
//!
//! `adapter` is fuser's trait, with `negotiation`, `names`, `changes` and `open_files`; `dispatch` answers a request in
//! the event loop or in a pool (`waiting_loops` tells which), `deadline` refuses it when its time is up or its
//! `caller` is to end, `reply` sends the result, `failure_reporter` takes the errors, `failed_reads` answers what the
//! kernel repeats after one, `access` logs each request, `invalidation` has the kernel drop pages, `kernel_readahead` sets how far it reads ahead, `passthrough` has it read
//! stored files itself. `session` serves the mount, `serve` ends it. fuser's types stay in this folder;
//! mounting and unmounting are our own (`mount`), since fuser's can lose unmounts.

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
