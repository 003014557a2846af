//! Codecs that move elements or their bytes and change none of them.

pub(super) mod bytes;
pub(super) mod permute;
pub(super) mod reshape;
pub(super) mod transpose;
