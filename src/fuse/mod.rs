//! The mount: kernel requests in, replies of the vfs out.
//!
//! `adapter` is fuser's trait; `dispatch` answers a request in the event loop or in a pool, `deadline` refuses it when
//! its time is up, `reply` sends the result, `failure_reporter` takes the errors, `invalidation` has the kernel drop
//! pages. `session` serves one mount, `serve` all mounts of a process. fuser's types stay in this folder; mounting and
//! unmounting are our own (`mount`), since fuser's can lose unmounts.

mod adapter;
mod convert;
mod deadline;
mod directory;
mod dispatch;
mod failure_reporter;
mod invalidation;
pub mod mount;
mod reply;
mod request;
pub mod serve;
pub mod session;
mod xattr;
