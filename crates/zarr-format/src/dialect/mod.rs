//! The dialects of Zarr: which documents describe a node, and how they are read and changed.
//!
//! A dialect turns documents into the model and puts changed attributes into documents, and does no I/O. No module further down
//! depends on the dialect of a node. A plain dialect is decided node by node: a file with a `DIALECT` and a line in
//! `registry.rs`. A draft is decided by the entry point of a hierarchy and governs all that lies below it: a file
//! with a `DRAFT` and a line in `draft/registry.rs`.

use crate::error::Result;
use crate::key::Key;
use crate::model::{Attributes, Node};

mod attributes;
pub mod consolidated;
pub mod copies;
mod document;
pub mod draft;
mod edit;
pub mod encoding;
pub mod fill;
pub mod fill_json;
mod members;
pub mod n5;
mod registry;
pub mod typestr;
pub mod v2;
pub mod v3;

pub use document::{Document, text_of};
pub use registry::{Choice, DIALECTS, tried_below};

/// A plain dialect, decided node by node: where its documents are and how they read.
pub struct Dialect {
    /// The name, as `--dialect` and `info` have it.
    pub name: &'static str,
    /// Returns the keys of the documents that may describe the node at a path; the first ones decide
    /// whether there is a node.
    pub documents: fn(&Key) -> Result<Vec<Key>>,
    /// Reads the documents, in the order of their keys; nothing if they describe no node.
    pub parse: fn(&Key, &[Document]) -> Result<Option<Parsed>>,
    /// Returns the documents that change when a node gets these attributes, given all that describe it.
    pub edit: fn(&[Document], &Attributes) -> Result<DocumentMap>,
}

/// Keys and the bytes that are stored under them, in the order in which they are to be written.
pub type DocumentMap = Vec<(Key, Vec<u8>)>;

/// A node as its documents describe it.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    /// The node.
    pub node: Node,
    /// A note for the user on how it was read.
    pub warning: Option<String>,
}

impl From<Node> for Parsed {
    fn from(node: Node) -> Parsed {
        Parsed {
            node,
            warning: None,
        }
    }
}
