//! Codecs that move elements or their bytes without changing values.

pub(super) mod bytes;
pub(super) mod reshape;
pub(super) mod transpose;
