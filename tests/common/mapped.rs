//! A file mapped into memory, which no safe library offers.
#![allow(unsafe_code, reason = "a map is an address")]

use std::fs::File;
use std::io;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A mapping of the beginning of a file, for reading.
pub struct Mapping {
    address: *const u8,
    length: usize,
}

impl Mapping {
    /// Maps so many bytes of a file.
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

    /// Returns a byte of the file. The process ends by SIGBUS if it cannot be read.
    pub fn byte(&self, place: usize) -> u8 {
        assert!(place < self.length);
        // SAFETY: the mapping has `length` bytes; a byte that others change meanwhile is one of its values.
        unsafe { std::ptr::read_volatile(self.address.add(place)) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping made above, and nothing uses it any more.
        let _ = unsafe { munmap(self.address.cast_mut().cast(), self.length) };
    }
}
