//! The backends: one folder or file for each kind of store.
//!
//! `remote_url` opens the stores behind a network, and `remote` has the code that these stores share.
//!
//! A backend only reads and writes its own medium. Statistics, caching and prefetching are the layers' work
//! (`store/layer`).

mod bucket;
mod http;
pub mod local;
pub mod memory;
mod remote;
pub(crate) mod remote_url;
pub mod zip;
