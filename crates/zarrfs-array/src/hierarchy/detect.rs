//! Finds hierarchies of the draft of 2019, which have no entry point.
//!
//! Each document of the draft has the URI of the specification in it, so the document of the root decides or, where the
//! root is implied, the first document below `meta`. Names alone decide nothing, and the search is short.

use crate::hierarchy::MAX_DOCUMENT;
use crate::hierarchy::scope::ChildScope;
use zarr_format::dialect::Document;
use zarr_format::dialect::draft;
use zarr_format::error::{Kind, Result};
use zarr_format::model::document::{ROOTS_2019, is_draft_document};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{EntryKind, Key, Store};

/// How many names are listed before `meta` is taken for an ordinary folder.
const MAX_NAMES: usize = 1024;

/// How many documents are read before `meta` is taken for an ordinary folder.
const MAX_DOCUMENTS: usize = 8;

/// Whether the folder `top` is a hierarchy of the draft of 2019.
pub(super) fn is_2019(context: &RequestContext, scope: &mut ChildScope, top: &Key) -> Result<bool> {
    let tops = ROOTS_2019.map(|name| top.child(name.as_bytes()));
    let tops = tops.into_iter().collect::<Result<Vec<_>>>()?;
    scope.hints.prefetch(&tops);
    let store = &*scope.store;
    for top in &tops {
        scope.depends.add_key(top);
        if is_of_2019(context, store, top)? {
            return Ok(true);
        }
    }
    let meta = top.child(b"meta")?;
    scope.depends.add_below(&meta);
    let is_folder = store
        .head(context, &meta)?
        .is_some_and(|meta| meta.kind == EntryKind::Directory);
    if is_folder && store.info().lists {
        search(context, store, meta)
    } else {
        Ok(false)
    }
}

/// Looks for a document below a folder, the deepest folders first.
fn search(context: &RequestContext, store: &dyn Store, meta: Key) -> Result<bool> {
    let mut folders = vec![meta];
    let (mut names, mut documents) = (0, 0);
    while let Some(folder) = folders.pop() {
        let mut listing = match store.list(context, &folder) {
            Ok(listing) => listing,
            Err(error) if concerns_key(error.kind()) => continue,
            Err(error) => return Err(error),
        };
        while let Some(name) = listing.next(context)? {
            names += 1;
            if names > MAX_NAMES || documents >= MAX_DOCUMENTS {
                return Ok(false);
            }
            match name.kind {
                EntryKind::Directory => folders.extend(folder.child(&name.name)),
                EntryKind::File if is_draft_document(&name.name) => {
                    documents += 1;
                    if is_of_2019(context, store, &folder.child(&name.name)?)? {
                        return Ok(true);
                    }
                }
                _ => {}
            }
        }
    }
    Ok(false)
}

/// Whether a document is stored and is one of this draft.
fn is_of_2019(context: &RequestContext, store: &dyn Store, key: &Key) -> Result<bool> {
    let bytes = match store.get(context, key, MAX_DOCUMENT) {
        Ok(object) => object.map(|object| object.bytes.into()),
        Err(error) if concerns_key(error.kind()) => None,
        Err(error) => return Err(error),
    };
    let document = Document {
        key: key.clone(),
        bytes,
        ..Document::default()
    };
    // A document that does not read is of no draft.
    let members = document.object().unwrap_or_default();
    Ok(members.is_some_and(|members| draft::is_2019(&members)))
}

/// Whether an error concerns this key alone, so that the search goes on.
fn concerns_key(kind: Kind) -> bool {
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
