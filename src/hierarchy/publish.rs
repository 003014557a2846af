//! Documents put into the store, and their copies in consolidated metadata.
//!
//! Each is put on the condition that its key still holds what was read of it. A copy is made of the document as it is
//! stored then, since some programs read nothing but the copies; so copies of several documents that are edited at once
//! all get in, and every other copy keeps its text. Consolidated metadata that do not read are left alone.

use crate::dialect::{consolidated, text_of};
use crate::error::{Error, Kind, Result};
use crate::hierarchy::{Hierarchy, MAX_DOCUMENT};
use crate::json_text::{MemberChange, ObjectText};
use crate::model::document::{CONSOLIDATED_2020, ZARR_JSON, ZMETADATA};
use crate::store::{Condition, ETag, Key, Object, PutBody, Version};

/// How often a change of a document is made anew because another one was put in between.
pub(super) const MAX_ATTEMPTS: usize = 16;

/// Documents and their versions.
pub type DocumentVersions = Vec<(Key, Version)>;

/// A change of a document.
pub(super) struct DocumentChange {
    pub(super) key: Key,
    /// The new bytes; nothing to erase it.
    pub(super) bytes: Option<Vec<u8>>,
    /// What the key must hold.
    pub(super) condition: Condition,
}

/// How a document holds copies of others.
#[derive(Clone, Copy)]
enum Consolidation {
    /// By their keys, counted from a folder.
    ByKey,
    /// By the paths of the nodes below a group, whose own document it is.
    ByNode,
}

impl Hierarchy {
    /// Puts and erases documents, in the given order; returns the versions of those that were put. `Changed` if a key
    /// holds something else than what its change was made from.
    pub(super) fn publish(&self, changes: &[DocumentChange]) -> Result<DocumentVersions> {
        let mut versions = DocumentVersions::new();
        for change in changes {
            let (key, condition) = (&change.key, &change.condition);
            match &change.bytes {
                Some(bytes) => {
                    let etag = self.put(key, bytes, condition)?;
                    versions.push((key.clone(), etag.version));
                }
                None => self.store.erase(key, condition)?,
            }
        }
        Ok(versions)
    }

    /// Puts a document. What is remembered of one that was changed meanwhile does not count any more.
    fn put(&self, key: &Key, bytes: &[u8], condition: &Condition) -> Result<ETag> {
        let put = self.store.put(key, PutBody::Bytes(bytes), condition);
        if matches!(&put, Err(error) if error.kind() == Kind::Changed) {
            self.store.info().changes.note(key);
        }
        put
    }

    /// Updates the consolidated metadata of all folders above documents that were changed.
    pub(super) fn update_consolidated(&self, changed: &[Key]) -> Result<()> {
        for holder in holders_above(changed)? {
            self.update_document(&holder, changed)?;
        }
        Ok(())
    }

    /// Fails with `Invalid` if consolidated metadata above documents that are going to change have a name twice, so that
    /// they cannot be updated.
    pub(super) fn check_consolidated(&self, changed: &[Key]) -> Result<()> {
        for holder in holders_above(changed)? {
            if let Some(object) = self.holder(&holder.key)? {
                holder.copies(&object.bytes).map(drop)?;
            }
        }
        Ok(())
    }

    /// Brings the copies in a document up to date, if it is there and holds copies.
    fn update_document(&self, holder: &CopyHolder, changed: &[Key]) -> Result<()> {
        let own_folder = holder.key.parent().unwrap_or_default();
        self.editing.with(&own_folder, || {
            let mut refused = None;
            for _ in 0..MAX_ATTEMPTS {
                match self.try_update(holder, changed) {
                    Err(error) if error.kind() == Kind::Changed => refused = Some(error),
                    // What was refused lies there, but not in the store.
                    Ok(false) => break,
                    done => return done.map(drop),
                }
            }
            refused.map_or(Ok(()), Err)
        })
    }

