//! Documents that hold copies of others: which they are, what a copy is called in them, and their text with other copies.
//!
//! What is not changed keeps every byte. In final v3 the copy of a group has no copies of its own, as zarr-python writes
//! it: all nodes below are in the outer ones already.

use crate::dialect::draft::EntryPoint;
use crate::dialect::{consolidated, text_of};
use crate::error::{Error, Kind, Result};
use crate::json_text::{MemberChange, ObjectText};
use crate::model::document::{CONSOLIDATED_2020, ZARR_JSON, ZARRAY, ZATTRS, ZGROUP, ZMETADATA};
use crate::store::Key;

/// The copies that the copy of a final-v3 group has.
pub(super) const NO_COPIES: &str =
    r#"{"kind": "inline", "must_understand": false, "metadata": {}}"#;

/// How a document holds copies of others.
#[derive(Clone, Copy, PartialEq)]
enum CopyForm {
    /// By their keys, counted from a folder.
    ByKey,
    /// By the paths of the nodes below a group, whose own document it is.
    ByNode,
}

/// A document that may hold copies of others.
#[derive(Clone)]
pub struct CopyHolder {
    key: Key,
    /// The folder from which names of copies count.
    folder: Key,
    form: CopyForm,
    /// Whether it has copies of documents of a draft.
    is_draft: bool,
}

impl CopyHolder {
    /// Returns the `.zmetadata` of a v2 group.
    pub fn of_v2(group: &Key) -> Result<CopyHolder> {
        Ok(CopyHolder {
            key: group.child(ZMETADATA.as_bytes())?,
            folder: group.clone(),
            form: CopyForm::ByKey,
            is_draft: false,
        })
    }

    /// Returns the document of a final-v3 group.
    pub fn of_v3(group: &Key) -> Result<CopyHolder> {
        Ok(CopyHolder {
            key: group.child(ZARR_JSON.as_bytes())?,
            form: CopyForm::ByNode,
            ..CopyHolder::of_v2(group)?
        })
    }

    /// Returns the one of a draft's hierarchy; nothing if the draft has none.
    pub fn of_draft(entry: &EntryPoint) -> Result<Option<CopyHolder>> {
        let holder = |key| CopyHolder {
            key,
            folder: entry.top().clone(),
            form: CopyForm::ByKey,
            is_draft: true,
        };
        Ok(entry.consolidated()?.map(holder))
    }

    /// Returns those that may hold copies of the changed documents.
    pub(super) fn above(changed: &[Key]) -> Result<Vec<CopyHolder>> {
        let mut folders: Vec<Key> = Vec::new();
        for key in changed {
            let mut folder = key.parent();
            while let Some(at) = folder {
                folder = at.parent();
                if !folders.contains(&at) {
                    folders.push(at);
                }
            }
        }
        let mut holders = Vec::new();
        for folder in folders {
            let drafted = CONSOLIDATED_2020
                .split('/')
                .try_fold(folder.clone(), |key, name| key.child(name.as_bytes()))?;
            holders.extend([CopyHolder::of_v2(&folder)?, CopyHolder::of_v3(&folder)?]);
            holders.push(CopyHolder {
                key: drafted,
                is_draft: true,
                ..CopyHolder::of_v2(&folder)?
            });
        }
        Ok(holders)
    }

    /// Returns its key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the folder from which names of copies count.
    pub fn folder(&self) -> &Key {
        &self.folder
    }

    /// Whether copies are members of a member of the document, which holds something else too.
    pub(super) fn is_member(&self) -> bool {
        self.form == CopyForm::ByNode
    }

    /// Returns the folder that its copies are below, if it is of a draft.
    pub fn top_of_draft(&self) -> Option<&Key> {
        self.is_draft.then_some(&self.folder)
    }

    /// Returns the name that the copy of a document should have here; nothing if it should have none. `top` is the folder
    /// of the entry point if it is the document of a draft.
    pub fn wanted_name(&self, document: &Key, top: Option<&Key>) -> Option<String> {
        let is = |name: &str| document.name() == name.as_bytes();
        let is_kind = match (self.is_draft, self.form) {
            (true, _) => top == Some(&self.folder),
            (false, CopyForm::ByKey) => top.is_none() && (is(ZGROUP) || is(ZARRAY) || is(ZATTRS)),
            (false, CopyForm::ByNode) => top.is_none() && is(ZARR_JSON),
        };
        is_kind.then(|| self.name_of(document)).flatten()
    }

