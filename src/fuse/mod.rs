//! Receives the kernel's requests to the mount, and sends the replies of the vfs.
//!
//! - `adapter` implements fuser's trait (`xattr` for extended attributes); `request` describes a request of the kernel.
//! - `dispatch` runs a request in the event loop or in a thread pool; `deadline` answers overdue requests with EIO, and
//!   requests of interrupted programs (`caller`) with EINTR. The thread of such a request makes no further changes, and
//!   another thread replaces it in the pool.
//! - `reply` sends the result (`directory` packs a listing), and `failures` records errors.
//! - `invalidation` drops the kernel's pages, `kernel_readahead` sets its read-ahead size, and `passthrough` makes the
//!   kernel read stored files itself.
//! - `session` serves the mount, and `serve` ends it.
//!
//! fuser's types stay in this folder. Mounting and unmounting are implemented in `kernel_mount`, since fuser's own code
//! can lose unmounts.

mod adapter;
mod caller;
mod convert;
mod deadline;
mod directory;
mod dispatch;
mod failures;
mod invalidation;
pub mod kernel_mount;
mod kernel_readahead;
mod passthrough;
mod reply;
mod request;
pub mod serve;
pub mod session;
mod xattr;
