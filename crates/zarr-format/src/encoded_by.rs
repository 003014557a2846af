//! Records the metadata by which a chunk was encoded.

use crate::key::Key;

/// The encoding of an array at the time when a program read its metadata.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EncodedBy {
    /// The key of the document that describes the array.
    pub document: Key,
    /// The folder that holds the array's chunks: the document's folder, except in the drafts of version 3.
    pub folder: Key,
    /// A digest of all metadata that determine how chunks are encoded, made by `dialect::encoding`.
    pub digest: u128,
}
