//! The text of a document as a program has written it, checked before anything is stored.

use crate::dialect::{Document, text_of, v3};
use crate::error::{Error, Result};
use crate::model::{Attributes, Node};
use crate::store::Key;

/// A JSON object that a program has written.
pub(super) struct WrittenDocument<'a> {
    bytes: &'a [u8],
    /// All of it, as it is written.
    pub(super) whole: Attributes,
}

impl WrittenDocument<'_> {
    /// Checks the text; `Corrupt` if it is no JSON object, `Invalid` if an object in it has a name twice.
    pub(super) fn parse(bytes: &[u8]) -> Result<WrittenDocument<'_>> {
        let whole = Attributes::parse(text_of(bytes)?)?;
        whole.check_unique()?;
        Ok(WrittenDocument { bytes, whole })
    }

    /// Reads the document as `zarr.json` of final v3; fails as the dialect does, and with `Corrupt` for attributes that
    /// are no object and for an array without codecs, which others may leave out.
    pub(super) fn node(&self, path: &Key) -> Result<Node> {
        let document = Document {
            key: Key::root(),
            bytes: Some(self.bytes.to_vec().into()),
            ..Document::default()
        };
        let members = document.object()?.unwrap_or_default();
        let node = v3::node(path, &members)?;
        if matches!(node, Node::Array(_)) && !members.contains_key("codecs") {
            return Err(Error::corrupt("codecs", "is missing"));
        }
        Ok(node.with_attributes(self.attributes()?))
    }

    /// Returns the member `attributes`; none if it is missing or null.
    fn attributes(&self) -> Result<Attributes> {
        let members = self.whole.members();
        match members.iter().find(|(name, _)| name == "attributes") {
            None | Some((_, "null")) => Ok(Attributes::default()),
            Some((_, text)) => Attributes::parse(text).map_err(|_| {
                Error::corrupt("attributes", format!("expected an object, found {text}"))
            }),
        }
    }
}
