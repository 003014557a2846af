//! Changes attributes in the documents of a node.
//!
//! All other members keep their place and their bytes. The caller reads the changed documents to check that they still
//! describe the same node.

use crate::dialect::{Document, DocumentMap};
use crate::error::{Error, Kind, Result};
use crate::json_text::{MemberChange, ObjectText};
use crate::model::Attributes;

/// Changes members of a document; all other members keep every byte.
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

/// Fails with `Invalid` if an object in a document has duplicate names.
pub(super) fn check_unique(document: &Document, object: &ObjectText<'_>) -> Result<()> {
    object.check_unique().map_err(|error| {
        let why = format!("{}; mend it in the store view first", error);
        Error::new(Kind::Invalid, &document.key, why)
    })
}

/// Changes a document with a member `attributes`, as in final v3 and in the drafts.
pub(super) fn edit_attributes(document: &Document, attributes: &Attributes) -> Result<DocumentMap> {
    edit_members(document, |old| {
        if attributes.is_empty() && old.value("attributes").is_none() {
            return Ok(Vec::new());
        }
        let text = attributes.text().to_string();
        Ok(vec![("attributes".to_string(), Some(text))])
    })
}

/// Returns the first document that is stored.
pub(super) fn first_stored(documents: &[Document]) -> Result<&Document> {
    let found = documents.iter().find(|document| document.bytes.is_some());
    found.ok_or_else(|| Error::invalid("documents", "there are none to change"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::dialect::{Dialect, n5, v2, v3};
    use crate::key::Key;

    fn document(key: &str, text: Option<&str>) -> Document {
        Document {
            key: Key::new(key).unwrap(),
            bytes: text.map(|text| text.as_bytes().to_vec().into()),
            ..Document::default()
        }
    }

    fn attributes(value: &Value) -> Attributes {
        value.as_object().unwrap().clone().into()
    }

    /// Returns the documents that change if a node gets the attributes `colour` and `z`.
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
    fn other_members_keep_their_place() {
        let zarr = document(
            "a/zarr.json",
            Some(r#"{"z": 1, "attributes": {"x": 1}, "a": 2, "shape": [1]}"#),
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
    fn v2_has_attributes_beside_the_array() {
        let documents = [
            document("a/.zarray", Some(r#"{"zarr_format": 2, "shape": [1]}"#)),
            document("a/.zgroup", None),
            document("a/.zattrs", None),
        ];
        let expected = ("a/.zattrs".to_string(), r#"{"colour":1,"z":2}"#.to_string());
        assert_eq!(edited(&v2::DIALECT, &documents), [expected]);
    }

    #[test]
    fn n5_has_attributes_among_its_own_members() {
        let text = r#"{"dimensions": [1], "old": 1, "blockSize": [1], "z": 0, "dataType": "int8"}"#;
        let document = document("a/attributes.json", Some(text));
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
