//! Names that writers and systems leave behind: temporary files, locks, files of a desktop.

/// How a name is recognized.
enum Pattern {
    Is(&'static str),
    Begins(&'static str),
    Ends(&'static str),
}

use Pattern::{Begins, Ends, Is};

/// Names, and what they are left from.
const LEFTOVERS: [(Pattern, &str); 22] = [
    (
        Begins(".zarrfs-arriving-"),
        "a write of zarrfs that was cut",
    ),
    (
        Ends(".partial"),
        "a write of zarr-python or rclone that was cut",
    ),
    (Ends(".__lock"), "a lock of tensorstore"),
    (
        Begins(".nfs"),
        "a file that was removed while NFS had it open",
    ),
    (
        Begins(".fuse_hidden"),
        "a file that was removed while a FUSE file system had it open",
    ),
    (
        Begins(".goutputstream-"),
        "a write of a desktop program that was cut",
    ),
    (Ends(".tmp"), "a write that was cut"),
    (Begins(".tmp"), "a write that was cut"),
    (Ends(".temp"), "a write that was cut"),
    (Ends(".part"), "a download that was cut"),
    (Ends(".crdownload"), "a download that was cut"),
    (Ends(".swp"), "an editor"),
    (Ends("~"), "an editor"),
    (Ends(".bak"), "an editor"),
    (Ends(".orig"), "a merge"),
    (Is(".DS_Store"), "the Finder of macOS"),
    (Begins("._"), "a copy from macOS"),
    (Is("__MACOSX"), "an archive from macOS"),
    (Is("Thumbs.db"), "Windows"),
    (Is("desktop.ini"), "Windows"),
    (Is("__pycache__"), "Python"),
    (Is(".ipynb_checkpoints"), "Jupyter"),
];

/// Returns what a name is left from; nothing for a name that no program leaves behind.
pub(super) fn origin_of(name: &[u8]) -> Option<&'static str> {
    let fits = |pattern: &Pattern| match pattern {
        Is(whole) => name == whole.as_bytes(),
        Begins(start) => name.starts_with(start.as_bytes()),
        Ends(end) => name.ends_with(end.as_bytes()),
    };
    let found = LEFTOVERS.iter().find(|(pattern, _)| fits(pattern));
    found.map(|(_, origin)| *origin)
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
        ] {
            assert_eq!(origin_of(name.as_bytes()), None, "{name}");
        }
        for name in [
            "0.0.a1b2.partial",
            ".zarrfs-arriving-7",
            "zarr.json.__lock",
            ".DS_Store",
            "0.0~",
        ] {
            assert!(origin_of(name.as_bytes()).is_some(), "{name}");
        }
    }
}
