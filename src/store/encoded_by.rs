//! What a chunk was encoded by: the metadata of its array, as a program had read them.

use crate::store::Key;

/// The metadata of an array that chunks were encoded by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EncodedBy {
    /// The document that describes the array.
    pub document: Key,
    /// The digest of all that says how chunks are encoded: `dialect::encoding` makes it.
    pub digest: u128,
}

impl EncodedBy {
    /// Returns the folder of the array, in which its chunks lie.
    pub fn folder(&self) -> Key {
        self.document.parent().unwrap_or_default()
    }
}
