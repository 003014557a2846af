//! What a chunk was encoded by: the metadata of its array, as a program had read them.

use crate::key::Key;

/// The metadata of an array that chunks were encoded by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EncodedBy {
    /// The document that describes the array.
    pub document: Key,
    /// The folder in which the array's chunks lie: that of the document, but for the drafts of version 3.
    pub folder: Key,
    /// The digest of all that says how chunks are encoded: `dialect::encoding` makes it.
    pub digest: u128,
}
