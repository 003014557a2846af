//! Consolidated metadata: finds and edits copies of metadata documents in other documents.
//!
//! Three dialects have formats for it. An edit changes no byte outside the edited copies. Names that are not valid keys
//! are skipped, and the caller decides whether to use the copies. The copy of a v3 group omits the consolidated
//! metadata of that group, as in zarr-python: the outer document already has copies of all nodes below the group.

use std::ops::Range;

use crate::dialect::draft::EntryPoint;
use crate::dialect::text_of;
use crate::error::{Error, Kind, Result};
use crate::json_text::{self, MemberChange, ObjectText, find_member, visit_members};
use crate::key::Key;
use crate::model::document::{
    CONSOLIDATED_2020, ZARR_JSON, ZARRAY, ZATTRS, ZGROUP, ZMETADATA, is_draft_document,
};

/// Maximum length of a metadata document that is searched for copies or copied itself: 64 MiB.
pub const MAX_DOCUMENT: u64 = 64 << 20;

/// JSON member that holds the consolidated metadata in the `zarr.json` of a v3 group.
pub const MEMBER: &str = "consolidated_metadata";

/// JSON member of consolidated metadata that holds the copied documents.
pub const DOCUMENTS: &str = "metadata";

/// How consolidated metadata name the copied documents.
#[derive(Clone, Copy, PartialEq)]
enum EntryNaming {
    /// Copied documents are named by their keys, relative to a folder.
    ByKey,
    /// Copied documents are named by the paths of their nodes, relative to the group whose `zarr.json` holds the
    /// copies.
    ByNode,
}

/// A metadata document that may hold consolidated metadata: copies of other documents.
#[derive(Clone)]
pub struct ConsolidatedDocument {
    key: Key,
    /// Folder to which the names of the copied documents are relative.
    folder: Key,
    naming: EntryNaming,
    /// Whether the copied documents are those of a v3 draft.
    is_draft: bool,
}

impl ConsolidatedDocument {
    /// Returns the `.zmetadata` of a v2 group, which holds its consolidated metadata.
    pub fn of_v2(group: &Key) -> Result<ConsolidatedDocument> {
        Ok(ConsolidatedDocument {
            key: group.child(ZMETADATA.as_bytes())?,
            folder: group.clone(),
            naming: EntryNaming::ByKey,
            is_draft: false,
        })
    }

    /// Returns the `zarr.json` of a v3 group, which may hold consolidated metadata.
    pub fn of_v3(group: &Key) -> Result<ConsolidatedDocument> {
        Ok(ConsolidatedDocument {
            key: group.child(ZARR_JSON.as_bytes())?,
            naming: EntryNaming::ByNode,
            ..ConsolidatedDocument::of_v2(group)?
        })
    }

    /// Returns the consolidated metadata of a hierarchy of a v3 draft, or `None` if the draft defines none.
    pub fn of_draft(entry: &EntryPoint) -> Result<Option<ConsolidatedDocument>> {
        let holder = |key| ConsolidatedDocument {
            key,
            folder: entry.top().clone(),
            naming: EntryNaming::ByKey,
            is_draft: true,
        };
        Ok(entry.consolidated()?.map(holder))
    }

    /// Returns the consolidated document with this key, or `None` if a document of that name never holds copies.
    pub fn of_key(key: &Key) -> Option<ConsolidatedDocument> {
        if !may_be_consolidated(key) {
            return None;
        }
        let group = key.parent()?;
        if key.name() == ZARR_JSON.as_bytes() {
            return ConsolidatedDocument::of_v3(&group).ok();
        }
        let mut top = key.clone();
        for name in CONSOLIDATED_2020.rsplit('/') {
            if top.name() != name.as_bytes() {
                return ConsolidatedDocument::of_v2(&group).ok();
            }
            top = top.parent()?;
        }
        ConsolidatedDocument::of_draft_in(&top).ok()
    }

    /// Returns the consolidated document of a v3 draft whose entry point is in folder `top`.
    fn of_draft_in(top: &Key) -> Result<ConsolidatedDocument> {
        let mut names = CONSOLIDATED_2020.split('/');
        Ok(ConsolidatedDocument {
            key: names.try_fold(top.clone(), |key, name| key.child(name.as_bytes()))?,
            is_draft: true,
            ..ConsolidatedDocument::of_v2(top)?
        })
    }

