//! The Zarr formats: metadata of every dialect, chunk grids and codecs, without any I/O.
//!
//! [`dialect`] reads the metadata of v2, v3, N5 and the three drafts of v3 into one [`model`]; no code beyond it
//! depends on the dialect. [`grid`] finds the chunks that a box of elements overlaps, and [`codec`] decodes and encodes
//! the bytes of a chunk.
//!
//! ```
//! use zarr_format::Key;
//! use zarr_format::codec::Pipeline;
//! use zarr_format::dialect::{Document, v3};
//! use zarr_format::model::Node;
//!
//! # fn main() -> zarr_format::error::Result<()> {
//! let text = r#"{"zarr_format": 3, "node_type": "array", "shape": [2], "data_type": "int16", "fill_value": 0,
//!     "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}}, "chunk_key_encoding": {"name": "default"},
//!     "codecs": [{"name": "bytes", "configuration": {"endian": "big"}}]}"#;
//! let document = Document { key: Key::new("zarr.json")?, bytes: Some(text.into()), refusal: None };
//! let parsed = (v3::DIALECT.parse)(&Key::root(), &[document])?;
//! let Some(Node::Array(array)) = parsed.map(|parsed| parsed.node) else { panic!("an array") };
//! let elements = Pipeline::new(&array, 1 << 20)?.decode(&[0, 1, 0, 2][..])?;
//! assert_eq!(elements, [1, 0, 2, 0]); // Elements are little-endian and in C order, whatever the chunk is.
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs, unreachable_pub, clippy::all)]
#![cfg_attr(
    test,
    allow(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss,
        clippy::expect_used,
        clippy::panic,
        clippy::unwrap_used,
        reason = "a test that panics has failed, and its numbers are small"
    )
)]

pub mod error;
pub mod key;

pub mod buffer;
pub mod json_text;

pub mod model;

pub mod grid;

pub mod dialect;

pub mod codec;

pub use dialect::EncodedBy;
pub use key::Key;
