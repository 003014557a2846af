//! Findings about keys that several parts make alike, and the headings under which the texts speak of them.

use crate::check::finding::{DRAFT_2019, DRAFT_2020, Finding, N5, V2};
use crate::error::{Error, Kind};
use crate::store::Key;

/// Returns the heading under which a text speaks of stored chunks.
pub(super) fn chunk_heading(document: &str) -> &'static str {
    match document {
        V2 => "Chunks",
        N5 => "Blocks",
        DRAFT_2019 => "Chunk grids",
        _ => "Chunk encoding",
    }
}

/// Returns the heading under which a text speaks of which nodes may lie where.
pub(super) fn hierarchy_heading(document: &str) -> &'static str {
    match document {
        V2 => "Groups",
        N5 => "Containers",
        DRAFT_2019 => "Conceptual model",
        _ => "Concepts and terminology",
    }
}

/// Returns the heading under which a text speaks of codecs.
pub(super) fn codecs_heading(document: &str) -> &'static str {
    match document {
        V2 => "Metadata",
        N5 => "Datasets",
        DRAFT_2020 => "Chunk encoding",
        _ => "Codecs",
    }
}

/// Returns the heading under which a text speaks of the documents of nodes.
pub(super) fn metadata_heading(document: &str) -> &'static str {
    match document {
        N5 => "Datasets",
        _ => "Metadata",
    }
}

/// A key that belongs to no node.
pub(super) fn orphan(key: &Key) -> Finding {
    Finding::warning(
        "orphan-key",
        key,
        "a document or a chunk of a node",
        "a key of no node",
    )
}

/// A folder where the document of a node should be.
pub(super) fn document_is_folder(key: &Key, document: &'static str) -> Finding {
    let finding = Finding::error("document-is-folder", key, "a document", "a folder");
    finding.by(document, metadata_heading(document))
}

/// Names like those of chunks in the folder of a node that may be an array, and whose document does not say so.
pub(super) fn undescribed_chunks(node: &Key, count: u64, first: &Key) -> Finding {
    let names = if count == 1 {
        format!("{first}, which looks like one of its chunks")
    } else {
        format!("{count} names, such as {first}, that look like its chunks")
    };
    let expected = "a document that describes an array";
    Finding::warning("chunks-undescribed", node, expected, names)
}

/// What a writer or system left behind.
pub(super) fn leftover(key: &Key, origin: &str) -> Finding {
    Finding::warning(
        "leftover",
        key,
        "no such name",
        format!("what is left of {origin}"),
    )
}

/// A folder without anything in it.
pub(super) fn empty_folder(key: &Key) -> Finding {
    Finding::warning(
        "empty-folder",
        key,
        "a folder with keys in it",
        "one without a key",
    )
}

/// A folder whose keys cannot be listed, so that nothing is known of them.
pub(super) fn folder_unlisted(key: &Key, error: &Error) -> Finding {
    Finding::error("folder-unlisted", key, "a listing", error.to_string())
}

/// A store that lists no keys.
pub(super) fn store_unlisted(root: &Key) -> Finding {
    let expected = "a store that lists its keys: only documents are checked";
    let found = "a server that does not list names";
    Finding::warning("store-unlisted", root, expected, found)
}

/// A link to a folder, which makes one node two.
pub(super) fn folder_link(key: &Key) -> Finding {
    let found = "a symbolic link to a folder of the store, which is not followed here";
    Finding::warning("link-to-folder", key, "a folder of its own", found)
}

/// A link that cannot be followed.
pub(super) fn broken_link(key: &Key, error: &Error) -> Finding {
    let code = match error.kind() {
        Kind::Denied => "link-leaves-store",
        _ if error.detail().contains("circle") => "link-in-circle",
        _ => "link-dangling",
    };
    Finding::error(code, key, "a link to a key of the store", error.detail())
}

/// A file that the store does not show.
pub(super) fn hidden(key: &Key, what: &str) -> Finding {
    let code = if what.contains("cut") {
        "leftover"
    } else {
        "special-file"
    };
    Finding::warning(code, key, "a regular file or a folder", what)
}

/// A stored chunk that the store does not give.
fn unreadable(key: &Key, error: &Error) -> Finding {
    Finding::error("chunk-unreadable", key, "bytes", error.to_string())
}

/// Returns what an error of a chunk says of the store.
pub(super) fn chunk_fault(
    key: &Key,
    error: &Error,
    (part, document): (&str, &'static str),
) -> Finding {
    match error.kind() {
        Kind::Unsupported | Kind::TooLarge => {
            let expected = "a chunk that can be decoded here";
            let found = error.within(part).to_string();
            Finding::warning("chunk-unreadable", key, expected, found).of_part(part)
        }
        Kind::Corrupt => {
            let expected = "bytes that decode to the elements that the metadata describe";
            let finding = Finding::error(
                "chunk-corrupt",
                key,
                expected,
                error.within(part).to_string(),
            );
            finding.of_part(part).by(document, chunk_heading(document))
        }
        _ => unreadable(key, error).of_part(part),
    }
}