    /// Returns the consolidated documents that may hold a copy of `document`.
    pub fn above_document(document: &Key) -> Vec<ConsolidatedDocument> {
        let holders = ConsolidatedDocument::in_folders_above(document);
        let holds = |holder: &ConsolidatedDocument| holder.copy_name(document).is_some();
        holders.into_iter().filter(holds).collect()
    }

    /// Returns the consolidated documents that may hold copies of the documents at and below `path`.
    pub fn above_tree(path: &Key) -> Vec<ConsolidatedDocument> {
        let holders = ConsolidatedDocument::in_folders_above(path);
        let may_hold = |holder: &ConsolidatedDocument| !holder.is_draft || holder.is_of_meta(path);
        holders.into_iter().filter(may_hold).collect()
    }

    fn in_folders_above(path: &Key) -> Vec<ConsolidatedDocument> {
        let folders = std::iter::successors(path.parent(), Key::parent);
        let holders = |folder: Key| {
            let drafted = ConsolidatedDocument::of_draft_in(&folder);
            [
                ConsolidatedDocument::of_v2(&folder),
                ConsolidatedDocument::of_v3(&folder),
                drafted,
            ]
        };
        folders.flat_map(holders).filter_map(Result::ok).collect()
    }

    /// Whether a path is in the metadata folder of the v3 draft.
    fn is_of_meta(&self, path: &Key) -> bool {
        let meta = CONSOLIDATED_2020.split('/').next().unwrap_or_default();
        let below = path.below(&self.folder);
        below.is_some_and(|rest| rest.names().next() == Some(meta.as_bytes()))
    }

    /// Returns the name that a copy of `document` has in this consolidated document, or `None` if `document` has
    /// another dialect or is in a folder that the consolidated document does not cover.
    pub fn copy_name(&self, document: &Key) -> Option<String> {
        let is_kind = if self.is_draft {
            self.is_of_meta(document) && is_draft_document(document.name())
        } else {
            self.has_name_of_dialect(document)
        };
        is_kind.then(|| self.name_of(document)).flatten()
    }

    /// Whether a document has a name of the dialect, v2 or v3, of the consolidated document.
    fn has_name_of_dialect(&self, document: &Key) -> bool {
        let is = |name: &str| document.name() == name.as_bytes();
        match self.naming {
            EntryNaming::ByKey => is(ZGROUP) || is(ZARRAY) || is(ZATTRS),
            EntryNaming::ByNode => is(ZARR_JSON),
        }
    }

    /// Returns the key of the consolidated document.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the folder to which the names of the copied documents are relative.
    pub fn folder(&self) -> &Key {
        &self.folder
    }

    /// Whether the copied documents are in a single member of the consolidated document, which also has other members.
    pub fn is_member(&self) -> bool {
        self.naming == EntryNaming::ByNode
    }

    /// Returns the folder of the entry point, or `None` if the copied documents are not those of a v3 draft.
    pub fn top_of_draft(&self) -> Option<&Key> {
        self.is_draft.then_some(&self.folder)
    }

    /// Returns the name that the copy of `document` should have in this consolidated document, or `None` if it should
    /// not be copied. `top` is the folder of the entry point if the document belongs to a v3 draft.
    pub fn expected_name(&self, document: &Key, top: Option<&Key>) -> Option<String> {
        let is_kind = if self.is_draft {
            top == Some(&self.folder)
        } else {
            top.is_none() && self.has_name_of_dialect(document)
        };
        is_kind.then(|| self.name_of(document)).flatten()
    }

    /// Returns the name under which the consolidated document would hold a copy of `document`, whatever its dialect.
    /// Returns `None` if it cannot hold the copy.
    pub fn name_of(&self, document: &Key) -> Option<String> {
        let copied = match self.naming {
            EntryNaming::ByKey => document.below(&self.folder)?,
            EntryNaming::ByNode if document.name() == ZARR_JSON.as_bytes() => {
                let node = document.parent()?.below(&self.folder)?;
                (!node.is_root()).then_some(node)?
            }
            EntryNaming::ByNode => return None,
        };
        String::from_utf8(copied.as_bytes().to_vec()).ok()
    }

