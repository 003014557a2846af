//! Finds hierarchies of the draft of 2019, which have no entry point.
//!
//! A document at the top says so, or, where the root is implied, the first document below `meta`: each one
//! has the URI of the specification in it. Names alone decide nothing, and the search is short.

use crate::dialect::Document;
use crate::dialect::draft;
use crate::error::{Kind, Result};
use crate::hierarchy::MAX_DOCUMENT;
use crate::model::document::{ROOTS_2019, is_draft_document};
use crate::store::{EntryKind, Key, Store};

/// How many names are looked at, and how many documents are read, before `meta` is an ordinary folder.
const MOST_NAMES: usize = 1024;
const MOST_DOCUMENTS: usize = 8;

/// Whether the folder `top` is a hierarchy of the draft of 2019.
pub(super) fn is_2019(store: &dyn Store, top: &Key) -> Result<bool> {
    let tops = ROOTS_2019.map(|name| top.child(name.as_bytes()));
    let tops = tops.into_iter().collect::<Result<Vec<_>>>()?;
    store.ask_ahead(&tops);
    for top in &tops {
        if says_so(store, top)? {
            return Ok(true);
        }
    }
    let meta = top.child(b"meta")?;
    let is_folder = store
        .head(&meta)?
        .is_some_and(|meta| meta.kind == EntryKind::Directory);
    if is_folder && store.lists() {
        search(store, meta)
    } else {
        Ok(false)
    }
}

/// Looks for a document below a folder, the deepest folders first.
fn search(store: &dyn Store, meta: Key) -> Result<bool> {
    let mut folders = vec![meta];
    let (mut names, mut documents) = (0, 0);
    while let Some(folder) = folders.pop() {
        let mut listing = match store.list(&folder) {
            Ok(listing) => listing,
            Err(error) if is_no_answer(error.kind()) => continue,
            Err(error) => return Err(error),
        };
        while let Some(name) = listing.next()? {
            names += 1;
            if names > MOST_NAMES || documents >= MOST_DOCUMENTS {
                return Ok(false);
            }
            match name.kind {
                EntryKind::Directory => folders.extend(folder.child(&name.name)),
                EntryKind::File if is_draft_document(&name.name) => {
                    documents += 1;
                    if says_so(store, &folder.child(&name.name)?)? {
                        return Ok(true);
                    }
                }
                _ => {}
            }
        }
    }
    Ok(false)
}

/// Whether a document is there and says that it is of this draft.
fn says_so(store: &dyn Store, key: &Key) -> Result<bool> {
    let bytes = match store.get(key, MAX_DOCUMENT) {
        Ok(object) => object.map(|object| object.bytes),
        Err(error) if is_no_answer(error.kind()) => None,
        Err(error) => return Err(error),
    };
    let document = Document {
        key: key.clone(),
        bytes,
    };
    // What does not read is no sign of anything.
    let members = document.object().unwrap_or_default();
    Ok(members.is_some_and(|members| draft::is_2019(&members)))
}

/// Whether an error is about this key alone.
fn is_no_answer(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::NotFound
            | Kind::NotADirectory
            | Kind::Denied
            | Kind::TooLarge
            | Kind::Corrupt
            | Kind::NameTooLong
    )
}
