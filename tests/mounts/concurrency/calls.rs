//! System calls without a safe wrapper: close with its error, and writes through a mapping.
#![expect(unsafe_code, reason = "system calls that no safe library offers")]

use std::fs::File;
use std::io;
use std::os::fd::IntoRawFd;

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

pub(crate) fn close(file: File) -> io::Result<()> {
    // SAFETY: the descriptor was owned by `file`, which gave it away, and is used nowhere else.
    match unsafe { libc::close(file.into_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Writes bytes to the beginning of a file, which is at least that long, through a mapping of the file. SIGBUS ends the
/// process if the pages of the file cannot be read.
pub(crate) fn write_mapped(file: &File, bytes: &[u8]) -> io::Result<()> {
    let (length, protection) = (bytes.len(), ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: a new mapping at an address of the kernel's choice, which nothing else refers to.
    let address = unsafe {
        mmap(
            std::ptr::null_mut(),
            length,
            protection,
            MapFlags::SHARED,
            file,
            0,
        )?
    };
    // SAFETY: the mapping has `length` bytes and is writable; no reference into it exists.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address.cast::<u8>(), length) };
    // SAFETY: the range is the mapping made above.
    let synced = unsafe { msync(address, length, MsyncFlags::SYNC) };
    // SAFETY: nothing uses the mapping any more.
    unsafe { munmap(address, length)? };
    Ok(synced?)
}
