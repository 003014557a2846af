//! The dialects of Zarr: which documents describe a node, and what they say.
//!
//! A dialect turns documents into the model and does no I/O. Nobody below this folder asks which dialect a
//! node came from. A plain dialect is decided node by node: a file with a `DIALECT` and a line in `DIALECTS`.
//! A draft is decided by the entry point of a hierarchy and governs all that lies below it (`entry`): a file
//! with a `DRAFT` and a line in `entry_point`.

use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::model::{Array, Node};
use crate::store::Key;

pub mod choice;
pub mod consolidated;
pub mod draft;
pub mod edit;
pub mod fill;
pub mod fill_json;
pub mod json;
pub mod n5;
pub mod typestr;
pub mod v2;
pub mod v3;

pub use crate::dialect::choice::Choice;
pub use crate::dialect::consolidated::DocumentMap;
pub use crate::dialect::edit::Edit;

/// A plain dialect, decided node by node: where its documents are and how they read.
pub struct Dialect {
    /// The name that a person sees.
    pub name: &'static str,
    /// Returns the keys of the documents that may describe the node at a path; the first ones decide
    /// whether there is a node.
    pub documents: fn(&Key) -> Result<Vec<Key>>,
    /// Reads the documents, in the order of their keys; nothing if they describe no node.
    pub parse: fn(&Key, &[Document]) -> Result<Option<Node>>,
    /// Returns the documents that change with a node, given all that describe it.
    pub edit: fn(&[Document], &Edit) -> Result<DocumentMap>,
    /// Returns the documents of a new group.
    pub group: fn(&Key, &Map<String, Value>) -> Result<DocumentMap>,
    /// Returns the documents of a new array; `Unsupported` if the dialect cannot express it.
    pub array: fn(&Key, &Array) -> Result<DocumentMap>,
}

/// A document that may be missing.
pub struct Document {
    /// Where it is stored.
    pub key: Key,
    /// Its bytes.
    pub bytes: Option<Vec<u8>>,
}

/// Every plain dialect, in the order in which they are tried.
pub static DIALECTS: &[&Dialect] = &[&v3::DIALECT, &v2::DIALECT, &n5::DIALECT];

/// The same below the root of an N5 container, where every `attributes.json` means something.
static WITHIN_N5: &[&Dialect] = &[&v3::DIALECT, &v2::DIALECT, &n5::WITHIN];

/// Returns the dialects that are tried for the children of a group that `found` has read, if they are not
/// those that were `tried` for the group itself.
pub fn tried_below(
    found: &Dialect,
    tried: &'static [&'static Dialect],
) -> Option<&'static [&'static Dialect]> {
    let is_new = found.name == n5::DIALECT.name && std::ptr::eq(tried, DIALECTS);
    is_new.then_some(WITHIN_N5)
}

/// What the reader of a store may decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DialectSettings {
    /// Whether a data type that is not known may be read as the fallback that its metadata name.
    pub fallback: bool,
}

impl Default for DialectSettings {
    fn default() -> DialectSettings {
        DialectSettings { fallback: true }
    }
}

/// A node as a draft's document describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    /// The node.
    pub node: Node,
    /// What a person should know of how it was read.
    pub warning: Option<String>,
}

impl Document {
    /// Parses the document as a JSON object; nothing if it is missing, `Corrupt` if it is something else.
    pub fn object(&self) -> Result<Option<Map<String, Value>>> {
        let Some(bytes) = &self.bytes else {
            return Ok(None);
        };
        match json::parse(bytes).map_err(|error| error.about(&self.key))? {
            Value::Object(members) => Ok(Some(members)),
            _ => Err(Error::corrupt(&self.key, "expected a JSON object")),
        }
    }
}

/// Reads a member that holds a list of whole numbers, none negative.
pub(crate) fn lengths(members: &Map<String, Value>, name: &str) -> Result<Vec<u64>> {
    let wrong = || Error::corrupt(name, "expected a list of whole numbers, none negative");
    let list = members
        .get(name)
        .and_then(Value::as_array)
        .ok_or_else(wrong)?;
    list.iter()
        .map(|number| number.as_u64().ok_or_else(wrong))
        .collect()
}

/// Checks that a shape and its chunks can mean something: same rank, not too many dimensions, no chunk of
/// length zero.
pub(crate) fn check_shapes(shape: &[u64], chunk: &[u64]) -> Result<()> {
    if shape.len() > crate::model::MAX_RANK {
        let most = crate::model::MAX_RANK;
        return Err(Error::too_large(
            "shape",
            format!("{} dimensions, at most {most} are read", shape.len()),
        ));
    }
    if shape.len() != chunk.len() {
        let found = format!(
            "{} dimensions, but chunks have {}",
            shape.len(),
            chunk.len()
        );
        return Err(Error::corrupt("shape", found));
    }
    if chunk.contains(&0) {
        return Err(Error::corrupt(
            "chunk shape",
            format!("{chunk:?}: a chunk of length zero"),
        ));
    }
    Ok(())
}
