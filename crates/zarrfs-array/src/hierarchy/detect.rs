//! Detects hierarchies of the 2019 draft of Zarr v3, and folders that are not Zarr.
//!
//! The 2019 draft has no entry point: no document at the root names the draft. But each document of the draft contains
//! the URI of the specification. So the root's document decides or, if the root has none, the first document below
//! `meta`. Names alone prove nothing. The number of names that are searched is limited.

use crate::hierarchy::MAX_DOCUMENT;
use crate::hierarchy::node_entry::ChildContext;
use zarr_format::dialect::{Document, draft};
use zarr_format::error::{Kind, Result};
use zarr_format::model::document::{ROOTS_2019, is_draft_document};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{ByteRange, EntryKind, Key, Store};

/// Whether the folder `top` is a hierarchy of the 2019 draft of Zarr v3.
pub(super) fn is_2019(
    context: &RequestContext,
    child_context: &mut ChildContext,
    top: &Key,
) -> Result<bool> {
    let tops = ROOTS_2019.map(|name| top.child(name.as_bytes()));
    let tops = tops.into_iter().collect::<Result<Vec<_>>>()?;
    child_context.hints.prefetch(&tops);
    let store = &*child_context.store;
    for top in &tops {
        child_context.depends.add_key(top);
        if is_of_2019(context, store, top)? {
            return Ok(true);
        }
    }
    let meta = top.child(b"meta")?;
    child_context.depends.add_below(&meta);
    let is_folder = store
        .head(context, &meta)?
        .is_some_and(|meta| meta.kind == EntryKind::Directory);
    if is_folder && store.info().lists {
        search(context, store, meta)
    } else {
        Ok(false)
    }
}

/// Searches a folder, depth first, for a metadata document of the 2019 draft.
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
            // If no document is found within this limit, `meta` counts as an ordinary folder.
            if names > 1024 || documents >= 8 {
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

/// Whether a key has a stored document of the 2019 draft of Zarr v3.
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
    // A document that cannot be read does not count as one of the draft.
    let members = document.object().unwrap_or_default();
    Ok(members.is_some_and(|members| draft::is_2019(&members)))
}

/// Whether an error concerns only the document that was read, so that the search goes on.
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

/// A data format that is not Zarr, which is recognized by the names in its root.
#[derive(Debug, PartialEq, Eq)]
pub struct OtherFormat {
    /// The names that a store of this format always has in its root.
    names: &'static [&'static str],
    /// A word that the document of the first name always contains; empty if the names alone identify the format.
    word: &'static str,
    /// The kind of data with its article, such as "a Delta table".
    pub what: &'static str,
    /// The programs that read this format.
    pub readers: &'static str,
}

const FORMATS: [OtherFormat; 6] = [
    OtherFormat {
        names: &["manifest.ocdbt"],
        word: "",
        what: "an OCDBT database",
        readers: "tensorstore",
    },
    OtherFormat {
        names: &["__schema", "__fragments"],
        word: "",
        what: "a TileDB array",
        readers: "tiledb",
    },
    OtherFormat {
        names: &["__group"],
        word: "",
        what: "a TileDB group",
        readers: "tiledb",
    },
    OtherFormat {
        names: &["_delta_log"],
        word: "",
        what: "a Delta table",
        readers: "deltalake",
    },
    OtherFormat {
        names: &["info"],
        word: "\"scales\"",
        what: "a Neuroglancer precomputed volume",
        readers: "cloud-volume or tensorstore",
    },
    OtherFormat {
        names: &["_versions", "data"],
        word: "",
        what: "a Lance table",
        readers: "lance",
    },
];

impl OtherFormat {
    /// Returns the format of a store whose root has no Zarr metadata, or `None` if the format is not known. Errors of
    /// the store count as missing names, because the answer only improves an error message.
    pub fn of(context: &RequestContext, store: &dyn Store) -> Option<&'static OtherFormat> {
        let mut formats = FORMATS.iter();
        formats.find(|format| format.is_in(context, store).unwrap_or(false))
    }

    fn is_in(&self, context: &RequestContext, store: &dyn Store) -> Result<bool> {
        for name in self.names {
            if store.head(context, &Key::new(*name)?)?.is_none() {
                return Ok(false);
            }
        }
        if self.word.is_empty() {
            return Ok(true);
        }
        let Some(first) = self.names.first() else {
            return Ok(false);
        };
        // The first 4 KiB of the document are enough to find the word.
        let range = ByteRange::Span(0..4096);
        let head = store.get_range(context, &Key::new(*first)?, range)?;
        let text = head.map(|head| String::from_utf8_lossy(&head.bytes).into_owned());
        Ok(text.is_some_and(|text| text.contains(self.word)))
    }

    /// Returns a sentence for an error message, which says what the store is and how to read its data.
    pub fn sentence(&self) -> String {
        let OtherFormat { what, readers, .. } = self;
        format!(
            "this is {what}, not a Zarr store; use {readers} to read the data, or to write a Zarr store"
        )
    }
}
