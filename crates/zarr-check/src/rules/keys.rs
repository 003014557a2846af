//! Reports faults of keys: links, folders, chunks, keys of no node, leftovers of programs.

use crate::finding::Finding;
use crate::rules::foreign::{Foreign, ObjectHead, Remedy, in_place_of_chunk};
use crate::spec::Spec;
use crate::walk::folder::is_unfetched_annex_link;
use zarr_format::error::{Error, Kind};
use zarr_format::model::Array;
use zarrfs_store::{Key, Store};

/// Reports a folder whose name is that of a metadata document.
pub(crate) fn document_is_folder(key: &Key, spec: Spec) -> Finding {
    let message = "a directory has the name of a metadata file; readers find no metadata";
    let finding = Finding::error("document-is-folder", key, message);
    finding.with_section(spec.metadata())
}

/// Reports names that look like chunks in a node without a metadata document: an array that lost its document.
pub(crate) fn undescribed_chunks(node: &Key, count: u64, first: &Key, document: &str) -> Finding {
    let names = match count {
        1 => format!("{first} looks like a chunk"),
        _ => format!("{count} names, such as {first}, look like chunks"),
    };
    let message = format!("{names}, but {document} is missing; no reader finds the array");
    let remedy = format!("copy {document} from another copy of the store");
    Finding::error("chunks-undescribed", node, message).with_remedy(remedy)
}

/// Reports a metadata document whose name has a letter in the wrong case, so that readers do not find the document.
pub(crate) fn document_miscased(key: &Key, right: &str) -> Finding {
    let message = format!("the name differs from {right} only in case; readers do not find it");
    Finding::error("document-miscased", key, message).with_remedy(format!("rename it to {right}"))
}

pub(crate) fn empty_folder(key: &Key) -> Finding {
    Finding::warning("empty-folder", key, "empty directory").with_remedy("remove it")
}

pub(crate) fn folder_unlisted(key: &Key, error: &Error) -> Finding {
    let message = format!("the directory cannot be listed, so it was not checked: {error}");
    Finding::error("folder-unlisted", key, message)
}

/// Reports a store that cannot list keys.
pub(crate) fn store_unlisted(root: &Key) -> Finding {
    let message = "the server cannot list the store, so only metadata files are checked";
    Finding::warning("store-unlisted", root, message)
}

/// Reports a symbolic link to a folder, which would show one node under two paths.
pub(crate) fn folder_link(key: &Key) -> Finding {
    let message = "symbolic link to a directory of the store; the check does not follow it";
    Finding::warning("link-to-folder", key, message)
}

/// Reports a symbolic link to a file or folder that cannot be read through the link.
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

/// Describes a temporary file that an interrupted write of zarrfs left behind.
pub(crate) const UNFINISHED_WRITE: &str = "unfinished write of zarrfs";

/// Reports a file that the local store hides from its listings.
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
    /// The name of the inner chunk in messages; empty for a chunk or a whole shard.
    pub(crate) part: &'a str,
    pub(crate) array: &'a Array,
}

impl ChunkPart<'_> {
    pub(crate) fn name(&self) -> &str {
        if self.part.is_empty() {
            "the chunk"
        } else {
            self.part
        }
    }
}

/// Returns the finding for a chunk that cannot be read or decoded. `head` reads the first bytes of the chunk, from
/// which bytes of another format are recognized.
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

/// Reports a chunk that has bytes of another format.
pub(crate) fn foreign_chunk(
    code: &'static str,
    chunk: &ChunkPart<'_>,
    foreign: &Foreign,
) -> Finding {
    let message = foreign.message(chunk.name(), chunk.array);
    Finding::error(code, chunk.key, message).with_remedy(foreign.remedy)
}

