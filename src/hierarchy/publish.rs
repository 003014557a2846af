//! Documents put into the store, and their copies in consolidated metadata.
//!
//! A copy changes with its original, since some programs read nothing but the copies. Consolidated metadata that do not
//! read are left alone.

use serde_json::{Map, Value};

use crate::dialect::{Document, consolidated, json};
use crate::error::{Kind, Result};
use crate::hierarchy::{Hierarchy, MAX_DOCUMENT};
use crate::model::document::{CONSOLIDATED_2020, ZARR_JSON, ZMETADATA};
use crate::store::{Condition, Key, PutBody};

/// A key and the new bytes of its document; `None` erases it.
pub(super) type DocumentChange = (Key, Option<Vec<u8>>);

impl Hierarchy {
    /// Puts and erases documents, in the given order, and then updates the consolidated metadata.
    pub(super) fn publish(&self, changes: &[DocumentChange]) -> Result<()> {
        for (key, bytes) in changes {
            match bytes {
                Some(bytes) => self.put(key, bytes)?,
                None => self.store.erase(key, &Condition::Any)?,
            }
        }
        self.update_consolidated(changes)
    }

    fn put(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        let put = self.store.put(key, PutBody::Bytes(bytes), &Condition::Any);
        put.map(drop)
    }

    /// Updates the consolidated metadata of all folders above the changed documents.
    pub(super) fn update_consolidated(&self, changes: &[DocumentChange]) -> Result<()> {
        let mut folders: Vec<Key> = Vec::new();
        for (key, _) in changes {
            let mut folder = key.parent();
            while let Some(at) = folder {
                folder = at.parent();
                if !folders.contains(&at) {
                    folders.push(at);
                }
            }
        }
        for folder in &folders {
            self.update_document(&folder.child(ZMETADATA.as_bytes())?, |members| {
                update_zmetadata(members, folder, changes)
            })?;
            self.update_document(&folder.child(ZARR_JSON.as_bytes())?, |members| {
                update_inline(members, folder, changes)
            })?;
            let drafted = CONSOLIDATED_2020
                .split('/')
                .try_fold(folder.clone(), |key, name| key.child(name.as_bytes()))?;
            self.update_document(&drafted, |members| {
                update_zmetadata(members, folder, changes)
            })?;
        }
        Ok(())
    }

    /// Stores a document with changed members, if it is there and `change` returns that it changed them.
    fn update_document(
        &self,
        key: &Key,
        change: impl FnOnce(&mut Map<String, Value>) -> bool,
    ) -> Result<()> {
        let object = match self.store.get(key, MAX_DOCUMENT) {
            Err(error) if matches!(error.kind(), Kind::TooLarge | Kind::NameTooLong) => None,
            answer => answer?,
        };
        let document = Document {
            key: key.clone(),
            bytes: object.map(|object| object.bytes),
        };
        let Ok(Some(mut members)) = document.object() else {
            return Ok(());
        };
        if change(&mut members) {
            self.put(key, &json::render(&Value::Object(members)))?;
        }
        Ok(())
    }
}

/// Changes the members of `.zmetadata`, whose keys are counted from a folder; returns whether any changed.
fn update_zmetadata(
    members: &mut Map<String, Value>,
    folder: &Key,
    changes: &[DocumentChange],
) -> bool {
    let Some(Value::Object(copies)) = members.get_mut("metadata") else {
        return false;
    };
    let mut is_changed = false;
    for (key, bytes) in changes {
        let rest = key.below(folder).map(|rest| rest.as_bytes().to_vec());
        if let Some(Ok(name)) = rest.map(String::from_utf8) {
            is_changed |= replace_copy(copies, &name, bytes.as_deref());
        }
    }
    is_changed
}

/// Changes `consolidated_metadata` of a final-v3 group, whose keys are paths of nodes below it; returns whether any
/// changed.
fn update_inline(
    members: &mut Map<String, Value>,
    folder: &Key,
    changes: &[DocumentChange],
) -> bool {
    let copies = members.get_mut(consolidated::MEMBER);
    let Some(Value::Object(copies)) = copies.and_then(|member| member.get_mut("metadata")) else {
        return false;
    };
    let mut is_changed = false;
    for (key, bytes) in changes {
        let node = key.parent().filter(|_| key.name() == ZARR_JSON.as_bytes());
        let rest = node
            .and_then(|node| node.below(folder))
            .filter(|rest| !rest.is_root());
        let name = rest.map(|rest| String::from_utf8(rest.as_bytes().to_vec()));
        if let Some(Ok(name)) = name {
            is_changed |= replace_copy(copies, &name, bytes.as_deref());
        }
    }
    is_changed
}

/// Replaces or removes the copy of a document; returns whether that changed something.
fn replace_copy(copies: &mut Map<String, Value>, name: &str, bytes: Option<&[u8]>) -> bool {
    match bytes.and_then(|bytes| json::parse(bytes).ok()) {
        Some(document) if copies.get(name) == Some(&document) => false,
        Some(document) => {
            copies.insert(name.to_string(), document);
            true
        }
        None => copies.shift_remove(name).is_some(),
    }
}
