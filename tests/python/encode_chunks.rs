//! Encodes chunks for `test_numcodecs.py` as `.zarray` files describe them.
//!
//! Each folder of the store has `.zarray` and `decoded`, the bytes of the only chunk in C order and little-endian. The
//! encoded chunk is written to the same folder.
//!
//!     encode_chunks STORE

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a program of tests and measurements: what panics has failed"
)]

use std::error::Error;
use std::fs;
use std::path::Path;

use zarr_format::codec::Pipeline;
use zarr_format::dialect::{Document, v2};
use zarr_format::model::Node;
use zarrfs_store::Key;

fn main() -> Result<(), Box<dyn Error>> {
    let store = std::env::args().nth(1).ok_or("expected a store")?;
    for folder in fs::read_dir(store)? {
        let folder = folder?.path();
        if folder.join(".zarray").exists() {
            encode(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        }
    }
    Ok(())
}

fn encode(folder: &Path) -> Result<(), Box<dyn Error>> {
    let document = |name: &str| -> Result<Document, Box<dyn Error>> {
        Ok(Document {
            key: Key::new(name)?,
            bytes: fs::read(folder.join(name)).ok().map(Into::into),
            ..Document::default()
        })
    };
    let documents = [
        document(".zarray")?,
        document(".zgroup")?,
        document(".zattrs")?,
    ];
    let parsed = (v2::DIALECT.parse)(&Key::root(), &documents)?;
    let Some(Node::Array(array)) = parsed.map(|parsed| parsed.node) else {
        return Err("expected an array".into());
    };
    let pipeline = Pipeline::new(&array, 1 << 30)?;
    let encoded = pipeline.encode(&fs::read(folder.join("decoded"))?)?;
    let origin = vec![0; array.shape.len()];
    let keys = array.keys.candidates(&origin);
    let key = String::from_utf8(keys.into_iter().next().ok_or("no key")?)?;
    fs::write(folder.join(key), encoded)?;
    Ok(())
}
