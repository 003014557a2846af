//! Reads the user's attributes from the documents of each dialect.
//!
//! They are a member, a whole document, or the remaining members of one. Attributes that do not parse become attributes
//! that state the fault, never an error: the data can be read without them.

use crate::dialect::document::{Document, part_of_document, text_of};
use crate::error::Result;
use crate::json_text::{self, visit_members};
use crate::model::Attributes;

/// The longest excerpt of an unexpected value in a message, in characters.
const MAX_SHOWN: usize = 80;

/// Returns the attributes in the member `attributes`; empty if it is missing or null.
pub(super) fn in_member(document: &Document) -> Attributes {
    let read = || -> Result<Attributes> {
        let Some(value) = document
            .value("attributes")?
            .filter(|value| **value != *b"null")
        else {
            return Ok(Attributes::default());
        };
        Ok(
            Attributes::shared(value.clone()).unwrap_or_else(|error| match value.first() {
                Some(b'{') => {
                    Attributes::unreadable(error.about("attributes").about(&document.key))
                }
                _ => unexpected(document, "attributes: ", text_of(&value)),
            }),
        )
    };
    read().unwrap_or_else(Attributes::unreadable)
}

/// Returns the attributes in a document of their own; empty if it is missing.
pub(super) fn whole(document: &Document) -> Attributes {
    match document.text() {
        Ok(None) => Attributes::default(),
        Ok(Some(text)) if text.trim().is_empty() => {
            let why = "is empty, and an object is expected";
            Attributes::unreadable(format!("{}: {why}", document.key))
        }
        Ok(Some(text)) => {
            let bytes = document.bytes.clone().unwrap_or_default();
            Attributes::shared(part_of_document(&bytes, text))
                .unwrap_or_else(|error| Attributes::unreadable(error.about(&document.key)))
        }
        Err(error) => Attributes::unreadable(error),
    }
}

/// Returns the members of a document that a dialect does not define. Fails if it is not an object.
pub(super) fn beside(document: &Document, is_own: fn(&str) -> bool) -> Result<Attributes> {
    let text = document.text()?.unwrap_or("{}");
    let mut rest = String::with_capacity(text.len());
    rest.push('{');
    let read = visit_members(text, &mut |name, place| {
        let member = text.get(place.whole).filter(|_| !is_own(name));
        if let Some(member) = member {
            rest.push_str(if rest.len() > 1 { "," } else { "" });
            rest.push_str(&json_text::compact(member));
        }
    });
    read.map_err(|error| error.about(&document.key))?;
    rest.push('}');
    rest.shrink_to_fit();
    let rest = Attributes::shared(rest.into());
    Ok(rest.unwrap_or_else(|error| Attributes::unreadable(error.about(&document.key))))
}

fn unexpected(document: &Document, member: &str, value: Result<&str>) -> Attributes {
    let shown: String = value.unwrap_or_default().chars().take(MAX_SHOWN).collect();
    Attributes::unreadable(format!(
        "{}: {member}expected an object, found {shown}",
        document.key
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;

    fn document(bytes: &[u8]) -> Document {
        Document {
            key: Key::new("a/x.json").unwrap(),
            bytes: Some(bytes.to_vec().into()),
            ..Document::default()
        }
    }

    #[test]
    fn what_is_no_object_says_so() {
        for (text, said) in [
            (
                r#"{"attributes": [1, 2]}"#,
                "attributes: expected an object, found [1, 2]",
            ),
            (
                r#"{"attributes": 3}"#,
                "a/x.json: attributes: expected an object, found 3",
            ),
        ] {
            let read = in_member(&document(text.as_bytes()));
            assert!(read.fault().unwrap().ends_with(said), "{read:?}");
        }
        for (text, said) in [
            (&b""[..], "a/x.json: is empty, and an object is expected"),
            (b"[1]", "a/x.json: JSON, but no object: a list"),
            (
                b"[1",
                "a/x.json: not JSON: expected object but found array at line 1 column 1",
            ),
            (b"{\"a\": \xff}", "a/x.json: not JSON: expected UTF-8"),
        ] {
            let read = whole(&document(text));
            assert!(read.fault().unwrap().starts_with(said), "{read:?}");
        }
    }

    #[test]
    fn missing_attributes_are_none() {
        for text in ["{}", r#"{"attributes": null}"#, r#"{"attributes": { }}"#] {
            let read = in_member(&document(text.as_bytes()));
            assert!(read.is_empty() && read.fault().is_none(), "{text}");
        }
        let missing = Document {
            bytes: None,
            ..document(b"")
        };
        assert!(whole(&missing).is_empty() && in_member(&missing).is_empty());
    }
}
