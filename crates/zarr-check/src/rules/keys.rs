//! Reports faults of single keys: links, folders, chunks.

use crate::finding::Finding;
use crate::rules::foreign::{Foreign, ObjectHead, Remedy, in_place_of_chunk};
use crate::spec::Spec;
use crate::walk::folder::is_unfetched_annex_link;
use zarr_format::error::{Error, Kind};
use zarr_format::model::Array;
use zarrfs_store::{Key, Store};

/// Reports a folder in the place of a document.
pub(crate) fn document_is_folder(key: &Key, spec: Spec) -> Finding {
    let message = "a directory has the name of a metadata file; readers find no metadata";
    let finding = Finding::error("document-is-folder", key, message);
    finding.with_section(spec.metadata())
}

/// Reports names that look like chunks in the folder of a node without a document: an array that lost its document.
pub(crate) fn undescribed_chunks(node: &Key, count: u64, first: &Key, document: &str) -> Finding {
    let names = match count {
        1 => format!("{first} looks like a chunk"),
        _ => format!("{count} names, such as {first}, look like chunks"),
    };
    let message = format!("{names}, but {document} is missing; no reader finds the array");
    let remedy = format!("copy {document} from another copy of the store");
    Finding::error("chunks-undescribed", node, message).with_remedy(remedy)
}

/// Reports a document whose name is only wrong in case; readers do not find it.
pub(crate) fn document_miscased(key: &Key, right: &str) -> Finding {
    let message = format!("the name differs from {right} only in case; readers do not find it");
    Finding::error("document-miscased", key, message).with_remedy(format!("rename it to {right}"))
}

/// Reports an empty folder.
pub(crate) fn empty_folder(key: &Key) -> Finding {
    Finding::warning("empty-folder", key, "empty directory").with_remedy("remove it")
}

/// Reports a folder that cannot be listed.
pub(crate) fn folder_unlisted(key: &Key, error: &Error) -> Finding {
    let message = format!("the directory cannot be listed, so it was not checked: {error}");
    Finding::error("folder-unlisted", key, message)
}

/// Reports a store that cannot list keys.
pub(crate) fn store_unlisted(root: &Key) -> Finding {
    let message = "the server cannot list the store, so only metadata files are checked";
    Finding::warning("store-unlisted", root, message)
}

/// Reports a link to a folder, which would show one node under two paths.
pub(crate) fn folder_link(key: &Key) -> Finding {
    let message = "symbolic link to a directory of the store; the check does not follow it";
    Finding::warning("link-to-folder", key, message)
}

/// Reports a link that cannot be followed.
pub(crate) fn broken_link(store: &dyn Store, key: &Key, error: &Error) -> Finding {
    let code = match error.kind() {
        Kind::Denied => "link-leaves-store",
        _ if error.detail().contains("circle") => "link-in-circle",
        _ => "link-dangling",
    };
    if is_unfetched_annex_link(store, key) {
        let message = "symbolic link to git-annex content that was not downloaded";
        return Finding::error(code, key, message).with_remedy(Remedy::AnnexGet);
    }
    let message = format!("symbolic link that cannot be followed: {}", error.detail());
    Finding::error(code, key, message)
}

/// The file of a write of zarrfs that was interrupted.
pub(crate) const UNFINISHED_WRITE: &str = "unfinished write of zarrfs";

/// Reports a file that the store hides.
pub(crate) fn hidden(key: &Key, what: &str) -> Finding {
    let code = if what == UNFINISHED_WRITE {
        "leftover"
    } else {
        "special-file"
    };
    let message = format!("{what}; zarrfs does not show it");
    Finding::warning(code, key, message).with_remedy("remove it")
}

/// A stored chunk, or an inner chunk of a shard.
pub(crate) struct ChunkPart<'a> {
    pub(crate) key: &'a Key,
    /// The inner chunk of the shard; empty for the chunk or shard itself.
    pub(crate) part: &'a str,
    pub(crate) array: &'a Array,
}

impl ChunkPart<'_> {
    /// Returns its name in messages.
    pub(crate) fn name(&self) -> &str {
        if self.part.is_empty() {
            "the chunk"
        } else {
            self.part
        }
    }
}

/// Returns the finding for an error of a chunk. `head` returns the first bytes of the part and its size, to recognize
/// foreign bytes.
pub(crate) fn chunk_fault(
    chunk: &ChunkPart<'_>,
    error: &Error,
    head: impl FnOnce() -> Option<ObjectHead>,
) -> Finding {
    let (key, name) = (chunk.key, chunk.name());
    let reason_of_part = error.within(chunk.part);
    let why = reason_of_part.within(&key.to_string());
    match error.kind() {
        Kind::Unsupported | Kind::TooLarge => {
            let message = format!("zarrfs cannot decode {name}: {why}");
            Finding::warning("chunk-unreadable", key, message).with_part(chunk.part)
        }
        Kind::Corrupt => {
            let foreign = head().and_then(|head| in_place_of_chunk(&head, chunk.array));
            let finding = match foreign {
                Some(foreign) => foreign_chunk("chunk-corrupt", chunk, &foreign),
                None => {
                    let message = format!("{name} cannot be decoded: {why}");
                    Finding::error("chunk-corrupt", key, message).with_remedy(Remedy::CopyAgain)
                }
            };
            let spec = Spec::of(Some(chunk.array.dialect));
            let finding = finding.with_part(chunk.part);
            finding.with_section(spec.chunks())
        }
        _ => {
            let message = format!("the chunk cannot be read: {error}");
            Finding::error("chunk-unreadable", key, message).with_part(chunk.part)
        }
    }
}

/// Reports foreign bytes in the place of a chunk.
pub(crate) fn foreign_chunk(
    code: &'static str,
    chunk: &ChunkPart<'_>,
    foreign: &Foreign,
) -> Finding {
    let message = foreign.message(chunk.name(), chunk.array);
    Finding::error(code, chunk.key, message).with_remedy(foreign.remedy)
}
