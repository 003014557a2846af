//! Daemons that may have few files open, and programs that have many. The names of the tests begin with the faults that
//! they are for.

use std::fs;
use std::fs::File;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Command;

use crate::fixture::{Fixture, PROGRAM, soon, stderr};

const ARRAYS: usize = 100;
const CHUNKS: usize = 8;

/// Puts arrays of 8 uncompressed chunks of 16 bytes, each with its place in every byte.
fn put_arrays(fixture: &Fixture) {
    let document = fs::read_to_string(fixture.store.join("a/zarr.json")).unwrap();
    let document = document.replace("\"shape\": [4]", "\"shape\": [32]");
    for array in 0..ARRAYS {
        let folder = fixture.store.join(format!("b{array}"));
        fs::create_dir_all(folder.join("c")).unwrap();
        fs::write(folder.join("zarr.json"), &document).unwrap();
        for chunk in 0..CHUNKS {
            fs::write(
                folder.join(format!("c/{chunk}")),
                [(array + chunk) as u8; 16],
            )
            .unwrap();
        }
    }
}

fn expected(array: usize) -> Vec<u8> {
    let chunks = 0..CHUNKS;
    chunks
        .flat_map(|chunk| [(array + chunk) as u8; 16])
        .collect()
}

/// Mounts with a hard and a soft limit of descriptors.
fn mount(fixture: &Fixture, hard: usize, soft: usize, more: &[&str]) {
    let script = format!("ulimit -Sn {soft} && ulimit -Hn {hard} && exec \"$@\"");
    let output = Command::new("sh")
        .args(["-c", &script, "sh", PROGRAM, "mount"])
        .arg(&fixture.store)
        .arg(&fixture.dir)
        .args(more)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn b03_a_hundred_arrays_are_read_with_few_descriptors() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    put_arrays(&fixture);
    mount(&fixture, 256, 256, &[]);
    let raw = |array: usize| {
        fixture
            .dir
            .join(format!(".zarrfs/files/b{array}/b{array}.raw"))
    };
    // All are open at once, and each is read while the others are.
    let open: Vec<PathBuf> = (0..ARRAYS).map(raw).collect();
    let open: Vec<File> = open.iter().map(|path| File::open(path).unwrap()).collect();
    for array in 0..ARRAYS {
        assert_eq!(
            fs::read(raw(array)).unwrap(),
            expected(array),
            "array {array}"
        );
    }
    drop(open);
    assert!(fixture.umount(&fixture.dir).status.success());
}

#[test]
fn b14_programs_with_too_many_files_leave_the_others_alone() {
    for more in [&[][..], &["--cow", "UPPER"]] {
        let Some(fixture) = Fixture::new() else {
            return;
        };
        put_arrays(&fixture);
        let upper = fixture.path("upper").display().to_string();
        let more: Vec<&str> = more
            .iter()
            .map(|word| if *word == "UPPER" { &upper } else { *word })
            .collect();
        mount(&fixture, 256, 64, &more);
        let keys = (0..ARRAYS).flat_map(|array| (0..CHUNKS).map(move |chunk| (array, chunk)));
        let paths = keys.map(|(array, chunk)| fixture.dir.join(format!("b{array}/c/{chunk}")));
        let mut open = Vec::new();
        let refused = paths.map(File::open).find_map(|opened| match opened {
            Ok(file) => {
                open.push(file);
                None
            }
            Err(error) => Some(error),
        });
        let refused = refused.map(|error| error.raw_os_error());
        assert_eq!(
            refused,
            Some(Some(libc::ENFILE)),
            "{more:?}: {} are open",
            open.len()
        );
        assert!(open.len() > 64, "the soft limit is raised: {}", open.len());
        // Everybody else goes on.
        assert!(fs::read_dir(fixture.dir.join("b99/c")).unwrap().count() == CHUNKS);
        assert!(fs::read_to_string(fixture.dir.join(".zarrfs/stats.json")).is_ok());
        assert!(fs::metadata(fixture.dir.join("b99/zarr.json")).is_ok());
        drop(open);
        let read = || fs::read(fixture.dir.join(".zarrfs/files/b7/b7.raw"));
        assert!(
            soon(|| read().is_ok()),
            "{:?}",
            read().err().map(|error| error.kind() == ErrorKind::Other)
        );
        assert_eq!(read().unwrap(), expected(7));
        assert!(fixture.umount(&fixture.dir).status.success());
    }
}
