//! The dialects of Zarr: which documents describe a node, and what they say.
//!
//! A dialect turns documents into the model and does no I/O. Nobody below this folder asks which dialect a
//! node came from. A plain dialect is decided node by node: a file with a `DIALECT` and a line in `DIALECTS`.
//! A draft is decided by the entry point of a hierarchy and governs all that lies below it (`entry`): a file
//! with a `DRAFT` and a line in `entry_point`.

use serde_json::Map;
use serde_json::Value;

use crate::error::Error;
use crate::error::Result;
use crate::model::Array;
use crate::model::Node;
use crate::store::Key;

mod draft_array;
mod draft_codecs;
mod draft_type;
mod draft_writing;

pub mod choice;
pub mod consolidated;
pub mod draft2019;
pub mod draft2020;
pub mod draft2022;
pub mod edit;
pub mod entry;
pub mod entry_point;
pub mod fill;
pub mod fill_json;
pub mod json;
pub mod n5;
mod n5_writing;
mod stored_order;
pub mod typestr;
pub mod v2;
mod v2_codecs;
mod v2_writing;
pub mod v3;
mod v3_grid;
pub mod v3_type;

pub use crate::dialect::choice::Choice;
pub use crate::dialect::consolidated::Documents;
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
    pub edit: fn(&[Document], &Edit) -> Result<Documents>,
    /// Returns the documents of a new group.
    pub group: fn(&Key, &Map<String, Value>) -> Result<Documents>,
    /// Returns the documents of a new array; `Unsupported` if the dialect cannot express it.
    pub array: fn(&Key, &Array) -> Result<Documents>,
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
pub struct Settings {
    /// Whether a data type that is not known may be read as the fallback that its metadata name.
    pub fallback: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { fallback: true }
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
