//! Reports keys and folders that belong to no node, and leftovers of programs.

use crate::finding::Finding;
use zarrfs_store::Key;

/// A pattern for names.
enum Pattern {
    Is(&'static str),
    Begins(&'static str),
    Ends(&'static str),
    /// A predicate, for names with a generated ending.
    Looks(fn(&[u8]) -> bool),
}

use Pattern::{Begins, Ends, Is, Looks};

/// Patterns, and the origin of such names.
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

/// Reports a key that belongs to no node, or a leftover of a writer.
pub(crate) fn orphan_or_leftover(key: &Key) -> Finding {
    leftover(key).unwrap_or_else(|| orphan(key))
}

/// Reports a key that belongs to no node.
pub(crate) fn orphan(key: &Key) -> Finding {
    let message = "stray file: belongs to no array or group";
    Finding::warning("orphan-key", key, message)
}

/// Reports a leftover of a writer or an operating system, or returns `None` if no program leaves such a name.
pub(crate) fn leftover(key: &Key) -> Option<Finding> {
    let origin = origin_of(key.name())?;
    let message = format!("leftover of {origin}");
    Some(Finding::warning("leftover", key, message).with_remedy("remove it"))
}

/// Returns the origin of a name, or `None` if no program leaves such a name.
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

/// Whether a name has a dot in front, and ends with a dot and six letters or digits in mixed case.
fn is_of_rsync(name: &[u8]) -> bool {
    let Some((stem, end)) = name.strip_prefix(b".").and_then(|name| parts(name, 6)) else {
        return false;
    };
    let is_mixed = end.iter().any(u8::is_ascii_uppercase) && end.iter().any(u8::is_ascii_lowercase);
    !stem.is_empty() && is_mixed && end.iter().all(u8::is_ascii_alphanumeric)
}

/// Whether a name ends with a dot and eight hexadecimal digits in mixed case.
fn is_of_aws(name: &[u8]) -> bool {
    let Some((stem, end)) = parts(name, 8) else {
        return false;
    };
    let has_letters =
        end.iter().any(u8::is_ascii_uppercase) && end.iter().any(u8::is_ascii_lowercase);
    let has_digits = end.iter().any(u8::is_ascii_digit);
    !stem.is_empty() && has_letters && has_digits && end.iter().all(u8::is_ascii_hexdigit)
}

/// Splits a name at its last dot, if `length` bytes follow it.
fn parts(name: &[u8], length: usize) -> Option<(&[u8], &[u8])> {
    let (stem, end) = name.split_at_checked(name.len().checked_sub(length + 1)?)?;
    let end = end.strip_prefix(b".")?;
    (!end.contains(&b'.')).then_some((stem, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_and_documents_are_no_leftovers() {
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