    /// Returns the key of the document whose copy has the name `name`, or `None` if the name is not valid.
    pub fn document_of(&self, name: &str) -> Option<Key> {
        let named = Key::new(name).ok().filter(|key| !key.is_root())?;
        let above = self.folder.as_bytes();
        let slash: &[u8] = if self.folder.is_root() { b"" } else { b"/" };
        let key = Key::new([above, slash, named.as_bytes()].concat()).ok()?;
        let document = match self.naming {
            EntryNaming::ByKey => key,
            EntryNaming::ByNode => key.child(ZARR_JSON.as_bytes()).ok()?,
        };
        (self.name_of(&document).as_deref() == Some(name)).then_some(document)
    }

    /// Returns `bytes`, a metadata document, as a copy for consolidated metadata; `None` if it is not a JSON object.
    pub fn copy_of(&self, bytes: &[u8]) -> Option<String> {
        let text = ObjectText::parse(text_of(bytes).ok()?).ok()?;
        Some(self.copied(&text).trim().to_string())
    }

    /// Returns `bytes`, a version of the consolidated document, with the copied documents of another version, `other`.
    /// Returns `None` if a version has no copies, or if the document holds nothing but copies.
    pub fn with_copies_of(&self, bytes: &[u8], other: &[u8]) -> Option<Vec<u8>> {
        let other = self.member(other)?;
        let own = self.member(bytes)?;
        let text = text_of(bytes).ok()?;
        let mark = bytes.get(..bytes.len() - text.len()).unwrap_or_default();
        let text = ObjectText::parse(text).ok()?;
        if own == other {
            return Some(bytes.to_vec());
        }
        Some([mark, text.replaced(MEMBER, other).as_bytes()].concat())
    }

    /// Whether two versions of the consolidated document hold the same copied documents. Other members may differ.
    pub fn has_same_copies(&self, one: &[u8], other: &[u8]) -> bool {
        match (self.member(one), self.member(other)) {
            (Some(one), Some(other)) => json_text::is_same(one, other),
            (one, other) => one.is_none() && other.is_none() && self.is_member(),
        }
    }

    /// Returns the JSON value of the member that holds the copied documents. Returns `None` if the member is missing,
    /// if the consolidated document does not parse, or if it holds nothing but copies.
    fn member<'a>(&self, bytes: &'a [u8]) -> Option<&'a str> {
        let text = text_of(bytes).ok().filter(|_| self.is_member())?;
        let found = find_member(text, MEMBER).ok()??;
        text.get(found)
    }

    /// Whether a version of the document may hold consolidated metadata; searches its bytes without parsing them.
    pub fn may_have_copies(&self, bytes: &[u8]) -> bool {
        let member = MEMBER.as_bytes();
        !self.is_member() || bytes.windows(member.len()).any(|part| part == member)
    }

    /// Returns a metadata document as a copy. The copy of a v3 group has no consolidated metadata.
    fn copied(&self, document: &ObjectText<'_>) -> String {
        let is_group = document
            .value("node_type")
            .is_some_and(|kind| kind == "\"group\"");
        let no_copies = r#"{"kind": "inline", "must_understand": false, "metadata": {}}"#;
        match self.naming {
            EntryNaming::ByNode if is_group => {
                document.edited(&[(MEMBER.to_string(), Some(no_copies.to_string()))], 1)
            }
            _ => document.edited(&[], 1),
        }
    }

    /// Finds the copies of metadata documents in the text of consolidated metadata. Returns `None` if the text contains
    /// no copies or does not parse. Of copies with equal names, the last one counts.
    pub fn find_copies<'a>(&self, bytes: &'a [u8]) -> Option<Copies<'a>> {
        Copies::find(bytes, self.naming)
    }

    /// Finds the copies of metadata documents in the text of consolidated metadata. Returns `None` if the text contains
    /// no copies or does not parse; fails with `Invalid` if a JSON object in it has duplicate names.
    pub fn copies<'a>(&self, bytes: &'a [u8]) -> Result<Option<Copies<'a>>> {
        let Some(copies) = self.find_copies(bytes) else {
            return Ok(None);
        };
        copies.top.check_unique().map_err(|error| {
            let why = format!("{error}; correct the file in the store view first");
            Error::new(Kind::Invalid, &self.key, why)
        })?;
        Ok(Some(copies))
    }
}