    /// Makes the copies in a document those of the documents as they are stored now; returns whether it was changed.
    fn try_update(&self, holder: &CopyHolder, changed: &[Key]) -> Result<bool> {
        let Some(object) = self.holder(&holder.key)? else {
            return Ok(false);
        };
        let Some(copies) = holder.copies(&object.bytes)? else {
            return Ok(false);
        };
        let mut changes = Vec::new();
        for document in changed {
            if let Some(name) = holder.name_of(document) {
                changes.push((name, self.copy_of(document)?));
            }
        }
        let bytes = copies.edited(&changes);
        let is_changed = bytes != object.bytes;
        if is_changed {
            let condition = Condition::Version(object.version);
            self.put(&holder.key, &bytes, &condition)?;
        }
        Ok(is_changed)
    }

    /// Returns the text of a document as it is stored now; nothing if it is missing or no JSON object.
    fn copy_of(&self, document: &Key) -> Result<Option<String>> {
        let object = self.store.get(document, MAX_DOCUMENT)?;
        let Some(object) = object else {
            return Ok(None);
        };
        let is_object = |text: &&str| ObjectText::parse(text).is_ok();
        let text = text_of(&object.bytes).ok().filter(is_object);
        Ok(text.map(|text| text.trim().to_string()))
    }

    /// Returns a document that may hold copies; nothing if it is missing or cannot be read.
    fn holder(&self, key: &Key) -> Result<Option<Object>> {
        match self.store.get(key, MAX_DOCUMENT) {
            Err(error) if matches!(error.kind(), Kind::TooLarge | Kind::NameTooLong) => Ok(None),
            answer => answer,
        }
    }
}

/// A document that may hold copies of others.
struct CopyHolder {
    key: Key,
    /// The folder from which names of copies count.
    folder: Key,
    form: Consolidation,
}

/// Returns the documents that may hold copies of the changed ones.
fn holders_above(changed: &[Key]) -> Result<Vec<CopyHolder>> {
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
        for (key, form) in [
            (folder.child(ZMETADATA.as_bytes())?, Consolidation::ByKey),
            (folder.child(ZARR_JSON.as_bytes())?, Consolidation::ByNode),
            (drafted, Consolidation::ByKey),
        ] {
            let folder = folder.clone();
            holders.push(CopyHolder { key, folder, form });
        }
    }
    Ok(holders)
}

impl CopyHolder {
    /// Finds the copies in the document; nothing if it holds none or does not read, `Invalid` if an object in it has a
    /// name twice.
    fn copies<'a>(&self, bytes: &'a [u8]) -> Result<Option<Copies<'a>>> {
        let Some(copies) = Copies::find(bytes, self.form) else {
            return Ok(None);
        };
        copies.top.check_unique().map_err(|error| {
            let why = format!("{error}; mend it in the store view first");
            Error::new(Kind::Invalid, &self.key, why)
        })?;
        Ok(Some(copies))
    }

    /// Returns the name of a document's copy; nothing if it has none here.
    fn name_of(&self, document: &Key) -> Option<String> {
        let copied = match self.form {
            Consolidation::ByKey => document.below(&self.folder)?,
            Consolidation::ByNode if document.name() == ZARR_JSON.as_bytes() => {
                let node = document.parent()?.below(&self.folder)?;
                (!node.is_root()).then_some(node)?
            }
            Consolidation::ByNode => return None,
        };
        String::from_utf8(copied.as_bytes().to_vec()).ok()
    }
}

/// Copies of documents in the text of another one.
struct Copies<'a> {
    bytes: &'a [u8],
    top: ObjectText<'a>,
    /// The member of the document that holds the copies in a member of its own, if it is not the document.
    member: Option<(&'static str, ObjectText<'a>)>,
    /// The copies by their names.
    copies: ObjectText<'a>,
}

impl<'a> Copies<'a> {
    fn find(bytes: &'a [u8], form: Consolidation) -> Option<Copies<'a>> {
        let top = ObjectText::parse(text_of(bytes).ok()?).ok()?;
        let member = match form {
            Consolidation::ByKey => None,
            Consolidation::ByNode => {
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

    /// Returns the whole document with copies changed.
    fn edited(&self, changes: &[MemberChange]) -> Vec<u8> {
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
