//! Replaces the store below a mount while programs read it (faults A2 and A9).
//!
//! The store is a folder, an archive, or objects of a server. A read of an open file returns the content that was
//! opened, or ESTALE, never a mixture. The name exists all the time, and a new open gets the new content.

use std::fs;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::needs;
use crate::common::scripted::Scripted;
use crate::common::zip_writer::{Archive, Entry};
use crate::concurrency::mounted::Mounted;
use crate::concurrency::objects::Objects;

const SIZE: usize = 4 << 20;
const NAME: &str = "big";
const LETTERS: [u8; 4] = *b"abcd";

/// The maximum time until the mount shows a change of the store.
const SHOWS: Duration = Duration::from_secs(20);

/// Reads a range of an open file, or returns `None` if the content that was opened is gone (ESTALE).
fn part(file: &File, offset: usize, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length];
    match file.read_exact_at(&mut bytes, offset as u64) {
        Err(error) if error.raw_os_error() == Some(libc::ESTALE) => None,
        read => {
            read.unwrap();
            Some(bytes)
        }
    }
}

/// Reads a whole file, which must exist and repeat one letter. Returns the letter, or `None` if the file was replaced
/// during the read.
fn letter(path: &Path) -> Option<u8> {
    let read = fs::read(path);
    let bytes = match read {
        Err(error) if error.raw_os_error() == Some(libc::ESTALE) => return None,
        read => read.unwrap(),
    };
    assert_eq!(bytes.len(), SIZE);
    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a mixture");
    Some(bytes[0])
}

/// Mounts the store, and calls `replace` for one content after the other, while the old files are open.
fn replaced(mounted: &Mounted, replace: impl Fn(&[u8]) -> io::Result<()>) {
    replace(&vec![LETTERS[0]; SIZE]).unwrap();
    mounted.mount();
    let path = mounted.point.path(NAME);
    let mut held: Vec<(u8, File)> = Vec::new();
    for (turn, &own) in LETTERS.iter().enumerate() {
        let file = File::open(&path).unwrap();
        let first = part(&file, 0, SIZE / 2).unwrap();
        assert!(first.iter().all(|byte| *byte == own));
        held.push((own, file));
        let Some(next) = LETTERS.get(turn + 1) else {
            break;
        };
        replace(&vec![*next; SIZE]).unwrap();
        let end = Instant::now() + SHOWS;
        while letter(&path) != Some(*next) {
            assert_eq!(fs::metadata(&path).unwrap().len(), SIZE as u64);
            assert!(Instant::now() < end, "the new content does not show");
        }
        // Files that were opened before are read in the middle, where the kernel has no pages from readahead.
        for (own, file) in &held {
            for offset in [SIZE / 2, SIZE - 4096, 0] {
                if let Some(bytes) = part(file, offset, 4096) {
                    assert!(bytes.iter().all(|byte| byte == own), "another content");
                }
            }
        }
    }
}

#[test]
fn a_file_replaced_in_a_folder_never_reads_as_a_mixture() {
    if !needs::mounts() {
        return;
    }
    let mounted = Mounted::new(|store| store.to_string_lossy().into_owned());
    let store = mounted.point.store();
    replaced(&mounted, |bytes| {
        fs::write(store.join("arriving"), bytes)?;
        fs::rename(store.join("arriving"), store.join(NAME))
    });
}

#[test]
fn a_file_of_a_replaced_archive_never_reads_as_a_mixture() {
    if !needs::mounts() {
        return;
    }
    let mounted = Mounted::new(|store| store.join("s.zip").to_string_lossy().into_owned());
    let archive = mounted.point.store().join("s.zip");
    replaced(&mounted, |bytes| {
        let arriving = archive.with_extension("arriving");
        fs::write(&arriving, Archive::of([Entry::new(NAME, bytes)]).bytes())?;
        fs::rename(&arriving, &archive)
    });
}

#[test]
fn an_object_replaced_on_a_server_never_reads_as_a_mixture() {
    if !needs::mounts() {
        return;
    }
    let objects = Objects::new();
    let served = objects.clone();
    let server = Scripted::start(move |_, request| served.answer(request));
    let mounted = Mounted::new(|_| server.url("s.zarr"));
    let mounted = mounted.with(&["--metadata-ttl", "1"], &[]);
    replaced(&mounted, |bytes| {
        objects.put(NAME, bytes);
        Ok(())
    });
}