    /// Returns the name of a document's copy; nothing if it has none here.
    pub(super) fn name_of(&self, document: &Key) -> Option<String> {
        let copied = match self.form {
            CopyForm::ByKey => document.below(&self.folder)?,
            CopyForm::ByNode if document.name() == ZARR_JSON.as_bytes() => {
                let node = document.parent()?.below(&self.folder)?;
                (!node.is_root()).then_some(node)?
            }
            CopyForm::ByNode => return None,
        };
        String::from_utf8(copied.as_bytes().to_vec()).ok()
    }

    /// Returns the key of the document whose copy has this name; nothing if it is not the name of one.
    pub(super) fn document_of(&self, name: &str) -> Option<Key> {
        let named = Key::new(name).ok().filter(|key| !key.is_root())?;
        let above = self.folder.as_bytes();
        let slash: &[u8] = if self.folder.is_root() { b"" } else { b"/" };
        let key = Key::new([above, slash, named.as_bytes()].concat()).ok()?;
        let document = match self.form {
            CopyForm::ByKey => key,
            CopyForm::ByNode => key.child(ZARR_JSON.as_bytes()).ok()?,
        };
        (self.name_of(&document).as_deref() == Some(name)).then_some(document)
    }

    /// Returns the text of a document as it stands here.
    pub(super) fn copied(&self, document: &ObjectText<'_>) -> String {
        let is_group = document
            .value("node_type")
            .is_some_and(|kind| kind == "\"group\"");
        let own = (
            consolidated::MEMBER.to_string(),
            Some(NO_COPIES.to_string()),
        );
        match self.form {
            CopyForm::ByNode if is_group => document.edited(&[own], 1),
            _ => document.edited(&[], 1),
        }
    }

    /// Finds the copies in the document; nothing if it holds none or does not read, `Invalid` if an object in it has a
    /// name twice.
    pub(super) fn copies<'a>(&self, bytes: &'a [u8]) -> Result<Option<Copies<'a>>> {
        let Some(copies) = Copies::find(bytes, self.form) else {
            return Ok(None);
        };
        copies.top.check_unique().map_err(|error| {
            let why = format!("{error}; mend it in the store view first");
            Error::new(Kind::Invalid, &self.key, why)
        })?;
        Ok(Some(copies))
    }
}

/// Copies of documents in the text of another one.
pub(super) struct Copies<'a> {
    bytes: &'a [u8],
    top: ObjectText<'a>,
    /// The member of the document that holds the copies in a member of its own, if it is not the document.
    member: Option<(&'static str, ObjectText<'a>)>,
    /// The copies by their names.
    copies: ObjectText<'a>,
}

impl<'a> Copies<'a> {
    fn find(bytes: &'a [u8], form: CopyForm) -> Option<Copies<'a>> {
        let top = ObjectText::parse(text_of(bytes).ok()?).ok()?;
        let member = match form {
            CopyForm::ByKey => None,
            CopyForm::ByNode => {
                let member = top.value(consolidated::MEMBER)?;
                Some((consolidated::MEMBER, ObjectText::parse(member).ok()?))
            }
        };
        let holder = member.as_ref().map_or(&top, |(_, member)| member);
        let copies = ObjectText::parse(holder.value(consolidated::DOCUMENTS)?).ok()?;
        Some(Copies {
            bytes,
            top,
            member,
            copies,
        })
    }

    /// Returns the copies by their names.
    pub(super) fn members(&self) -> impl Iterator<Item = (&str, &'a str)> {
        self.copies.members()
    }

    /// Returns the whole document with copies changed.
    pub(super) fn edited(&self, changes: &[MemberChange]) -> Vec<u8> {
        let name = consolidated::DOCUMENTS;
        let text = match &self.member {
            None => self.top.replaced(name, &self.copies.edited(changes, 2)),
            Some((member, object)) => {
                let value = object.replaced(name, &self.copies.edited(changes, 3));
                self.top.replaced(member, &value)
            }
        };
        let mark = self.bytes.len() - text_of(self.bytes).map_or(0, str::len);
        let mark = self.bytes.get(..mark).unwrap_or_default();
        [mark, text.as_bytes()].concat()
    }
}
