//! The mount: kernel requests in, replies of the vfs out.
//!
//! `adapter` is fuser's trait; `dispatch` answers a request in the event loop or in a pool, `deadline` refuses it when
//! its time is up, `reply` sends the result, `failure_reporter` takes the errors. `session` serves one mount, `serve` all mounts of a process, `kernel_readahead` sets how far the kernel reads. fuser's types
//! stay in this folder; mounting and unmounting are our own (`mount`), since fuser's can lose unmounts.

mod adapter;
mod convert;
mod deadline;
mod directory;
mod dispatch;
mod failure_reporter;
mod kernel_readahead;
pub mod mount;
mod reply;
mod request;
pub mod serve;
pub mod session;
mod xattr;
