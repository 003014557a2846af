//! Codecs that move elements or their bytes and change no value.

pub(super) mod bytes;
mod permute;
pub(super) mod reshape;
pub(super) mod transpose;
