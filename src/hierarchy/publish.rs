//! Documents put into the store, and their copies in consolidated metadata.
//!
//! A copy that is not what was copied would lie to programs that read nothing else, so it changes with its
//! original. Consolidated metadata that do not read are left alone.

use serde_json::{Map, Value};

use crate::dialect::{Document, consolidated, json};
use crate::error::{Kind, Result};
use crate::hierarchy::{Hierarchy, MAX_DOCUMENT};
use crate::model::document::{ZARR_JSON, ZMETADATA};
use crate::store::{Condition, Key, PutBody};

/// A document and what is to be under its key; nothing erases it.
pub(super) type Changed = (Key, Option<Vec<u8>>);

impl Hierarchy {
    /// Puts and erases documents, in this order, and then changes what copies them.
    pub(super) fn publish(&self, changes: &[Changed]) -> Result<()> {
        for (key, bytes) in changes {
            match bytes {
                Some(bytes) => self.put(key, bytes)?,
                None => self.store.erase(key, &Condition::Any)?,
            }
        }
        self.copy(changes)
    }

    fn put(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        let put = self.store.put(key, PutBody::Bytes(bytes), &Condition::Any);
        put.map(drop)
    }

    /// Brings documents into all consolidated metadata that have them, or would have had them.
    pub(super) fn copy(&self, changes: &[Changed]) -> Result<()> {
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
            self.copy_into(&folder.child(ZMETADATA.as_bytes())?, |members| {
                listed(members, folder, changes)
            })?;
            self.copy_into(&folder.child(ZARR_JSON.as_bytes())?, |members| {
                inline(members, folder, changes)
            })?;
            // A draft of 2020 has them in a folder of their own, with keys as the store has them.
            let drafted = folder
                .child(b"meta")?
                .child(b"root")?
                .child(b"consolidated")?;
            self.copy_into(&drafted.child(ZMETADATA.as_bytes())?, |members| {
                listed(members, folder, changes)
            })?;
        }
        Ok(())
    }

    /// Changes a document by its members, if there is one and `change` says that it changed it.
    fn copy_into(
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
        match change(&mut members) {
            true => self.put(key, &json::render(&Value::Object(members))),
            false => Ok(()),
        }
    }
}

/// Changes `.zmetadata`, whose keys are counted from a folder.
fn listed(members: &mut Map<String, Value>, folder: &Key, changes: &[Changed]) -> bool {
    let Some(Value::Object(copies)) = members.get_mut("metadata") else {
        return false;
    };
    let mut is_changed = false;
    for (key, bytes) in changes {
        let rest = key.below(folder).map(|rest| rest.as_bytes().to_vec());
        if let Some(Ok(name)) = rest.map(String::from_utf8) {
            is_changed |= replace(copies, &name, bytes.as_deref());
        }
    }
    is_changed
}

/// Changes the member of a final-v3 group, whose keys are paths of nodes below it.
fn inline(members: &mut Map<String, Value>, folder: &Key, changes: &[Changed]) -> bool {
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
            is_changed |= replace(copies, &name, bytes.as_deref());
        }
    }
    is_changed
}

/// Puts a document in the place of its copy; returns whether that changed something.
fn replace(copies: &mut Map<String, Value>, name: &str, bytes: Option<&[u8]>) -> bool {
    match bytes.and_then(|bytes| json::parse(bytes).ok()) {
        Some(document) if copies.get(name) == Some(&document) => false,
        Some(document) => {
            copies.insert(name.to_string(), document);
            true
        }
        None => copies.shift_remove(name).is_some(),
    }
}
