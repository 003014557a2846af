//! The drafts of version 3, from 2019 to 2022: one file a draft, and what several of them share.
//!
//! Their documents lie apart from the chunks, below an entry point that says where. Final v3 is in `dialect/v3`.

pub(super) mod array;
pub(super) mod codec_uris;
pub(super) mod data_type;
pub(super) mod draft2019;
pub(super) mod draft2020;
pub(super) mod draft2022;
pub mod entry;
pub mod entry_point;
pub(super) mod writing;
