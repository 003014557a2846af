//! Codecs that compress, and the helpers that they share.

pub(super) mod base64;
pub(super) mod blosc;
pub(super) mod bz2;
pub(super) mod deflate;
pub(super) mod leniency;
pub(super) mod lz4;
pub(super) mod lz4_java;
pub(super) mod lzma;
pub(super) mod n5_default;
pub(super) mod pcodec;
pub(super) mod shuffle;
mod streams;
pub(super) mod zstd;
