//! Documents that hold copies of others: which they are, what a copy is called in them, and their text with other copies.
//!
//! What is not changed keeps every byte. In final v3 the copy of a group has no copies of its own, as zarr-python writes
//! it: all nodes below are in the outer ones already.

use crate::dialect::draft::EntryPoint;
use crate::dialect::{consolidated, text_of};
use crate::error::{Error, Kind, Result};
use crate::json_text::{self, MemberChange, ObjectText, find_member};
use crate::key::Key;
use crate::model::document::{
    CONSOLIDATED_2020, ZARR_JSON, ZARRAY, ZATTRS, ZGROUP, ZMETADATA, is_draft_document,
};

/// The longest document that is read to find copies in it, or to make one of it: 64 MiB.
pub const MAX_DOCUMENT: u64 = 64 << 20;

/// The copies that the copy of a final-v3 group has.
const NO_COPIES: &str = r#"{"kind": "inline", "must_understand": false, "metadata": {}}"#;

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

    /// Returns the document that this key may be; `None` if no document of that name holds copies.
    pub fn of_key(key: &Key) -> Option<CopyHolder> {
        if !may_hold_copies(key) {
            return None;
        }
        let group = key.parent()?;
        if key.name() == ZARR_JSON.as_bytes() {
            return CopyHolder::of_v3(&group).ok();
        }
        let mut top = key.clone();
        for name in CONSOLIDATED_2020.rsplit('/') {
            if top.name() != name.as_bytes() {
                return CopyHolder::of_v2(&group).ok();
            }
            top = top.parent()?;
        }
        CopyHolder::drafted(&top).ok()
    }

    /// Returns the document of a draft's hierarchy whose entry point is in a folder.
    fn drafted(top: &Key) -> Result<CopyHolder> {
        let mut names = CONSOLIDATED_2020.split('/');
        Ok(CopyHolder {
            key: names.try_fold(top.clone(), |key, name| key.child(name.as_bytes()))?,
            is_draft: true,
            ..CopyHolder::of_v2(top)?
        })
    }

    /// Returns the documents that may hold a copy of this one.
    pub fn above_document(document: &Key) -> Vec<CopyHolder> {
        let holders = CopyHolder::in_folders_above(document);
        let holds = |holder: &CopyHolder| holder.copy_name(document).is_some();
        holders.into_iter().filter(holds).collect()
    }

    /// Returns the documents that may hold copies of documents at a path and below.
    pub fn above_tree(path: &Key) -> Vec<CopyHolder> {
        let holders = CopyHolder::in_folders_above(path);
        let may_hold = |holder: &CopyHolder| !holder.is_draft || holder.is_of_meta(path);
        holders.into_iter().filter(may_hold).collect()
    }

    fn in_folders_above(path: &Key) -> Vec<CopyHolder> {
        let folders = std::iter::successors(path.parent(), Key::parent);
        let holders = |folder: Key| {
            let drafted = CopyHolder::drafted(&folder);
            [
                CopyHolder::of_v2(&folder),
                CopyHolder::of_v3(&folder),
                drafted,
            ]
        };
        folders.flat_map(holders).filter_map(Result::ok).collect()
    }

    /// Whether a path is in the folder where a draft has its metadata.
    fn is_of_meta(&self, path: &Key) -> bool {
        let meta = CONSOLIDATED_2020.split('/').next().unwrap_or_default();
        let below = path.below(&self.folder);
        below.is_some_and(|rest| rest.names().next() == Some(meta.as_bytes()))
    }

    /// Returns the name of the copy that this may hold of a document; `None` for one of another dialect or place.
    pub fn copy_name(&self, document: &Key) -> Option<String> {
        let is = |name: &str| document.name() == name.as_bytes();
        let is_kind = match (self.is_draft, self.form) {
            (true, _) => self.is_of_meta(document) && is_draft_document(document.name()),
            (false, CopyForm::ByKey) => is(ZGROUP) || is(ZARRAY) || is(ZATTRS),
            (false, CopyForm::ByNode) => is(ZARR_JSON),
        };
        is_kind.then(|| self.name_of(document)).flatten()
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
    pub fn is_member(&self) -> bool {
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
    pub fn name_of(&self, document: &Key) -> Option<String> {
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
    pub fn document_of(&self, name: &str) -> Option<Key> {
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

    /// Returns the copy of a document with these bytes; `None` if they are no JSON object.
    pub fn copy_of(&self, bytes: &[u8]) -> Option<String> {
        let text = ObjectText::parse(text_of(bytes).ok()?).ok()?;
        Some(self.copied(&text).trim().to_string())
    }

    /// Returns a document that is edited, with the copies that another text of it holds; `None` if one of them holds
    /// none, or if this document holds nothing but copies.
    pub fn with_copies_of(&self, bytes: &[u8], other: &[u8]) -> Option<Vec<u8>> {
        let other = self.member(other)?;
        let own = self.member(bytes)?;
        let text = text_of(bytes).ok()?;
        let mark = bytes.get(..bytes.len() - text.len()).unwrap_or_default();
        let text = ObjectText::parse(text).ok()?;
        if own == other {
            return Some(bytes.to_vec());
        }
        Some([mark, text.replaced(consolidated::MEMBER, other).as_bytes()].concat())
    }

    /// Whether two texts of the document hold the same copies, though other members may differ.
    pub fn has_same_copies(&self, one: &[u8], other: &[u8]) -> bool {
        match (self.member(one), self.member(other)) {
            (Some(one), Some(other)) => json_text::is_same(one, other),
            (one, other) => one.is_none() && other.is_none() && self.is_member(),
        }
    }

    /// Returns the member of the document that holds the copies, if it has something else too.
    fn member<'a>(&self, bytes: &'a [u8]) -> Option<&'a str> {
        let text = text_of(bytes).ok().filter(|_| self.is_member())?;
        let found = find_member(text, consolidated::MEMBER).ok()??;
        text.get(found)
    }

    /// Whether a text of the document may hold copies; costs no more than a look through its bytes.
    pub fn may_have_copies(&self, bytes: &[u8]) -> bool {
        let member = consolidated::MEMBER.as_bytes();
        !self.is_member() || bytes.windows(member.len()).any(|part| part == member)
    }

    /// Returns the text of a document as it stands here.
    fn copied(&self, document: &ObjectText<'_>) -> String {
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

    /// Finds the copies in a text of the document; `None` if it holds none or does not read. Of two with one name the last
    /// counts.
    pub fn find_copies<'a>(&self, bytes: &'a [u8]) -> Option<Copies<'a>> {
        Copies::find(bytes, self.form)
    }

    /// Finds the copies in the document; nothing if it holds none or does not read, `Invalid` if an object in it has a
    /// name twice.
    pub fn copies<'a>(&self, bytes: &'a [u8]) -> Result<Option<Copies<'a>>> {
        let Some(copies) = self.find_copies(bytes) else {
            return Ok(None);
        };
        copies.top.check_unique().map_err(|error| {
            let why = format!("{error}; mend it in the store view first");
            Error::new(Kind::Invalid, &self.key, why)
        })?;
        Ok(Some(copies))
    }
}

/// Whether a key has the name of a document that may hold copies of others.
pub fn may_hold_copies(key: &Key) -> bool {
    [ZARR_JSON.as_bytes(), ZMETADATA.as_bytes()].contains(&key.name())
}

/// Copies of documents in the text of another one.
pub struct Copies<'a> {
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
    pub fn members(&self) -> impl Iterator<Item = (&str, &'a str)> {
        self.copies.members()
    }

    /// Returns the whole document with copies changed.
    pub fn edited(&self, changes: &[MemberChange]) -> Vec<u8> {
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