/// Whether a document with this key may hold consolidated metadata, by its name.
pub fn may_be_consolidated(key: &Key) -> bool {
    [ZARR_JSON.as_bytes(), ZMETADATA.as_bytes()].contains(&key.name())
}

/// Copies of metadata documents, as parts of the consolidated document that holds them.
pub struct Copies<'a> {
    bytes: &'a [u8],
    top: ObjectText<'a>,
    /// Name and value of the JSON member with the copied documents, or `None` if they are in the outermost object.
    member: Option<(&'static str, ObjectText<'a>)>,
    /// JSON object with the copied documents, by name.
    copies: ObjectText<'a>,
}

impl<'a> Copies<'a> {
    fn find(bytes: &'a [u8], naming: EntryNaming) -> Option<Copies<'a>> {
        let top = ObjectText::parse(text_of(bytes).ok()?).ok()?;
        let member = match naming {
            EntryNaming::ByKey => None,
            EntryNaming::ByNode => {
                let member = top.value(MEMBER)?;
                Some((MEMBER, ObjectText::parse(member).ok()?))
            }
        };
        let holder = member.as_ref().map_or(&top, |(_, member)| member);
        let copies = ObjectText::parse(holder.value(DOCUMENTS)?).ok()?;
        Some(Copies {
            bytes,
            top,
            member,
            copies,
        })
    }

    /// Returns all copied documents with their names.
    pub fn members(&self) -> impl Iterator<Item = (&str, &'a str)> {
        self.copies.members()
    }

    /// Returns the consolidated document with some of the copied documents changed.
    pub fn edited(&self, changes: &[MemberChange]) -> Vec<u8> {
        let name = DOCUMENTS;
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

/// Keys of copied documents, and the byte ranges of the copies in the consolidated document.
pub type EntryRanges = Vec<(Key, Range<usize>)>;

/// Finds the copied documents in `.zmetadata`, with keys relative to the folder of `.zmetadata`.
///
/// Fails with `Corrupt` if the document does not have zarr-python's format 1.
pub fn parse_document(bytes: &[u8]) -> Result<EntryRanges> {
    let text = text_of(bytes)?;
    let whole = TextPart {
        text,
        start: bytes.len() - text.len(),
    };
    let format = whole.value("zarr_consolidated_format")?;
    if format.as_ref().map(|format| format.text) != Some("1") {
        let found = format.map_or("nothing", |format| format.text);
        return Err(Error::corrupt(
            "zarr_consolidated_format",
            format!("expected 1, found {found}"),
        ));
    }
    whole.documents(|key| Key::new(key).ok())
}

/// Finds the copied documents in the member `consolidated_metadata` of a v3 group, with keys relative to the group.
/// Returns `None` if the member is missing or null.
///
/// Fails with `Unsupported` if `kind` is not "inline", `Corrupt` if the documents are not an object.
pub fn parse_member(bytes: &[u8]) -> Result<Option<EntryRanges>> {
    let text = text_of(bytes)?;
    let start = bytes.len() - text.len();
    let member = match (TextPart { text, start }).value(MEMBER)? {
        None => return Ok(None),
        Some(member) if member.text == "null" => return Ok(None),
        Some(member) => member,
    };
    match member.value("kind").map_err(|error| error.about(MEMBER))? {
        None => {}
        Some(kind) if kind.text == "\"inline\"" => {}
        Some(kind) => {
            let found = format!("unsupported kind {} (supported: inline)", kind.text);
            return Err(Error::unsupported(MEMBER, found));
        }
    }
    let key = |path: &str| {
        let node = Key::new(path.trim_matches('/')).ok()?;
        node.child(ZARR_JSON.as_bytes()).ok()
    };
    member.documents(key).map(Some)
}

/// Returns the names of copies that are not valid keys, such as names with `..` or double slashes; these copies are
/// never read. `is_document` says whether `bytes` is a `.zmetadata`.
pub fn invalid_names(bytes: &[u8], is_document: bool) -> Result<Vec<String>> {
    let text = text_of(bytes)?;
    let whole = TextPart { text, start: 0 };
    let holder = if is_document {
        Some(whole)
    } else {
        whole.value(MEMBER)?
    };
    let Some(documents) = holder.map(|part| part.value(DOCUMENTS)).transpose()? else {
        return Ok(Vec::new());
    };
    let mut invalid = Vec::new();
    let is_root = |name: &str| name.is_empty() && !is_document;
    visit_members(documents.map_or("{}", |part| part.text), &mut |name, _| {
        let is_key = Key::new(name).is_ok_and(|key| !key.is_root());
        if !is_key && !is_root(name) {
            invalid.push(name.to_string());
        }
    })?;
    Ok(invalid)
}

/// A JSON value in a document, and its offset in the document.
struct TextPart<'a> {
    text: &'a str,
    start: usize,
}

impl<'a> TextPart<'a> {
    fn part(&self, place: Range<usize>) -> TextPart<'a> {
        TextPart {
            start: self.start + place.start,
            text: self.text.get(place).unwrap_or_default(),
        }
    }

    fn value(&self, name: &str) -> Result<Option<TextPart<'a>>> {
        Ok(find_member(self.text, name)?.map(|place| self.part(place)))
    }

