//! Maps a file into memory, which no safe library can do.
#![allow(unsafe_code, reason = "a map is an address")]

use std::fs::File;
use std::io;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A read-only mapping of the first bytes of a file.
pub struct Mapping {
    address: *const u8,
    length: usize,
}

impl Mapping {
    pub fn of(file: &File, length: usize) -> io::Result<Mapping> {
        // SAFETY: a new mapping at an address of the kernel's choice, which nothing else refers to.
        let address = unsafe {
            mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ,
                MapFlags::SHARED,
                file,
                0,
            )?
        };
        Ok(Mapping {
            address: address.cast(),
            length,
        })
    }

    /// Returns a byte of the file. The process gets SIGBUS if the byte cannot be read.
    pub fn byte(&self, place: usize) -> u8 {
        assert!(place < self.length);
        // SAFETY: the mapping has `length` bytes; a byte that changes during the read has its old or its new value.
        unsafe { std::ptr::read_volatile(self.address.add(place)) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping made above, and nothing uses it any more.
        let _ = unsafe { munmap(self.address.cast_mut().cast(), self.length) };
    }
}
