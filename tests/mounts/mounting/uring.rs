//! Tests reads and `statx` through io_uring: they return the content of the store.
#![expect(unsafe_code, reason = "entries of a ring take addresses")]

use std::ffi::CString;
use std::fs;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use io_uring::squeue::Entry;
use io_uring::{IoUring, opcode, types};

use crate::common::needs;
use crate::mounting::fixture::Fixture;

const PIECE: usize = 40_000;

/// Submits several entries to the ring at once; returns their results in the order of the entries.
fn done(ring: &mut IoUring, entries: Vec<Entry>) -> Vec<i32> {
    let count = entries.len();
    for (number, entry) in (0..).zip(entries) {
        // SAFETY: the memory that the entry points to belongs to the caller, who waits here until all are complete.
        unsafe { ring.submission().push(&entry.user_data(number)).unwrap() };
    }
    ring.submit_and_wait(count).unwrap();
    let mut results: Vec<_> = ring.completion().collect();
    assert_eq!(results.len(), count);
    results.sort_by_key(io_uring::cqueue::Entry::user_data);
    results
        .iter()
        .map(io_uring::cqueue::Entry::result)
        .collect()
}

/// Reads a whole file with concurrent reads. `fixed` is the file if the reads use its descriptor, or `None` if they use
/// the file that is registered in the ring.
fn read_pieces(ring: &mut IoUring, length: usize, fixed: Option<&File>) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let places = (0_u64..).step_by(PIECE);
    let read = |(piece, place): (&mut [u8], u64)| {
        let (address, room) = (piece.as_mut_ptr(), u32::try_from(piece.len()).unwrap());
        let read = match fixed {
            Some(file) => opcode::Read::new(types::Fd(file.as_raw_fd()), address, room),
            None => opcode::Read::new(types::Fixed(0), address, room),
        };
        read.offset(place).build()
    };
    let entries = bytes.chunks_mut(PIECE).zip(places).map(read).collect();
    let read = done(ring, entries);
    assert_eq!(read.iter().sum::<i32>(), i32::try_from(length).unwrap());
    bytes
}

/// Reads a whole file into two buffers by one vectored read.
fn read_vectored(ring: &mut IoUring, length: usize, file: &File) -> Vec<u8> {
    let (mut first, mut second) = (vec![0; length / 3], vec![0; length - length / 3]);
    let vector = |part: &mut Vec<u8>| libc::iovec {
        iov_base: part.as_mut_ptr().cast(),
        iov_len: part.len(),
    };
    let parts = [vector(&mut first), vector(&mut second)];
    let read = opcode::Readv::new(types::Fd(file.as_raw_fd()), parts.as_ptr(), 2);
    let read = done(ring, vec![read.build()]);
    assert_eq!(read, [i32::try_from(length).unwrap()]);
    [first, second].concat()
}

/// Returns the size of a file that `statx` through io_uring reports, or its errno.
fn size_of(ring: &mut IoUring, path: &Path) -> Result<u64, i32> {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    let mut status = std::mem::MaybeUninit::<libc::statx>::zeroed();
    let place = status.as_mut_ptr().cast::<types::statx>();
    let ask = opcode::Statx::new(types::Fd(libc::AT_FDCWD), path.as_ptr(), place);
    let result = done(ring, vec![ask.mask(libc::STATX_SIZE).build()])[0];
    // SAFETY: zero bytes are a status, and the kernel has written one if the result is 0.
    let status = unsafe { status.assume_init() };
    if result == 0 {
        Ok(status.stx_size)
    } else {
        Err(-result)
    }
}

#[test]
fn io_uring_reads_return_the_stored_bytes() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let ring = IoUring::new(64);
    if !needs::program("io_uring", ring.is_ok()) {
        return;
    }
    let mut ring = ring.unwrap();
    let text = "zarrfs by io_uring ".repeat(50_000).into_bytes();
    fs::write(fixture.store.join("a/text"), &text).unwrap();
    fixture.mount(&[]);
    let decoded = fixture.dir.join(".zarrfs/files/a/a.npy");
    let header = fs::read(&decoded).unwrap();
    for (path, content) in [
        (fixture.dir.join("a/text"), &text),
        (fixture.dir.join("a/c/0"), &vec![7; 16]),
        (decoded, &header),
    ] {
        let length = content.len();
        let at = path.display();
        assert_eq!(size_of(&mut ring, &path), Ok(length as u64), "{at}");
        let file = File::open(&path).unwrap();
        assert!(
            read_pieces(&mut ring, length, Some(&file)) == *content,
            "{at}"
        );
        assert!(read_vectored(&mut ring, length, &file) == *content, "{at}");
        ring.submitter()
            .register_files(&[file.as_raw_fd()])
            .unwrap();
        drop(file);
        assert!(read_pieces(&mut ring, length, None) == *content, "{at}");
        ring.submitter().unregister_files().unwrap();
    }
    let missing = size_of(&mut ring, &fixture.dir.join("a/none"));
    assert_eq!(missing, Err(libc::ENOENT));
}