    /// Finds the copied documents in consolidated metadata. Names for which `key_of` returns `None` are skipped.
    fn documents(&self, key_of: impl Fn(&str) -> Option<Key>) -> Result<EntryRanges> {
        let wrong = || Error::corrupt(DOCUMENTS, "expected an object of metadata files");
        let documents = self.value(DOCUMENTS)?.ok_or_else(wrong)?;
        let mut ranges = Vec::new();
        let read = visit_members(documents.text, &mut |name, place| {
            let place = documents.start + place.value.start..documents.start + place.value.end;
            ranges.extend(key_of(name).map(|key| (key, place)));
        });
        read.map_err(|_| wrong())?;
        Ok(ranges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(documents: EntryRanges) -> Vec<Vec<u8>> {
        documents
            .iter()
            .map(|(key, _)| key.as_bytes().to_vec())
            .collect()
    }

    #[test]
    fn both_forms_of_consolidated_metadata_give_keys() {
        let text = r#"{"zarr_consolidated_format": 1, "metadata": {"a\/.zarray": {"x": NaN}, "../b": 1, "": 2}}"#;
        let found = parse_document(text.as_bytes()).unwrap();
        assert_eq!(&text[found[0].1.clone()], r#"{"x": NaN}"#);
        assert_eq!(keys(found), [b"a/.zarray".to_vec(), Vec::new()]);
        let group = br#"{"consolidated_metadata": {"kind": "inline", "metadata": {"a/b": {}, "/../c": {}}}}"#;
        assert_eq!(
            keys(parse_member(group).unwrap().unwrap()),
            [b"a/b/zarr.json"]
        );
        assert_eq!(
            parse_member(br#"{"consolidated_metadata": null}"#).unwrap(),
            None
        );
        assert_eq!(parse_member(b"{}").unwrap(), None);
    }

    #[test]
    fn invalid_names_are_listed() {
        let text = br#"{"zarr_consolidated_format": 1, "metadata": {"a/.zarray": {}, "../b": 1, "": 2, "/c": 3}}"#;
        assert_eq!(invalid_names(text, true).unwrap(), ["../b", "", "/c"]);
        let group = br#"{"consolidated_metadata": {"metadata": {"a/b": {}, "": {}, "/a": {}, "../c": {}}}}"#;
        assert_eq!(invalid_names(group, false).unwrap(), ["/a", "../c"]);
        assert!(invalid_names(b"{}", false).unwrap().is_empty());
    }

    #[test]
    fn unknown_forms_of_consolidated_metadata_are_refused() {
        assert!(parse_document(br#"{"metadata": {}}"#).is_err());
        assert!(parse_document(br#"{"zarr_consolidated_format": 1, "metadata": []}"#).is_err());
        assert!(parse_document(b"{").is_err());
        let elsewhere = br#"{"consolidated_metadata": {"kind": "elsewhere", "metadata": {}}}"#;
        assert!(parse_member(elsewhere).is_err());
        assert!(parse_member(br#"{"consolidated_metadata": 3}"#).is_err());
    }
}
