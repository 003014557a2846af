//! Reads the documents of each Zarr dialect into the model, and edits attributes.
//!
//! A dialect does no I/O, and no module further down depends on the dialect of a node. A plain dialect is determined
//! for each node: a file with a `DIALECT` and a line in `registry.rs`. A draft is determined by the entry point of a
//! hierarchy and applies to all nodes below it: a file with a `DRAFT` and a line in `draft/registry.rs`.

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

/// A plain dialect, determined for each node.
pub struct Dialect {
    /// The name, as in `--dialect` and `info`.
    pub name: &'static str,
    /// Returns the keys of the documents that may describe the node at a path. The first ones decide whether the node
    /// exists.
    pub documents: fn(&Key) -> Result<Vec<Key>>,
    /// Reads the documents, in the order of their keys. Returns `None` if they do not describe a node.
    pub parse: fn(&Key, &[Document]) -> Result<Option<Parsed>>,
    /// Returns the documents that change if a node gets these attributes, given all its documents.
    pub edit: fn(&[Document], &Attributes) -> Result<DocumentMap>,
}

/// Keys and their new content, in the order in which they must be written.
pub type DocumentMap = Vec<(Key, Vec<u8>)>;

/// A node read from its documents.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    /// The node.
    pub node: Node,
    /// A warning for the user about how it was read.
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
