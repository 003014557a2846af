//! The descriptors of its caller that a process was started with, beside stdin, stdout and stderr.
//!
//! A daemon that kept them would hold locks of a script, and pipes whose reader waits for their end.

use std::fs;
use std::os::fd::{BorrowedFd, RawFd};

use rustix::io::{FdFlags, fcntl_getfd};

/// Where the kernel lists the descriptors of this process.
const OWN: &str = "/proc/self/fd";

/// Descriptors that this process has not opened itself.
pub(super) struct InheritedDescriptors(Vec<RawFd>);

impl InheritedDescriptors {
    /// Finds them: those that a process passes on to a program that it runs, as this one passes on none of its own. To be
    /// called before there are threads.
    pub(super) fn find() -> InheritedDescriptors {
        let entries = fs::read_dir(OWN).into_iter().flatten().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let numbers: Vec<RawFd> = numbers.filter(|&number| number > 2).collect();
        InheritedDescriptors(numbers.into_iter().filter(is_passed_on).collect())
    }

    /// Closes them. What was opened by their names, such as `/dev/fd/9`, stays open.
    #[expect(
        unsafe_code,
        reason = "descriptors that nothing here owns have numbers alone"
    )]
    pub(super) fn close(self) {
        for number in self.0 {
            // SAFETY: it was open before this process has opened anything and nobody here owns it, so that nobody else
            // has closed it, and its number stands for no other file.
            unsafe { rustix::io::close(number) };
        }
    }
}

/// Whether a descriptor is open and passed on to other programs.
#[expect(
    unsafe_code,
    reason = "descriptors that nothing here owns have numbers alone"
)]
fn is_passed_on(number: &RawFd) -> bool {
    // SAFETY: the number is only asked about, and one that is not open is an error.
    let descriptor = unsafe { BorrowedFd::borrow_raw(*number) };
    fcntl_getfd(descriptor).is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC))
}
