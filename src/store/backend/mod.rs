//! Where keys and bytes really are: one folder or file a kind of store.
//!
//! A backend answers from its own medium alone. Counting, caching and reading ahead are left to `store/layer`.

pub mod bucket;
mod http;
pub mod local;
pub mod memory;
pub mod zip;