/// A pattern that recognizes the names of temporary files.
enum Pattern {
    Is(&'static str),
    Begins(&'static str),
    Ends(&'static str),
    /// A function that recognizes names with a random ending.
    Looks(fn(&[u8]) -> bool),
}

use Pattern::{Begins, Ends, Is, Looks};

/// Patterns of names of files that programs leave behind, and the program or system that does.
const LEFTOVERS: [(Pattern, &str); 29] = [
    (
        Begins(".zarrfs-arriving-"),
        "an interrupted write of zarrfs",
    ),
    (
        Ends(".partial"),
        "an interrupted write of zarr-python or rclone",
    ),
    (Ends(".__lock"), "a lock of tensorstore"),
    (Begins(".nfs"), "a file removed while open on NFS"),
    (
        Begins(".fuse_hidden"),
        "a file removed while open on a FUSE mount",
    ),
    (
        Begins(".goutputstream-"),
        "an interrupted write of a desktop program",
    ),
    (Ends(".tmp"), "an interrupted write"),
    (Begins(".tmp"), "an interrupted write"),
    (Ends(".temp"), "an interrupted write"),
    (Ends(".part"), "an interrupted download"),
    (Ends(".crdownload"), "an interrupted download"),
    (Ends(".swp"), "an editor"),
    (Ends("~"), "an editor"),
    (Ends(".bak"), "an editor"),
    (Ends(".orig"), "a merge"),
    (Looks(is_of_rsync), "an interrupted copy by rsync"),
    (Looks(is_of_aws), "an interrupted download by aws"),
    (Begins(".#"), "an editor"),
    (Is("@eaDir"), "a Synology NAS"),
    (Is("lost+found"), "a file system"),
    (Begins(".Trash-"), "a desktop"),
    (Begins(".syncthing."), "an interrupted copy by syncthing"),
    (Is(".DS_Store"), "the macOS Finder"),
    (Begins("._"), "a copy from macOS"),
    (Is("__MACOSX"), "an archive from macOS"),
    (Is("Thumbs.db"), "Windows"),
    (Is("desktop.ini"), "Windows"),
    (Is("__pycache__"), "Python"),
    (Is(".ipynb_checkpoints"), "Jupyter"),
];

/// Reports a key that belongs to no node: as a leftover if a program is known to leave files with such a name, or else
/// as a stray file.
pub(crate) fn orphan_or_leftover(key: &Key) -> Finding {
    leftover(key).unwrap_or_else(|| orphan(key))
}

pub(crate) fn orphan(key: &Key) -> Finding {
    let message = "stray file: belongs to no array or group";
    Finding::warning("orphan-key", key, message)
}

/// Reports a file that a known program or operating system left behind. Returns `None` if no known program leaves files
/// with the key's name.
pub(crate) fn leftover(key: &Key) -> Option<Finding> {
    let origin = origin_of(key.name())?;
    let message = format!("leftover of {origin}");
    Some(Finding::warning("leftover", key, message).with_remedy("remove it"))
}

/// Returns the program or system that leaves files with the given name, or `None` if none is known.
fn origin_of(name: &[u8]) -> Option<&'static str> {
    let fits = |pattern: &Pattern| match pattern {
        Is(whole) => name == whole.as_bytes(),
        Begins(start) => name.starts_with(start.as_bytes()),
        Ends(end) => name.ends_with(end.as_bytes()),
        Looks(is_it) => is_it(name),
    };
    let leftover = LEFTOVERS.iter().find(|(pattern, _)| fits(pattern));
    leftover.map(|(_, origin)| *origin)
}

/// Whether a name is that of a temporary file of rsync: a dot, a name, a dot, and six letters or digits in mixed case.
fn is_of_rsync(name: &[u8]) -> bool {
    let Some((stem, end)) = name.strip_prefix(b".").and_then(|name| parts(name, 6)) else {
        return false;
    };
    let is_mixed = end.iter().any(u8::is_ascii_uppercase) && end.iter().any(u8::is_ascii_lowercase);
    !stem.is_empty() && is_mixed && end.iter().all(u8::is_ascii_alphanumeric)
}

/// Whether a name is that of a temporary file of the AWS command line: it ends with a dot and eight hexadecimal digits
/// in mixed case.
fn is_of_aws(name: &[u8]) -> bool {
    let Some((stem, end)) = parts(name, 8) else {
        return false;
    };
    let has_letters =
        end.iter().any(u8::is_ascii_uppercase) && end.iter().any(u8::is_ascii_lowercase);
    let has_digits = end.iter().any(u8::is_ascii_digit);
    !stem.is_empty() && has_letters && has_digits && end.iter().all(u8::is_ascii_hexdigit)
}

/// Splits a name at its last dot. Returns `None` unless exactly `length` bytes follow the dot.
fn parts(name: &[u8], length: usize) -> Option<(&[u8], &[u8])> {
    let (stem, end) = name.split_at_checked(name.len().checked_sub(length + 1)?)?;
    let end = end.strip_prefix(b".")?;
    (!end.contains(&b'.')).then_some((stem, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_leftovers_are_recognized_and_others_are_not() {
        for name in [
            "0.0",
            "c",
            "zarr.json",
            ".zarray",
            ".zmetadata",
            "attributes.json",
            "partial",
            "tmp",
            "0.0.12345678",
            "image.ABCDEFGH",
            ".zattrs",
            ".zmetadata",
            "scan.Run2Test",
        ] {
            assert_eq!(origin_of(name.as_bytes()), None, "{name}");
        }
        for name in [
            "0.0.a1b2.partial",
            ".zarrfs-arriving-7",
            "zarr.json.__lock",
            ".DS_Store",
            "0.0~",
            ".0.0.a1B2c3",
            "0.0.a1B2c3D4",
        ] {
            assert!(origin_of(name.as_bytes()).is_some(), "{name}");
        }
    }
}
