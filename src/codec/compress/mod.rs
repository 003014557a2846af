//! Codecs from bytes to bytes that compress, and what their formats share.

pub(super) mod base64;
pub(super) mod blosc;
pub(super) mod blosc_frame;
pub(super) mod bz2;
pub(super) mod deflate;
pub(super) mod lz4;
pub(super) mod lz4_java;
pub(super) mod lzma;
pub(super) mod lzma_filters;
pub(super) mod n5_default;
pub(super) mod pcodec;
pub(super) mod shuffle;
pub(super) mod streams;
pub(super) mod zstd;
