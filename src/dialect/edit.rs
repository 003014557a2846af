//! Changes of documents: attributes, shapes and names of dimensions in the places that a dialect has for them.
//!
//! Every other member stays where it is and as it is. Whether the changed documents still mean the same array
//! is for the caller to check, by reading them.

use serde_json::json;

use crate::dialect::{Document, DocumentMap};
use crate::error::{Error, Kind, Result};
use crate::json_text::{MemberChange, ObjectText};
use crate::model::Attributes;

/// A change of a node; members that are `None` stay.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Edit {
    /// The user's attributes.
    pub attributes: Option<Attributes>,
    /// Elements along each dimension.
    pub shape: Option<Vec<u64>>,
    /// Names of dimensions; empty for none.
    pub dimension_names: Option<Vec<Option<String>>>,
}

impl Edit {
    /// Builds a change of attributes alone.
    pub fn of_attributes(attributes: Attributes) -> Edit {
        Edit {
            attributes: Some(attributes),
            ..Edit::default()
        }
    }

    /// Fails with `Unsupported` if dimensions are to be named, for a dialect that has no place for the names.
    pub(super) fn refuse_dimension_names(&self, dialect: &str) -> Result<()> {
        match &self.dimension_names {
            None => Ok(()),
            Some(_) => Err(Error::unsupported(
                "dimension_names",
                format!("{dialect} has no place for them"),
            )),
        }
    }

    /// Returns the changes of the members `attributes` and `shape`, as final v3 and the drafts name them.
    fn members(&self, old: &ObjectText<'_>) -> Vec<MemberChange> {
        let mut changes = Vec::new();
        if let Some(attributes) = &self.attributes
            && (!attributes.is_empty() || old.value("attributes").is_some())
        {
            let text = attributes.text().to_string();
            changes.push(("attributes".to_string(), Some(text)));
        }
        if let Some(shape) = &self.shape {
            changes.push(("shape".to_string(), Some(json!(shape).to_string())));
        }
        if let Some(names) = &self.dimension_names {
            let names = (!names.is_empty()).then(|| json!(names).to_string());
            changes.push(("dimension_names".to_string(), names));
        }
        changes
    }
}

/// Changes members of a document; all others stay as they are, byte for byte.
///
/// Fails with `NotFound` if it is missing, `Invalid` if an object in it has a name twice.
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

/// Fails with `Invalid` if an object in a document has a name twice.
pub(super) fn check_unique(document: &Document, object: &ObjectText<'_>) -> Result<()> {
    object.check_unique().map_err(|error| {
        let why = format!("{}; mend it in the store view first", error);
        Error::new(Kind::Invalid, &document.key, why)
    })
}

/// Changes a document that has members `attributes` and `shape`, as those of final v3 and of the drafts.
pub(super) fn edit_document(document: &Document, edit: &Edit) -> Result<DocumentMap> {
    edit_members(document, |object| Ok(edit.members(object)))
}

/// Returns the first document that is stored.
pub(super) fn first_stored(documents: &[Document]) -> Result<&Document> {
    let found = documents.iter().find(|document| document.bytes.is_some());
    found.ok_or_else(|| Error::invalid("documents", "there are none to change"))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::dialect::{Dialect, n5, v2, v3};
    use crate::store::Key;

    fn document(key: &str, text: Option<&str>) -> Document {
        Document {
            key: Key::new(key).unwrap(),
            bytes: text.map(|text| text.as_bytes().to_vec().into()),
            ..Document::default()
        }
    }

    fn edited(dialect: &Dialect, documents: &[Document], edit: &Edit) -> Vec<(String, String)> {
        let text = |bytes: Vec<u8>| {
            let value: Value = serde_json::from_slice(&bytes).unwrap();
            value.to_string()
        };
        let edited = (dialect.edit)(documents, edit).unwrap();
        let edited = edited.into_iter();
        edited
            .map(|(key, bytes)| (key.to_string(), text(bytes)))
            .collect()
    }

    fn colour() -> Edit {
        let attributes = json!({"colour": 1, "z": 2});
        Edit::of_attributes(attributes.as_object().unwrap().clone().into())
    }

    #[test]
    fn other_members_keep_their_place() {
        let zarr = document(
            "a/zarr.json",
            Some(r#"{"z": 1, "attributes": {"x": 1}, "a": 2, "shape": [1]}"#),
        );
        let mut edit = colour();
        edit.shape = Some(vec![5]);
        assert_eq!(
            edited(&v3::DIALECT, &[zarr], &edit),
            [(
                "a/zarr.json".into(),
                r#"{"z":1,"attributes":{"colour":1,"z":2},"a":2,"shape":[5]}"#.into()
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
        let attributes = ("a/.zattrs".to_string(), r#"{"colour":1,"z":2}"#.to_string());
        assert_eq!(edited(&v2::DIALECT, &documents, &colour()), [attributes]);
        let shape = Edit {
            shape: Some(vec![7]),
            ..Edit::default()
        };
        assert_eq!(
            edited(&v2::DIALECT, &documents, &shape),
            [(
                "a/.zarray".into(),
                r#"{"zarr_format":2,"shape":[7]}"#.into()
            )]
        );
    }

    #[test]
    fn n5_has_attributes_among_its_own_members() {
        let text = r#"{"dimensions": [1], "old": 1, "blockSize": [1], "z": 0, "dataType": "int8"}"#;
        let attributes = document("a/attributes.json", Some(text));
        let expected = r#"{"dimensions":[1],"blockSize":[1],"z":2,"dataType":"int8","colour":1}"#;
        assert_eq!(
            edited(&n5::DIALECT, &[attributes], &colour()),
            [("a/attributes.json".into(), expected.into())]
        );
        let attributes = document("a/attributes.json", Some(text));
        let members = json!({"dimensions": [3]});
        let edit = Edit::of_attributes(members.as_object().unwrap().clone().into());
        assert!((n5::DIALECT.edit)(&[attributes], &edit).is_err());
    }
}
