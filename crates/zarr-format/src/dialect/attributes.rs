//! Reads and edits user attributes in the metadata documents of each dialect.
//!
//! Depending on the dialect, the attributes are a member of a document, a document of their own, or all members that
//! the dialect does not define. Attributes that do not parse become attributes that state the fault, never an error:
//! the data can be read without them. An edit changes no byte of the other members; the caller checks that the
//! documents still describe the same node afterwards.

use crate::dialect::DocumentMap;
use crate::dialect::document::{Document, part_of_document, text_of};
use crate::error::{Error, Kind, Result};
use crate::json_text::{self, MemberChange, ObjectText, visit_members};
use crate::model::Attributes;

/// Returns the user attributes in the JSON member `attributes` of a metadata document; empty if it is missing or null.
pub(super) fn from_member(document: &Document) -> Attributes {
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

/// Returns the user attributes of a document that holds nothing else (`.zattrs`); empty if the document is missing.
pub(super) fn from_document(document: &Document) -> Attributes {
    match document.text() {
        Ok(None) => Attributes::default(),
        Ok(Some(text)) if text.trim().is_empty() => {
            let why = "the file is empty, not a JSON object";
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

/// Returns as user attributes all JSON members that the dialect does not define. Fails if the document is not an
/// object.
pub(super) fn from_other_members(
    document: &Document,
    is_own: fn(&str) -> bool,
) -> Result<Attributes> {
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
    let excerpt: String = value.unwrap_or_default().chars().take(80).collect();
    Attributes::unreadable(format!(
        "{}: {member}expected an object, found {excerpt}",
        document.key
    ))
}

/// Changes JSON members of a metadata document, and no byte of the other members.
///
/// Fails with `NotFound` if the document is missing, `Invalid` if an object in it has duplicate names.
pub(super) fn edit_members(
    document: &Document,
    changes: impl FnOnce(&ObjectText<'_>) -> Result<Vec<MemberChange>>,
) -> Result<DocumentMap> {
    let missing = || Error::not_found(&document.key);
    let text = document.text()?.ok_or_else(missing)?;
    let object = ObjectText::parse(text).map_err(|error| error.about(&document.key))?;
    check_unique(document, &object)?;
    let edited = object.edited(&changes(&object)?, 1);
    let mark = document.bytes.as_deref().unwrap_or_default();
    let mark = mark.get(..mark.len() - text.len()).unwrap_or_default();
    let bytes = [mark, edited.as_bytes()].concat();
    Ok(vec![(document.key.clone(), bytes)])
}

/// Fails with `Invalid` if a JSON object in a metadata document has duplicate names, since an edit would be ambiguous.
pub(super) fn check_unique(document: &Document, object: &ObjectText<'_>) -> Result<()> {
    object.check_unique().map_err(|error| {
        let why = format!("{error}; correct the file in the store view first");
        Error::new(Kind::Invalid, &document.key, why)
    })
}

/// Replaces the user attributes in the member `attributes` of a metadata document, as v3 and its drafts have it.
pub(super) fn edit_attributes(document: &Document, attributes: &Attributes) -> Result<DocumentMap> {
    edit_members(document, |old| {
        if attributes.is_empty() && old.value("attributes").is_none() {
            return Ok(Vec::new());
        }
        let text = attributes.text().to_string();
        Ok(vec![("attributes".to_string(), Some(text))])
    })
}

pub(super) fn first_stored(documents: &[Document]) -> Result<&Document> {
    let stored = documents.iter().find(|document| document.bytes.is_some());
    stored.ok_or_else(|| Error::invalid("documents", "no metadata file is stored"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::dialect::{Dialect, n5, v2, v3};
    use crate::key::Key;

    fn document(key: &str, text: Option<&[u8]>) -> Document {
        Document {
            key: Key::new(key).unwrap(),
            bytes: text.map(|text| text.to_vec().into()),
            ..Document::default()
        }
    }

    #[test]
    fn attributes_that_are_not_an_object_are_reported() {
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
            let read = from_member(&document("a/x.json", Some(text.as_bytes())));
            assert!(read.fault().unwrap().ends_with(said), "{read:?}");
        }
        for (text, said) in [
            (&b""[..], "a/x.json: the file is empty, not a JSON object"),
            (b"[1]", "a/x.json: JSON, but not an object: a list"),
            (
                b"[1",
                "a/x.json: not JSON: expected object but found array at line 1 column 1",
            ),
            (
                b"{\"a\": \xff}",
                "a/x.json: not JSON: invalid utf-8 sequence",
            ),
        ] {
            let read = from_document(&document("a/x.json", Some(text)));
            assert!(read.fault().unwrap().starts_with(said), "{read:?}");
        }
    }

    #[test]
    fn missing_attributes_are_empty() {
        for text in ["{}", r#"{"attributes": null}"#, r#"{"attributes": { }}"#] {
            let read = from_member(&document("a/x.json", Some(text.as_bytes())));
            assert!(read.is_empty() && read.fault().is_none(), "{text}");
        }
        let missing = document("a/x.json", None);
        assert!(from_document(&missing).is_empty() && from_member(&missing).is_empty());
    }

    fn attributes(value: &Value) -> Attributes {
        value.as_object().unwrap().clone().into()
    }

    /// Returns the metadata documents that change if a node gets the user attributes `colour` and `z`.
    fn edited(dialect: &Dialect, documents: &[Document]) -> Vec<(String, String)> {
        let text = |bytes: Vec<u8>| {
            let value: Value = serde_json::from_slice(&bytes).unwrap();
            value.to_string()
        };
        let edited = (dialect.edit)(documents, &attributes(&json!({"colour": 1, "z": 2}))).unwrap();
        let edited = edited.into_iter();
        edited
            .map(|(key, bytes)| (key.to_string(), text(bytes)))
            .collect()
    }

    #[test]
    fn editing_v3_attributes_keeps_the_order_of_members() {
        let zarr = document(
            "a/zarr.json",
            Some(br#"{"z": 1, "attributes": {"x": 1}, "a": 2, "shape": [1]}"#),
        );
        assert_eq!(
            edited(&v3::DIALECT, &[zarr]),
            [(
                "a/zarr.json".into(),
                r#"{"z":1,"attributes":{"colour":1,"z":2},"a":2,"shape":[1]}"#.into()
            )]
        );
    }

    #[test]
    fn editing_v2_attributes_writes_zattrs() {
        let documents = [
            document("a/.zarray", Some(br#"{"zarr_format": 2, "shape": [1]}"#)),
            document("a/.zgroup", None),
            document("a/.zattrs", None),
        ];
        let expected = ("a/.zattrs".to_string(), r#"{"colour":1,"z":2}"#.to_string());
        assert_eq!(edited(&v2::DIALECT, &documents), [expected]);
    }

    #[test]
    fn editing_n5_attributes_keeps_the_members_of_n5() {
        let text = r#"{"dimensions": [1], "old": 1, "blockSize": [1], "z": 0, "dataType": "int8"}"#;
        let document = document("a/attributes.json", Some(text.as_bytes()));
        let expected = r#"{"dimensions":[1],"blockSize":[1],"z":2,"dataType":"int8","colour":1}"#;
        let documents = [document];
        assert_eq!(
            edited(&n5::DIALECT, &documents),
            [("a/attributes.json".into(), expected.into())]
        );
        let own = attributes(&json!({"dimensions": [3]}));
        assert!((n5::DIALECT.edit)(&documents, &own).is_err());
    }
}
