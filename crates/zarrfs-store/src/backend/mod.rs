//! Where keys and bytes really are: a folder or file for each kind of store. `remote_url` opens what lies behind a
//! network, `remote` is what these stores share.
//!
//! A backend answers from its own medium alone. Counting, caching and reading ahead are left to `store/layer`.

pub mod bucket;
mod http;
pub mod local;
pub mod memory;
mod remote;
pub(crate) mod remote_url;
pub mod zip;
