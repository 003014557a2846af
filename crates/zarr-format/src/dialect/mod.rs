//! Reads the documents of each Zarr dialect into the model, and edits attributes.
//!
//! A dialect does no I/O, and no module further down depends on the dialect of a node. There are two kinds of dialects.
//! A plain dialect (v2, v3 or N5) is determined for each node; it has a file or folder with a constant `DIALECT`, and a
//! line in `DIALECTS`. A draft of v3 is determined by the entry point of a hierarchy and applies to all nodes below it;
//! it has a file with a constant `DRAFT`, and a line in `draft_of`.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::key::Key;
use crate::model::{Attributes, Node};
use draft::{Draft, draft2019, draft2020, draft2022};

mod attributes;
pub mod consolidated;
mod document;
pub mod draft;
pub mod encoding;
pub mod fill;
pub mod n5;
pub mod typestr;
pub mod v2;
pub mod v3;

pub use document::{Document, text_of};
pub use encoding::EncodedBy;

/// A plain dialect: v2, v3 or N5, determined for each node.
pub struct Dialect {
    /// Name of the dialect, as in `--dialect` and `info`.
    pub name: &'static str,
    /// Returns the keys of the metadata documents that may describe the node at a path. The first ones decide whether
    /// the node exists.
    pub documents: fn(&Key) -> Result<Vec<Key>>,
    /// Reads a node from its metadata documents, in the order of their keys. Returns `None` if they do not describe a
    /// node.
    pub parse: fn(&Key, &[Document]) -> Result<Option<Parsed>>,
    /// Returns the metadata documents that change if a node gets new attributes, given all its documents.
    pub edit: fn(&[Document], &Attributes) -> Result<DocumentMap>,
}

/// Keys of metadata documents and their new content, in the order in which they must be written.
pub type DocumentMap = Vec<(Key, Vec<u8>)>;

/// A node that was read from its metadata documents.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    /// The array or group.
    pub node: Node,
    /// A warning for the user about how the node was read.
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

/// All plain dialects, in the order in which a node is tested for them.
pub static DIALECTS: &[&Dialect] = &[&v3::DIALECT, &v2::DIALECT, &n5::DIALECT];

/// Returns the dialects to test for the children of a group of dialect `found`, or `None` if they are the dialects that
/// were `tried` for the group.
pub fn dialects_below(
    found: &Dialect,
    tried: &'static [&'static Dialect],
) -> Option<&'static [&'static Dialect]> {
    let is_new = found.name == n5::DIALECT.name && std::ptr::eq(tried, DIALECTS);
    // Below the root of an N5 container, every `attributes.json` describes a node.
    is_new.then_some(&[&v3::DIALECT, &v2::DIALECT, &n5::WITHIN])
}

/// A dialect that the user chose for a store, whatever its documents look like.
#[derive(Clone, Copy)]
pub enum Choice {
    /// A plain dialect (v2, v3 or N5), which applies to each node.
    Plain(&'static [&'static Dialect]),
    /// A v3 draft: the store is one hierarchy, with or without an entry point.
    Draft(&'static Draft),
}

impl Choice {
    /// Returns the dialect's name.
    pub fn name(&self) -> &'static str {
        match self {
            Choice::Plain(dialects) => dialects.first().map_or("", |dialect| dialect.name),
            Choice::Draft(draft) => draft.name,
        }
    }
}

impl FromStr for Choice {
    type Err = Error;

    fn from_str(name: &str) -> Result<Choice> {
        let choices = [
            Choice::Plain(&[&v2::DIALECT]),
            Choice::Plain(&[&v3::DIALECT]),
            Choice::Draft(&draft2019::DRAFT),
            Choice::Draft(&draft2020::DRAFT),
            Choice::Draft(&draft2022::DRAFT),
            Choice::Plain(&[&n5::WITHIN]),
        ];
        let choice = choices.into_iter().find(|choice| choice.name() == name);
        choice.ok_or_else(|| {
            let known = choices.map(|choice| choice.name()).join(", ");
            Error::invalid(name, format!("unknown dialect; choose one of {known}"))
        })
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dialect_name_is_accepted() {
        for name in ["v2", "v3", "draft2019", "draft2020", "draft2022", "n5"] {
            assert_eq!(name.parse::<Choice>().unwrap().name(), name);
        }
        let error = "v1".parse::<Choice>().unwrap_err().to_string();
        assert!(error.contains("draft2022"), "{error}");
    }
}
